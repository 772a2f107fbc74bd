"""Path: the user's own stateless steps between a source and an operator.

Steps mark instead of dropping: a row that a condition filters stays in the plan with ``_alive = false`` until it has been
counted. Expressions see only live rows. `_lead` tells the one row that stands for the event when a flat_map has made several
of it, so that an event is counted once; `_unnested` is 0 before a flat_map, 1 for an event without elements, 2 for an element.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidegate.errors import PipelineError
from tidegate.operators.sql import quote
from tidegate.stream import FlatMap, Select, Step, Transform, Where

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

INTERNAL = ("_tg", "_alive", "_lead", "_element", "_unnested")


def has_transform(steps: tuple[Step, ...]) -> bool:
    return any(isinstance(step, Transform) for step in steps)


def has_flat_map(steps: tuple[Step, ...]) -> bool:
    return any(isinstance(step, FlatMap) for step in steps)


def walk(steps: tuple[Step, ...], routed: DataFrame) -> DataFrame:
    """Apply the steps; every event keeps at least one row, and `_alive` says whether it arrives."""
    rows = routed.withColumns({"_lead": F.lit(True), "_element": F.lit(0), "_unnested": F.lit(0)})
    for step in steps:
        if isinstance(step, Where):
            condition = f"CASE WHEN _alive THEN coalesce(({step.condition}), false) ELSE false END"
            rows = rows.withColumn("_alive", F.expr(condition))
        elif isinstance(step, Select):
            columns = [F.expr(f"CASE WHEN _alive THEN ({sql}) END").alias(name) for name, sql in step.columns]
            rows = rows.select(*INTERNAL, *columns)
        elif isinstance(step, FlatMap):
            rows = _flat_map(rows, step)
        else:
            rows = _transform(rows, step)
    return rows


def _flat_map(rows: DataFrame, step: FlatMap) -> DataFrame:
    """One row per element; an event with none, or one already filtered, keeps a single row that is not alive."""
    array = f"CASE WHEN _alive THEN ({step.array}) END"
    elements = f"transform({array}, (x, i) -> named_struct('i', i, 'x', x, 'alive', true))"
    nothing = f"array(named_struct('i', 0, 'x', element_at({array}, 1), 'alive', false))"
    rows = rows.withColumn("_elements", F.expr(f"CASE WHEN size({array}) > 0 THEN {elements} ELSE {nothing} END"))
    others = [quote(name) for name in rows.columns if name not in (*INTERNAL, "_elements", step.name)]
    exploded = rows.select("_tg", "_alive", "_lead", *others, F.explode("_elements").alias("_e"))
    return exploded.selectExpr(
        "_tg",
        "_alive AND _e.alive AS _alive",
        "_lead AND _e.i = 0 AS _lead",
        "_e.i AS _element",
        "CASE WHEN NOT _alive THEN 0 WHEN _e.alive THEN 2 ELSE 1 END AS _unnested",
        *others,
        f"_e.x AS {quote(step.name)}",
    )


def _transform(rows: DataFrame, step: Transform) -> DataFrame:
    """The user's function on the live rows; the others go around it."""
    users = [name for name in rows.columns if name not in INTERNAL]
    carried = F.struct(
        *[F.col(f"_tg.{name}") for name in _fields(rows)], F.col("_lead"), F.col("_element"), F.col("_unnested")
    )
    alive = rows.where("_alive").select(carried.alias("_tg"), *[quote(name) for name in users])
    result = step.function(alive)
    if "_tg" not in result.columns:
        raise PipelineError(
            f"{step} lost the column `_tg`, which identifies each event",
            hint='keep it: df.select("_tg", …), or add columns with df.withColumn',
        )
    produced = [name for name in result.columns if name != "_tg"]
    envelope = ", ".join(f"'{name}', _tg.{name}" for name in _fields(rows))
    back = result.selectExpr(
        f"named_struct({envelope}) AS _tg",
        "true AS _alive",
        "_tg._lead AS _lead",
        "_tg._element AS _element",
        "_tg._unnested AS _unnested",
        *[quote(name) for name in produced],
    )
    around = rows.where("NOT _alive").select(
        *INTERNAL, *[F.lit(None).cast(result.schema[name].dataType).alias(name) for name in produced]
    )
    return back.unionByName(around)


def _fields(rows: DataFrame) -> list[str]:
    return [field.name for field in rows.schema["_tg"].dataType.fields]  # type: ignore[attr-defined]
