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

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.operators.assign import Assignment
from tidegate.operators.decode_wire import AT, PREFIX, in_header, reads_headers
from tidegate.operators.path import WHOLE, has_flat_map, internal
from tidegate.operators.route import Rows, extra_columns, marks, missing, one_partition, record_columns
from tidegate.operators.sql import Relation, Thresholds, quote, select, text, user
from tidegate.sources.base import ONLY_PARTITION
from tidegate.stream import PaneSource
from tidegate.windows import Session

if TYPE_CHECKING:
    from tidegate.stream import Input, SourceNode, WindowNode

FATES = (
    *("slice", "straggler", "candidate"),
    *("dead", "copy"),
    *("filtered", "duplicate", "empty", "dropped", "passed", "elsewhere"),
)
"""In the plan a fate is its place here, a number; in the names of files and in the ledger it is the word."""

STATE_FATES = ("slice", "straggler")
READ_AGAIN = (*STATE_FATES, "candidate")
"""What firing reads; the rest is counted, or becomes a dead letter, where it lies."""

_CODE = {fate: f"{code}Y" for code, fate in enumerate(FATES)}
_ACCEPTED = f"_fate <= {_CODE['straggler']}"
_FOLDED = f"_fate <= {_CODE['candidate']}"
_LETTER = f"_fate IN ({_CODE['dead']}, {_CODE['copy']}, {_CODE['candidate']})"

COUNTS = {
    "read": "count_if(_lead)",
    "passed": "count_if(_lead AND _tg_reason IS NULL)",
    "unnested": "count_if(_lead AND _unnested > 0)",
    "elements": "count_if(_unnested = 2)",
    "arrived": "count_if(_alive)",
}
"""The ledger's input side, counted on the marked rows, before the aggregation that yields the output side."""


def _trusted(source: Input) -> str:
    """What may move the watermark: not the time of refused records."""
    said = "_tg_mark" if marks(source) else "_tg_time"
    return f"CASE WHEN _tg_reason IS NULL OR _tg_reason = 'DUPLICATE' THEN {said} END"


_ORDER = "named_struct('t', _tg_time, 'a', _tg_arrival, 'o', _tg_origin, 'p', _tg_row, 'e', _element)"


def letter_fields(node: WindowNode) -> tuple[str, ...]:
    """What a staged dead letter says of its event: where it came from, who refused it and why, and the record."""
    return tuple(_letter(node.source, "", node, "false", flat=False))


@dataclass(frozen=True)
class FoldBounds:
    """What a batch is judged by: the watermark before it, and that minus the allowed lateness."""

    complete: int
    closed: int


def mark(node: WindowNode, rows: Rows, bounds: FoldBounds, *, carries_source: bool) -> Relation:
    """Give each row its fate. `carries_source`: this operator's fold also takes what its source refused."""
    assignment = Assignment(node.window)
    limit = Thresholds([bounds.complete, bounds.closed], "_tg_row")
    carried = [*internal(rows), *map(quote, rows.columns)]
    timed = select([*carried, f"CASE WHEN _alive THEN {assignment.slice('_tg_time')} END AS _slice"], rows.relation)
    last_end = assignment.last_end("_tg_time") if _is_session(node) else assignment.last_end_of_slice("_slice")
    too_late = _CODE["candidate" if _is_session(node) else "dead"]
    fate = f"CASE WHEN _alive THEN CASE WHEN {last_end} <= {limit[1]} THEN {too_late} "
    if assignment.overlapping:
        first_end = assignment.first_end("_slice")
        fate += f"WHEN {first_end} <= {limit[0]} THEN {_CODE['straggler']} "
    elif node.allowed_lateness > 0:
        fate += f"WHEN {last_end} <= {limit[0]} THEN {_CODE['straggler']} "
    fate += f"ELSE {_CODE['slice']} END "
    if carries_source:
        duplicate = _CODE["dead" if node.source.keep_duplicates else "duplicate"]
        fate += "WHEN _tg_reason IS NOT NULL AND _lead THEN "
        fate += f"CASE WHEN _tg_reason = 'DUPLICATE' THEN {duplicate} ELSE {_CODE['dead']} END "
    fate += (
        f"WHEN _unnested = 2 THEN {_CODE['dropped']} WHEN _tg_reason IS NULL AND _lead THEN "
        f"CASE WHEN _unnested = 1 THEN {_CODE['empty']} ELSE {_CODE['filtered']} END "
        f"ELSE {_CODE['elsewhere']} END AS _fate"
    )
    return select([*carried, "_slice", fate], timed)


