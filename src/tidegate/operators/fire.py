"""Fire: the panes that the new watermark makes due, from the slices.

A window speaks when it is complete (default trigger) or when it closes (final only), and again for each batch that
brought late-but-allowed events. Its value is its slices merged and finished. Nothing is kept per open window: what a
window said before is found in the pane files of earlier records, and only for windows that stragglers have touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.operators.assign import Assignment
from tidegate.operators.fold import key_columns
from tidegate.operators.rolling import instants_between, rolling_windows
from tidegate.operators.sql import END_OF_TIME, Relation, Thresholds, quote, select, user
from tidegate.triggers import FinalOnly
from tidegate.windows import Rolling

if TYPE_CHECKING:
    from tidegate.stream import WindowNode

BROADCAST_ROWS = 200_000
"""Up to so many touched windows are sent to every task; more are joined by shuffling."""


@dataclass(frozen=True)
class FireBounds:
    """The watermark before and after the batch, and both minus the allowed lateness."""

    complete_before: int
    complete: int
    closed_before: int
    closed: int

    def due(self, node: WindowNode) -> tuple[int, int]:
        """Windows that end in this range ``(after, upto]`` speak for the first time."""
        if isinstance(node.trigger, FinalOnly):
            return self.closed_before, self.closed
        return self.complete_before, self.complete

    def speaks_late(self, node: WindowNode) -> bool:
        """Whether a complete window may still be open for late events."""
        return not isinstance(node.trigger, FinalOnly) and self.closed_before < self.complete_before


@dataclass(frozen=True)
class Merging:
    """How an operator's partials are merged: their types in state, and the aggregates that were added later."""

    types: Mapping[str, str]
    added: tuple[str, ...] = ()


def fire_due(node: WindowNode, slices: Relation, bounds: FireBounds, merging: Merging) -> Relation:
    """The first pane of every window that has become due."""
    windows = windows_of(node, slices, bounds.due(node))
    merged = merge(node, windows, "_start", merging)
    end = Assignment(node.window).end("_start")
    limit = Thresholds([bounds.complete_before, bounds.closed], "_start")
    timing = f"CASE WHEN {end} <= {limit[0]} THEN 'late' ELSE 'on_time' END"
    return _panes(node, merged, merging, index="0", timing=timing, final=f"{end} <= {limit[1]}")


def fire_late(
    node: WindowNode,
    slices: Relation,
    stragglers: Relation,
    said: Relation | None,
    bounds: FireBounds,
    touched_rows: int,
    merging: Merging,
) -> Relation:
    """One more pane for every complete window that a straggler of this batch has touched.

    `said` are the panes of earlier records; it gives the index, and what a retraction takes back.
    """
    keys = key_columns(node)
    due = (bounds.closed_before, bounds.complete_before)
    fresh = windows_of(node, stragglers, due)
    touched = f"SELECT DISTINCT {', '.join([*keys, '_start'])} FROM ({fresh})"
    hint = "/*+ BROADCAST(r) */ " if touched_rows <= BROADCAST_ROWS else ""
    rows = fresh
    if node.accumulation != "discarding":
        whole = windows_of(node, slices, due)
        rows = f"SELECT {hint}l.* FROM ({whole}) l LEFT SEMI JOIN ({touched}) r ON {_same(node)}"
    merged = merge(node, rows, "_start", merging)
    index = "0"
    if said is not None:
        values = ", ".join(f"'{name}', {quote(name)}" for name in ("pane_index", *node.value_names))
        named = [f"{quote(name)} AS {key}" for name, key in zip(node.key_names, keys, strict=True)]
        start = "coalesce(unix_micros(window_start), 0L) AS _start"
        earlier = select([*named, start, f"named_struct({values}) AS _pane"], said, "pane_change = 'upsert'")
        earlier = f"SELECT {hint}l.* FROM ({earlier}) l LEFT SEMI JOIN ({touched}) r ON {_same(node)}"
        grouped = ", ".join([*keys, "_start"])
        latest = f"SELECT {grouped}, max_by(_pane, _pane.pane_index) AS _said FROM ({earlier}) GROUP BY {grouped}"
        merged = f"SELECT l.*, r._said FROM ({merged}) l LEFT JOIN ({latest}) r ON {_same(node)}"
        index = "coalesce(_said.pane_index + 1, 0)"
    limit = Thresholds([bounds.closed], "_start")
    final = f"{Assignment(node.window).end('_start')} <= {limit[0]}"
    panes = _panes(node, merged, merging, index=index, timing="'late'", final=final)
    if said is None or node.accumulation != "retracting":
        return panes
    takes_back = select(
        [
            *[f"{key} AS {quote(name)}" for name, key in zip(node.key_names, keys, strict=True)],
            *_bounds(node),
            *[f"_said.{quote(name)} AS {quote(name)}" for name in node.value_names],
            "_said.pane_index AS pane_index",
            "'late' AS pane_timing",
            "false AS pane_final",
            "'retract' AS pane_change",
        ],
        merged,
        "_said IS NOT NULL",
    )
    return f"{takes_back} UNION ALL {panes}"


