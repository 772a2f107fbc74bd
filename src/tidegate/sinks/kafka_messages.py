"""Panes as Kafka messages: key and value as JSON, made column by column in Arrow.

The **key** is the identity of a result, the key columns and the window:

    {"merchant":"a","window_start":"2026-03-01T12:00:00.000000Z","window_end":"2026-03-01T12:05:00.000000Z"}

The **value** holds the same and the rest: values, ``pane_index``, ``pane_timing``, ``pane_final``; in a change log
``pane_change`` too. Integers, doubles and booleans are JSON's own; decimals are strings with all their digits, instants
ISO-8601 in UTC, binary base 64, arrays and structs JSON. What no JSON number can say (NaN, infinity) is a string.

The **header** ``tidegate-id`` is ``<checkpoint>/<sink>/<record>/<number>``: the same each time a record is sent, so
that a reader who does not read committed messages only can still tell a message that came twice.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.sinks.base import SinkTarget
from tidegate.sinks.kafka_writer import Message
from tidegate.sinks.panes import PANE, WINDOW, Kind, as_text, kind_of, reduce_panes

ID = "tidegate-id"
CHUNK_ROWS = 50_000
"""Rows that are Python objects at the same time; the rest stays in Arrow's compact form."""

_NEEDS_ESCAPE = r'["\\\x00-\x1f]'


@dataclass(frozen=True)
class Messages:
    """What a record sends: rows that bring a value, and rows that take one away (tombstones)."""

    upserts: pa.Table
    tombstones: pa.Table
    key: tuple[str, ...]
    columns: tuple[str, ...]
    topic: str
    prefix: str
    """What the id of each message begins with."""

    def __len__(self) -> int:
        return int(self.upserts.num_rows + self.tombstones.num_rows)

    def __iter__(self) -> Iterator[Message]:
        topic, prefix = self.topic, self.prefix
        for number, (key, value) in enumerate(self._pairs()):
            yield topic, key, value, [(ID, f"{prefix}{number}")], 0

    def _pairs(self) -> Iterator[tuple[bytes, bytes | None]]:
        for chunk in _chunks(self.tombstones):
            for key in _bytes(chunk, self.key):
                yield key, None
        for chunk in _chunks(self.upserts):
            yield from zip(_bytes(chunk, self.key), _bytes(chunk, self.columns), strict=True)


def upserts_of(panes: pa.Table, target: SinkTarget, topic: str, sequence: int) -> Messages:
    """The last state per (key, window); what no longer exists is a tombstone, so that a compacted topic forgets it."""
    if not panes.num_rows:
        return log_of(panes, target, topic, sequence)
    changes = reduce_panes(panes, target.key)
    return Messages(
        changes.upserts, changes.deletes, (*target.key, *WINDOW), _columns(target), topic, _prefix(target, sequence)
    )


def log_of(panes: pa.Table, target: SinkTarget, topic: str, sequence: int) -> Messages:
    """Every pane as it was said. `replaced` is for upsert sinks alone: readers of a log were promised no retraction."""
    said = panes.filter(pc.not_equal(panes["pane_change"], "replaced")) if panes.num_rows else panes
    columns = (*_columns(target), "pane_change")
    return Messages(said, said.slice(0, 0), (*target.key, *WINDOW), columns, topic, _prefix(target, sequence))


def _prefix(target: SinkTarget, sequence: int) -> str:
    return f"{target.checkpoint_id}/{target.sink}/{sequence}/"


def _columns(target: SinkTarget) -> tuple[str, ...]:
    return (*target.key, *WINDOW, *target.values, *PANE)


def _chunks(table: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, table.num_rows, CHUNK_ROWS):
        yield table.slice(start, CHUNK_ROWS)


def _bytes(table: pa.Table, names: Sequence[str]) -> list[bytes]:
    values: list[bytes] = json_objects(table, names).cast(pa.binary()).to_pylist()
    return values


def json_objects(table: pa.Table, names: Sequence[str]) -> pa.ChunkedArray:
    """Some columns as one JSON object per row."""
    parts: list[str | pa.ChunkedArray | pa.Array] = []
    for number, name in enumerate(names):
        parts += [("," if number else "{") + _dumps(name) + ":", _fragment(name, table[name])]
    return pc.binary_join_element_wise(*parts, "}", "", null_handling="replace", null_replacement="null")


def _fragment(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """A column as JSON text; NULL stays NULL."""
    kind = kind_of(name, column.type)
    if kind is Kind.BINARY:
        texts = [None if value is None else base64.b64encode(value).decode("ascii") for value in column.to_pylist()]
        return _quoted(pa.array(texts, pa.string()))
    text = as_text(name, column)
    if kind in (Kind.INTEGER, Kind.BOOLEAN, Kind.JSON):
        return text
    if kind is Kind.REAL:
        finite = pc.is_finite(column)
        return text if pc.all(finite).as_py() is not False else pc.if_else(finite, text, _quoted(text))
    if kind is Kind.TEXT and pc.any(pc.match_substring_regex(text, _NEEDS_ESCAPE)).as_py():
        return pa.array([None if value is None else _dumps(value) for value in text.to_pylist()], pa.string())
    return _quoted(text)


def _quoted(text: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    return pc.binary_join_element_wise('"', text, '"', "")


def _dumps(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