def fold(node: WindowNode, marked: Rows, bounds: FoldBounds, pipeline: str) -> Relation:
    """One aggregation: (fate, key, slice, source partition, dead letter) → partials, count, event-time range."""
    assignment = Assignment(node.window)
    limit = Thresholds([bounds.complete, bounds.closed], "_tg_row")
    users = list(map(quote, marked.columns))
    carried = [*marked.envelope, "_alive", "_element", "_slice", *users]
    rows = marked.relation
    if assignment.overlapping:
        partially = f"{_ACCEPTED} AND {assignment.first_end('_slice')} <= {limit[1]} AS _partially"
        rows = select([*carried, "_fate", partially], rows)
        if node.source.keep_partially_late:
            both = f"array(_fate, {_CODE['copy']})"
            twice = f"explode(CASE WHEN _partially THEN {both} ELSE array(_fate) END) AS _fate"
            rows = select([*carried, "_partially", twice], rows)
    single, flat = one_partition(node.source), has_flat_map(node.steps)
    # Refused and filtered rows go through the same aggregation: their columns become NULL first, so that an
    # aggregate's expression can never throw on a row that is not its business.
    rows = select(
        [
            "_fate",
            *([] if single else ["_tg_partition AS _partition"]),
            f"CASE WHEN {_LETTER} THEN {_refusal(node.source, flat=flat)} END AS _refused",
            f"CASE WHEN {_FOLDED} THEN _slice END AS _slice",
            f"{_trusted(node.source)} AS _trusted",
            *(["_partially"] if assignment.overlapping else []),
            f"{_ORDER} AS _order",
            "_tg_time AS _at",
            *(["_tg_id AS _id"] if _keeps_ids(node) else []),
            *[f"CASE WHEN {_FOLDED} THEN {user(sql)} END AS {quote('_key_' + name)}" for name, sql in node.keys],
            *[f"CASE WHEN {_FOLDED} THEN {name} END AS {name}" for name in users],
        ],
        rows,
    )
    keys = ["_fate", *key_columns(node), "_slice", *([] if single else ["_partition"]), "_refused"]
    partials = [
        f"{user(sql)} AS {quote(column)}"
        for alias, aggregate in node.aggregates
        for column, sql in aggregate.partial_sql(alias).items()
    ]
    counts = ["count(1) AS _n", "max(_trusted) AS _newest"]
    counts += ["count_if(_partially) AS _partially"] if assignment.overlapping else []
    if _is_session(node):
        counts += ["min(_at) AS _first", "max(_at) AS _last"]
    else:
        counts.append(f"{assignment.needed_until('_slice')} AS _high")
    if _keeps_ids(node):
        known = "CASE WHEN _id IS NOT NULL THEN named_struct('id', _id, 'time', _at) END"
        counts.append(f"collect_list({known}) AS _ids")
    if single:
        counts.append(f"{text(ONLY_PARTITION)} AS _partition")
    missed = f"_fate = {_CODE['copy']}"
    letter = _letter(node.source, pipeline, node, missed, flat=flat)
    return _completed(keys, [*partials, *counts], letter, rows)


def fold_source(source: SourceNode, routed: Rows, pipeline: str) -> Relation:
    """The same for a source alone, when no operator's fold can carry what it refused."""
    duplicate = _CODE["dead" if source.keep_duplicates else "duplicate"]
    fate = (
        f"CASE WHEN _tg_reason = 'DUPLICATE' THEN {duplicate} WHEN _tg_reason IS NOT NULL THEN {_CODE['dead']} "
        f"ELSE {_CODE['passed']} END AS _fate"
    )
    refusal = f"CASE WHEN _fate = {_CODE['dead']} THEN {_refusal(source, flat=False)} END AS _refused"
    fated = select([*routed.envelope, "_alive", WHOLE, fate], routed.relation)
    rows = select(["_fate", "_tg_partition AS _partition", refusal, f"{_trusted(source)} AS _trusted"], fated)
    counts = ["count(1) AS _n", "max(_trusted) AS _newest"]
    letter = _letter(source, pipeline, None, "false", flat=False)
    return _completed(["_fate", "_partition", "_refused"], counts, letter, rows)


def _is_session(node: WindowNode) -> bool:
    """A session is made by its events: its end does not follow from their slice."""
    return isinstance(node.window, Session)


def _keeps_ids(node: WindowNode) -> bool:
    """A session remembers the ids of its events itself (see `open`)."""
    return _is_session(node) and node.source.event_id is not None


def key_columns(node: WindowNode) -> list[str]:
    """The key columns as state holds them."""
    return [quote(f"_key_{name}") for name in node.key_names]


def _refusal(source: Input, *, flat: bool) -> str:
    """What must be kept of a refused row so that its letter can be written: it is a grouping key, so it is lean."""
    known = {
        "alive": "_alive",
        "reason": "_tg_reason",
        "error": "_tg_error",
        "origin": "_tg_origin",
        "position": "_tg_position",
        "arrival": "_tg_arrival",
        "time": "_tg_time",
    }
    known |= {"element": "CAST(_element AS STRING)"} if flat else {}
    return _struct(known | _came(source))


