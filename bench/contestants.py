"""The two sides of a benchmark: Tidegate, and Spark's own stateful operators – same files, same batches, same sink
work.

Both read one Parquet file per micro-batch, with a watermark delay of one minute, and write their results exactly once
to Parquet. What is compared is Spark's own measure of a micro-batch (`triggerExecution`), so Tidegate's time includes
the ledger, the dead letters, the record, and waiting for the delivery before it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pyarrow.dataset as ds

import tidegate as tg
from tidegate.runtime.drivers import run
from tidegate.runtime.reports import RunOptions
from tidegate.testing.harness import Quiet
from tidegate.triggers import Accumulation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DDL = "ts TIMESTAMP, key BIGINT, value DOUBLE"


@dataclass(frozen=True)
class Outcome:
    """Seconds per micro-batch, in order; and where the events went."""

    seconds: list[float]
    accepted: int
    dead_lettered: int
    wall: float
    panes: dict[str, int] = field(default_factory=dict)


def tidegate(
    spark: SparkSession,
    data: Path,
    out: Path,
    window: tg.Hopping | tg.Session,
    batches: int,
    lateness: str = "0s",
    accumulation: Accumulation = "accumulating",
) -> Outcome:
    """The query on Tidegate, as `tidegate run --once` would run it."""
    shutil.rmtree(out, ignore_errors=True)
    app = tg.App("bench")
    events = app.source(
        "events",
        tg.Files(str(data), format="parquet", max_files=1),
        contract=tg.Contract(DDL),
        event_time="ts",
        watermark=tg.Watermark(delay="1m", max_future=None),
    )
    windows = events.key_by("key").window("windows", window, allowed_lateness=lateness, accumulation=accumulation)
    result = windows.aggregate(n=tg.count(), total=tg.sum("value"))
    app.sink("log", result, tg.ParquetLog(str(out / "log")))
    started = time.monotonic()
    watcher = Quiet()
    with measured(spark) as seconds:
        run(app, RunOptions(checkpoint=str(out / "checkpoint"), mode="once"), watcher)
    totals = watcher.reports[-1].totals
    line = totals.operators["windows"]
    assert totals.unaccounted() == 0
    return Outcome(seconds[:batches], line.accepted, line.late, time.monotonic() - started, dict(line.panes))


def native(
    spark: SparkSession, data: Path, out: Path, group: Callable[[DataFrame], DataFrame], provider: str, batches: int
) -> Outcome:
    """The query on Spark's own operators.

    `provider` is memory, rocksdb (tuned: changelog checkpointing, no tracking of rows) or rocksdb_rows (changelog
    checkpointing, and rows tracked as Spark does unless it is told not to).
    """
    shutil.rmtree(out, ignore_errors=True)
    base = "org.apache.spark.sql.execution.streaming.state."
    rocksdb = provider.startswith("rocksdb")
    name = "RocksDBStateStoreProvider" if rocksdb else "HDFSBackedStateStoreProvider"
    session = spark.newSession()
    session.conf.set("spark.sql.streaming.stateStore.providerClass", base + name)
    session.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    tracked = str(provider == "rocksdb_rows").lower()
    session.conf.set("spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows", tracked)
    session.conf.set("spark.sql.shuffle.partitions", str(spark.conf.get("spark.sql.shuffle.partitions")))
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.adaptive.enabled", "false")
    rows = session.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(data))
    result = group(rows.withWatermark("ts", "1 minute"))
    started = time.monotonic()
    query = (
        result.writeStream.format("parquet")
        .option("checkpointLocation", str(out / "checkpoint"))
        .option("path", str(out / "results"))
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    seconds = [p["durationMs"]["triggerExecution"] / 1000 for p in query.recentProgress if p["numInputRows"] > 0]
    emitted = ds.dataset(out / "results", format="parquet", exclude_invalid_files=True)
    counted = pc.sum(emitted.to_table(columns=["n"])["n"]).as_py() or 0
    return Outcome(seconds[:batches], counted, 0, time.monotonic() - started)


class measured:  # noqa: N801 - reads as a word: `with measured(spark) as seconds`
    """Collect `triggerExecution` of every batch with data, of whatever query runs inside."""

    def __init__(self, spark: SparkSession) -> None:
        from pyspark.sql.streaming.listener import StreamingQueryListener

        seconds: list[float] = []

        class Listener(StreamingQueryListener):
            def onQueryStarted(self, event: object) -> None:  # noqa: N802
                """Nothing to note."""

            def onQueryProgress(self, event: object) -> None:  # noqa: N802
                progress = event.progress  # type: ignore[attr-defined]
                if "addBatch" in progress.durationMs:
                    seconds.append(progress.durationMs["triggerExecution"] / 1000)

            def onQueryIdle(self, event: object) -> None:  # noqa: N802
                """Nothing to note."""

            def onQueryTerminated(self, event: object) -> None:  # noqa: N802
                """Nothing to note."""

        self._spark, self._listener, self._seconds = spark, Listener(), seconds

    def __enter__(self) -> list[float]:
        self._spark.streams.addListener(self._listener)
        return self._seconds

    def __exit__(self, *_: object) -> None:
        time.sleep(1.0)  # the last progress event comes a moment after the query has ended
        self._spark.streams.removeListener(self._listener)
