"""Staged panes as sinks see them: read, reduced to the last state, turned into plain values.

An **upsert sink** shows one row per (key, window). A record may say several things about the same one –
take back the old pane, then bring the new – and only the last counts. `reduce_panes` finds it in bulk:

- when the record has an upsert for (key, window), that is the state (of several, the highest pane index);
- when it has only ``retract`` or ``replaced``, the row is to be deleted.

This needs no trust in the order of files or of rows in them: what is taken back comes before what replaces
it by contract, so an upsert always wins, even where Spark wrote it into an earlier file.
NULL keys and NULL windows are values like others: NULL equals NULL.

`encode` turns an Arrow column into what every SQL database and JSON reader understands, without loss:
decimals become their digits, instants ISO-8601 text in UTC, arrays and structs JSON.
All work is done per column by Arrow; only nested values are walked in Python.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.errors import SinkError
from tidegate.sinks.base import SinkTarget
from tidegate.storage.parquet import reading
from tidegate.storage.places import Place

WINDOW = ("window_start", "window_end")
PANE = ("pane_index", "pane_timing", "pane_final")
CHANGES = ("upsert", "retract", "replaced")
INSTANT = pa.timestamp("us", "UTC")


class Kind(Enum):
    """What a column holds, as far as storing it is concerned."""

    INTEGER = "integer"
    REAL = "real"
    BOOLEAN = "boolean"
    TEXT = "text"
    DECIMAL = "decimal"
    INSTANT = "instant"
    LOCAL = "local date and time"
    DATE = "date"
    BINARY = "binary"
    JSON = "array or struct"


def kind_of(name: str, type_: pa.DataType) -> Kind:
    """The kind of a column; refuses types that Spark does not write."""
    if pa.types.is_timestamp(type_):
        return Kind.INSTANT if type_.tz else Kind.LOCAL
    for kind, tests in _TESTS.items():
        if any(test(type_) for test in tests):
            return kind
    raise SinkError(
        f"column {name!r} has type {type_}, which this sink cannot store",
        hint=f"cast it in the pipeline, for example to string: CAST({name} AS STRING)",
    )


_TESTS = {
    Kind.INTEGER: (pa.types.is_integer,),
    Kind.REAL: (pa.types.is_floating,),
    Kind.BOOLEAN: (pa.types.is_boolean,),
    Kind.TEXT: (pa.types.is_string, pa.types.is_large_string, pa.types.is_time),
    Kind.DECIMAL: (pa.types.is_decimal,),
    Kind.DATE: (pa.types.is_date,),
    Kind.BINARY: (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary),
    Kind.JSON: (pa.types.is_nested,),
}


def read_panes(files: Sequence[Place], target: SinkTarget) -> pa.Table:
    """All rows of a record for one sink, in order, with the columns that the target promises."""
    names = [*target.key, *WINDOW, *target.values, *PANE, "pane_change"]
    tables = []
    for file in files:
        try:
            # Spark's INT96 would otherwise become nanoseconds, which end in the year 2262.
            with reading(file) as local, pq.ParquetFile(local, coerce_int96_timestamp_unit="us") as parquet:
                table = parquet.read()
        except (OSError, pa.ArrowException) as error:
            raise SinkError(
                f"staged pane file {file} cannot be read: {error}",
                hint="the record names it, so without it results would be lost; restore the checkpoint folder",
            ) from error
        if missing := [name for name in names if name not in table.column_names]:
            raise SinkError(f"staged pane file {file} lacks the column(s) {', '.join(missing)}")
        if table.num_rows:
            tables.append(_with_instants(table.select(names)))
    if not tables:
        return pa.table({name: pa.array([], pa.null()) for name in names})
    panes = pa.concat_tables(tables, promote_options="default")
    unknown = set(pc.unique(panes["pane_change"]).to_pylist()) - set(CHANGES)
    if unknown:
        raise SinkError(f"pane_change must be one of {', '.join(CHANGES)}, but is {sorted(map(str, unknown))}")
    return panes


def _with_instants(table: pa.Table) -> pa.Table:
    for name in WINDOW:
        table = table.set_column(table.column_names.index(name), name, table[name].cast(INSTANT))
    return table


@dataclass(frozen=True)
class Changes:
    """What a record comes to, at most one row per (key, window) in both tables together."""

    upserts: pa.Table
    deletes: pa.Table


def reduce_panes(panes: pa.Table, key: Sequence[str]) -> Changes:
    """The last state per (key, window)."""
    is_upsert = pc.equal(panes["pane_change"], "upsert")
    ranked = pa.table({"upsert": is_upsert.cast(pa.int8()), "index": panes["pane_index"]})
    panes = panes.take(pc.sort_indices(ranked, [("upsert", "ascending"), ("index", "ascending")]))
    identity = pa.table({name: _groupable(name, panes[name]) for name in (*key, *WINDOW)})
    # The position goes under a pane column's name, for these are reserved: no key can be called so.
    identity = identity.append_column("pane_index", pa.array(range(panes.num_rows), pa.int64()))
    last = identity.group_by([*key, *WINDOW]).aggregate([("pane_index", "max")])
    # In the order of a table's index, an upsert touches each page of it once: twice as fast in SQLite.
    last = last.sort_by([(name, "ascending") for name in (*key, *WINDOW)])
    panes = panes.take(last.column(last.num_columns - 1))
    is_upsert = pc.equal(panes["pane_change"], "upsert")
    return Changes(panes.filter(is_upsert), panes.filter(pc.invert(is_upsert)))


def _groupable(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Arrow groups by plain values only; a nested key is told apart by its JSON."""
    if kind_of(name, column.type) is Kind.JSON:
        return pa.array(encode(name, column), pa.string())
    return column


