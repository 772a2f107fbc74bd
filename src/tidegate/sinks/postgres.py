"""PostgreSQL: results in a table that everything else can read, exactly once.

A record is one transaction: the rows go by bulk ``COPY`` into a temporary table, one ``DELETE … USING`` and one
``INSERT … SELECT … ON CONFLICT DO UPDATE`` apply them, and the marker moves (`tidegate.sinks.sql`). The marker's row is
locked (``FOR UPDATE``) while that happens, so that of two drivers one waits and then finds the other's claim.

Values have native types, so that SQL can count with them:

====================== =============================== ==========================================================
in the pipeline        column                          as
====================== =============================== ==========================================================
tinyint, smallint, int smallint, integer
bigint                 bigint
float, double          real, double precision          NaN and the infinities too
decimal(p, s)          numeric(p,s)                    all digits
boolean, string        boolean, text                   the character NUL cannot be stored: see ``nul_as``
timestamp              timestamp with time zone        the instant
timestamp_ntz, date    timestamp without time zone, date
binary                 bytea
array of these         the type with ``[]``
struct, map, nested    jsonb                           decimals and times in it as strings, binary as base64
====================== =============================== ==========================================================

The unique index is ``NULLS NOT DISTINCT``: NULL is a key like others. This is why PostgreSQL 15 is the oldest served.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import SinkError, Unavailable
from tidegate.sinks.base import SinkTarget
from tidegate.sinks.copy_text import copy_text, type_name
from tidegate.sinks.panes import PANE, WINDOW
from tidegate.sinks.postgres_errors import explain, explain_connecting
from tidegate.sinks.sql import MARKERS, Dialect, Layout, SqlWriter, TableName, quote

if TYPE_CHECKING:
    import psycopg

DIALECT = Dialect(placeholder="%s", type_name=type_name, lock_suffix=" FOR UPDATE")
LONGEST_NAME = 63
OLDEST_VERSION = 15
CREATION_LOCK = 0x7464_6774
"""The advisory lock under which Tidegate makes tables; any number that others hardly use."""

PATIENCE = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
"""What libpq is told where the user's URL says nothing: a server that is gone must be noticed, not waited for."""

LIMITS = (
    # Somebody else holds the marker: a driver that is being replaced, or a connection whose end the server has missed.
    "SET LOCAL lock_timeout = '30s'",
    # A driver that was stopped in the middle of a transaction must not hold the marker for ever.
    "SET LOCAL idle_in_transaction_session_timeout = '120s'",
)


@dataclass(frozen=True)
class Postgres:
    """The current result per (key, window) in `table` (or ``schema.table``), created when missing.

    `url` is a libpq connection string or URL; what it leaves out, libpq takes from the environment (``PGPASSWORD``),
    the password file or the service file. It is never shown.

    >>> Postgres("postgresql://shop:secret@db.example/sales", table="reports.revenue").describe()
    'PostgreSQL db.example/sales, table reports.revenue'
    """

    url: str = field(repr=False)
    table: str
    nul_as: str | None = None
    """What stands for the character NUL in text, such as ``␀``. Without it, a record that holds one is refused."""

    def describe(self) -> str:
        return f"PostgreSQL {self._server()}, table {self.table}"

    def problems(self) -> list[str]:
        if find_spec("psycopg") is None:
            return ["tg.Postgres needs the package psycopg; install it with: pip install 'tidegate[postgres]'"]
        problems = []
        if self._parts() is None:
            problems.append(
                "the url of tg.Postgres is no PostgreSQL connection string; "
                "it looks like postgresql://user@host:5432/database"
            )
        schema, name = self._name().schema, self._name().name
        if not name or schema == "" or name.lower() == MARKERS:
            problems.append(f"PostgreSQL table name {self.table!r} is empty or reserved; choose another")
        if "%" in self.table:
            problems.append(f"PostgreSQL table name {self.table!r} holds a %; choose another")
        problems += _too_long(part for part in (schema, name) if part)
        if self.nul_as is not None and "\x00" in self.nul_as:
            problems.append("nul_as holds the character NUL itself; choose a text that PostgreSQL can store")
        return problems

    def open(self, target: SinkTarget) -> SqlWriter:
        names = [*target.key, *WINDOW, *target.values, *PANE]
        if problems := self.problems() + _too_long(names):
            raise SinkError("; ".join(problems))
        parts = self._parts() or {}
        connection = _Connection(PATIENCE | parts, self._server(), self.nul_as)
        try:
            return SqlWriter(connection, DIALECT, self._name(), target)
        except BaseException:
            connection.close()
            raise

    def _name(self) -> TableName:
        schema, dot, name = self.table.rpartition(".")
        return TableName(name, schema) if dot else TableName(name)

    def _parts(self) -> dict[str, Any] | None:
        from psycopg import Error, conninfo

        try:
            return conninfo.conninfo_to_dict(self.url)
        except Error:  # its text may quote the string, and the password in it
            return None

    def _server(self) -> str:
        """Where it connects to, in the words of the URL, without user and password."""
        parts = self._parts() or {}
        host = parts.get("host") or parts.get("hostaddr") or parts.get("service") or "of the environment"
        port = f":{parts['port']}" if parts.get("port") else ""
        return f"{host}{port}" + (f"/{parts['dbname']}" if parts.get("dbname") else "")


