"""Rows for Redis: names of hashes, fields as text, packed by Arrow so that a script can read them.

The script gets its rows as one MessagePack value, which Redis' Lua can unpack. MessagePack writes a text as ``0xdb``,
its length in four bytes, and the text; NULL as ``0xc0``. Column by column that is a join of three Arrow columns, and a
whole step is one buffer: no Python object is made for a row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.sinks.panes import PANE, WINDOW, Kind, as_text, kind_of

BYTES = pa.large_binary()
NULL_KEY, GLOBAL = "%N", "global"
EMPTY_LIST = b"\x90"


def fields_of(values: Sequence[str]) -> bytes:
    """The names of the hash's fields, packed."""
    names = [name.encode() for name in (WINDOW[1], *values, *PANE)]
    return _list_of(len(names)) + b"".join(_header(len(name)) + name for name in names)


def packed_upserts(table: pa.Table, prefix: str, key: Sequence[str], values: Sequence[str], ttl: int | None) -> bytes:
    """A list of [name, expiry in ms, field, …] per row; the expiry is NULL without a ttl (in µs) or a window's end."""
    if not table.num_rows:
        return EMPTY_LIST
    if ttl is None:
        expiry = pa.nulls(table.num_rows, pa.string())
    else:
        ends = pc.add(table[WINDOW[1]].cast(pa.int64()), ttl)
        expiry = pc.add(pc.divide(ends, 1000), 1).cast(pa.string())
    columns = (_bytes(name, table[name]) for name in (WINDOW[1], *values, *PANE))
    return _packed([_names(table, prefix, key), _joined(expiry), *columns])


def packed_deletes(table: pa.Table, prefix: str, key: Sequence[str]) -> bytes:
    """A list of [name, window_end] per row: a session is deleted only as long as its name still means this window."""
    if not table.num_rows:
        return EMPTY_LIST
    return _packed([_names(table, prefix, key), _bytes(WINDOW[1], table[WINDOW[1]])])


def _names(table: pa.Table, prefix: str, key: Sequence[str]) -> pa.Array:
    parts = [pa.scalar(prefix.encode(), BYTES), *(_key_part(name, table[name]) for name in key)]
    start = pc.fill_null(_bytes(WINDOW[0], table[WINDOW[0]]), GLOBAL.encode())
    return pc.binary_join_element_wise(*parts, start, pa.scalar(b":", BYTES))


def _key_part(name: str, column: pa.ChunkedArray) -> pa.Array:
    part = _bytes(name, column)
    for character, escape in ((b"%", b"%25"), (b":", b"%3A")):
        part = pc.replace_substring(part, character, escape)
    return pc.fill_null(part, NULL_KEY.encode())


def _bytes(name: str, column: pa.ChunkedArray) -> pa.Array:
    return _joined(column if kind_of(name, column.type) is Kind.BINARY else as_text(name, column))


def _joined(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_string(column.type):
        column = column.cast(pa.large_string())
    return column.cast(BYTES)


def _packed(columns: Sequence[pa.Array]) -> bytes:
    rows = len(columns[0])
    row_start = pa.scalar(_list_of(len(columns)), BYTES)
    lines = pc.binary_join_element_wise(row_start, *map(_with_header, columns), pa.scalar(b"", BYTES))
    offsets = np.frombuffer(lines.buffers()[1], np.int64, rows + 1, lines.offset * 8)
    return _list_of(rows) + bytes(memoryview(lines.buffers()[2])[offsets[0] : offsets[-1]])


def _with_header(column: pa.Array) -> pa.Array:
    lengths = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
    headers = np.empty((len(column), 5), np.uint8)
    headers[:, 0] = 0xDB
    headers[:, 1:] = lengths.astype(">u4").view(np.uint8).reshape(-1, 4)
    offsets = np.arange(0, 5 * len(column) + 1, 5, dtype=np.int64)
    header = pa.LargeBinaryArray.from_buffers(BYTES, len(column), [None, pa.py_buffer(offsets), pa.py_buffer(headers)])
    # The join of a NULL is NULL.
    return pc.fill_null(pc.binary_join_element_wise(header, column, pa.scalar(b"", BYTES)), b"\xc0")


def _header(length: int) -> bytes:
    return b"\xdb" + length.to_bytes(4, "big")


def _list_of(length: int) -> bytes:
    return b"\xdd" + length.to_bytes(4, "big")
