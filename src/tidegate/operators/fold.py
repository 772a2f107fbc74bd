"""Fold: every event of a batch into the slice of its key, in one aggregation that loses nobody.

Each row gets a *fate*, and all fates go through the same shuffle:

- ``slice``: accepted; folded into the partials of (key, slice, source partition);
- ``straggler``: the same, but for a window that was complete before the batch – in files of its own, so that old
  slices do not stretch the range of every file, and the sign that a late pane is due;
- ``candidate``: an event that may turn out late once it is known which session it joins; it travels alone, with the
  dead letter it will be;
- ``dead``: refused, by the source or as LATE by this operator; its envelope is an extra grouping key, so it stays one
  row; ``copy``: the same for an event that was accepted, but missed some of its windows (on request);
- ``filtered``, ``duplicate``, and around a flat_map ``empty`` and ``dropped``: folded into a count per source
  partition.

So one scan yields the state, the dead letters, the ledger's output side, and how far each source partition has come.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.operators.assign import Assignment
from tidegate.operators.path import INTERNAL, WHOLE, Rows
from tidegate.operators.route import ENVELOPE
from tidegate.operators.sql import Relation, Thresholds, quote, select, text, user
from tidegate.windows import Session

if TYPE_CHECKING:
    from tidegate.stream import SourceNode, WindowNode

STATE_FATES = ("slice", "straggler")

COUNTS = {
    "read": "count_if(_lead)",
    "passed": "count_if(_lead AND _tg_reason IS NULL)",
    "unnested": "count_if(_lead AND _unnested > 0)",
    "elements": "count_if(_unnested = 2)",
    "arrived": "count_if(_alive)",
}
"""The ledger's input side, counted on the marked rows, before the aggregation that yields the output side."""

_TRUSTED = "CASE WHEN _tg_reason IS NULL OR _tg_reason = 'DUPLICATE' THEN _tg_time END"
"""Event times that may move the watermark: not those of refused records."""

_ORDER = "named_struct('t', _tg_time, 'a', _tg_arrival, 'o', _tg_origin, 'p', _tg_row, 'e', _element)"

# Always set, but declared nullable: Arrow has no rows of a struct that is NULL while its fields must not be.
_PLACE = (
    "'origin', nullif(_tg_origin, ''), 'position', nullif(_tg_position, -1L), "
    "'arrival', nullif(_tg_arrival, -1L), 'time', _tg_time"
)
_ACCEPTED = "_fate IN ('slice', 'straggler')"
LETTER_FIELDS = (
    *("id", "operator", "origin", "position", "arrival", "time"),
    *("reason", "error", "window_start", "window_end", "raw"),
)
"""What a staged dead letter holds of its event."""
_FOLDED = "_fate IN ('slice', 'straggler', 'candidate')"


@dataclass(frozen=True)
class FoldBounds:
    """What a batch is judged by: the watermark before it, and that minus the allowed lateness."""

    complete: int
    closed: int


def mark(node: WindowNode, rows: Rows, bounds: FoldBounds, *, carries_source: bool) -> Relation:
    """Give each row its fate. `carries_source`: this operator's fold also takes what its source refused."""
    assignment = Assignment(node.window)
    limit = Thresholds([bounds.complete, bounds.closed], "_tg_row")
    last_end = f"CASE WHEN _alive THEN {assignment.last_end('_tg_time')} END AS _last_end"
    ended = select([*INTERNAL, *map(quote, rows.columns), last_end], rows.relation)
    late = f"_last_end <= {limit[1]}"
    duplicate = "'dead'" if node.source.keep_duplicates else "'duplicate'"
    source_fates = (
        f"WHEN _tg_reason = 'DUPLICATE' AND _lead THEN {duplicate} WHEN _tg_reason IS NOT NULL AND _lead THEN 'dead' "
        if carries_source
        else ""
    )
    too_late = "'candidate'" if isinstance(node.window, Session) else "'dead'"
    fate = (
        f"CASE WHEN _alive AND {late} THEN {too_late} "
        f"WHEN _alive AND {assignment.first_end('_tg_time')} <= {limit[0]} THEN 'straggler' "
        f"WHEN _alive THEN 'slice' {source_fates} WHEN _unnested = 2 THEN 'dropped' "
        "WHEN _tg_reason IS NULL AND _lead THEN CASE WHEN _unnested = 1 THEN 'empty' ELSE 'filtered' END END AS _fate"
    )
    marks = [*INTERNAL, *map(quote, rows.columns), "_last_end", f"_alive AND {late} AS _late", fate]
    return select(marks, ended)


