"""A source for tests: rows come from the test, not from a system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.errors import SourceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidegate.contracts import Contract


@dataclass(frozen=True)
class Feed:
    """A source that only a `Harness` can feed."""

    @property
    def encoding(self) -> str:
        return "record"

    def describe(self) -> str:
        return "rows fed by a test"

    def problems(self, contract: Contract) -> list[str]:
        return []

    def ready(self) -> None:
        """Always."""

    def listing(self) -> list[str]:
        return []

    def count(self, files: list[str]) -> int | None:
        return None

    def stream(self, spark: SparkSession, contract: Contract, max_batch: int | None, name: str) -> DataFrame:
        raise SourceError("a Feed has no stream of its own", hint="use tidegate.testing.Harness")

    def batch(self, spark: SparkSession, contract: Contract, files: list[str] | None = None) -> DataFrame:
        raise SourceError("a Feed holds no rows of its own", hint="use tidegate.testing.Harness")