def _too_long(names: Any) -> list[str]:
    return [
        f"the name {name!r} has {len(name.encode())} bytes; PostgreSQL cuts names off after {LONGEST_NAME}"
        for name in names
        if len(name.encode()) > LONGEST_NAME
    ]


class _Connection:
    """One connection, made anew after it broke. Every error of psycopg leaves it as `SinkError` or `Unavailable`."""

    def __init__(self, parameters: dict[str, Any], server: str, nul_as: str | None) -> None:
        self._parameters, self._server, self._nul_as = parameters, server, nul_as
        self._open: psycopg.Connection[tuple[Any, ...]] | None = None

    @contextmanager
    def transaction(self, *, alone: bool = False) -> Iterator[None]:
        with self._explained(), self._postgres().transaction():
            for limit in LIMITS:
                self.execute(limit)
            if alone:
                self.query("SELECT pg_advisory_xact_lock(%s)", (CREATION_LOCK,))
            yield

    def query(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._explained():
            return self._postgres().execute(statement.encode(), parameters or None).fetchall()

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> None:
        self._count(statement, parameters)

    def upsert(self, layout: Layout, rows: pa.Table) -> int:
        columns = tuple(layout.types)
        staged = self._stage(layout, rows, columns)
        return self._count(layout.upsert(f"SELECT {', '.join(map(quote, columns))} FROM {staged}"))

    def delete(self, layout: Layout, rows: pa.Table) -> int:
        staged = self._stage(layout, rows, layout.identity)
        return sum(self._count(statement) for statement in _deletes(layout, rows, staged))

    def columns(self, table: TableName) -> dict[str, str]:
        found = self.query(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            (table.sql,),
        )
        return dict(found)

    def ensure_unique(self, layout: Layout) -> None:
        """Look before creating: whoever may only read and write a table may not even ask for an index."""
        found = self.query(
            'SELECT array_agg(attname::text ORDER BY attname::text COLLATE "C") FROM pg_index '
            "JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey::int2[]) "
            "WHERE indrelid = to_regclass(%s) AND indisunique AND indnullsnotdistinct AND indisvalid "
            "AND indpred IS NULL AND indexprs IS NULL GROUP BY indexrelid",
            (layout.table.sql,),
        )
        if sorted(layout.identity) not in [sorted(columns) for (columns,) in found]:
            self.execute(f"CREATE UNIQUE INDEX ON {layout.table.sql} ({layout.key_terms}) NULLS NOT DISTINCT")

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _stage(self, layout: Layout, rows: pa.Table, names: Sequence[str]) -> str:
        """Copy rows into a temporary table; its name."""
        columns = ", ".join(map(layout.column, names))
        # The name tells the columns, for a pooler may give us a session in which another sink has staged before.
        staged = f"pg_temp.tidegate_{hashlib.sha256(columns.encode()).hexdigest()[:16]}"
        self.execute(f"CREATE TEMPORARY TABLE IF NOT EXISTS {staged} ({columns}) ON COMMIT DELETE ROWS")
        statement = f"COPY {staged} ({', '.join(map(quote, names))}) FROM STDIN"
        with self._explained(), self._postgres().cursor() as cursor, cursor.copy(statement.encode()) as copy:
            for chunk in copy_text(rows, names, self._nul_as):
                copy.write(chunk)
        return staged

    def _count(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        with self._explained():
            # As bytes: a statement is made here, of quoted names; psycopg wants to be sure of that by its type.
            return max(0, self._postgres().execute(statement.encode(), parameters or None).rowcount)

    def _postgres(self) -> psycopg.Connection[tuple[Any, ...]]:
        import psycopg

        if self._open is None:
            with explain_connecting(self._server):
                # Names of prepared statements would collide behind a pooler.
                self._open = psycopg.connect(
                    **self._parameters | {"client_encoding": "UTF8"}, autocommit=True, prepare_threshold=None
                )
            version = self._open.info.server_version // 10_000
            if version < OLDEST_VERSION:
                self.close()
                raise SinkError(
                    f"PostgreSQL {self._server} is version {version}; its unique indexes take NULLs for different",
                    hint=f"use PostgreSQL {OLDEST_VERSION} or newer",
                )
        return self._open

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            with explain(self._server):
                yield
        except Unavailable:
            # The next try must not find a connection that is half dead, or to a server that no longer writes.
            self.close()
            raise


def _deletes(layout: Layout, rows: pa.Table, staged: str) -> Iterator[str]:
    """A statement for each pattern of NULLs among the identities, which is one in nearly all records.

    ``IS NOT DISTINCT FROM`` would say it in one, but PostgreSQL can neither hash it nor use the index for it.
    """
    nulls = pa.table({f"{n}": pc.is_null(rows[name]) for n, name in enumerate(layout.identity)})
    for pattern in nulls.group_by(nulls.column_names).aggregate([]).to_pylist():
        conditions = (
            f"kept.{column} IS NULL AND gone.{column} IS NULL" if is_null else f"kept.{column} = gone.{column}"
            for column, is_null in zip(map(quote, layout.identity), pattern.values(), strict=True)
        )
        yield f"DELETE FROM {layout.table.sql} AS kept USING {staged} AS gone WHERE {' AND '.join(conditions)}"
