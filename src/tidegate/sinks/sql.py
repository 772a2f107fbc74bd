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

A `Dialect` says how a database spells things; a `Database` runs statements in transactions, and applies many rows in
the way that is fastest there: SQLite row by row inside the process, PostgreSQL by a bulk copy and two statements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

import pyarrow as pa

from tidegate import crash
from tidegate.errors import SinkError
from tidegate.sinks.base import Delivery, SinkTarget
from tidegate.sinks.marker import refuse_if_fenced, refuse_if_gone_back, vanished
from tidegate.sinks.panes import INSTANT, PANE, WINDOW, Kind, kind_of, read_panes, reduce_panes
from tidegate.sinks.tables import refuse_foreign_table

MARKERS = "tidegate_markers"
CHUNK_ROWS = 50_000
"""Rows that are converted at the same time; the rest stays in Arrow's compact form."""


def quote(name: str) -> str:
    """A name as SQL takes it, whatever characters it has."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True)
class TableName:
    """A table, in a schema where the database has them."""

    name: str
    schema: str | None = None

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name

    @property
    def sql(self) -> str:
        return f"{quote(self.schema)}.{quote(self.name)}" if self.schema else quote(self.name)


@dataclass(frozen=True)
class Dialect:
    """How one database spells types, placeholders, and the equality of NULLs."""

    placeholder: str
    type_name: Callable[[pa.DataType], str]
    key_term: Callable[[str, Kind], str] = lambda column, _: column
    """What stands for a key column in the unique index, so that NULL equals NULL there."""
    lock_suffix: str = ""
    """Makes reading the marker lock it, such as ``FOR UPDATE``."""


@dataclass(frozen=True)
class Layout:
    """The user's table: its name and its columns with their types, keys first."""

    table: TableName
    key: tuple[str, ...]
    types: Mapping[str, pa.DataType]
    dialect: Dialect

    @classmethod
    def of(cls, table: TableName, target: SinkTarget, schema: pa.Schema, dialect: Dialect) -> Layout:
        names = (*target.key, *WINDOW, *target.values, *PANE)
        return cls(table, target.key, {name: schema.field(name).type for name in names}, dialect)

    @property
    def identity(self) -> tuple[str, ...]:
        return (*self.key, *WINDOW)

    @property
    def key_terms(self) -> str:
        return ", ".join(self.key_term(name, quote(name)) for name in self.identity)

    def key_term(self, name: str, value: str) -> str:
        return self.dialect.key_term(value, kind_of(name, self.types[name]))

    def type_name(self, name: str) -> str:
        kind_of(name, self.types[name])  # refuses what no sink can store, by the column's name
        return self.dialect.type_name(self.types[name])

    def column(self, name: str) -> str:
        return f"{quote(name)} {self.type_name(name)}"

    def create_table(self) -> str:
        return f"CREATE TABLE {self.table.sql} ({', '.join(map(self.column, self.types))})"

    def add_column(self, name: str) -> str:
        return f"ALTER TABLE {self.table.sql} ADD COLUMN {self.column(name)}"

    def upsert(self, rows: str) -> str:
        """Insert or update what `rows` brings: ``VALUES (…)`` or a ``SELECT``, of all columns in order."""
        updates = ", ".join(f"{quote(n)} = excluded.{quote(n)}" for n in self.types if n not in self.identity)
        return (
            f"INSERT INTO {self.table.sql} ({', '.join(map(quote, self.types))}) {rows} "
            f"ON CONFLICT ({self.key_terms}) DO UPDATE SET {updates}"
        )


