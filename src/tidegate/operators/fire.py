"""Fire: the panes that the new watermark makes due, from the slices.

A window speaks when it is complete (default trigger) or when it closes (final only), and again for each batch that brought
late-but-allowed events. Its value is its slices merged and finished. Nothing is kept per open window: what a window said
before is found in the pane files of earlier records, and only for windows that stragglers have touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidegate.operators.assign import END_OF_TIME, Assignment
from tidegate.operators.sql import Thresholds, quote
from tidegate.triggers import FinalOnly

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

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


def fire_due(node: WindowNode, slices: DataFrame, bounds: FireBounds, added: tuple[str, ...] = ()) -> DataFrame:
    """The first pane of every window that has become due."""
    windows = _windows(node, slices, bounds.due(node))
    merged = _merge(node, windows, added)
    end = Assignment(node.window).end("_start")
    limit = Thresholds([bounds.complete_before, bounds.closed], "_start")
    timing = f"CASE WHEN {end} <= {limit[0]} THEN 'late' ELSE 'on_time' END"
    return _panes(node, merged, added, index="0", timing=timing, final=f"{end} <= {limit[1]}")


def fire_late(
    node: WindowNode,
    slices: DataFrame,
    stragglers: DataFrame,
    said: DataFrame | None,
    bounds: FireBounds,
    touched_rows: int,
    added: tuple[str, ...] = (),
) -> DataFrame:
    """One more pane for every complete window that a straggler of this batch has touched.

    `said` are the panes of earlier records; it gives the index, and what a retraction takes back.
    """
    keys = _keys(node)
    due = (bounds.closed_before, bounds.complete_before)
    fresh = _windows(node, stragglers, due)
    touched = fresh.select(*keys, "_start").distinct()
    if touched_rows <= BROADCAST_ROWS:
        touched = F.broadcast(touched)
    rows = fresh
    if node.accumulation != "discarding":
        rows = _semi(_windows(node, slices, due), touched, [*keys, "_start"])
    merged = _merge(node, rows, added)
    index = "0"
    if said is not None:
        earlier = said.where("pane_change = 'upsert'").select(
            *[F.col(quote(name)).alias(f"_key_{name}") for name in node.key_names],
            F.expr("coalesce(unix_micros(window_start), 0L)").alias("_start"),
            F.struct("pane_index", *[quote(name) for name in node.value_names]).alias("_pane"),
        )
        earlier = _semi(earlier, touched, [*keys, "_start"])
        earlier = earlier.groupBy(*keys, "_start").agg(F.expr("max_by(_pane, _pane.pane_index)").alias("_said"))
        merged = _left(merged, earlier, [*keys, "_start"])
        index = "coalesce(_said.pane_index + 1, 0)"
    limit = Thresholds([bounds.closed], "_start")
    final = f"{Assignment(node.window).end('_start')} <= {limit[0]}"
    panes = _panes(node, merged, added, index=index, timing="'late'", final=final)
    if said is None or node.accumulation != "retracting":
        return panes
    takes_back = merged.where("_said IS NOT NULL").select(
        *[F.col(f"_key_{name}").alias(name) for name in node.key_names],
        *_bounds(node),
        *[F.expr(f"_said.{quote(name)}").alias(name) for name in node.value_names],
        F.expr("_said.pane_index").alias("pane_index"),
        F.lit("late").alias("pane_timing"),
        F.lit(False).alias("pane_final"),
        F.lit("retract").alias("pane_change"),
    )
    return takes_back.unionByName(panes)


def compact(node: WindowNode, slices: DataFrame) -> DataFrame:
    """The same state in fewer rows: one per (key, slice)."""
    return _merged(node, slices, "_slice", ())


def _keys(node: WindowNode) -> list[str]:
    return [f"_key_{name}" for name in node.key_names]


def _windows(node: WindowNode, slices: DataFrame, due: tuple[int, int]) -> DataFrame:
    """Each slice once per window that contains it and ends in the range `due`."""
    assignment = Assignment(node.window)
    limit = Thresholds(due, "_slice")
    starts = assignment.starts("_slice", limit[0], limit[1])
    if starts is not None:
        return slices.withColumn("_start", F.explode(F.expr(starts)))
    end = assignment.end("_slice")
    return slices.withColumn("_start", F.col("_slice")).where(f"{end} > {limit[0]} AND {end} <= {limit[1]}")


def _merge(node: WindowNode, windows: DataFrame, added: tuple[str, ...]) -> DataFrame:
    return _merged(node, windows, "_start", added)


def _merged(node: WindowNode, rows: DataFrame, by: str, added: tuple[str, ...]) -> DataFrame:
    types = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
    # A merge may widen a type (decimal sums do): state keeps the type of the partial, whatever is merged how often.
    partials = [
        F.expr(f"try_cast(({sql}) AS {types[column]})" if types[column].startswith("decimal") else sql).alias(column)
        for alias, aggregate in node.aggregates
        for column, sql in aggregate.merge_sql(alias).items()
    ]
    older = [F.expr(f"bool_or({quote(f'_before_{alias}')})").alias(f"_before_{alias}") for alias in added]
    return rows.groupBy(*_keys(node), by).agg(*partials, *older, F.expr("sum(_n)").alias("_n"))


def _panes(
    node: WindowNode, merged: DataFrame, added: tuple[str, ...], *, index: str, timing: str, final: str
) -> DataFrame:
    values = []
    for alias, aggregate in node.aggregates:
        value = aggregate.finish_sql(alias)
        if alias in added:  # some of the window's events came before the aggregate was there
            value = f"CASE WHEN NOT {quote(f'_before_{alias}')} THEN ({value}) END"
        values.append(F.expr(value).alias(alias))
    return merged.select(
        *[F.col(f"_key_{name}").alias(name) for name in node.key_names],
        *_bounds(node),
        *values,
        F.expr(f"CAST({index} AS INT)").alias("pane_index"),
        F.expr(timing).alias("pane_timing"),
        F.expr(final).alias("pane_final"),
        F.lit("upsert").alias("pane_change"),
    )


def _bounds(node: WindowNode) -> list[Column]:
    end = Assignment(node.window).end("_start")
    bounded = f"{end} < {END_OF_TIME}L"
    return [
        F.expr(f"CASE WHEN {bounded} THEN timestamp_micros(_start) END").alias("window_start"),
        F.expr(f"CASE WHEN {bounded} THEN timestamp_micros({end}) END").alias("window_end"),
    ]


def _semi(left: DataFrame, right: DataFrame, on: list[str]) -> DataFrame:
    return left.join(right, _same(left, right, on), "left_semi")


def _left(left: DataFrame, right: DataFrame, on: list[str]) -> DataFrame:
    renamed = right.select(*[F.col(name).alias(f"_r{name}") for name in on], "_said")
    condition = reduce(lambda a, b: a & b, [F.col(name).eqNullSafe(F.col(f"_r{name}")) for name in on])
    return left.join(renamed, condition, "left").drop(*[f"_r{name}" for name in on])


def _same(left: DataFrame, right: DataFrame, on: list[str]) -> Column:
    return reduce(lambda a, b: a & b, [left[name].eqNullSafe(right[name]) for name in on])