def _completed(keys: list[str], aggregates: list[str], letter: Mapping[str, str], rows: Relation) -> Relation:
    """The aggregation, and dead letters made of what it has kept of refused rows: after it, for there they are few."""
    grouped = select([*keys, *aggregates], rows) + f" GROUP BY {', '.join(keys)}"
    # Each part may be NULL, and must say so: Arrow takes no struct that may be NULL with a part that may not.
    parts = {name: f"CASE WHEN _refused IS NOT NULL THEN {sql} END" for name, sql in letter.items()}
    dead = f"CASE WHEN _refused IS NOT NULL THEN {_struct(parts)} END AS _dead"
    return select(["* EXCEPT (_refused)", dead], grouped)


def _letter(source: Input, pipeline: str, node: WindowNode | None, missed: str, *, flat: bool) -> dict[str, str]:
    """The fields of a dead letter, from `_refused`. A live row that is refused is late, by the operator `node`."""
    operator = f"CASE WHEN _refused.alive THEN {text(node.name)} END" if node else "CAST(NULL AS STRING)"
    letter = {
        "reason": f"CASE WHEN {missed} THEN 'PARTIALLY_LATE' WHEN _refused.alive THEN 'LATE' ELSE _refused.reason END",
        "error": f"CASE WHEN {missed} THEN 'some windows of the event had closed' "
        "WHEN _refused.alive THEN 'every window of the event had closed' ELSE _refused.error END",
        "id": _identity(pipeline, source.name, "_refused.element" if flat else "'[]'", operator),
        "operator": operator,
        "origin": "_refused.origin",
        "position": "_refused.position",
        "arrival": "_refused.arrival",
        "time": "_refused.time",
    }
    if node:
        assignment = Assignment(node.window)
        letter["window_start"] = f"CASE WHEN _refused.alive THEN {assignment.last_start('_refused.time')} END"
        letter["window_end"] = f"CASE WHEN _refused.alive THEN {assignment.last_end('_refused.time')} END"
    return letter | _schema(source) | {name: f"_refused.{name}" for name in _came(source)}


def _schema(source: Input) -> dict[str, str]:
    """Which schema the record names, and which field breaks the contract; read from what is there already."""
    found: dict[str, str] = {}
    if isinstance(source, PaneSource):
        return found
    wire = source.contract.wire
    paths = [f"WHEN {text(missing(name))} THEN {text(name)}" for name in source.contract.required]
    inside = f"substring_index(substring(_refused.error, {len(AT) + 1}), ': ', 1)"
    breaks = f"WHEN _refused.reason = 'CONTRACT_VIOLATION' AND startswith(_refused.error, {text(AT)}) THEN {inside}"
    known = f"CASE _refused.error {' '.join(paths)} END" if paths else "CAST(NULL AS STRING)"
    if paths or wire is not None:
        found["path"] = f"CASE {breaks} ELSE {known} END" if wire is not None else known
    if wire is not None and wire.registry is not None:
        frame = f"substring(_refused.raw, 1, {PREFIX})"
        if reads_headers(source):
            frame = f"coalesce({in_header('_refused.headers')}, {frame})"
        number = f"CAST(conv(hex(substring({frame}, 2, 4)), 16, 10) AS BIGINT)"
        found["subject"] = text(wire.registry.subject)
        found["schema_id"] = (
            f"CASE WHEN length({frame}) = {PREFIX} AND substring({frame}, 1, 1) = X'00' THEN {number} END"
        )
    return found


def _identity(pipeline: str, source: str, element: str, operator: str) -> str:
    """The same event refused by the same operator has the same id, however often it is written."""
    where = f"{text(pipeline)}, {text(source)}, _refused.origin, CAST(_refused.position AS STRING), {element}"
    return f"substring(sha2(concat_ws('|', {where}, coalesce({operator}, '')), 256), 1, 32)"


def _came(source: Input) -> dict[str, str]:
    """The record as it came, and what it has beside its value: fields of the letter."""
    records = record_columns(source)
    if not records:
        return {"raw": "_tg_raw"} | {name.removeprefix("_"): column for column, name in extra_columns(source).items()}
    record = ", ".join(f"{column} AS {quote(name)}" for column, name in zip(records, source.columns, strict=True))
    if _stays_typed(source):
        return {"record": f"struct({record})"}
    exact = "map('timestampFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX\")"
    return {"raw": f"CAST(to_json(struct({record}), {exact}) AS BINARY)"}


def _struct(fields: Mapping[str, str]) -> str:
    return "named_struct(" + ", ".join(f"'{name}', {sql}" for name, sql in fields.items()) + ")"


def _stays_typed(source: Input) -> bool:
    """Whether a typed record can be a grouping key as it is: it becomes JSON only when the letter is written.

    What cannot be compared (a map) cannot be one, nor can what is not known before the app runs (results).
    """
    if isinstance(source, PaneSource) or not record_columns(source):
        return False
    return not re.search(r"\b(MAP|VARIANT|INTERVAL)\b", source.contract.ddl, re.IGNORECASE)
