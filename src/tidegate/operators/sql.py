"""Small pieces of SQL that the operators share.

**Thresholds.** The watermark changes with every batch. Written as a literal it would change the generated Java code,
which Spark would compile anew and the JIT would never warm up. So thresholds travel in one array literal – an object the
code refers to, not text in it – and are picked by an index that the optimiser cannot fold away: ``position % 1``.
"""

from __future__ import annotations

from collections.abc import Sequence

BEGINNING = -(1 << 62)
"""The watermark before any event: nothing is late, nothing is complete."""


class Thresholds:
    """Numbers of this batch, to be used in SQL without ending up in generated code."""

    def __init__(self, values: Sequence[int], anchor: str) -> None:
        self._array = "array(" + ", ".join(_long(value) for value in values) + ")"
        self._anchor = anchor

    def __getitem__(self, slot: int) -> str:
        return f"{self._array}[CAST({self._anchor} % 1 AS INT) + {slot}]"


def _long(value: int) -> str:
    return f"{value}L" if value >= 0 else f"(-{-value}L)"


def clip(value: int) -> int:
    """Keep sums of instants and durations (`forever` among them) inside what a BIGINT holds."""
    return max(BEGINNING, min(value, -BEGINNING))


def quote(name: str) -> str:
    """A column name in SQL."""
    return "`" + name.replace("`", "``") + "`"


def text(value: str) -> str:
    """A string literal in SQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
