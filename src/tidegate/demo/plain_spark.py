"""The same query on plain Spark Structured Streaming, written as a careful engineer would.

It is given every advantage that does not change what Spark is: the same files in the same batches, the same schema
and the same watermark delay; records that are broken, or dated more than an hour after their file, are filtered
before they can do harm (one event dated next year would otherwise move Spark's only watermark there, and nearly
everything after it would be dropped); and at the end a last event, dated a day later, pushes every open window out.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.demo.pipeline import DELAY, MAX_FUTURE, SCHEMA, WINDOW
from tidegate.demo.replay import Replay
from tidegate.runtime.session import make_session
from tidegate.time import SECOND, micros

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class PlainRun:
    """Where plain Spark left its result, and how many rows it admits to have dropped."""

    result: Path
    admitted: int
    seconds: float


def run_plain_spark(replay: Replay, folder: Path, say: Callable[[str], None]) -> PlainRun:
    """Run the query over the replay, batch by batch as Tidegate got it; the result is a folder of Parquet files."""
    started = time.monotonic()
    # A session of its own on the same Spark; what our engine has changed for itself is put back to Spark's default.
    spark = make_session("demo").newSession()
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "true")
    result = folder / "result"
    ended = False

    def on_batch(rows: DataFrame, batch_id: int) -> None:
        nonlocal ended
        rows.selectExpr("merchant_id", "window.start AS window_start", "orders", "revenue", "p95").write.mode(
            "append"
        ).parquet(str(result))
        say(f"plain Spark: batch {batch_id} done, {time.monotonic() - started:.0f} s")
        if not replay.show_next() and not ended:
            ended = True
            _write_last_event(replay.inbox, replay.ends[-1])

    replay.show_next()
    query = (
        _revenue(spark, replay.inbox)
        .writeStream.outputMode("append")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(on_batch)
        .start()
    )
    try:
        query.processAllAvailable()
        progress = query.recentProgress
    finally:
        query.stop()
    admitted = sum(operator.numRowsDroppedByWatermark for step in progress for operator in step.stateOperators)
    return PlainRun(result, admitted, time.monotonic() - started)


def _revenue(spark: SparkSession, inbox: Path) -> DataFrame:
    from pyspark.sql import functions as F

    lines = spark.readStream.option("recursiveFileLookup", "true").option("pathGlobFilter", "*.jsonl").text(str(inbox))
    schema = SCHEMA.replace(" NOT NULL", "") + ", corrupt STRING"
    payments = lines.select(
        F.from_json("value", schema, {"columnNameOfCorruptRecord": "corrupt"}).alias("payment"),
        F.col("_metadata.file_modification_time").alias("arrival"),
        F.expr("is_valid_utf8(value)").alias("readable"),
    ).select("payment.*", "arrival", "readable")
    sound = payments.where(
        "readable AND corrupt IS NULL AND payment_id IS NOT NULL AND merchant_id IS NOT NULL AND amount >= 0 "
        f"AND paid_at <= arrival + INTERVAL {micros(MAX_FUTURE) // SECOND} SECONDS"
    )
    latency = "CAST(latency_ms AS DOUBLE)"
    return (
        sound.where("status = 'captured'")
        .withWatermark("paid_at", f"{micros(DELAY) // SECOND} seconds")
        .dropDuplicatesWithinWatermark(["payment_id"])
        .groupBy(F.window("paid_at", f"{micros(WINDOW) // SECOND} seconds"), "merchant_id")
        .agg(
            F.count(F.lit(1)).alias("orders"),
            F.sum("amount").alias("revenue"),
            F.expr(f"kll_sketch_get_quantile_double(kll_sketch_agg_double({latency}, 200), 0.95D)").alias("p95"),
        )
    )


def _write_last_event(inbox: Path, last_slot: int) -> None:
    """What `--drain` is for Tidegate: an event that moves the watermark past everything. Its own window stays open."""
    day_after = last_slot + 86_400 * SECOND
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=day_after)
    event = {
        "payment_id": "the_end",
        "merchant_id": "nobody",
        "status": "captured",
        "amount": 0,
        "latency_ms": 0,
        "paid_at": at.isoformat(),
    }
    hidden = inbox / ".the_end"
    hidden.write_text(json.dumps(event) + "\n")
    os.utime(hidden, ns=(day_after * 1000, day_after * 1000))
    hidden.rename(inbox / "the_end.jsonl")