def fold(node: WindowNode, marked: Rows, bounds: FoldBounds, pipeline: str) -> Relation:
    """One aggregation: (fate, key, slice, source partition, dead letter) → partials, count, event-time range."""
    assignment = Assignment(node.window)
    limit = Thresholds([bounds.complete, bounds.closed], "_tg_row")
    partially = f"{_ACCEPTED} AND {assignment.first_end('_tg_time')} <= {limit[1]} AS _partially"
    users = list(map(quote, marked.columns))
    carried = [*ENVELOPE, "_element", "_last_end", "_late", *users]
    rows = select([*carried, "_fate", partially], marked.relation, "_fate IS NOT NULL")
    if node.source.keep_partially_late:
        twice = "explode(CASE WHEN _partially THEN array(_fate, 'copy') ELSE array(_fate) END) AS _fate"
        rows = select([*carried, "_partially", twice], rows)
    # Refused and filtered rows go through the same aggregation: their columns become NULL first, so that an
    # aggregate's expression can never throw on a row that is not its business.
    rows = select(
        [
            "_fate",
            "_tg_partition AS _partition",
            f"{_letter(node, pipeline)} AS _dead",
            f"CASE WHEN {_FOLDED} THEN {assignment.slice('_tg_time')} END AS _slice",
            f"CASE WHEN {_FOLDED} THEN _last_end END AS _last_end",
            f"{_TRUSTED} AS _trusted",
            "_partially",
            f"{_ORDER} AS _order",
            *(["_tg_id AS _id"] if _keeps_ids(node) else []),
            *[f"CASE WHEN {_FOLDED} THEN {user(sql)} END AS {quote('_key_' + name)}" for name, sql in node.keys],
            *[f"CASE WHEN {_FOLDED} THEN {name} END AS {name}" for name in users],
        ],
        rows,
    )
    keys = ["_fate", *key_columns(node), "_slice", "_partition", "_dead"]
    partials = [
        f"{user(sql)} AS {quote(column)}"
        for alias, aggregate in node.aggregates
        for column, sql in aggregate.partial_sql(alias).items()
    ]
    counts = [
        "count(1) AS _n",
        "count_if(_partially) AS _partially",
        "max(_trusted) AS _newest",
        "max(_last_end) AS _high",
    ]
    if isinstance(node.window, Session):
        counts += ["min(_order.t) AS _first", "max(_order.t) AS _last"]
    if _keeps_ids(node):
        known = "CASE WHEN _id IS NOT NULL THEN named_struct('id', _id, 'time', _order.t) END"
        counts.append(f"collect_list({known}) AS _ids")
    return select([*keys, *partials, *counts], rows) + f" GROUP BY {', '.join(keys)}"


def fold_source(source: SourceNode, routed: Relation, pipeline: str) -> Relation:
    """The same for a source alone, when no operator's fold can carry what it refused."""
    duplicate = "'dead'" if source.keep_duplicates else "'duplicate'"
    fate = (
        f"CASE WHEN _tg_reason = 'DUPLICATE' THEN {duplicate} WHEN _tg_reason IS NOT NULL THEN 'dead' "
        "ELSE 'passed' END AS _fate"
    )
    nothing = "CAST(NULL AS BIGINT)"
    letter = (
        "CASE WHEN _fate = 'dead' THEN named_struct("
        f"'id', {_identity(pipeline, source.name, 'NULL')}, 'operator', CAST(NULL AS STRING), "
        f"{_PLACE}, 'reason', _tg_reason, 'error', _tg_error, "
        f"'window_start', {nothing}, 'window_end', {nothing}, 'raw', {_raw(source)}) END AS _dead"
    )
    fated = select([*ENVELOPE, WHOLE, fate], routed)
    rows = select(["_fate", "_tg_partition AS _partition", letter, f"{_TRUSTED} AS _trusted"], fated)
    keys = ["_fate", "_partition", "_dead"]
    return select([*keys, "count(1) AS _n", "max(_trusted) AS _newest"], rows) + f" GROUP BY {', '.join(keys)}"


def _keeps_ids(node: WindowNode) -> bool:
    """A session remembers the ids of its events itself (see `open`)."""
    return isinstance(node.window, Session) and node.source.event_id is not None


def key_columns(node: WindowNode) -> list[str]:
    """The key columns as state holds them."""
    return [quote(f"_key_{name}") for name in node.key_names]


def _letter(node: WindowNode, pipeline: str) -> str:
    """What a dead letter keeps of its event, for rows that are one."""
    operator = f"CASE WHEN _late OR _fate = 'copy' THEN {text(node.name)} END"
    return (
        "CASE WHEN _fate IN ('dead', 'copy', 'candidate') THEN named_struct("
        f"'id', {_identity(pipeline, node.source.name, operator)}, 'operator', {operator}, {_PLACE}, "
        "'reason', CASE WHEN _late THEN 'LATE' WHEN _fate = 'copy' THEN 'PARTIALLY_LATE' ELSE _tg_reason END, "
        "'error', CASE WHEN _late THEN 'every window of the event had closed' "
        "WHEN _fate = 'copy' THEN 'some windows of the event had closed' ELSE _tg_error END, "
        f"'window_start', {Assignment(node.window).last_start('_tg_time')}, 'window_end', _last_end, "
        f"'raw', {_raw(node.source)}) END"
    )


def _identity(pipeline: str, source: str, operator: str) -> str:
    """The same event refused by the same operator has the same id, however often it is written."""
    where = f"{text(pipeline)}, {text(source)}, _tg_origin, CAST(_tg_position AS STRING), CAST(_element AS STRING)"
    return f"substring(sha2(concat_ws('|', {where}, coalesce({operator}, '')), 256), 1, 32)"


def _raw(source: SourceNode) -> str:
    """The record as it came; typed sources write theirs as JSON, and only for a row that is refused."""
    return "CAST(to_json(_tg_record) AS BINARY)" if source.connector.encoding == "record" else "_tg_raw"
