"""Union: what must be the same about the rows of several sources before one operator can fold them.

Each source is folded for itself, into files that are read together: so keys and partials must have the same types. They
have when the columns that arrive do, and that can be told to a user.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidegate.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def same_columns(operator: str, arriving: Mapping[str, Mapping[str, str]]) -> None:
    """Refuse a union whose sources bring different columns; `arriving` has the type of each, by source."""
    (first, known), *others = arriving.items()
    for other, columns in others:
        mine, theirs = ({name.lower(): kind for name, kind in side.items()} for side in (known, columns))
        for name in (*mine, *theirs):
            if name not in mine or name not in theirs:
                has, lacks = (first, other) if name in mine else (other, first)
                raise PipelineError(
                    f"operator {operator!r}: a union needs the same columns, but {name!r} comes from {has} "
                    f"and not from {lacks}",
                    hint="give both the same columns with select(…) before the union",
                )
            if mine[name] != theirs[name]:
                raise PipelineError(
                    f"operator {operator!r}: a union needs the same types, but {name!r} is {mine[name]} from {first} "
                    f"and {theirs[name]} from {other}",
                    hint=f'convert one of them before the union: select(…, {name}="CAST({name} AS {mine[name]})")',
                )


def common_schema(schemas: Mapping[str, StructType]) -> StructType:
    """Every column that the folds of the sources stage. Letters differ, and are read source by source."""
    from pyspark.sql.types import StructField, StructType

    fields: dict[str, StructField] = {}
    for schema in schemas.values():
        fields = {field.name: field for field in schema.fields} | fields
    return StructType(list(fields.values()))