def encode(name: str, column: pa.ChunkedArray) -> list[Any]:
    """A column as Python values that databases take: int, float, bool, str, bytes, None."""
    with _explained(name):
        values: list[Any] = (column if _is_plain(column.type) else as_text(name, column)).to_pylist()
    return values


def as_text(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """A column as Arrow strings that people and databases read; binary columns have no text."""
    kind = kind_of(name, column.type)
    with _explained(name):
        if kind in (Kind.INSTANT, Kind.LOCAL):
            return _iso(name, column, kind)
        if kind is Kind.DECIMAL:
            return _digits(column)
        if kind is Kind.JSON:
            texts = [None if value is None else _json(value, column.type) for value in column.to_pylist()]
            return pa.array(texts, pa.string())
        return column.cast(pa.string())


def _is_plain(type_: pa.DataType) -> bool:
    """Whether Python has a value for it that every database takes."""
    return any(
        test(type_) for kind in (Kind.INTEGER, Kind.REAL, Kind.BOOLEAN, Kind.BINARY) for test in _TESTS[kind]
    ) or pa.types.is_string(type_)


@contextmanager
def _explained(name: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise SinkError(
            f"column {name!r} holds a value that cannot be stored: {error}",
            hint="find it in the staged pane files of this record, and mend or filter it in the pipeline",
        ) from error


def _iso(name: str, column: pa.ChunkedArray, kind: Kind) -> pa.ChunkedArray:
    if column.type.unit in ("s", "ms"):
        column = column.cast(pa.timestamp("us", column.type.tz))
    text = pc.replace_substring(
        column.cast(pa.timestamp(column.type.unit)).cast(pa.string()), " ", "T", max_replacements=1
    )
    if pc.any(pc.starts_with(text, "<")).as_py():
        raise SinkError(f"column {name!r} holds a time outside the years 0001 to 9999, which ISO-8601 text cannot say")
    return pc.binary_join_element_wise(text, "Z", "") if kind is Kind.INSTANT else text


def _digits(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    text = column.cast(pa.string())
    if column.type.scale > 6 or column.type.scale < 0:
        # Arrow writes small and scaled numbers as 1E-7; people and databases expect 0.0000001.
        scaled = pc.match_substring(text, "E")
        if pc.any(scaled).as_py():
            digits = [format(Decimal(value), "f") if value else None for value in text.to_pylist()]
            return pa.array(digits, pa.string())
    return text


def _json(value: Any, type_: pa.DataType) -> str:
    return json.dumps(_plain(value, type_), ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any, type_: pa.DataType) -> Any:
    """A nested value in JSON's terms; what JSON numbers cannot hold exactly becomes a string."""
    if value is None:
        return None
    if pa.types.is_map(type_):
        return {_json_key(k, type_.key_type): _plain(v, type_.item_type) for k, v in value}
    if pa.types.is_struct(type_):
        return {field.name: _plain(value[field.name], field.type) for field in type_}
    if pa.types.is_nested(type_):
        return [_plain(item, type_.value_type) for item in value]
    if isinstance(value, datetime):
        moment = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return moment.isoformat(timespec="microseconds") + ("Z" if value.tzinfo else "")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, bool | int | float | str) else str(value)


def _json_key(key: Any, type_: pa.DataType) -> str:
    plain = _plain(key, type_)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
