"""Session cap: sessions whose span from first to last event never exceeds `max_length`.

Slices join in time order while the first event is at most the gap after the last one and the span stays within the
cap; a cut session ends at the next one's first event if that comes earlier than last + gap. Whether a slice joins
depends on all before it, so a key's slices are walked in order by one ``aggregate()`` over a sorted array, which
carries the session so far.

Unlike plain sessions, these can be **cut anew**: an event in front moves every later cut. So the slices of open
sessions are kept apart, each with the window it belongs to and what that window remembers. A session that has spoken
and no longer lies inside one session is taken back, and each session that is made of its pieces counts all its
elements as new (in discarding mode only the new ones). What it had said stands for all pieces; the first to speak
takes it back for all.

Lateness is judged on the session after the cut at `W_in`; late events are taken out, and the rest is cut once more.
"""

from __future__ import annotations

from tidegate.operators.open import Shape
from tidegate.operators.session import session_rows
from tidegate.operators.sql import END_OF_TIME, Relation, Thresholds, select
from tidegate.operators.trigger import Turn

_CUT = "STRUCT<slice: BIGINT, lo: BIGINT, hi: BIGINT>"


def gather_cut_sessions(
    shape: Shape, fresh: Relation | None, candidates: Relation | None, kept: Relation | None, turn: Turn
) -> Relation:
    """The sessions of each key, each with its slices; the late events of a key are one group marked ``_late``."""
    rows = session_rows(shape, fresh, candidates, kept)
    late = "false"
    if candidates is not None:
        slice_ = f"PARTITION BY {', '.join([*shape.keys, '_slice'])}"
        extent = [f"min(_first) OVER ({slice_}) AS _lo", f"max(_last) OVER ({slice_}) AS _hi"]
        named = [*shape.columns, "_arrived", "_candidate"]
        rows = _cut(shape, select([*named, *extent, "false AS _late"], rows), named)
        limit = Thresholds([turn.closed_before], "_first")
        late = f"_candidate AND _mine.hi <= {limit[0]}"
    rows = _slices(shape, select(["*", f"{late} AS _late"], rows))
    named = [name for name in (*shape.columns, "_arrived") if name not in shape.keys]
    extents = select(["*", "_first AS _lo", "_last AS _hi"], rows)
    # A key may have nothing but late events, and then no session.
    mine = ["coalesce(_mine.lo, _slice) AS _group", "coalesce(_mine.hi, _slice) AS _until"]
    cut = select(["*", *mine], _cut(shape, extents, [*named, "_late"]))
    return _sessions(shape, cut)


def _slices(shape: Shape, rows: Relation) -> Relation:
    """One row per slice again: what was kept and what has come; late events stay outside."""
    kept = ["_end", "_index", "_shown", *(["_said"] if shape.keeps_said else [])]
    kept += [*(memory.column for memory in shape.question.memory)]
    merged = [
        *shape.keys,
        "_slice",
        "_late",
        *shape.merged_partials(),
        "min(_first) AS _first",
        "max(_last) AS _last",
        *[f"sum({name}) AS {name}" for name in ("_n", "_news", "_arrived")],
        # At most one of the rows is a kept one; the others remember nothing.
        *[f"max_by({name}, _start) AS {name}" for name in kept],
        "max(_start) AS _start",
    ]
    merged += ["flatten(collect_list(_ids)) AS _ids"] if shape.keeps_ids else []
    return select(merged, rows) + f" GROUP BY {', '.join([*shape.keys, '_slice', '_late'])}"


