"""Fold: every event of a batch into the slice of its key, in one aggregation that loses nobody.

Each row gets a *fate*, and all fates go through the same shuffle:

- ``slice``: accepted; folded into the partials of (key, slice, source partition);
- ``straggler``: the same, but for a window that was complete before the batch – in files of its own, so that old slices do
  not stretch the range of every file, and the sign that a late pane is due;
- ``dead``: refused, by the source or as LATE by this operator; its envelope is an extra grouping key, so it stays one row;
- ``filtered``, ``duplicate``, and around a flat_map ``empty`` and ``dropped``: folded into a count per source partition.

So one scan yields the state, the dead letters, the ledger's output side, and how far each source partition has come.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidegate.operators.assign import Assignment
from tidegate.operators.path import INTERNAL
from tidegate.operators.sql import Thresholds, quote, text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidegate.stream import SourceNode, WindowNode

STATE_FATES = ("slice", "straggler")

COUNTS = {
    "read": "count_if(_lead)",
    "passed": "count_if(_lead AND _tg.reason IS NULL)",
    "unnested": "count_if(_lead AND _unnested > 0)",
    "elements": "count_if(_unnested = 2)",
    "arrived": "count_if(_alive)",
}
"""The ledger's input side, counted on the marked rows, before the aggregation that yields the output side."""


_TRUSTED = "CASE WHEN _tg.reason IS NULL OR _tg.reason = 'DUPLICATE' THEN _tg.time END"
"""Event times that may move the watermark: not those of refused records."""


_ORDER = "named_struct('t', _tg.time, 'a', _tg.arrival, 'o', _tg.origin, 'p', _tg.row, 'e', _element)"

# Always set, but declared nullable: Arrow has no rows of a struct that is NULL while its fields must not be.
_PLACE = "'origin', nullif(_tg.origin, ''), 'position', nullif(_tg.position, -1L), 'arrival', nullif(_tg.arrival, -1L), 'time', _tg.time"


@dataclass(frozen=True)
class FoldBounds:
    """What a batch is judged by: the watermark before it, and that minus the allowed lateness."""

    complete: int
    closed: int


def mark(node: WindowNode, rows: DataFrame, bounds: FoldBounds, *, carries_source: bool) -> DataFrame:
    """Give each row its fate, key and slice. `carries_source`: this operator's fold also takes what its source refused."""
    assignment = Assignment(node.window)
    limit = Thresholds([bounds.complete, bounds.closed], "_tg.row")
    time = "_tg.time"
    rows = rows.withColumn("_last_end", F.expr(f"CASE WHEN _alive THEN {assignment.last_end(time)} END"))
    late = f"_last_end <= {limit[1]}"
    refused = "_tg.reason IS NOT NULL AND _tg.reason != 'DUPLICATE' AND _lead"
    duplicate = "'dead'" if node.source.keep_duplicates else "'duplicate'"
    source_fates = (
        f"WHEN {refused} THEN 'dead' WHEN _tg.reason = 'DUPLICATE' AND _lead THEN {duplicate} "
        if carries_source
        else ""
    )
    fate = (
        f"CASE WHEN _alive AND {late} THEN 'dead' WHEN _alive AND {_straggler(assignment, time, limit[0])} THEN 'straggler' "
        f"WHEN _alive THEN 'slice' {source_fates} WHEN _unnested = 2 THEN 'dropped' "
        "WHEN _tg.reason IS NULL AND _lead THEN CASE WHEN _unnested = 1 THEN 'empty' ELSE 'filtered' END END"
    )
    rows = rows.withColumn("_fate", F.expr(fate))
    return rows.withColumn("_late", F.expr(f"_alive AND {late}"))


def _straggler(assignment: Assignment, time: str, complete: str) -> str:
    return f"{assignment.first_end(time)} <= {complete}"


