"""SQLite: the embedded sink. Results in a file that any tool can open, exactly once, with no server.

How values are stored, so that they can be read by people and come back as they were:

=================== ======== ==============================================================================
in the pipeline     column   as
=================== ======== ==============================================================================
integers, booleans  INTEGER  booleans as 0 and 1
float, double       REAL     infinity as SQLite's Inf; NaN as NULL, for SQLite has no NaN (in a key: ``'NaN'``)
decimal             TEXT     all digits. A numeric column would round beyond 15 digits, silently;
                             to sort or add up, ``CAST(amount AS REAL)`` says aloud that it rounds
timestamp           TEXT     ``2026-03-01T12:00:00.000000Z``, UTC: it sorts, and date functions read it
timestamp_ntz, date TEXT     the same without the Z; ``2026-03-01``
string              TEXT
binary              BLOB
array, struct, map  TEXT     JSON, for ``json_extract`` and ``->>``
=================== ======== ==============================================================================

``window_start`` and ``window_end`` are NULL for the global window. The unique index runs over
``ifnull(column, x'')``: plain unique indexes take NULLs for different, and would let the row of a NULL key multiply.
No text or number equals the empty blob (for binary keys an empty text stands in), so nothing else is taken for NULL.

The database is in WAL mode: readers read the last committed record while the next one is being written.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidegate.errors import SinkError
from tidegate.sinks.base import SinkTarget
from tidegate.sinks.panes import PANE, WINDOW, Kind, encode, kind_of
from tidegate.sinks.sql import CHUNK_ROWS, MARKERS, Dialect, Layout, SqlWriter, TableName, quote
from tidegate.sinks.tables import refuse_equal_names
from tidegate.time import SECOND, Duration, positive


def _key_term(column: str, kind: Kind) -> str:
    nothing = "''" if kind is Kind.BINARY else "x''"
    return f"ifnull({column}, {nothing})"


def _type_name(type_: pa.DataType) -> str:
    return _TYPES.get(kind_of("", type_), "TEXT")


_TYPES = {Kind.INTEGER: "INTEGER", Kind.BOOLEAN: "INTEGER", Kind.REAL: "REAL", Kind.BINARY: "BLOB"}

DIALECT = Dialect(placeholder="?", type_name=_type_name, key_term=_key_term)


@dataclass(frozen=True)
class SQLite:
    """The current result per (key, window) in `table` of the database file `path`, created when missing.

    >>> SQLite("results.db", table="revenue").describe()
    'SQLite results.db, table revenue'
    """

    path: str | Path
    table: str
    busy_timeout: Duration = "30s"
    """How long to wait for another writer before giving up."""

    def describe(self) -> str:
        return f"SQLite {self.path}, table {self.table}"

    def problems(self) -> list[str]:
        path, problems = Path(self.path), []
        if str(self.path) == ":memory:" or str(self.path).startswith("file:"):
            problems.append(
                f"SQLite path {str(self.path)!r} is not a plain file; results and marker must outlive the run"
            )
        elif path.is_dir():
            problems.append(f"SQLite path {path} is a folder; name a file in it, such as {path / 'results.db'}")
        if not self.table or self.table.lower().startswith("sqlite_") or self.table.lower() == MARKERS:
            problems.append(f"SQLite table name {self.table!r} is empty or reserved; choose another")
        return problems

    def open(self, target: SinkTarget) -> SqlWriter:
        if problems := self.problems():
            raise SinkError("; ".join(problems))
        refuse_equal_names(self.table, (*target.key, *WINDOW, *target.values, *PANE), "SQLite")
        connection = _Connection(Path(self.path), positive(self.busy_timeout, what="busy_timeout"))
        try:
            return SqlWriter(connection, DIALECT, TableName(self.table), target)
        except BaseException:
            connection.close()
            raise


class _Connection:
    """One connection to one file; every error of SQLite leaves it as a `SinkError`."""

    def __init__(self, path: Path, busy_timeout: int) -> None:
        self._path = path
        with self._explained():
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise SinkError(
                    f"the folder of {path} cannot be created: {error}", hint=_HINTS["SQLITE_CANTOPEN"]
                ) from error
            # The driver delivers from a thread of its own; it never uses two at a time.
            self._sqlite = sqlite3.connect(
                path, timeout=busy_timeout / SECOND, isolation_level=None, check_same_thread=False
            )
        try:
            with self._explained():
                self._sqlite.execute("PRAGMA journal_mode = WAL")
                # In WAL mode NORMAL may lose the last commits in a power cut; the engine has then gone on
                # and may have deleted the files they came from.
                self._sqlite.execute("PRAGMA synchronous = FULL")
                self._sqlite.execute("PRAGMA cache_size = -65536")
                self._inode = path.stat().st_ino
        except BaseException:
            self._sqlite.close()
            raise

    @contextmanager
    def transaction(self, *, alone: bool = False) -> Iterator[None]:
        """Always alone: SQLite has one writer at a time."""
        with self._explained():
            self._refuse_if_moved()
            # IMMEDIATE: the marker that is read must still be true when the rows are written.
            self._sqlite.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._sqlite.execute("COMMIT")
            finally:
                # Still open when the block, or the commit itself, has failed.
                if self._sqlite.in_transaction:
                    self._sqlite.execute("ROLLBACK")

    def query(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._explained():
            return self._sqlite.execute(statement, parameters).fetchall()

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> None:
        with self._explained():
            self._sqlite.execute(statement, parameters)

    def upsert(self, layout: Layout, rows: pa.Table) -> int:
        values = f"VALUES ({', '.join('?' * len(layout.types))})"
        return self._execute_many(layout.upsert(values), _rows(layout, rows, tuple(layout.types)))

    def delete(self, layout: Layout, rows: pa.Table) -> int:
        conditions = (
            f"{layout.key_term(name, quote(name))} = {layout.key_term(name, '?')}" for name in layout.identity
        )
        statement = f"DELETE FROM {layout.table.sql} WHERE {' AND '.join(conditions)}"
        return self._execute_many(statement, _rows(layout, rows, layout.identity))

    def _execute_many(self, statement: str, rows: Iterator[tuple[Any, ...]]) -> int:
        with self._explained():
            return max(0, self._sqlite.executemany(statement, rows).rowcount)

    def columns(self, table: TableName) -> dict[str, str]:
        return dict(self.query("SELECT name, type FROM pragma_table_info(?)", (table.name,)))

    def ensure_unique(self, layout: Layout) -> None:
        index = quote(f"{layout.table}_key")
        self.execute(f"CREATE UNIQUE INDEX IF NOT EXISTS {index} ON {layout.table.sql} ({layout.key_terms})")

    def close(self) -> None:
        self._sqlite.close()

    def _refuse_if_moved(self) -> None:
        """An open file can be written to after it was deleted; all of that would be lost without a word."""
        try:
            same = self._path.stat().st_ino == self._inode
        except FileNotFoundError:
            same = False
        if not same:
            raise SinkError(
                f"database {self._path} was deleted or replaced while the pipeline was writing to it",
                hint="put it back and restart the pipeline, or restart and replay into a new one",
            )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            # Extended codes such as SQLITE_READONLY_DIRECTORY begin with the plain one.
            name = getattr(error, "sqlite_errorname", "")
            hint = next((hint for code, hint in _HINTS.items() if name.startswith(code)), None)
            raise SinkError(f"SQLite database {self._path} cannot be written: {error}", hint=hint) from error


def _rows(layout: Layout, table: pa.Table, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """The rows as parameters of a statement, converted column by column, a chunk at a time."""
    for start in range(0, table.num_rows, CHUNK_ROWS):
        chunk = table.slice(start, CHUNK_ROWS)
        yield from zip(*(_values(layout, name, chunk[name]) for name in names), strict=True)


def _values(layout: Layout, name: str, column: pa.ChunkedArray) -> list[Any]:
    values = encode(name, column)
    if name in layout.key and kind_of(name, column.type) is Kind.REAL:
        # SQLite turns NaN into NULL, and the row of a NaN key would overwrite that of the NULL key.
        return ["NaN" if value is not None and math.isnan(value) else value for value in values]
    return values


_HINTS = {
    "SQLITE_CANTOPEN": "check that the path is a file in a folder that this user may write to",
    "SQLITE_READONLY": "this user may not write to the file or its folder (WAL mode makes two more files beside it)",
    "SQLITE_PERM": "this user may not write to the file",
    "SQLITE_BUSY": "another program holds a write transaction; end it, or raise busy_timeout",
    "SQLITE_LOCKED": "another program holds a write transaction; end it, or raise busy_timeout",
    "SQLITE_NOTADB": "the file exists and is no SQLite database; choose another path",
    "SQLITE_CORRUPT": "the database is damaged; restore it, or replay into a new one",
    "SQLITE_FULL": "the disk is full; nothing of this record was applied, make room and restart",
    "SQLITE_IOERR": "the disk cannot be read or written, or the file lies on a network share that WAL mode cannot use",
}
