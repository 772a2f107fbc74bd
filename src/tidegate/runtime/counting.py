"""Counting rows on their way in, without a job of its own.

Spark's `Observation` rides on the job that reads the rows anyway. It has two weaknesses: it never answers when the
optimiser has removed what it observes, and a stage that runs twice is counted twice. So we wait for it only for a
while, and `again` counts with a job of its own – slow, and always right."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PATIENCE = 5.0
"""Seconds after the job in which the answer must come; it is a matter of milliseconds."""


class Counter:
    """Counts (`name → SQL aggregate`) over the rows of a DataFrame while they pass.

    What is `known` from elsewhere – the footers of Parquet files – need not be counted: to observe rows, Spark has to
    put each of them together.
    """

    def __init__(self, counts: Mapping[str, str], known: Mapping[str, int] | None = None) -> None:
        from pyspark.sql import Observation

        self._counts, self.known = counts, known
        self._observation = Observation()
        self._rows: DataFrame | None = None

    def watch(self, rows: DataFrame) -> DataFrame:
        """The same rows, counted by the first job that reads them – once: what comes of counted rows is not watched."""
        if self._rows is not None:
            return rows
        self._rows = rows
        if self.known is not None:
            return rows
        return rows.observe(self._observation, *self._columns())

    def result(self) -> dict[str, int]:
        """The counts, after that job."""
        if self.known is not None:
            return dict(self.known)
        answer = self._observation._jo.future()  # type: ignore[union-attr]  # PySpark's own `get` waits for ever
        deadline = time.monotonic() + PATIENCE
        while not answer.isCompleted():
            if time.monotonic() > deadline:
                return self.again()
            time.sleep(0.002)
        try:
            return dict(self._observation.get)
        except Exception:
            return self.again()

    def again(self) -> dict[str, int]:
        """The same counts, by a job of its own."""
        assert self._rows is not None
        return self._rows.agg(*self._columns()).collect()[0].asDict()

    def _columns(self) -> list[Column]:
        from pyspark.sql import functions as F

        return [F.expr(sql).alias(name) for name, sql in self._counts.items()]
