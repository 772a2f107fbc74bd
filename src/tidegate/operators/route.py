"""Route: what leaves before any operator sees it, with the reason.

An event is judged by what is fixed before the batch starts – the contract, the clock, the watermark – in this order:
`MALFORMED` and `SCHEMA_UNKNOWN` (from decoding), `EXPRESSION_ERROR` (isolated as poison), `NULL_EVENT_TIME`,
`CONTRACT_VIOLATION`, `FUTURE`, then `DUPLICATE`. The rest has *passed*. Rows are marked, never dropped, so one pass
serves operators, dead letters and the ledger.

User expressions are evaluated only on rows that are still without a reason: a CASE keeps a refused record from
throwing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.operators.decode import decoded_columns
from tidegate.operators.sql import BEGINNING, Relation, Thresholds, clip, quote, select, text, user
from tidegate.stream import PaneSource, SourceNode
from tidegate.watermarks import ArrivalTime, Punctuated, Watermark

if TYPE_CHECKING:
    from tidegate.stream import Input


ENVELOPE = (
    *("_tg_partition", "_tg_origin", "_tg_position", "_tg_row", "_tg_arrival", "_tg_raw"),
    *("_tg_reason", "_tg_error", "_tg_time", "_tg_id"),
)
"""The envelope of an event from here on."""


@dataclass(frozen=True)
class Rows:
    """A relation whose columns are known by name: the envelope (as SQL), and the user's."""

    relation: Relation
    columns: tuple[str, ...]
    envelope: tuple[str, ...] = ENVELOPE


def record_columns(source: Input) -> tuple[str, ...]:
    """A typed source has no bytes to keep: its fields travel along, to be written as JSON should it be refused."""
    typed = isinstance(source, PaneSource) or source.connector.encoding == "record"
    return tuple(quote(f"_tg.{name}") for name in source.columns) if typed else ()


def marks(source: Input) -> tuple[str, ...]:
    """What moves the watermark, where that is not the event time: an own column of the envelope."""
    special = isinstance(source, SourceNode) and isinstance(source.watermark, ArrivalTime | Punctuated)
    return ("_tg_mark",) if special else ()


def one_partition(source: Input) -> bool:
    """Whether all events of a source are of one partition, so that nothing need be told apart by it."""
    return isinstance(source, PaneSource) or source.connector.one_partition


def extra_columns(source: Input) -> dict[str, str]:
    """What the records of a source have beside their value, as the envelope carries it: `_key` as `_tg_key`."""
    if isinstance(source, PaneSource):
        return {}
    return {f"_tg{name}": name for name in source.connector.extra}


def route(source: SourceNode, decoded: Relation, clock: int, poison: Mapping[int, str] | None = None) -> Rows:
    """The rows of a source with their envelope (event time and reason in it) and `_alive`: has it passed?"""
    names = [quote(name) for name in source.contract.names]
    records = record_columns(source)
    known = decoded_columns(source)
    rows, carried, sound = decoded, [*known, *names], "_reason IS NULL"
    if poison:
        entries = ", ".join(f"{position}L, {text(said)}" for position, said in poison.items())
        rows = select([*carried, f"element_at(map({entries}), _row) AS _poison"], decoded)
        carried.append("_poison")
        sound += " AND _poison IS NULL"
    event_time = quote(source.event_time) if source.event_time in source.contract.names else user(source.event_time)
    time = f"CASE WHEN {sound} THEN unix_micros(CAST({event_time} AS TIMESTAMP)) END AS _time"
    copies = [f"{name} AS {record}" for name, record in zip(names, records, strict=False)]
    timed = select([*carried, *copies, time], rows)
    carried += records
    cases = _judgement(source, clock, poisoned=bool(poison))
    verdict = "CASE " + " ".join(f"WHEN {case[0]} THEN {n}" for n, case in enumerate(cases)) + " END AS _verdict"
    judged = select([*carried, "_time", verdict], timed)
    identity = "CAST(NULL AS STRING)"
    if source.event_id is not None:
        sql = quote(source.event_id) if source.event_id in source.contract.names else f"({user(source.event_id)})"
        identity = f"CASE WHEN _verdict IS NULL THEN CAST({sql} AS STRING) END"
    envelope = {
        "_tg_partition": "_partition",
        "_tg_origin": "_origin",
        "_tg_position": "coalesce(_position, _row)",
        "_tg_row": "_row",
        "_tg_arrival": "_arrival",
        "_tg_raw": "_raw",
        "_tg_reason": "CASE _verdict " + " ".join(f"WHEN {n} THEN {case[1]}" for n, case in enumerate(cases)) + " END",
        "_tg_error": "CASE _verdict " + " ".join(f"WHEN {n} THEN {case[2]}" for n, case in enumerate(cases)) + " END",
        "_tg_time": "_time",
        "_tg_id": identity,
    } | extra_columns(source)
    if marks(source):
        envelope["_tg_mark"] = _mark(source, clock)
    columns = [f"{sql} AS {name}" for name, sql in envelope.items()]
    relation = select([*columns, *records, "_verdict IS NULL AS _alive", *names], judged)
    return Rows(relation, source.contract.names, (*envelope, *records))


def _mark(source: SourceNode, clock: int) -> str:
    """How far an event says that time has come; one that says nothing, and yet has come, says the beginning."""
    if isinstance(source.watermark, Punctuated):
        column = source.watermark.column
        sql = quote(column) if column in source.contract.names else user(column)
        said = f"coalesce(unix_micros(CAST({sql} AS TIMESTAMP)), {BEGINNING}L)"
    else:
        now = Thresholds([clock], "_row")[0]
        said = f"least(coalesce(_arrival, {now}), {now})"
    return f"CASE WHEN _verdict IS NULL THEN {said} END"


def missing(name: str) -> str:
    """The sentence about a required field that is not there."""
    return f"required field {name} is missing"


def _judgement(source: SourceNode, clock: int, *, poisoned: bool) -> list[tuple[str, str, str]]:
    """What speaks against an event, in order: condition, reason, and a sentence."""
    cases = [("_reason IS NOT NULL", "_reason", "_error")]
    if poisoned:
        cases.append(("_poison IS NOT NULL", "'EXPRESSION_ERROR'", "_poison"))
    cases.append(("_time IS NULL", "'NULL_EVENT_TIME'", text(f"{source.event_time} is NULL")))
    for name in source.contract.required:
        cases.append((f"{quote(name)} IS NULL", "'CONTRACT_VIOLATION'", text(missing(name))))
    for name, condition in source.contract.expectations:
        broken = f"NOT coalesce(({user(condition)}), false)"
        cases.append((broken, "'CONTRACT_VIOLATION'", text(f"expectation broken: {name}")))
    watermark = source.watermark
    if isinstance(watermark, Watermark) and watermark.max_future is not None:
        now = Thresholds([clock, clip(clock + watermark.max_future)], "_row")
        # A broker's timestamp is the producer's own by default: it vouches for nothing later than our clock.
        limit = f"least(coalesce(_arrival, {now[0]}) + {watermark.max_future}L, {now[1]})"
        cases.append((f"_time > {limit}", "'FUTURE'", "'the event time is too far ahead of its arrival'"))
    return cases
