"""What PostgreSQL's errors mean: waiting helps, another driver came, or somebody has to do something."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tidegate.errors import SinkError, Unavailable

# By SQLSTATE, or its class.
PASSING = {
    "08": "the connection broke",
    "57P01": "it is being shut down",
    "57P02": "it is restarting after a crash",
    "57P03": "it is starting up or shutting down",
    "57P05": "it ended a session that was idle for too long",
    "25P03": "it ended a transaction that was idle for too long",
    "53300": "it has too many connections",
    "25006": "it takes no writes now, as a standby does",
    "55P03": "another session holds the marker or the table; it may be a driver that is being replaced",
    "40001": "another transaction was in the way",
    "40P01": "another transaction was in the way",
}

HINTS = {
    "42501": "give this user the rights: CREATE and USAGE on the schema, TEMPORARY on the database, "
    "or make the table beforehand and give SELECT, INSERT, UPDATE and DELETE on it and on tidegate_markers",
    "3F000": "create the schema first: CREATE SCHEMA …",
    "53100": "the disk of the server is full; nothing of this record was applied, make room and restart",
    "54000": "a key is too long for an index; shorten it in the pipeline, for example to a hash",
    "57014": "the server stops statements after its statement_timeout; raise it for this user",
    "21000": "two keys of this record became the same text through nul_as; choose another replacement",
    "22P05": "the database is not in UTF-8 and has no such character; use a database with ENCODING 'UTF8'",
    "22021": "the database is not in UTF-8 and has no such character; use a database with ENCODING 'UTF8'",
}

# Refusals while connecting have no SQLSTATE; these words stand in the ones that pass.
PASSING_WORDS = (
    "starting up",
    "shutting down",
    "not yet accepting",
    "not accepting connections",
    "recovery",
    "too many",
    "connection slots",
    "terminating connection",
    "could not fork",
)

CONNECTING_HINTS = {
    "password authentication failed": "check user and password: in the url, PGPASSWORD or the password file",
    "no password supplied": "give a password: in the url, PGPASSWORD or the password file",
    "pg_hba.conf": "the server does not let this user in from here; see its pg_hba.conf",
    "does not exist": "check the names of user and database in the url",
    "SSL": "see sslmode and sslrootcert in the url",
    "certificate": "see sslmode and sslrootcert in the url",
}


@contextmanager
def explain(server: str) -> Iterator[None]:
    """Turn psycopg's errors into ours."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        state = error.sqlstate or ""
        passing = PASSING.get(state) or PASSING.get(state[:2])
        if passing is None and not state and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            passing = PASSING["08"]
        if passing is not None:
            raise Unavailable(f"PostgreSQL {server} cannot serve now: {passing}") from error
        raise SinkError(
            f"PostgreSQL {server} refused the record: {_first_line(error)}",
            hint=HINTS.get(state) or HINTS.get(state[:2]),
        ) from error


@contextmanager
def explain_connecting(server: str) -> Iterator[None]:
    """The same while a connection is made. What the server itself refuses is final, unless it says it will pass."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        text = str(error)
        refused = "FATAL" in text or "SSL" in text or "certificate" in text or "no password supplied" in text
        if refused and not any(word in text for word in PASSING_WORDS):
            hint = next((hint for words, hint in CONNECTING_HINTS.items() if words in text), None)
            raise SinkError(f"PostgreSQL {server} does not let us in: {_first_line(error)}", hint=hint) from error
        why = _first_line(error) if refused else "it does not answer"
        raise Unavailable(f"PostgreSQL {server} cannot be reached: {why}") from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