def merge(node: WindowNode, rows: Relation, by: str, merging: Merging) -> Relation:
    """Partials merged per (key, `by`)."""
    partials = merged_partials(node, merging)
    older = [f"bool_or({quote(f'_before_{alias}')}) AS {quote(f'_before_{alias}')}" for alias in merging.added]
    keys = [*key_columns(node), by]
    return select([*keys, *partials, *older, "sum(_n) AS _n"], rows) + f" GROUP BY {', '.join(keys)}"


def merged_partials(node: WindowNode, merging: Merging) -> list[str]:
    """The columns of merged partials."""
    # A merge may widen a type (decimal sums do): state keeps the type of the partial, however often it is merged.
    return [
        f"{_keep_type(user(sql), merging.types[column])} AS {quote(column)}"
        for alias, aggregate in node.aggregates
        for column, sql in aggregate.merge_sql(alias).items()
    ]


def _keep_type(sql: str, type_: str) -> str:
    return f"try_cast(({sql}) AS {type_})" if type_.startswith("decimal") else sql


def windows_of(node: WindowNode, slices: Relation, due: tuple[int, int]) -> Relation:
    """Each slice once per window that contains it and ends in the range `due`."""
    if isinstance(node.window, Rolling):
        return rolling_windows(node, slices, instants_between(node, slices, due))
    assignment = Assignment(node.window)
    limit = Thresholds(due, "_slice")
    starts = assignment.starts("_slice", limit[0], limit[1])
    if starts is not None:
        return select(["*", f"explode({starts}) AS _start"], slices)
    end = assignment.end("_slice")
    return select(["*", "_slice AS _start"], slices, f"{end} > {limit[0]} AND {end} <= {limit[1]}")


def _panes(node: WindowNode, merged: Relation, merging: Merging, *, index: str, timing: str, final: str) -> Relation:
    values = []
    for alias, aggregate in node.aggregates:
        value = user(aggregate.finish_sql(alias))
        if alias in merging.added:  # some of the window's events came before the aggregate was there
            value = f"CASE WHEN NOT {quote(f'_before_{alias}')} THEN ({value}) END"
        values.append(f"{value} AS {quote(alias)}")
    return select(
        [
            *[f"{key} AS {quote(name)}" for name, key in zip(node.key_names, key_columns(node), strict=True)],
            *_bounds(node),
            *values,
            f"CAST({index} AS INT) AS pane_index",
            f"{timing} AS pane_timing",
            f"{final} AS pane_final",
            "'upsert' AS pane_change",
        ],
        merged,
    )


def _bounds(node: WindowNode) -> list[str]:
    end = Assignment(node.window).end("_start")
    bounded = f"{end} < {END_OF_TIME}L"
    return [
        f"CASE WHEN {bounded} THEN timestamp_micros(_start) END AS window_start",
        f"CASE WHEN {bounded} THEN timestamp_micros({end}) END AS window_end",
    ]


def _same(node: WindowNode) -> str:
    return " AND ".join(f"l.{name} <=> r.{name}" for name in (*key_columns(node), "_start"))