def _cut(shape: Shape, rows: Relation, named: list[str]) -> Relation:
    """The rows with the session that each is in as ``_mine``: ``lo`` its first event, ``hi`` its end.

    ``_lo`` and ``_hi`` are the extent of the row's slice; rows that are ``_late`` have no say.
    """
    assert shape.session is not None
    gap, cap = shape.session.gap, shape.session.max_length
    keys = ", ".join(shape.keys)
    fields = ", ".join(f"'{name.strip('`')}', {name}" for name in named if name not in shape.keys)
    slices = "sort_array(collect_set(CASE WHEN NOT _late THEN named_struct('slice', _slice, 'lo', _lo, 'hi', _hi) END))"
    by_key = select([keys, f"collect_list(named_struct({fields})) AS _all", f"{slices} AS _slices"], rows)
    joins = f"x.lo - a.now.hi <= {gap}L AND x.hi - a.now.lo <= {cap}L"
    joined = "named_struct('slice', a.now.slice, 'lo', a.now.lo, 'hi', x.hi)"
    nothing = f"named_struct('done', CAST(array() AS ARRAY<{_CUT}>), 'now', CAST(NULL AS {_CUT}))"
    walked = (
        f"aggregate(_slices, {nothing}, (a, x) -> "
        "CASE WHEN a.now IS NULL THEN named_struct('done', a.done, 'now', x) "
        f"WHEN {joins} THEN named_struct('done', a.done, 'now', {joined}) "
        "ELSE named_struct('done', concat(a.done, array(a.now)), 'now', x) END, a -> concat(a.done, array(a.now)))"
    )
    cuts = select([keys, "_all", f"{walked} AS _cuts"], f"{by_key} GROUP BY {keys}")
    end = f"least(c.hi + {gap}L, coalesce(get(_cuts, i + 1).lo, {END_OF_TIME}L))"
    ends = f"transform(_cuts, (c, i) -> named_struct('slice', c.slice, 'lo', c.lo, 'hi', {end})) AS _ends"
    exploded = select([keys, "_ends", "inline(_all)"], select([keys, "_all", ends], cuts))
    mine = "try_element_at(filter(_ends, c -> c.slice <= _slice), -1) AS _mine"
    return select([keys, *[name for name in named if name not in shape.keys], mine], exploded)


def _sessions(shape: Shape, cut: Relation) -> Relation:
    own = ["_slice", "_first", "_last", *shape.partials, *shape.befores, "_n", "_news"]
    own += ["_ids"] if shape.keeps_ids else []
    fields = ", ".join(f"'{name.strip('`')}', {name}" for name in own)
    outside = "_start < _group OR _end > _until"
    merged = [
        *shape.keys,
        "_late",
        "_group",
        "_until",
        *shape.merged_partials(),
        "sum(_n) AS _all_n",
        "sum(_news) AS _news",
        "sum(_arrived) AS _arrived",
        "max(_index) AS _parts_index",
        "min(_start) AS _part_first",
        "max(_start) AS _part_last",
        "max(_end) AS _part_end",
        f"coalesce(bool_or(_shown AND ({outside})), false) AS _outside",
        f"collect_list(named_struct({fields})) AS _rows",
        *[f"{memory.merged(memory.column)} AS {memory.column}" for memory in shape.question.memory],
    ]
    merged += ["array_distinct(flatten(collect_list(_said))) AS _said"] if shape.keeps_said else []
    grouped = select(merged, cut) + f" GROUP BY {', '.join([*shape.keys, '_late', '_group', '_until'])}"
    same = "_part_first = _part_last AND _part_first = _group AND _part_end = _until"
    anew = "_outside" if shape.node.accumulation != "discarding" else "false"
    others = ["_all_n", "_arrived", "_rows", "_late", *(memory.column for memory in shape.question.memory)]
    others += ["_said"] if shape.keeps_said else []
    return select(
        [
            *shape.keys,
            *shape.partials,
            *shape.befores,
            *others,
            "_group AS _start",
            "_until AS _end",
            f"{anew} AS _anew",
            f"CASE WHEN {anew} THEN _all_n ELSE _news END AS _news",
            f"CASE WHEN coalesce({same}, false) THEN _parts_index ELSE 0 END AS _index",
        ],
        grouped,
    )


def take_back_once(shape: Shape, asked: Relation) -> Relation:
    """Pieces of one session share what it said: the first that speaks takes it back, and it is gone for the others."""
    by_key = f"PARTITION BY {', '.join(shape.keys)}"
    spoken = "CASE WHEN _speaks THEN _said END"
    before = f"{by_key} ORDER BY _start ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
    shared = select(
        [
            "*",
            f"flatten(collect_list({spoken}) OVER ({before})) AS _taken_before",
            f"flatten(collect_list({spoken}) OVER ({by_key})) AS _taken",
        ],
        asked,
    )
    others = ["_said", "_taken", "_taken_before"]
    return select(
        [
            f"* EXCEPT ({', '.join(others)})",
            "CASE WHEN _speaks THEN array_except(_said, _taken_before) ELSE array() END AS _back",
            "array_except(_said, _taken) AS _said",
        ],
        shared,
    )
