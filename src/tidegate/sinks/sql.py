"""What SQL sinks share: one table of current results, one marker, one transaction.

The user's table holds one row per (key, window): the key columns, ``window_start``, ``window_end``, the value
columns, ``pane_index``, ``pane_timing``, ``pane_final``. A record is reduced to its last state per row
(`tidegate.sinks.panes`) and applied as upserts and deletes. Beside it stands one table for all sinks of the database:

    tidegate_markers(checkpoint_id, pipeline, sink, sequence, claim, updated_at)

``sequence`` is the last record applied, ``claim`` the writer that may apply the next. Both are read **and** moved
in the transaction that writes the rows, and this is the whole of exactly-once:

- killed before the commit: neither rows nor marker are there, and the record comes again;
- killed after it: both are there, and when the record comes again the marker says so;
- a zombie with an older claim finds a newer one beside the marker and is refused before it writes.

A `Dialect` says how a database spells things; a `Database` runs statements in transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

import pyarrow as pa

from tidegate import crash
from tidegate.errors import Fenced, SinkError
from tidegate.sinks.base import Delivery, SinkTarget
from tidegate.sinks.panes import PANE, WINDOW, Kind, encode, kind_of, read_panes, reduce_panes

MARKERS = "tidegate_markers"
CHUNK_ROWS = 50_000
"""Rows that are Python objects at the same time; the rest stays in Arrow's compact form."""


