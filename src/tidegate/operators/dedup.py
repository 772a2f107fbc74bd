"""Dedup: the same event id with the same event time, seen again.

A 64-bit hash finds candidates cheaply; only the full id decides, for a false duplicate would be a loss. Of several equal events the
first wins, by arrival, origin and position; an event whose id is remembered from an earlier batch never does. Ids are remembered
for events that some operator accepted, while one of its windows is open for late data: after that a repeat is LATE.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidegate.operators.assign import Assignment
from tidegate.operators.sql import Thresholds, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidegate.stream import SourceNode, WindowNode

Closed = Sequence[tuple["WindowNode", int]]
"""The operators of a source, each with its watermark minus allowed lateness before the batch."""


def dedup(source: SourceNode, routed: DataFrame, remembered: DataFrame | None, closed: Closed) -> DataFrame:
    """Mark repeats with the reason DUPLICATE. `routed` is read more than once and should be persisted."""
    assert source.event_id is not None
    ids = routed.where("_alive").select(
        F.expr(f"CAST({_id(source)} AS STRING)").alias("_id"),
        F.expr("_tg.time").alias("_time"),
        F.expr("named_struct('a', _tg.arrival, 'o', _tg.origin, 'p', _tg.row)").alias("_order"),
        F.expr("_tg.row").alias("_position"),
        F.expr(_still_open(closed, "_tg.time")).alias("_open"),
    )
    ids = ids.where("_id IS NOT NULL AND _open").withColumn("_hash", F.expr("xxhash64(_id, _time)"))
    twice = ids.groupBy("_hash").agg(F.count(F.lit(1)).alias("_times")).where("_times > 1").select("_hash")
    earlier = None
    suspects = twice
    if remembered is not None:
        earlier = remembered.join(F.broadcast(ids.select("_hash")), "_hash", "left_semi")
        suspects = twice.union(earlier.select("_hash")).distinct()
    rivals = ids.join(F.broadcast(suspects), "_hash", "left_semi").selectExpr(
        "_id", "_time", "1 AS _rank", "_order", "_position"
    )
    if earlier is not None:
        rivals = rivals.unionByName(earlier.selectExpr("_id", "_time", "0 AS _rank"), allowMissingColumns=True)
    ranked = rivals.withColumn("_place", F.expr("row_number() OVER (PARTITION BY _id, _time ORDER BY _rank, _order)"))
    repeats = ranked.where("_rank = 1 AND _place > 1").select(F.col("_position").alias("_repeated"))
    marked = routed.join(F.broadcast(repeats), F.expr("_tg.row = _repeated"), "left")
    fields = [field.name for field in routed.schema["_tg"].dataType.fields]  # type: ignore[attr-defined]
    changed = {
        "reason": "CASE WHEN _repeated IS NOT NULL THEN 'DUPLICATE' ELSE _tg.reason END",
        "error": "CASE WHEN _repeated IS NOT NULL THEN 'same event id and event time as an earlier event' ELSE _tg.error END",
    }
    envelope = ", ".join(f"'{name}', {changed.get(name, f'_tg.{name}')}" for name in fields)
    others = [quote(name) for name in routed.columns if name not in ("_tg", "_alive")]
    return marked.selectExpr(f"named_struct({envelope}) AS _tg", "_alive AND _repeated IS NULL AS _alive", *others)


def to_remember(source: SourceNode, deduped: DataFrame, closed: Closed) -> DataFrame:
    """The ids of this batch that later ones must be compared with."""
    ids = deduped.where("_alive").selectExpr(
        f"CAST({_id(source)} AS STRING) AS _id", "_tg.time AS _time", f"{_still_open(closed, '_tg.time')} AS _open"
    )
    return ids.where("_id IS NOT NULL AND _open").selectExpr("xxhash64(_id, _time) AS _hash", "_id", "_time")


REMEMBERED = "_hash BIGINT, _id STRING, _time BIGINT"


def _id(source: SourceNode) -> str:
    assert source.event_id is not None
    return quote(source.event_id) if source.event_id in source.contract.names else f"({source.event_id})"


def _still_open(closed: Closed, time: str) -> str:
    limit = Thresholds([bound for _, bound in closed], time)
    return " OR ".join(
        f"({Assignment(node.window).last_end(time)} > {limit[slot]})" for slot, (node, _) in enumerate(closed)
    )
