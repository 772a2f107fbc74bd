"""Session: periods of activity of a key, made by their events.

An event occupies ``[t, t + gap)``; what touches or overlaps is one session, ``[first, last + gap)``. The fold has put
events into slices of length gap, whose events always share a session, so sessions are exact from slices alone: a row
is an extent of time, from its first to its last event, whether it is a slice of this batch or a session that was open
before. Rows in the order of time, cut where more than the gap lies between one and all before it, are the sessions.
Without a cap they only ever merge, so a session stays one row.

**Late** is judged on the session that an event would belong to, after merging. Only an event with ``t + gap`` closed
can turn out late: these *candidates* come one by one. A session that is closed at `W_in` and consists of candidates
alone is not a session but a bundle of dead letters. Few candidates end like that, and their letters are large, so
letters do not travel through the aggregation: what it tells is which stretches of a key are late, and only where there
are some the letters are looked up in the fold (`refused`).

When a session changes its bounds it is a new window: its index starts at 0, what its parts have counted and
remembered is merged, and what they have said stands until the first pane that replaces it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.operators.fold import letter_fields
from tidegate.operators.open import Shape
from tidegate.operators.sql import Relation, Thresholds, select
from tidegate.operators.trigger import Turn

if TYPE_CHECKING:
    from tidegate.stream import WindowNode


def session_rows(shape: Shape, fresh: Relation | None, candidates: Relation | None, kept: Relation | None) -> Relation:
    """All extents of time that sessions are made of, brought together by key; ``_candidate`` where one may be late.

    `candidates` may as well be among `fresh` where they are rows like others: without a cap, and without twins.
    """
    # Only a session that was open before has an index, so that counting them counts the parts.
    given = {"_first": "_first", "_last": "_last", "_news": "_n", "_index": "CAST(NULL AS INT)"}
    given |= {"_ids": "_ids"} if shape.keeps_ids else {}
    given |= {"_slice": "_slice", "_n": "_n", "_shown": "CAST(NULL AS BOOLEAN)"} if shape.is_cut else {}
    rows = []
    if fresh is not None:
        rows.append(select([*shape.fresh(given), "_n AS _arrived", "false AS _candidate"], fresh))
    if candidates is not None:
        rows.append(_candidate_rows(shape, given, candidates))
    if kept is not None:
        rows.append(select([*shape.columns, "0L AS _arrived", "false AS _candidate"], kept))
    # One shuffle by key serves everything that follows.
    return select(["*"], " UNION ALL ".join(rows)) + f" DISTRIBUTE BY {', '.join(shape.keys)}"


def _candidate_rows(shape: Shape, given: dict[str, str], candidates: Relation) -> Relation:
    """Candidates as rows; a twin brings nothing."""
    if not shape.keeps_ids:
        return select([*shape.fresh(given), "_n AS _arrived", "true AS _candidate"], candidates)
    columns = {name: name for name in shape.partials} | given | {"_arrived": "_n"}
    for name in ("_n", "_news", "_arrived"):
        if name in columns:
            columns[name] = f"CASE WHEN _twin THEN 0L ELSE {columns[name]} END"
    columns |= {name: f"CASE WHEN NOT _twin THEN {name} END" for name in (*shape.partials, "_ids")}
    arrived = columns.pop("_arrived")
    rows = _with_twins(shape, candidates)
    return select([*shape.fresh(columns), f"{arrived} AS _arrived", "true AS _candidate"], rows)


def _with_twins(shape: Shape, candidates: Relation) -> Relation:
    """Candidates, and which of them is a *twin*: the repeat of another one in this batch.

    A repeat of an event that is accepted is a duplicate and brings nothing; a repeat of one that is late is late
    itself. Which of the two only the judgement tells, so dedup has let both pass.
    """
    # Elements that a flat_map has made of one event are not each other's twins: they tie.
    place = "_dead.arrival, _dead.origin, _dead.position"
    same = f"PARTITION BY {', '.join([*shape.keys, '_ids'])} ORDER BY {place}"
    return select(["*", f"size(_ids) > 0 AND rank() OVER ({same}) > 1 AS _twin"], candidates)


def gather_sessions(
    shape: Shape, fresh: Relation | None, candidates: Relation | None, kept: Relation | None, turn: Turn
) -> Relation:
    """The sessions of each key, with those that are nothing but late events marked ``_late``."""
    assert shape.session is not None
    gap = shape.session.gap
    by_key = f"PARTITION BY {', '.join(shape.keys)} ORDER BY _first"
    reach = f"max(_last) OVER ({by_key} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS _reach"
    rows = select(["*", reach], session_rows(shape, fresh, candidates, kept))
    begins = f"CASE WHEN _reach IS NULL OR _first - _reach > {gap}L THEN _first END"
    rows = select(["*", f"max({begins}) OVER ({by_key} RANGE UNBOUNDED PRECEDING) AS _group"], rows)
    merged = [
        *shape.keys,
        *shape.merged_partials(),
        "min(_first) AS _first",
        "max(_last) AS _last",
        "sum(_news) AS _news",
        "sum(_arrived) AS _arrived",
        "max(_index) AS _parts_index",
        "count(_index) AS _parts",
        *[f"{memory.merged(memory.column)} AS {memory.column}" for memory in shape.question.memory],
    ]
    same = "_parts = 1"
    if shape.keeps_bounds:
        merged += ["max(_start) AS _part_start", "max(_end) AS _part_end"]
        same += " AND _part_start = _start AND _part_end = _end"
    # Collecting arrays is slow beside sums and maxima, so it is done only where there is something to collect.
    if shape.keeps_said:
        merged.append("flatten(collect_list(_said)) AS _said")
    if shape.keeps_ids:
        merged.append("flatten(collect_list(_ids)) AS _ids")
    grouped = select(merged, rows) + f" GROUP BY {', '.join([*shape.keys, '_group'])}"
    bounded = select(["*", "_first AS _start", f"_last + {gap}L AS _end"], grouped)
    limit = Thresholds([turn.closed_before], "_start")
    late = f"_parts = 0 AND _end <= {limit[0]}"
    return select(["*", f"CASE WHEN {same} THEN _parts_index ELSE 0 END AS _index", f"{late} AS _late"], bounded)


def take_back(asked: Relation) -> Relation:
    """A session that speaks takes back everything that stands for it."""
    return select(["*", "CASE WHEN _speaks THEN _said ELSE array() END AS _back"], asked)


def refused(shape: Shape, node: WindowNode, candidates: Relation, late: Relation | None) -> Relation:
    """The letters of a source's candidates that are refused: in a stretch that is `late`, or repeats of others."""
    rows = _with_twins(shape, candidates) if shape.keeps_ids else select(["*", "false AS _twin"], candidates)
    rows = select([*shape.keys, "_first", "_twin", "_partition", "_dead"], rows)
    if late is None:
        judged = select(["*", "false AS _late"], rows)
    else:
        same = " AND ".join(f"c.{key} <=> l.{key}" for key in shape.keys)
        stretches = select([*shape.keys, "_first AS _from", "_last AS _upto"], late)
        judged = (
            f"SELECT /*+ SHUFFLE_HASH(l) */ c.*, l._from IS NOT NULL AS _late FROM ({rows}) c "
            f"LEFT JOIN ({stretches}) l ON {same} AND c._first BETWEEN l._from AND l._upto"
        )
    # The fold has written every candidate as LATE; in a session that is open only a repeat is refused.
    changed = {"reason": "'DUPLICATE'", "error": "'same id and event time as an earlier event'"}
    fields = ", ".join(f"'{name}', {changed.get(name, f'_dead.{name}')}" for name in letter_fields(node))
    dead = f"CASE WHEN _late THEN _dead ELSE named_struct({fields}) END AS _dead"
    return select(["_partition", dead], judged, "_late OR _twin")
