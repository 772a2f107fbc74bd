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

from tidegate.operators.decode import ENVELOPE
from tidegate.operators.sql import Relation, Thresholds, clip, quote, select, text, user
from tidegate.watermarks import Watermark

if TYPE_CHECKING:
    from tidegate.stream import SourceNode


def route(source: SourceNode, events: Relation, clock: int, poison: Mapping[int, str] | None = None) -> Relation:
    """The rows of one source with `_tg` (event time and reason in it) and `_alive`: has it passed?

    `_row` numbers the rows of the batch: unique, and the same each time the batch is evaluated.
    """
    names = [quote(name) for name in source.contract.names]
    mine = select(["_tg", "_row", f"{quote(source.name)}.*"], events, f"_source = {text(source.name)}")
    failure = "CAST(NULL AS STRING)"
    if poison:
        entries = ", ".join(f"{position}L, {text(said)}" for position, said in poison.items())
        failure = f"element_at(map({entries}), _row)"
    judged = select(["_tg", "_row", *names, f"{failure} AS _poison"], mine)
    event_time = quote(source.event_time) if source.event_time in source.contract.names else user(source.event_time)
    sound = "_tg.reason IS NULL AND _poison IS NULL"
    time = f"CASE WHEN {sound} THEN unix_micros(CAST({event_time} AS TIMESTAMP)) END AS _time"
    timed = select(["_tg", "_row", *names, "_poison", time], judged)
    reason, error = _judgement(source, clock)
    reasoned = select(["_tg", "_row", *names, "_time", f"{reason} AS reason", f"{error} AS error"], timed)
    kept = ", ".join(f"'{name}', _tg.{name}" for name in ENVELOPE if name not in ("position", "reason", "error"))
    # A typed source has no bytes to keep: its columns travel along, and are written as JSON should the event be
    # refused.
    identity = ""
    if source.event_id is not None:
        sql = quote(source.event_id) if source.event_id in source.contract.names else f"({user(source.event_id)})"
        identity = f", 'id', CASE WHEN reason IS NULL THEN CAST({sql} AS STRING) END"
    record = f", 'record', struct({', '.join(names)})" if source.connector.encoding == "record" else ""
    envelope = (
        f"named_struct({kept}, 'position', coalesce(_tg.position, _row), 'row', _row, "
        f"'reason', reason, 'error', error, 'time', _time{identity}{record}) AS _tg"
    )
    return select([envelope, "reason IS NULL AS _alive", *names], reasoned)


def _judgement(source: SourceNode, clock: int) -> tuple[str, str]:
    """The reason and the sentence, as two CASE expressions over the same conditions."""
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
    reason = "CASE " + " ".join(f"WHEN {condition} THEN {word}" for condition, word, _ in cases) + " END"
    error = "CASE " + " ".join(f"WHEN {condition} THEN {sentence}" for condition, _, sentence in cases) + " END"
    return reason, error
