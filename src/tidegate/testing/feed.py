"""A source for tests: rows come from the test, not from a system."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.errors import SourceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.contracts import Contract
    from tidegate.sources.base import Reader


@dataclass(frozen=True)
class Feed:
    """A source that only a `Harness` can feed."""

    @property
    def encoding(self) -> str:
        return "record"

    @property
    def extra(self) -> Mapping[str, str]:
        return {}

    @property
    def partition(self) -> str | None:
        return None

    @property
    def one_partition(self) -> bool:
        return False

    def describe(self) -> str:
        return "rows fed by a test"

    def problems(self, contract: Contract) -> list[str]:
        return []

    def ready(self) -> None:
        """Always."""

    def open(self, spark: SparkSession, contract: Contract, name: str, max_batch: int | None) -> Reader:
        raise SourceError("a Feed holds no rows of its own", hint="use tidegate.testing.Harness")