def quote(name: str) -> str:
    """A name as SQL takes it, whatever characters it has."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True)
class Dialect:
    """How one database spells types, placeholders, and the equality of NULLs."""

    placeholder: str
    types: Mapping[Kind, str]
    key_term: Callable[[str, Kind], str]
    """What stands for a key column in the unique index, so that NULL equals NULL there."""
    same: str = "="
    """Compares two key terms; ``IS NOT DISTINCT FROM`` where the terms may be NULL."""
    index_suffix: str = ""
    lock_suffix: str = ""
    """Makes reading the marker lock it, such as ``FOR UPDATE``."""
    encode_key: Callable[[list[Any]], list[Any]] | None = None
    """Tells apart key values that the database would take for the same."""


@dataclass(frozen=True)
class Layout:
    """The user's table: its name and its columns with their kinds, keys first."""

    table: str
    key: tuple[str, ...]
    kinds: Mapping[str, Kind]
    dialect: Dialect

    @classmethod
    def of(cls, table: str, target: SinkTarget, schema: pa.Schema, dialect: Dialect) -> Layout:
        names = (*target.key, *WINDOW, *target.values, *PANE)
        kinds = {name: kind_of(name, schema.field(name).type) for name in names}
        return cls(table, target.key, kinds, dialect)

    @property
    def identity(self) -> tuple[str, ...]:
        return (*self.key, *WINDOW)

    def column(self, name: str) -> str:
        return f"{quote(name)} {self.dialect.types[self.kinds[name]]}"

    def create_table(self) -> str:
        return f"CREATE TABLE {quote(self.table)} ({', '.join(map(self.column, self.kinds))})"

    def create_index(self) -> str:
        return (
            f"CREATE UNIQUE INDEX IF NOT EXISTS {quote(self.table + '_key')} "
            f"ON {quote(self.table)} ({self._terms()}){self.dialect.index_suffix}"
        )

    def add_column(self, name: str) -> str:
        return f"ALTER TABLE {quote(self.table)} ADD COLUMN {self.column(name)}"

    def upsert(self) -> str:
        updates = ", ".join(f"{quote(n)} = excluded.{quote(n)}" for n in self.kinds if n not in self.identity)
        return (
            f"INSERT INTO {quote(self.table)} ({', '.join(map(quote, self.kinds))}) "
            f"VALUES ({', '.join([self.dialect.placeholder] * len(self.kinds))}) "
            f"ON CONFLICT ({self._terms()}) DO UPDATE SET {updates}"
        )

    def delete(self) -> str:
        term, dialect = self.dialect.key_term, self.dialect
        conditions = (
            f"{term(quote(name), self.kinds[name])} {dialect.same} {term(dialect.placeholder, self.kinds[name])}"
            for name in self.identity
        )
        return f"DELETE FROM {quote(self.table)} WHERE {' AND '.join(conditions)}"

    def _terms(self) -> str:
        return ", ".join(self.dialect.key_term(quote(name), self.kinds[name]) for name in self.identity)

    def rows(self, table: pa.Table, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """The rows as parameters of a statement, converted column by column, a chunk at a time."""
        for start in range(0, table.num_rows, CHUNK_ROWS):
            chunk = table.slice(start, CHUNK_ROWS)
            yield from zip(*(self._encode(name, chunk[name]) for name in names), strict=True)

    def _encode(self, name: str, column: pa.ChunkedArray) -> list[Any]:
        values = encode(name, column)
        if self.dialect.encode_key and name in self.key and self.kinds[name] is Kind.REAL:
            return self.dialect.encode_key(values)
        return values


class Database(Protocol):
    """A connection. Its own errors leave it as `SinkError` with a hint."""

    def transaction(self) -> AbstractContextManager[None]:
        """All or nothing, and no other writer in between; rolls back when the block raises."""
        ...

    def query(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> None: ...

    def execute_many(self, statement: str, rows: Iterator[tuple[Any, ...]]) -> int:
        """Run for each row; how many rows of the table changed."""
        ...

    def columns(self, table: str) -> dict[str, str]:
        """Declared type by column name, in order; empty when there is no such table."""
        ...

    def close(self) -> None: ...


class SqlWriter:
    """A `SinkWriter` over any database that has upserts and transactions."""

    def __init__(self, database: Database, dialect: Dialect, table: str, target: SinkTarget) -> None:
        self._database, self._dialect, self._table, self._target = database, dialect, table, target
        with database.transaction():
            self._check_key(database.columns(table))
            self._take_claim()

    def confirmed(self) -> int | None:
        return self._marker()[0]

    def deliver(self, delivery: Delivery) -> int:
        with self._database.transaction():
            sequence, claim = self._marker()
            self._refuse_if_fenced(claim)
            if sequence is not None and sequence >= delivery.sequence:
                return 0
            panes = read_panes(delivery.files, self._target)
            changed = self._apply(panes) if panes.num_rows else 0
            crash.point("mid_sink")
            self._move_marker(delivery.sequence)
        return changed

    def close(self) -> None:
        self._database.close()

    def _apply(self, panes: pa.Table) -> int:
        layout = Layout.of(self._table, self._target, panes.schema, self._dialect)
        self._prepare(layout)
        changes = reduce_panes(panes, self._target.key)
        deleted = self._database.execute_many(layout.delete(), layout.rows(changes.deletes, layout.identity))
        upserted = self._database.execute_many(layout.upsert(), layout.rows(changes.upserts, tuple(layout.kinds)))
        return deleted + upserted

    def _prepare(self, layout: Layout) -> None:
        """Create the table, or grow it by new value columns. Types are known only now, from the first rows."""
        there = self._database.columns(self._table)
        if not there:
            self._database.execute(layout.create_table())
        self._check_key(there)
        for name in layout.kinds if there else ():
            declared, expected = there.get(name), self._dialect.types[layout.kinds[name]]
            if declared is None:
                self._database.execute(layout.add_column(name))
            elif declared.upper() != expected.upper():
                raise SinkError(
                    f"column {name!r} of table {self._table!r} is {declared}, but the pipeline now brings {expected}; "
                    "the database might round or convert what it stores",
                    hint="give the value a new name, or the sink a new table",
                )
        self._database.execute(layout.create_index())

    def _check_key(self, there: Mapping[str, str]) -> None:
        if not there:
            return
        names = list(there)
        if missing := [name for name in (*WINDOW, *PANE) if name not in there]:
            raise SinkError(
                f"table {self._table!r} exists, but was not made by Tidegate: it has no column {', '.join(missing)}",
                hint="give the sink a table name of its own",
            )
        key = names[: names.index(WINDOW[0])]
        if set(key) != set(self._target.key):
            raise SinkError(
                f"table {self._table!r} is keyed by ({', '.join(key)}), "
                f"but the pipeline's key is ({', '.join(self._target.key)}); rows would no longer find each other",
                hint="give the sink a new table, or drop this one and replay",
            )

    # The marker. All of these run inside a transaction.

    def _take_claim(self) -> None:
        types = self._dialect.types
        text, number, instant = types[Kind.TEXT], types[Kind.INTEGER], types[Kind.INSTANT]
        self._database.execute(
            f"CREATE TABLE IF NOT EXISTS {MARKERS} (checkpoint_id {text} NOT NULL, pipeline {text} NOT NULL, "
            f"sink {text} NOT NULL, sequence {number}, claim {number} NOT NULL, updated_at {instant} NOT NULL, "
            "PRIMARY KEY (checkpoint_id, sink))"
        )
        target, p = self._target, self._dialect.placeholder
        found = self._read_marker()
        if found:
            self._refuse_if_fenced(found[0][1])
            self._move_marker(found[0][0])
            return
        self._database.execute(
            f"INSERT INTO {MARKERS} (checkpoint_id, pipeline, sink, sequence, claim, updated_at) "
            f"VALUES ({p}, {p}, {p}, NULL, {p}, {p})",
            (target.checkpoint_id, target.pipeline, target.sink, target.claim, _now()),
        )

    def _read_marker(self) -> list[tuple[Any, ...]]:
        p = self._dialect.placeholder
        return self._database.query(
            f"SELECT sequence, claim FROM {MARKERS} "
            f"WHERE checkpoint_id = {p} AND sink = {p}{self._dialect.lock_suffix}",
            (self._target.checkpoint_id, self._target.sink),
        )

    def _marker(self) -> tuple[int | None, int]:
        found = self._read_marker()
        if not found:
            raise SinkError(
                f"the marker of sink {self._target.sink!r} has vanished from {MARKERS} while the pipeline ran; "
                "without it nobody knows what was applied",
                hint="restore the database, or give the sink a new table and replay",
            )
        sequence, claim = found[0]
        return sequence, claim

    def _move_marker(self, sequence: int | None) -> None:
        p = self._dialect.placeholder
        self._database.execute(
            f"UPDATE {MARKERS} SET sequence = {p}, claim = {p}, updated_at = {p} "
            f"WHERE checkpoint_id = {p} AND sink = {p}",
            (sequence, self._target.claim, _now(), self._target.checkpoint_id, self._target.sink),
        )

    def _refuse_if_fenced(self, claim: int) -> None:
        if claim > self._target.claim:
            raise Fenced(
                f"sink {self._target.sink!r} is held by claim {claim}, newer than ours ({self._target.claim}): "
                "another driver has taken over this pipeline",
                hint="stop this driver; the other one goes on from what was decided",
            )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
