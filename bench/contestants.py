"""The two sides of a benchmark: Tidegate, and Spark's own stateful operators – same files, same batches, same sink
work.

Both read one Parquet file per micro-batch, with a watermark delay of one minute, and write their results exactly once
to Parquet. What is compared is Spark's own measure of a micro-batch (`triggerExecution`), so Tidegate's time includes
the ledger, the dead letters, the record, and waiting for the delivery before it."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    from pyspark.sql.streaming import StreamingQuery

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


@contextmanager
def measured(spark: SparkSession) -> Iterator[list[float]]:
    """Collect `triggerExecution` of every batch with data, of the one query that runs inside.

    Spark's own log of the query is read once it has ended. A listener would be told in Python of each batch, which
    takes the JVM longer than one would think: 0.15 s of CPU time a batch, and only one of the contestants had it.
    """
    seconds: list[float] = []
    ended = threading.Event()
    found: list[StreamingQuery] = []

    def look() -> None:
        while not ended.is_set() and not found:
            found.extend(spark.streams.active)
            time.sleep(0.2)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield seconds
    finally:
        ended.set()
        watcher.join()
    seconds.extend(_seconds_of(found[0]))


def _seconds_of(query: StreamingQuery) -> list[float]:
    """Of each micro-batch that had data; Spark remembers the last `spark.sql.streaming.numRecentProgressUpdates`."""
    return [p["durationMs"]["triggerExecution"] / 1000 for p in query.recentProgress if "addBatch" in p["durationMs"]]