class Database(Protocol):
    """A connection. Its own errors leave it as `SinkError` with a hint, or as `Unavailable`."""

    def transaction(self, *, alone: bool = False) -> AbstractContextManager[None]:
        """All or nothing; rolls back when the block raises. `alone`: nobody else makes tables or markers meanwhile."""
        ...

    def query(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> None: ...

    def upsert(self, layout: Layout, rows: pa.Table) -> int:
        """Insert or update every row; how many there were."""
        ...

    def delete(self, layout: Layout, rows: pa.Table) -> int:
        """Delete the row of each identity; how many were there."""
        ...

    def columns(self, table: TableName) -> dict[str, str]:
        """Declared type by column name, in order; empty when there is no such table."""
        ...

    def ensure_unique(self, layout: Layout) -> None:
        """Make a unique index over the identity, unless there is one."""
        ...

    def close(self) -> None: ...


class SqlWriter:
    """A `SinkWriter` over any database that has upserts and transactions."""

    def __init__(self, database: Database, dialect: Dialect, table: TableName, target: SinkTarget) -> None:
        self._database, self._dialect, self._table, self._target = database, dialect, table, target
        self._markers = TableName(MARKERS, table.schema)
        with database.transaction(alone=True):
            self._check_key(database.columns(table))
            self._known = self._take_claim()  # the last record that was seen confirmed

    def confirmed(self) -> int | None:
        return self._marker()[0]

    def deliver(self, delivery: Delivery) -> int:
        with self._database.transaction():
            sequence, claim = self._marker()
            refuse_if_fenced(self._target, claim)
            refuse_if_gone_back(self._target, self._known, sequence)
            if sequence is not None and sequence >= delivery.sequence:
                self._known = sequence
                return 0
            panes = read_panes(delivery.files, self._target)
            changed = self._apply(panes) if panes.num_rows else 0
            crash.point("mid_sink")
            self._move_marker(delivery.sequence)
        self._known = delivery.sequence
        return changed

    def close(self) -> None:
        self._database.close()

    def _apply(self, panes: pa.Table) -> int:
        layout = Layout.of(self._table, self._target, panes.schema, self._dialect)
        self._prepare(layout)
        changes = reduce_panes(panes, self._target.key)
        deleted = self._database.delete(layout, changes.deletes) if changes.deletes.num_rows else 0
        upserted = self._database.upsert(layout, changes.upserts) if changes.upserts.num_rows else 0
        return deleted + upserted

    def _prepare(self, layout: Layout) -> None:
        """Create the table, or grow it by new value columns. Types are known only now, from the first rows."""
        there = self._database.columns(self._table)
        if not there:
            self._database.execute(layout.create_table())
        self._check_key(there)
        for name in layout.types if there else ():
            declared, expected = there.get(name), layout.type_name(name)
            if declared is None:
                self._database.execute(layout.add_column(name))
            elif declared.upper() != expected.upper():
                raise SinkError(
                    f"column {name!r} of table {str(self._table)!r} is {declared}, but the pipeline now brings "
                    f"{expected}; the database might round or convert what it stores",
                    hint="give the value a new name, or the sink a new table",
                )
        self._database.ensure_unique(layout)

    def _check_key(self, there: Mapping[str, str]) -> None:
        if there:
            refuse_foreign_table(str(self._table), list(there), self._target.key)

    # The marker. All of these run inside a transaction.

    def _take_claim(self) -> int | None:
        """Put our claim beside the marker; the last record applied."""
        if not self._database.columns(self._markers):
            text, number, instant = map(self._dialect.type_name, (pa.string(), pa.int64(), INSTANT))
            self._database.execute(
                f"CREATE TABLE {self._markers.sql} (checkpoint_id {text} NOT NULL, pipeline {text} NOT NULL, "
                f"sink {text} NOT NULL, sequence {number}, claim {number} NOT NULL, updated_at {instant} NOT NULL, "
                "PRIMARY KEY (checkpoint_id, sink))"
            )
        target, p = self._target, self._dialect.placeholder
        for sequence, claim in self._read_marker():
            refuse_if_fenced(target, claim)
            self._move_marker(sequence)
            return int(sequence) if sequence is not None else None
        self._database.execute(
            f"INSERT INTO {self._markers.sql} (checkpoint_id, pipeline, sink, sequence, claim, updated_at) "
            f"VALUES ({p}, {p}, {p}, NULL, {p}, {p})",
            (target.checkpoint_id, target.pipeline, target.sink, target.claim, _now()),
        )
        return None

    def _read_marker(self) -> list[tuple[Any, ...]]:
        p = self._dialect.placeholder
        return self._database.query(
            f"SELECT sequence, claim FROM {self._markers.sql} "
            f"WHERE checkpoint_id = {p} AND sink = {p}{self._dialect.lock_suffix}",
            (self._target.checkpoint_id, self._target.sink),
        )

    def _marker(self) -> tuple[int | None, int]:
        found = self._read_marker()
        if not found:
            raise vanished(self._target, str(self._markers))
        sequence, claim = found[0]
        return sequence, claim

    def _move_marker(self, sequence: int | None) -> None:
        p = self._dialect.placeholder
        self._database.execute(
            f"UPDATE {self._markers.sql} SET sequence = {p}, claim = {p}, updated_at = {p} "
            f"WHERE checkpoint_id = {p} AND sink = {p}",
            (sequence, self._target.claim, _now(), self._target.checkpoint_id, self._target.sink),
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
