"""Proof that what was read of a topic is what the range holds.

A range says which offsets of which partitions a batch covers. While the records are read, four numbers are taken of
them: how many there are, how many lie outside, and two sums over their *places*. All offsets of the range, partition
after partition, are numbered 0, 1, 2 …: that is a record's place. Records that are as many as there are places, all of
them inside, and have the sums of all places, are the whole range, each once.

Fewer records than places are gaps. Kafka has gaps where a transaction ended (a marker takes an offset), where one was
aborted, and where compaction took a record. The broker does not say which offsets these are. On a topic that is
compacted a gap is believed. On any other the range is read a second time: when both readings have the same numbers, the
gap is what the broker holds; when they differ, records got lost on the way, and nothing is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tidegate.errors import DataLossRisk

_MODULUS = 1_000_003
"""A prime: squares are summed modulo it, so that no sum can overflow."""


@dataclass(frozen=True)
class Span:
    """The offsets of one partition: from `first`, up to and without `end`."""

    partition: int
    first: int
    end: int


@dataclass(frozen=True)
class OffsetProof:
    """The expected numbers of a range, and how they are taken."""

    topic: str
    spans: tuple[Span, ...]
    is_compacted: Callable[[], bool]

    @property
    def size(self) -> int:
        return sum(span.end - span.first for span in self.spans)

    @property
    def counts(self) -> Mapping[str, str]:
        size = max((span.partition for span in self.spans), default=-1) + 1
        firsts, ends, shifts = ["NULL"] * size, ["NULL"] * size, ["NULL"] * size
        before = 0
        for span in self.spans:
            firsts[span.partition], ends[span.partition] = f"{span.first}L", f"{span.end}L"
            shifts[span.partition] = f"{span.first - before}L" if span.first >= before else f"(-{before - span.first}L)"
            before += span.end - span.first

        def of(values: list[str]) -> str:
            return f"get(CAST(array({', '.join(values)}) AS ARRAY<BIGINT>), CAST(_partition AS INT))"

        inside = f"coalesce(_position >= {of(firsts)} AND _position < {of(ends)}, false)"
        place = f"CASE WHEN {inside} THEN _position - {of(shifts)} END"
        rest = f"({place}) % {_MODULUS}L"
        return {
            "offsets": "count(1)",
            "outside": f"count_if(NOT {inside})",
            "places": f"coalesce(sum({place}), 0L)",
            "squares": f"coalesce(sum((({rest}) * ({rest})) % {_MODULUS}L), 0L)",
        }

    def check(self, counted: Mapping[str, int], again: Callable[[], Mapping[str, int]]) -> None:
        if counted["outside"]:
            raise self._wrong(f"{counted['outside']:,} records lie outside of the range that was asked for")
        if counted["offsets"] > self.size:
            raise self._wrong(f"{counted['offsets']:,} records came of a range of {self.size:,} offsets")
        if counted["offsets"] == self.size:
            if (counted["places"], counted["squares"]) != _sums(self.size):
                raise self._wrong("some records came twice, and as many did not come")
            return
        if self.is_compacted():
            return
        second = again()
        if any(second[name] != counted[name] for name in ("offsets", "outside", "places", "squares")):
            raise self._wrong(
                f"{counted['offsets']:,} of {self.size:,} offsets came, and {second['offsets']:,} when read again"
            )

    def _wrong(self, what: str) -> DataLossRisk:
        spans = ", ".join(f"{span.partition}: {span.first}–{span.end - 1}" for span in self.spans[:8])
        return DataLossRisk(
            f"what was read of topic {self.topic!r} is not what the batch covers ({spans}): {what}; "
            "nothing was decided",
            hint="run again: the batch is read anew; if it stays so, look at the broker's log and at its retention",
        )


def _sums(size: int) -> tuple[int, int]:
    """The sums over the places 0 … size − 1: of the places, and of their squares modulo the prime."""
    import numpy as np

    rounds, rest = divmod(size, _MODULUS)
    places = np.arange(min(size, _MODULUS), dtype=np.int64)
    squares = places * places % _MODULUS
    total = (rounds * int(squares.sum()) if rounds else 0) + int(squares[:rest].sum())
    return size * (size - 1) // 2, total
