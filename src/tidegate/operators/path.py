"""Path: the user's own stateless steps between a source and an operator.

Steps mark instead of dropping: a row that a condition filters stays in the plan with ``_alive = false`` until it has
been counted. Expressions see only live rows. `_lead` tells the one row that stands for the event when a flat_map has
made several of it, so that an event is counted once; `_element` is its place in the arrays of all flat_maps so far.
`_unnested` is 0 before a flat_map, 1 for an event without elements, 2 for an element.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from tidegate.errors import PipelineError
from tidegate.operators.route import Rows
from tidegate.operators.sql import Relation, quote, select, user
from tidegate.stream import FlatMap, Select, Step, Transform, Where

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MARKS = ("_lead", "_element", "_unnested")
WHOLE = "CAST(array() AS ARRAY<INT>) AS _element"
"""The place of an event that no flat_map has taken apart."""


def internal(rows: Rows) -> list[str]:
    """All columns of walked rows that are not the user's."""
    return [*rows.envelope, "_alive", *_MARKS]


Bridge = Callable[[Relation, Callable[["DataFrame"], "DataFrame"]], tuple[Relation, tuple[str, ...]]]
"""Runs a user's function on a relation as a DataFrame; the result as a relation again, with its columns."""


def has_transform(steps: tuple[Step, ...]) -> bool:
    return any(isinstance(step, Transform) for step in steps)


def has_flat_map(steps: tuple[Step, ...]) -> bool:
    return any(isinstance(step, FlatMap) for step in steps)


def walk(steps: tuple[Step, ...], routed: Rows, bridge: Bridge) -> Rows:
    """Apply the steps; every event keeps at least one row, and `_alive` says whether it arrives."""
    marks = [*routed.envelope, "_alive", "true AS _lead", WHOLE, "0 AS _unnested"]
    rows = replace(routed, relation=select([*marks, *map(quote, routed.columns)], routed.relation))
    for step in steps:
        if isinstance(step, Where):
            condition = f"CASE WHEN _alive THEN coalesce(({user(step.condition)}), false) ELSE false END AS _alive"
            others = [name for name in internal(rows) if name != "_alive"]
            rows = replace(rows, relation=select([condition, *others, *map(quote, rows.columns)], rows.relation))
        elif isinstance(step, Select):
            columns = [f"CASE WHEN _alive THEN ({user(sql)}) END AS {quote(name)}" for name, sql in step.columns]
            relation = select([*internal(rows), *columns], rows.relation)
            rows = replace(rows, relation=relation, columns=tuple(name for name, _ in step.columns))
        elif isinstance(step, FlatMap):
            rows = _flat_map(rows, step)
        else:
            rows = _transform(rows, step, bridge)
    return rows


def _flat_map(rows: Rows, step: FlatMap) -> Rows:
    """One row per element; an event with none, or one already filtered, keeps a single row that is not alive."""
    array = f"CASE WHEN _alive THEN ({user(step.array)}) END"
    elements = f"transform({array}, (x, i) -> named_struct('i', i, 'x', x, 'alive', true))"
    nothing = f"array(named_struct('i', 0, 'x', try_element_at({array}, 1), 'alive', false))"
    others = [quote(name) for name in rows.columns if name != step.name]
    split = f"explode(CASE WHEN size({array}) > 0 THEN {elements} ELSE {nothing} END) AS _e"
    exploded = select([*internal(rows), *others, split], rows.relation)
    columns = [
        *rows.envelope,
        "_alive AND _e.alive AS _alive",
        "_lead AND _e.i = 0 AS _lead",
        "CASE WHEN _e.alive THEN concat(_element, array(_e.i)) ELSE _element END AS _element",
        # An element stays one, also when a later flat_map finds nothing in it or a condition has dropped it before.
        "CASE WHEN NOT _alive THEN _unnested WHEN _e.alive OR _unnested = 2 THEN 2 ELSE 1 END AS _unnested",
        *others,
        f"_e.x AS {quote(step.name)}",
    ]
    names = (*[name for name in rows.columns if name != step.name], step.name)
    return replace(rows, relation=select(columns, exploded), columns=names)


def _transform(rows: Rows, step: Transform, bridge: Bridge) -> Rows:
    """The user's function on the live rows; the others go around it, and those that it drops are filtered."""
    fields = [
        (quote(name.strip("`").removeprefix("_tg_").removeprefix("_")), name) for name in (*rows.envelope, *_MARKS)
    ]
    carried = "struct(" + ", ".join(f"{name} AS {field}" for field, name in fields) + ") AS _tg"
    alive = select([carried, *map(quote, rows.columns)], rows.relation, "_alive")

    def checked(frame: DataFrame) -> DataFrame:
        result = step.function(frame)
        if "_tg" not in result.columns:
            raise PipelineError(
                f"{step} lost the column `_tg`, which identifies each event",
                hint='keep it: df.select("_tg", …), or add columns with df.withColumn',
            )
        return result

    relation, columns = bridge(alive, checked)
    produced = tuple(name for name in columns if name != "_tg")
    unwrapped = [f"_tg.{field} AS {name}" for field, name in fields]
    empty = [f"NULL AS {quote(name)}" for name in produced]
    back = select([*unwrapped, "true AS _alive", *map(quote, produced)], relation)
    around = select([*rows.envelope, *_MARKS, "_alive", *empty], rows.relation, "NOT _alive")
    same = "given._tg.row = kept._tg.row AND given._tg.element = kept._tg.element"
    missing = f"SELECT given._tg FROM ({alive}) AS given LEFT ANTI JOIN {relation} AS kept ON {same}"
    lost = select([*unwrapped, "false AS _alive", *empty], missing)
    return replace(rows, relation=f"{back} UNION ALL {around} UNION ALL {lost}", columns=produced)
