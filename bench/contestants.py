"""The two sides of a benchmark: Tidegate, and Spark's own stateful operators – same files, same batches, same sink
work. Each runs in a process of its own, so none finds a JVM that another has warmed up, or worn out.

Both read one Parquet file per micro-batch, with a watermark delay of one minute, and write their results exactly once
to Parquet. What is compared is Spark's own measure of a micro-batch (`triggerExecution`), so Tidegate's time includes
the ledger, the dead letters, the record, and waiting for the delivery before it."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pyarrow.dataset as ds

import tidegate as tg
from tidegate.runtime.drivers import run
from tidegate.runtime.reports import RunOptions
from tidegate.runtime.session import make_session
from tidegate.testing.harness import Quiet
from tidegate.triggers import Accumulation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

DDL = "ts TIMESTAMP, key BIGINT, value DOUBLE"
_PROVIDERS = {"memory": "HDFSBackedStateStoreProvider", "rocksdb": "RocksDBStateStoreProvider"}


@dataclass(frozen=True)
class Outcome:
    """Seconds per micro-batch, in order; and where the events went."""

    seconds: list[float]
    accepted: int
    dead_lettered: int
    wall: float
    panes: dict[str, int] = field(default_factory=dict)


def apart(contestant: Callable[..., Outcome], *arguments: Any) -> Outcome:
    """Let a contestant run in a process of its own, with a JVM of its own; what that says as it starts is not shown."""
    with ProcessPoolExecutor(1, get_context("spawn"), _no_chatter) as process:
        return process.submit(contestant, *arguments).result()


def _no_chatter() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def tidegate(
    data: Path,
    out: Path,
    window: tg.Hopping | tg.Session,
    batches: int,
    lateness: str = "0s",
    accumulation: Accumulation = "accumulating",
) -> Outcome:
    """The query on Tidegate, as `tidegate run --once` would run it."""
    shutil.rmtree(out, ignore_errors=True)
    spark = make_session("bench")
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


def native(data: Path, out: Path, group: Callable[[DataFrame], DataFrame], provider: str, batches: int) -> Outcome:
    """The query on Spark's own operators.

    `provider` is memory or rocksdb, as the method has it: in a session as Spark makes it, with as many shuffle
    partitions as cores, changelog checkpointing, no tracking of rows. `…_rows` tracks rows, as Spark does unless it is
    told not to. `…_ours` is in our own session, with all that makes it fast: its collector, its JIT, its settings.
    """
    shutil.rmtree(out, ignore_errors=True)
    kind, _, how = provider.partition("_")
    session = make_session("bench") if how == "ours" else _plain_session()
    base, store = "org.apache.spark.sql.execution.streaming.state.", "spark.sql.streaming.stateStore."
    session.conf.set(store + "providerClass", base + _PROVIDERS[kind])
    session.conf.set(store + "rocksdb.changelogCheckpointing.enabled", "true")
    session.conf.set(store + "rocksdb.trackTotalNumberOfRows", str(how == "rows").lower())
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


def _plain_session() -> SparkSession:
    """Spark as it comes, but with as many shuffle partitions as cores, and the memory that our session has."""
    from pyspark.sql import SparkSession

    from tidegate.java import need_java

    need_java()
    builder = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.sql.shuffle.partitions", str(os.cpu_count()))
    session = builder.config("spark.driver.memory", os.environ.get("TIDEGATE_MEMORY", "2g")).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


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
