"""What a run tells its watcher: plain values, so that the live view, plain lines and tests see the same thing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

from tidegate.runtime.ledger import Ledger
from tidegate.runtime.records import SourceClock

Mode = Literal["continuous", "once", "drain", "batch"]


@dataclass(frozen=True)
class RunOptions:
    """How to run an app. `max_batch` bounds a micro-batch (files, or records of Kafka).

    `interval` is the pause between batches, in seconds.
    """

    checkpoint: str
    mode: Mode = "continuous"
    max_batch: int | None = None
    interval: float = 1.0
    cores: str = "*"


@dataclass(frozen=True)
class BatchReport:
    """One decided record, as the live view shows it."""

    sequence: int
    kind: str
    seconds: float
    clock: int
    ledger: Ledger
    totals: Ledger
    sources: dict[str, SourceClock]
    watermarks: dict[str, int | None]
    state_rows: int
    state_bytes: int
    open_windows: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class RunSummary:
    """How a run ended."""

    records: int
    seconds: float
    totals: Ledger
    stopped: str


class Watcher(Protocol):
    """Someone who watches a run."""

    def say(self, message: str) -> None:
        """A line of progress: starting Spark, redelivering, a poison record isolated."""
        ...

    def batch(self, report: BatchReport) -> None:
        """A record was decided."""
        ...
