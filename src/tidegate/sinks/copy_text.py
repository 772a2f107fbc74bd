"""Arrow columns as PostgreSQL's COPY text, without a Python object per row.

COPY takes lines of tab-separated texts in which ``\\N`` is NULL and a backslash escapes tab, line end and itself. Each
column becomes Arrow strings, Arrow joins the columns to lines, and then the buffer of the joined column **is** the
data: all lines, one after the other. Arrays are written as PostgreSQL's literals (``{"a",NULL}``), joined in bulk from
their flattened elements; only what becomes JSON is walked value by value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import SinkError
from tidegate.sinks.panes import Kind, as_text, kind_of
from tidegate.sinks.sql import CHUNK_ROWS

NUL_IN_JSON = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")


def type_name(type_: pa.DataType) -> str:
    """The column type for an Arrow type, as PostgreSQL itself spells it."""
    kind = kind_of("", type_)
    if pa.types.is_time(type_):
        return "TIME WITHOUT TIME ZONE"
    if kind is Kind.INTEGER:
        return "SMALLINT" if type_.bit_width <= 16 else "INTEGER" if type_.bit_width == 32 else "BIGINT"
    if kind is Kind.REAL:
        return "DOUBLE PRECISION" if type_.bit_width == 64 else "REAL"
    if kind is Kind.DECIMAL:
        return f"NUMERIC({type_.precision},{type_.scale})"
    if kind is Kind.JSON:
        return f"{type_name(type_.value_type)}[]" if _is_array(type_) else "JSONB"
    return _TYPES[kind]


_TYPES = {
    Kind.BOOLEAN: "BOOLEAN",
    Kind.TEXT: "TEXT",
    Kind.INSTANT: "TIMESTAMP WITH TIME ZONE",
    Kind.LOCAL: "TIMESTAMP WITHOUT TIME ZONE",
    Kind.DATE: "DATE",
    Kind.BINARY: "BYTEA",
}


def _is_array(type_: pa.DataType) -> bool:
    """Arrays of plain values have a native type; arrays of arrays would have to be rectangular there."""
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_)) and not pa.types.is_nested(type_.value_type)


def copy_text(table: pa.Table, names: Sequence[str], nul_as: str | None) -> Iterator[memoryview]:
    """The rows of a table as COPY text, a chunk at a time.

    PostgreSQL cannot store the character NUL: `nul_as` stands in its place, and without it the row is refused.
    """
    for start in range(0, table.num_rows, CHUNK_ROWS):
        chunk = table.slice(start, CHUNK_ROWS)
        columns = [_escaped(name, chunk[name].combine_chunks(), nul_as) for name in names]
        lines = pc.binary_join_element_wise(
            *(column.cast(pa.large_string()) for column in columns),
            pa.scalar("\t", pa.large_string()),
            null_handling="replace",
            null_replacement="\\N",
        )
        lines = pc.binary_join_element_wise(lines, *(pa.scalar(end, pa.large_string()) for end in ("\n", "")))
        # Freshly made, so its buffer holds these lines and nothing else.
        offsets = np.frombuffer(lines.buffers()[1], np.int64, len(lines) + 1, lines.offset * 8)
        yield memoryview(lines.buffers()[2])[offsets[0] : offsets[-1]]


def _escaped(name: str, column: pa.Array, nul_as: str | None) -> pa.Array:
    text = _text(name, column, nul_as)
    if not pa.types.is_primitive(column.type) and _any(pc.match_substring_regex(text, r"[\\\t\n\r]")):
        for character, escape in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
            text = pc.replace_substring(text, character, escape)
    return text


def _text(name: str, column: pa.Array, nul_as: str | None) -> pa.Array:
    """A column as PostgreSQL reads it outside of COPY."""
    kind = kind_of(name, column.type)
    if kind is Kind.BINARY:
        return _hex(column)
    if kind is Kind.JSON and _is_array(column.type):
        return _array_literals(name, column, nul_as)
    if kind is Kind.DECIMAL:
        return column.cast(pa.string())  # 1E-9 is a number there too
    text = as_text(name, column)
    if kind is Kind.TEXT and _any(pc.match_substring(text, "\x00")):
        return pc.replace_substring(text, "\x00", _instead_of_nul(name, nul_as))
    if kind is Kind.JSON and _any(pc.match_substring(text, "\\u0000")):
        texts = text.to_pylist()
        if any(value and NUL_IN_JSON.search(value) for value in texts):
            instead = _instead_of_nul(name, nul_as).replace("\\", "\\\\").replace('"', '\\"')
            texts = [value and NUL_IN_JSON.sub(lambda m: m[1] + instead, value) for value in texts]
        return pa.array(texts, pa.string())
    return text


def _instead_of_nul(name: str, nul_as: str | None) -> str:
    if nul_as is None:
        raise SinkError(
            f"column {name!r} holds text with the character NUL (U+0000), which PostgreSQL cannot store",
            hint='say what shall stand there instead, such as tg.Postgres(…, nul_as="␀"), and start again; '
            "or take it out in the pipeline",
        )
    return nul_as


def _hex(column: pa.Array) -> pa.Array:
    """Binary as ``\\x00ff``; the hex digits of all values come from one call."""
    column = column.cast(pa.large_binary())
    offsets = np.frombuffer(column.buffers()[1], np.int64, len(column) + 1, column.offset * 8)
    data = memoryview(column.buffers()[2] or b"")[offsets[0] : offsets[-1]]
    digits = pa.LargeStringArray.from_buffers(
        len(column),
        pa.py_buffer((offsets - offsets[0]) * 2),
        pa.py_buffer(data.hex().encode("ascii")),
    )
    prefix, nothing = pa.scalar("\\x", pa.large_string()), pa.scalar("", pa.large_string())
    prefixed = pc.binary_join_element_wise(prefix, digits, nothing)
    return pc.if_else(column.is_valid(), prefixed, pa.scalar(None, pa.large_string()))


def _array_literals(name: str, column: pa.Array, nul_as: str | None) -> pa.Array:
    elements = column.flatten()
    text = _text(name, elements, nul_as).cast(pa.string())
    if kind_of(name, elements.type) not in (Kind.INTEGER, Kind.REAL, Kind.BOOLEAN, Kind.DECIMAL):
        for character in ("\\", '"'):
            text = pc.replace_substring(text, character, "\\" + character)
        text = pc.binary_join_element_wise('"', text, '"', "")
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    offsets = np.concatenate([[0], np.cumsum(lengths.to_numpy(zero_copy_only=False))]).astype(np.int32)
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), pc.fill_null(text, "NULL")), ",")
    literals = pc.binary_join_element_wise("{", joined, "}", "")
    return pc.if_else(column.is_valid(), literals, pa.scalar(None, pa.string()))


def _any(mask: Any) -> bool:
    return bool(pc.any(mask).as_py())
