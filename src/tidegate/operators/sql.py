"""Small pieces of SQL that the operators share.

**Thresholds.** The watermark changes with every batch. Written as a literal it would change the generated Java code,
which Spark would compile anew and the JIT would never warm up. So thresholds travel in one array literal – an object
the code refers to, not text in it – and are picked by an index that the optimiser cannot fold away: ``row & 0``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Relation = str
"""A SELECT, or ``{name}`` for a DataFrame that is put in when the text is run."""

BEGINNING = -(1 << 62)
"""The watermark before any event: nothing is late, nothing is complete."""
END_OF_TIME = -BEGINNING


class Thresholds:
    """Numbers of this batch, to be used in SQL without ending up in generated code."""

    def __init__(self, values: Sequence[int], anchor: str) -> None:
        self._array = "array(" + ", ".join(_long(value) for value in values) + ")"
        self._anchor = anchor

    def __getitem__(self, slot: int) -> str:
        return f"{self._array}[CAST({self._anchor} & 0L AS INT) + {slot}]"


def _long(value: int) -> str:
    return f"{value}L" if value >= 0 else f"(-{-value}L)"


def clip(value: int) -> int:
    """Keep sums of instants and durations (`forever` among them) inside what a BIGINT holds."""
    return max(BEGINNING, min(value, END_OF_TIME))


def quote(name: str) -> str:
    """A column name in SQL."""
    return "`" + name.replace("`", "``") + "`"


def text(value: str) -> str:
    """A string literal in SQL, safe inside a relation."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + escaped.replace("{", "{{").replace("}", "}}") + "'"


def user(sql: str) -> str:
    """An expression of the user's inside a relation: its braces are not ours."""
    return sql.replace("{", "{{").replace("}", "}}")


def select(columns: Iterable[str], source: Relation, where: str | None = None) -> Relation:
    """A SELECT over a relation."""
    table = source if source.startswith("{") and source.endswith("}") and " " not in source else f"({source})"
    condition = f" WHERE {where}" if where else ""
    return f"SELECT {', '.join(columns)} FROM {table}{condition}"


def run(spark: SparkSession, relation: Relation, frames: Mapping[str, DataFrame]) -> DataFrame:
    """The relation as a DataFrame; nothing is computed yet.

    PySpark makes a view of each frame and drops it again, and with a view Spark lets go of what it keeps in memory for
    the view's plan: rows that are persisted would be computed anew by everyone who reads them. Under a filter, which
    the optimiser removes, they are another plan (under a select they would be the same: Spark looks through it).
    """
    text = relation if relation.startswith("SELECT ") else select(["*"], relation)
    views = {name: frame.where("true") if frame.is_cached else frame for name, frame in frames.items()}
    return spark.sql(text, args=None, **views)
