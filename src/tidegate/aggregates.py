"""Aggregates as triples of SQL: *partial* over events, *merge* over partials, *finish* to the value.

Event-time state is a table of partials per (key, slice). An event is folded once, into the partials
of its slice; a window merges the partials of its slices when it fires, and finishes them into what
the user sees. All three are Spark SQL strings, so every aggregate, custom ones included, runs
natively – and an app can be declared and checked without a Spark session.

In `partial`, columns are the event's, and ``_order`` is its place in event-time order. In `merge` and
`finish`, ``{name}`` stands for the partial column `name`. Merging and finishing never throw: an overflow
becomes NULL, and stays NULL.

>>> total = sum("amount")
>>> total.finish
'CASE WHEN {o} THEN NULL ELSE {s} END'
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.errors import PipelineError


@dataclass(frozen=True)
class Aggregate:
    """One value per window, in three steps of SQL."""

    label: str
    partial: tuple[tuple[str, str], ...]
    merge: tuple[tuple[str, str], ...]
    finish: str

    def column(self, alias: str, name: str) -> str:
        """The state column that holds partial `name` of the aggregate called `alias`."""
        return f"{alias}__{name}"

    def partial_sql(self, alias: str) -> dict[str, str]:
        return {self.column(alias, name): sql for name, sql in self.partial}

    def merge_sql(self, alias: str) -> dict[str, str]:
        return {self.column(alias, name): self._fill(alias, sql) for name, sql in self.merge}

    def finish_sql(self, alias: str) -> str:
        return self._fill(alias, self.finish)

    def _fill(self, alias: str, sql: str) -> str:
        for name, _ in self.partial:
            sql = sql.replace("{" + name + "}", f"`{self.column(alias, name)}`")
        return sql

    def __str__(self) -> str:
        return self.label


def custom(*, partial: Mapping[str, str], merge: Mapping[str, str], finish: str, label: str = "custom") -> Aggregate:
    """An aggregate of your own.

    >>> product = custom(partial={"p": "exp(sum(ln(x)))"}, merge={"p": "exp(sum(ln({p})))"}, finish="{p}")
    """
    if set(partial) != set(merge):
        raise PipelineError(
            f"aggregate {label!r}: partial has {sorted(partial)} but merge has {sorted(merge)}",
            hint="each partial column needs one merge expression of the same name",
        )
    return Aggregate(label, tuple(partial.items()), tuple(merge.items()), finish)


def count(expression: str = "*") -> Aggregate:
    """How many events, or how many in which `expression` is not NULL."""
    sql = "count(1)" if expression == "*" else f"count({expression})"
    return Aggregate(f"count({expression})", (("n", sql),), (("n", "sum({n})"),), "coalesce({n}, 0L)")


def sum(expression: str) -> Aggregate:
    """The sum; NULL when it overflows, never a wrong number and never an exception."""
    x = f"({expression})"

    def overflows(values: str, before: str = "false") -> str:
        # A sum of doubles cannot: Spark sees that as it plans, and does not count (a tenth of the whole fold).
        at_all = f"typeof(try_sum({values})) <> 'double'"
        return f"{at_all} AND ({before} OR (count({values}) > 0 AND try_sum({values}) IS NULL))"

    return Aggregate(
        f"sum({expression})",
        (("s", f"try_sum({x})"), ("o", overflows(x))),
        (("s", "try_sum({s})"), ("o", overflows("{s}", "bool_or({o})"))),
        "CASE WHEN {o} THEN NULL ELSE {s} END",
    )


def min(expression: str) -> Aggregate:
    """The smallest value."""
    return Aggregate(f"min({expression})", (("v", f"min({expression})"),), (("v", "min({v})"),), "{v}")


def max(expression: str) -> Aggregate:
    """The largest value."""
    return Aggregate(f"max({expression})", (("v", f"max({expression})"),), (("v", "max({v})"),), "{v}")


def avg(expression: str) -> Aggregate:
    """The mean, as a double."""
    x = f"CAST(({expression}) AS DOUBLE)"
    return Aggregate(
        f"avg({expression})",
        (("s", f"sum({x})"), ("n", f"count({x})")),
        (("s", "sum({s})"), ("n", "sum({n})")),
        "try_divide({s}, {n})",
    )


def stddev(expression: str) -> Aggregate:
    """The sample standard deviation; partial variances are combined pairwise, so no digits cancel."""
    x = f"CAST(({expression}) AS DOUBLE)"
    combine = (
        "aggregate(filter(collect_list({p}), e -> e.n > 0), "
        "named_struct('n', 0L, 'mean', 0D, 'm2', 0D), (a, b) -> named_struct("
        "'n', a.n + b.n, "
        "'mean', a.mean + (b.mean - a.mean) * b.n / (a.n + b.n), "
        "'m2', a.m2 + b.m2 + (b.mean - a.mean) * (b.mean - a.mean) * a.n * b.n / (a.n + b.n)))"
    )
    return Aggregate(
        f"stddev({expression})",
        (
            (
                "p",
                f"named_struct('n', count({x}), 'mean', coalesce(avg({x}), 0D), "
                f"'m2', coalesce(var_pop({x}) * count({x}), 0D))",
            ),
        ),
        (("p", combine),),
        "CASE WHEN {p}.n > 1 THEN sqrt({p}.m2 / ({p}.n - 1)) END",
    )


def first(expression: str) -> Aggregate:
    """The value of the earliest event, by event time."""
    return _by_order("first", "min", expression)


def last(expression: str) -> Aggregate:
    """The value of the latest event, by event time."""
    return _by_order("last", "max", expression)


def _by_order(label: str, pick: str, expression: str) -> Aggregate:
    return Aggregate(
        f"{label}({expression})",
        (("v", f"{pick}_by({expression}, _order)"), ("o", f"{pick}(_order)")),
        (("v", pick + "_by({v}, {o})"), ("o", pick + "({o})")),
        "{v}",
    )


def collect(expression: str, limit: int = 1000) -> Aggregate:
    """The values in event-time order, the first `limit` of them: state must stay bounded."""
    if limit < 1:
        raise PipelineError(f"collect({expression!r}, limit={limit}): the limit must be at least 1")
    return Aggregate(
        f"collect({expression}, {limit})",
        (("v", f"slice(sort_array(collect_list(named_struct('o', _order, 'v', {expression}))), 1, {limit})"),),
        (("v", f"slice(sort_array(flatten(collect_list({{v}}))), 1, {limit})"),),
        "transform({v}, e -> e.v)",
    )


def approx_distinct(expression: str, log2_size: int = 12) -> Aggregate:
    """About how many different values (HyperLogLog, ~1.6 % error at the default size)."""
    return Aggregate(
        f"approx_distinct({expression}, {log2_size})",
        (("h", f"hll_sketch_agg(CAST(({expression}) AS STRING), {log2_size})"),),
        (("h", "hll_union_agg({h}, true)"),),
        "coalesce(hll_sketch_estimate({h}), 0L)",
    )


def quantile(expression: str, q: float, size: int = 200) -> Aggregate:
    """About the value below which a share `q` lies (KLL sketch, ~1.3 % rank error at the default size)."""
    if not 0.0 <= q <= 1.0:
        raise PipelineError(f"quantile({expression!r}, {q}): q must be between 0 and 1")
    x = f"CAST(({expression}) AS DOUBLE)"
    return Aggregate(
        f"quantile({expression}, {q}, {size})",
        (("k", f"kll_sketch_agg_double({x}, {size})"), ("n", f"count({x})")),
        (("k", "kll_merge_agg_double({k})"), ("n", "sum({n})")),
        f"CASE WHEN {{n}} > 0 THEN kll_sketch_get_quantile_double({{k}}, {q}D) END",
    )


def median(expression: str, exact_up_to: int = 1000) -> Aggregate:
    """The middle value, or the mean of the two middle ones: exact up to so many events, beyond that as `quantile`."""
    if exact_up_to < 1:
        raise PipelineError(f"median({expression!r}, exact_up_to={exact_up_to}): it must be at least 1")
    x = f"CAST(({expression}) AS DOUBLE)"
    middle = "(element_at({s}, CAST(({n} + 1) div 2 AS INT)) + element_at({s}, CAST({n} div 2 + 1 AS INT))) / 2D"
    exact = middle.replace("{s}", "array_sort({v})")
    about = "kll_sketch_get_quantile_double({k}, 0.5D)"
    return Aggregate(
        f"median({expression}, {exact_up_to})",
        (
            ("v", f"CASE WHEN count({x}) <= {exact_up_to} THEN collect_list({x}) END"),
            ("k", f"kll_sketch_agg_double({x}, 200)"),
            ("n", f"count({x})"),
        ),
        (
            ("v", f"CASE WHEN sum({{n}}) <= {exact_up_to} THEN flatten(collect_list({{v}})) END"),
            ("k", "kll_merge_agg_double({k})"),
            ("n", "sum({n})"),
        ),
        f"CASE WHEN {{n}} > {exact_up_to} THEN {about} WHEN {{n}} > 0 THEN {exact} END",
    )


def top_k(expression: str, k: int, max_items: int = 10_000) -> Aggregate:
    """About the `k` most frequent values with their counts, as an array of (item, count)."""
    if k < 1:
        raise PipelineError(f"top_k({expression!r}, {k}): k must be at least 1")
    return Aggregate(
        f"top_k({expression}, {k}, {max_items})",
        (("t", f"approx_top_k_accumulate({expression}, {max_items})"),),
        (("t", f"approx_top_k_combine({{t}}, {max_items})"),),
        f"approx_top_k_estimate({{t}}, {k})",
    )
