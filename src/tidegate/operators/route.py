"""Route: what leaves before any operator sees it, with the reason.

An event is judged by what is fixed before the batch starts – the contract, the clock, the watermark – in this order:
`MALFORMED` (from decoding), `EXPRESSION_ERROR` (isolated as poison), `NULL_EVENT_TIME`, `CONTRACT_VIOLATION`, `FUTURE`,
then `DUPLICATE`. The rest has *passed*. Rows are marked, never dropped, so one pass serves operators, dead
letters and the ledger.

User expressions are evaluated only on rows that are still without a reason: a CASE keeps a refused record from
throwing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidegate.operators.sql import Relation, Thresholds, clip, quote, select, text, user
from tidegate.watermarks import Watermark

if TYPE_CHECKING:
    from tidegate.stream import SourceNode


FIELDS = (
    "partition",
    "origin",
    "position",
    "row",
    "arrival",
    "raw",
    "record",
    "reason",
    "error",
    "time",
    "id",
)
"""The envelope of an event from here on, as columns `_tg_…`: a struct would be put together anew for every row."""

ENVELOPE = tuple(f"_tg_{name}" for name in FIELDS)


def route(source: SourceNode, events: Relation, clock: int, poison: Mapping[int, str] | None = None) -> Relation:
    """The rows of one source with their envelope (event time and reason in it) and `_alive`: has it passed?

    `_row` numbers the rows of the batch: unique, and the same each time the batch is evaluated.
    """
    names = [quote(name) for name in source.contract.names]
    whole = quote(source.name)
    failure = "CAST(NULL AS STRING)"
    if poison:
        entries = ", ".join(f"{position}L, {text(said)}" for position, said in poison.items())
        failure = f"element_at(map({entries}), _row)"
    mine = select(
        ["_tg", "_row", f"{whole} AS _record", f"{whole}.*", f"{failure} AS _poison"],
        events,
        f"_source = {text(source.name)}",
    )
    event_time = quote(source.event_time) if source.event_time in source.contract.names else user(source.event_time)
    sound = "_tg.reason IS NULL AND _poison IS NULL"
    time = f"CASE WHEN {sound} THEN unix_micros(CAST({event_time} AS TIMESTAMP)) END AS _time"
    timed = select(["_tg", "_row", "_record", *names, "_poison", time], mine)
    cases = _judgement(source, clock)
    verdict = "CASE " + " ".join(f"WHEN {case[0]} THEN {n}" for n, case in enumerate(cases)) + " END AS _verdict"
    judged = select(["_tg", "_row", "_record", *names, "_poison", "_time", verdict], timed)
    identity = "CAST(NULL AS STRING)"
    if source.event_id is not None:
        sql = quote(source.event_id) if source.event_id in source.contract.names else f"({user(source.event_id)})"
        identity = f"CASE WHEN _verdict IS NULL THEN CAST({sql} AS STRING) END"
    envelope = {
        "partition": "_tg.partition",
        "origin": "_tg.origin",
        "position": "coalesce(_tg.position, _row)",
        "row": "_row",
        "arrival": "_tg.arrival",
        "raw": "_tg.raw",
        # A typed source has no bytes to keep: its columns travel along, and are written as JSON should it be refused.
        "record": "_record" if source.connector.encoding == "record" else "CAST(NULL AS STRING)",
        "reason": "CASE _verdict " + " ".join(f"WHEN {n} THEN {case[1]}" for n, case in enumerate(cases)) + " END",
        "error": "CASE _verdict " + " ".join(f"WHEN {n} THEN {case[2]}" for n, case in enumerate(cases)) + " END",
        "time": "_time",
        "id": identity,
    }
    columns = [f"{envelope[name]} AS _tg_{name}" for name in FIELDS]
    return select([*columns, "_verdict IS NULL AS _alive", *names], judged)


def _judgement(source: SourceNode, clock: int) -> list[tuple[str, str, str]]:
    """What speaks against an event, in order: condition, reason, and a sentence."""
    cases = [
        ("_tg.reason IS NOT NULL", "_tg.reason", "_tg.error"),
        ("_poison IS NOT NULL", "'EXPRESSION_ERROR'", "_poison"),
        ("_time IS NULL", "'NULL_EVENT_TIME'", text(f"{source.event_time} is NULL")),
    ]
    for name in source.contract.required:
        cases.append((f"{quote(name)} IS NULL", "'CONTRACT_VIOLATION'", text(f"required field {name} is missing")))
    for name, condition in source.contract.expectations:
        broken = f"NOT coalesce(({user(condition)}), false)"
        cases.append((broken, "'CONTRACT_VIOLATION'", text(f"expectation broken: {name}")))
    watermark = source.watermark
    if isinstance(watermark, Watermark) and watermark.max_future is not None:
        now = Thresholds([clock, clip(clock + watermark.max_future)], "_row")
        # A broker's timestamp is the producer's own by default: it vouches for nothing later than our clock.
        limit = f"least(coalesce(_tg.arrival, {now[0]}) + {watermark.max_future}L, {now[1]})"
        cases.append((f"_time > {limit}", "'FUTURE'", "'the event time is too far ahead of its arrival'"))
    return cases
