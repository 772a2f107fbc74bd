"""A moment: what is fixed about a batch when its operators fire."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Moment:
    """The record to be, and the operator's watermark and the clock before and after the batch (µs)."""

    sequence: int
    before: int | None
    after: int | None
    clock_before: int
    clock: int
