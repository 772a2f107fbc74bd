"""Dedup: the same event id with the same event time, seen again.

A 64-bit hash finds candidates cheaply; only the full id decides, for a false duplicate would be a loss. Of several
equal events the first wins, by arrival, origin and position; an event whose id is remembered from an earlier batch
never does. Ids are remembered for events that some operator accepted, while one of its windows is open for late data:
after that a repeat is LATE.

For fixed windows the event time tells whether they are open, and ids are kept in files of the source. Only a session
itself knows how long it lives, so its ids are in its own row; they are *held*, and a repeat of one that is held is a
duplicate whatever its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidegate.operators.assign import Assignment
from tidegate.operators.route import Rows
from tidegate.operators.sql import Relation, Thresholds, quote, select

if TYPE_CHECKING:
    from tidegate.stream import WindowNode

Closed = Sequence[tuple["WindowNode", int]]
"""The operators of a source, each with its watermark minus allowed lateness before the batch."""

REMEMBERED = "_hash BIGINT, _id STRING, _time BIGINT"


def remembered(files: Relation | None, held: Sequence[Relation]) -> Relation | None:
    """All ids of earlier batches, from the files of the source and from open sessions."""
    parts = [] if files is None else [select(["_hash", "_id", "_time", "false AS _held"], files)]
    parts += [select(["xxhash64(_id, _time) AS _hash", "_id", "_time", "true AS _held"], ids) for ids in held]
    return " UNION ALL ".join(parts) or None


def dedup(rows: Rows, remembered: Relation | None, closed: Closed) -> Relation:
    """Mark repeats with the reason DUPLICATE. The rows are read more than once and should be persisted."""
    routed = rows.relation
    order = "named_struct('a', _tg_arrival, 'o', _tg_origin, 'p', _tg_row) AS _order"
    ids = _ids(routed, closed, [order, "_tg_row AS _repeated"])
    suspects = f"SELECT _hash FROM ({ids}) WHERE _open GROUP BY _hash HAVING count(1) > 1"
    earlier = None
    if remembered is not None:
        earlier = (
            f"SELECT /*+ BROADCAST(i) */ m.* FROM ({remembered}) m LEFT SEMI JOIN ({ids}) i "
            "ON m._hash = i._hash AND (m._held OR i._open)"
        )
        suspects = f"SELECT _hash FROM ({suspects}) UNION SELECT _hash FROM ({earlier})"
    rivals = (
        "SELECT /*+ BROADCAST(s) */ _id, _time, 1 AS _rank, _open, _order, _repeated "
        f"FROM ({ids}) i LEFT SEMI JOIN ({suspects}) s ON i._hash = s._hash"
    )
    if earlier is not None:
        rivals += f" UNION ALL SELECT _id, _time, 0, _held, NULL, NULL FROM ({earlier})"
    same = "PARTITION BY _id, _time"
    place = f"row_number() OVER ({same} ORDER BY _rank, _order) AS _place"
    held = f"coalesce(bool_or(CASE WHEN _rank = 0 THEN _open END) OVER ({same}), false) AS _held"
    placed = select(["_rank", "_open", "_repeated", place, held], rivals)
    # What closed windows did not accept has no duplicates – unless a session holds it.
    repeats = select(["_repeated"], placed, "_rank = 1 AND ((_open AND _place > 1) OR _held)")
    error = "'same id and event time as an earlier event'"
    changed = {
        "_tg_reason": "CASE WHEN _repeated IS NOT NULL THEN 'DUPLICATE' ELSE _tg_reason END",
        "_tg_error": f"CASE WHEN _repeated IS NOT NULL THEN {error} ELSE _tg_error END",
    }
    columns = [
        *[f"{changed[name]} AS {name}" if name in changed else name for name in rows.envelope],
        "_alive AND _repeated IS NULL AS _alive",
        *[quote(name) for name in rows.columns],
    ]
    return (
        f"SELECT /*+ BROADCAST(d) */ {', '.join(columns)} "
        f"FROM ({select(['*'], routed)}) e LEFT JOIN ({repeats}) d ON e._tg_row = d._repeated"
    )


def to_remember(deduped: Relation, closed: Closed) -> Relation:
    """The ids of this batch that later ones must be compared with."""
    return select(["_hash", "_id", "_time"], _ids(deduped, closed, []), "_open")


def _ids(rows: Relation, closed: Closed, others: list[str]) -> Relation:
    still_open = f"{_still_open(closed, '_tg_time')} AS _open"
    ids = select(["_tg_id AS _id", "_tg_time AS _time", still_open, *others], rows, "_alive")
    return select(["*", "xxhash64(_id, _time) AS _hash"], ids, "_id IS NOT NULL")


def _still_open(closed: Closed, time: str) -> str:
    limit = Thresholds([bound for _, bound in closed], time)
    return " OR ".join(
        f"({Assignment(node.window).last_end(time)} > {limit[slot]})" for slot, (node, _) in enumerate(closed)
    )
