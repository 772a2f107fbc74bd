"""Rolling: one result per key and event time, over the last `size` up to it.

Here events make the windows: one at t ends at t and reaches back over ``(t − size, t]``. The fold keeps one row of
partials per key and event time – a slice that is a single instant –, and a window merges those within its reach.

Which rows a window needs is found by key: the instants that are to be windows are collected per key, joined to the
rows of that key, and each row is taken once per window that reaches it. Then they are merged like the slices of any
other window (decision 008 tells why there is no range frame).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.operators.fold import key_columns
from tidegate.operators.sql import Relation, Thresholds, select
from tidegate.windows import Rolling

if TYPE_CHECKING:
    from tidegate.stream import WindowNode


def rolling_windows(node: WindowNode, rows: Relation, instants: Relation) -> Relation:
    """Each row of partials once per window, at one of the `instants` (keys and ``_at``), that reaches it."""
    assert isinstance(node.window, Rolling)
    keys, size = key_columns(node), node.window.size
    by_key = f"SELECT {', '.join(keys)}, collect_set(_at) AS _instants FROM ({instants}) GROUP BY {', '.join(keys)}"
    same = " AND ".join(f"l.{key} <=> r.{key}" for key in keys)
    joined = f"SELECT l.*, r._instants FROM ({select(['*'], rows)}) l JOIN ({by_key}) r ON {same}"
    reaching = f"filter(_instants, t -> t >= _slice AND t < _slice + {size}L)"
    return select(["*", f"explode(transform({reaching}, t -> t - {size}L)) AS _start"], joined)


def instants_between(node: WindowNode, rows: Relation, due: tuple[int, int]) -> Relation:
    """The instants in the range ``(after, upto]`` that have events."""
    limit = Thresholds(due, "_slice")
    return select([*key_columns(node), "_slice AS _at"], rows, f"_slice > {limit[0]} AND _slice <= {limit[1]}")