def fold(node: WindowNode, marked: DataFrame, bounds: FoldBounds, pipeline: str) -> DataFrame:
    """One aggregation: (fate, key, slice, source partition, dead letter) → partials, count, event-time range."""
    assignment = Assignment(node.window)
    limit = Thresholds([bounds.complete, bounds.closed], "_tg.row")
    accepted = "_fate IN ('slice', 'straggler')"
    users = [name for name in marked.columns if name not in (*INTERNAL, "_fate", "_late", "_last_end")]
    marked = marked.where("_fate IS NOT NULL")
    marked = marked.withColumn("_partially", F.expr(f"{accepted} AND {assignment.first_end('_tg.time')} <= {limit[1]}"))
    if node.source.keep_partially_late:
        twice = "CASE WHEN _partially THEN array(_fate, 'copy') ELSE array(_fate) END"
        marked = marked.withColumn("_fate", F.explode(F.expr(twice)))
    # Refused and filtered rows go through the same aggregation: their columns become NULL first, so that an
    # aggregate's expression can never throw on a row that is not its business.
    rows = marked.select(
        "_fate",
        F.expr("_tg.partition").alias("_partition"),
        F.expr(_letter(node, pipeline)).alias("_dead"),
        F.expr(f"CASE WHEN {accepted} THEN {assignment.slice('_tg.time')} END").alias("_slice"),
        F.expr(f"CASE WHEN {accepted} THEN _last_end END").alias("_last_end"),
        F.expr(_TRUSTED).alias("_trusted"),
        "_partially",
        F.expr(_ORDER).alias("_order"),
        *[F.expr(f"CASE WHEN {accepted} THEN {sql} END").alias(f"_key_{name}") for name, sql in node.keys],
        *[F.expr(f"CASE WHEN {accepted} THEN {quote(name)} END").alias(name) for name in users],
    )
    partials = [
        F.expr(sql).alias(column)
        for alias, aggregate in node.aggregates
        for column, sql in aggregate.partial_sql(alias).items()
    ]
    keys = [f"_key_{name}" for name in node.key_names]
    return rows.groupBy("_fate", *keys, "_slice", "_partition", "_dead").agg(
        *partials,
        F.expr("count(1)").alias("_n"),
        F.expr("count_if(_partially)").alias("_partially"),
        F.expr("max(_trusted)").alias("_newest"),
        F.expr("max(_last_end)").alias("_high"),
    )


def _letter(node: WindowNode, pipeline: str) -> str:
    """What a dead letter keeps of its event, for rows that are one."""
    assignment = Assignment(node.window)
    operator = f"CASE WHEN _late OR _fate = 'copy' THEN {text(node.name)} END"
    return (
        "CASE WHEN _fate IN ('dead', 'copy') THEN named_struct("
        f"'id', {_identity(pipeline, node.source.name, operator)}, 'operator', {operator}, "
        f"{_PLACE}, "
        "'reason', CASE WHEN _late THEN 'LATE' WHEN _fate = 'copy' THEN 'PARTIALLY_LATE' ELSE _tg.reason END, "
        "'error', CASE WHEN _late THEN 'every window of the event had closed' "
        "WHEN _fate = 'copy' THEN 'some windows of the event had closed' ELSE _tg.error END, "
        f"'window_start', {assignment.last_start('_tg.time')}, 'window_end', _last_end, 'raw', {_raw(node.source)}) END"
    )


def _identity(pipeline: str, source: str, operator: str) -> str:
    """The same event refused by the same operator has the same id, however often it is written."""
    where = f"{text(pipeline)}, {text(source)}, _tg.origin, CAST(_tg.position AS STRING), CAST(_element AS STRING)"
    return f"substring(sha2(concat_ws('|', {where}, coalesce({operator}, '')), 256), 1, 32)"


def fold_source(source: SourceNode, routed: DataFrame, pipeline: str) -> DataFrame:
    """The same for a source alone, when no operator's fold can carry what it refused."""
    duplicate = "'dead'" if source.keep_duplicates else "'duplicate'"
    rows = routed.withColumn(
        "_fate",
        F.expr(
            f"CASE WHEN _tg.reason = 'DUPLICATE' THEN {duplicate} WHEN _tg.reason IS NOT NULL THEN 'dead' ELSE 'passed' END"
        ),
    )
    nothing = "CAST(NULL AS BIGINT)"
    letter = (
        "CASE WHEN _fate = 'dead' THEN named_struct("
        f"'id', {_identity(pipeline, source.name, 'NULL')}, 'operator', CAST(NULL AS STRING), "
        f"{_PLACE}, 'reason', _tg.reason, "
        f"'error', _tg.error, 'window_start', {nothing}, 'window_end', {nothing}, 'raw', {_raw(source)}) END"
    )
    rows = rows.withColumn("_element", F.lit(0))
    rows = rows.select(
        "_fate",
        F.expr("_tg.partition").alias("_partition"),
        F.expr(letter).alias("_dead"),
        F.expr(_TRUSTED).alias("_trusted"),
    )
    return rows.groupBy("_fate", "_partition", "_dead").agg(
        F.expr("count(1)").alias("_n"), F.expr("max(_trusted)").alias("_newest")
    )


def _raw(source: SourceNode) -> str:
    """The record as it came; typed sources write theirs as JSON, and only for a row that is refused."""
    return "CAST(to_json(_tg.record) AS BINARY)" if source.connector.encoding == "record" else "_tg.raw"
