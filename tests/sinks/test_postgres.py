"""What is particular to PostgreSQL: native types, a server that goes away in the middle, others in the database."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from sink_cases import FIVE_MINUTES, NOON, pane, record, schema, target  # type: ignore[import-not-found]
from tests.servers import RunningServer, unique

import tidegate as tg
from tidegate import crash
from tidegate.errors import Fenced, SinkError, Unavailable
from tidegate.patience import patiently
from tidegate.sinks.base import Delivery, SinkTarget

pytestmark = pytest.mark.servers


@pytest.fixture
def namespace(postgres: RunningServer) -> Iterator[str]:
    """A schema of this test alone."""
    name = unique("s")
    run(postgres, f"CREATE SCHEMA {name}")
    yield name
    run(postgres, f"DROP SCHEMA {name} CASCADE")


@pytest.fixture
def sink(postgres: RunningServer, namespace: str) -> tg.Postgres:
    return tg.Postgres(postgres.address, table=f"{namespace}.revenue")


@pytest.fixture
def staged(tmp_path: Path) -> Path:
    return tmp_path / "staged"


def run(server: RunningServer, statement: str) -> None:
    with closing(psycopg.connect(server.address, autocommit=True)) as connection:
        connection.execute(statement.encode())


def select(sink: tg.Postgres, query: str) -> list[tuple[Any, ...]]:
    with closing(psycopg.connect(sink.url)) as connection:
        connection.execute("SET timezone = 'UTC'")
        return connection.execute(query.replace("TABLE", sink.table).encode()).fetchall()


def deliver(sink: tg.Postgres, *deliveries: Delivery, to: SinkTarget | None = None) -> list[int]:
    with closing(sink.open(to or target())) as writer:
        return [writer.deliver(delivery) for delivery in deliveries]


def total(sink: tg.Postgres) -> list[Any]:
    return [value for (value,) in select(sink, "SELECT total FROM TABLE ORDER BY merchant, window_start")]


# Types.


@pytest.mark.parametrize(
    ("type_", "declared"),
    [
        (pa.int8(), "smallint"),
        (pa.int32(), "integer"),
        (pa.int64(), "bigint"),
        (pa.float32(), "real"),
        (pa.float64(), "double precision"),
        (pa.decimal128(38, 18), "numeric(38,18)"),
        (pa.bool_(), "boolean"),
        (pa.string(), "text"),
        (pa.binary(), "bytea"),
        (pa.timestamp("us", "UTC"), "timestamp with time zone"),
        (pa.timestamp("us"), "timestamp without time zone"),
        (pa.date32(), "date"),
        (pa.time64("us"), "time without time zone"),
        (pa.list_(pa.decimal128(9, 2)), "numeric(9,2)[]"),
        (pa.list_(pa.timestamp("us", "UTC")), "timestamp with time zone[]"),
        (pa.struct({"x": pa.int64()}), "jsonb"),
        (pa.map_(pa.string(), pa.int64()), "jsonb"),
        (pa.list_(pa.list_(pa.int64())), "jsonb"),
    ],
)
def test_a_column_has_the_native_type_and_keeps_it(
    sink: tg.Postgres, staged: Path, type_: pa.DataType, declared: str
) -> None:
    # The second record finds the column as the first declared it.
    deliver(sink, *(record(staged, n, pane("a", None), as_schema=schema(total=type_)) for n in (1, 2)))
    assert select(
        sink,
        "SELECT DISTINCT format_type(atttypid, atttypmod) FROM pg_attribute "
        f"WHERE attrelid = '{sink.table}'::regclass AND attname = 'total'",
    ) == [(declared,)]


@pytest.mark.parametrize(
    ("type_", "value", "condition"),
    [
        (pa.float64(), float("nan"), "total = 'NaN'"),
        (pa.float32(), float("-inf"), "total = '-Infinity'"),
        (pa.timestamp("us", "UTC"), datetime(1, 1, 1, tzinfo=UTC), "total = '0001-01-01 00:00:00+00'"),
        (pa.timestamp("us", "UTC"), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), "date_part('year', total) = 9999"),
        (pa.timestamp("us"), datetime(1, 1, 1, 0, 0, 0, 1), "total = '0001-01-01 00:00:00.000001'"),
        (pa.date32(), date(1, 1, 1), "total = '0001-01-01'"),
        (pa.decimal128(38, 0), Decimal(10**38 - 1), "total = 1e38::numeric - 1"),
        (pa.list_(pa.string()), ['\\ " ,{}\n', None, "NULL", ""], r"""total = ARRAY[E'\\ " ,{}\n',NULL,'NULL','']"""),
        (pa.list_(pa.binary()), [b"\x00\\", None], r"total = ARRAY['\x005c'::bytea, NULL]"),
        (pa.list_(pa.bool_()), [True, None, False], "total = ARRAY[true, NULL, false]"),
        (pa.list_(pa.float64()), [1.5, float("nan")], "total = ARRAY[1.5, 'NaN'::float8]"),
        (pa.list_(pa.int64()), [], "total = ARRAY[]::bigint[]"),
        (pa.list_(pa.date32()), [date(2024, 2, 29)], "total = ARRAY['2024-02-29'::date]"),
        (pa.string(), "\\N \\. \t\r\n", r"total = E'\\N \\. \t\r\n'"),
        (pa.string(), "\\.", r"total = E'\\.'"),
        (pa.binary(), b"", "total = ''::bytea"),
        (pa.map_(pa.string(), pa.decimal128(9, 2)), [("ä", Decimal("1.50"))], """total = '{"ä": "1.50"}'"""),
    ],
)  # fmt: skip
def test_sql_sees_the_value_that_the_pipeline_had(
    sink: tg.Postgres, staged: Path, type_: pa.DataType, value: Any, condition: str
) -> None:
    rows = [pane("a", value), pane("null", None)]
    deliver(sink, record(staged, 1, *rows, as_schema=schema(total=type_)))
    assert select(sink, f"SELECT merchant FROM TABLE WHERE {condition}") == [("a",)]
    assert select(sink, "SELECT merchant FROM TABLE WHERE total IS NULL") == [("null",)]


@pytest.mark.parametrize(
    ("type_", "value", "stored"),
    [
        (pa.string(), "a\x00b", "a␀b"),
        (pa.list_(pa.string()), ["\x00"], ["␀"]),
        # A backslash before u0000 is no NUL.
        (pa.struct({"x": pa.string()}), {"x": "\\u0000 \\\x00"}, {"x": "\\u0000 \\␀"}),
    ],
)
def test_text_with_a_nul_is_refused_unless_told_what_to_store(
    sink: tg.Postgres, staged: Path, type_: pa.DataType, value: Any, stored: Any
) -> None:
    poisoned = record(staged, 1, pane("a", value), pane("b", None), as_schema=schema(total=type_))
    with pytest.raises(SinkError, match=r"'total' .* NUL") as error:
        deliver(sink, poisoned)
    assert "nul_as" in str(error.value.hint)
    # The way out needs no other data: the same record, with the option.
    assert deliver(tg.Postgres(sink.url, sink.table, nul_as="␀"), poisoned) == [2]
    assert total(sink) == [stored, None]


def test_what_only_looks_like_a_nul_is_stored(sink: tg.Postgres, staged: Path) -> None:
    value = {"x": "\\u0000"}
    deliver(sink, record(staged, 1, pane("a", value), as_schema=schema(total=pa.struct({"x": pa.string()}))))
    assert total(sink) == [value]


def test_keys_that_a_replacement_makes_equal_are_refused(sink: tg.Postgres, staged: Path) -> None:
    with pytest.raises(SinkError) as error:
        deliver(tg.Postgres(sink.url, sink.table, nul_as="␀"), record(staged, 1, pane("\x00", 1), pane("␀", 2)))
    assert "nul_as" in str(error.value.hint)


def test_rows_with_nulls_at_different_places_are_deleted_each_by_its_own(sink: tg.Postgres, staged: Path) -> None:
    rows = [pane(m, n, start=s) for n, (m, s) in enumerate([("a", NOON), ("a", None), (None, NOON), (None, None)])]
    kept = pane("kept", 9)
    gone = [row | {"pane_change": "retract"} for row in rows]
    assert deliver(sink, record(staged, 1, *rows, kept), record(staged, 2, *gone)) == [5, 4]
    assert total(sink) == [9]


# The table.


def test_a_new_value_column_is_added_and_another_type_refused(sink: tg.Postgres, staged: Path) -> None:
    deliver(sink, record(staged, 1, pane("a", 1)))
    both = schema(total=pa.int64(), orders=pa.int32())
    wider = record(staged, 2, pane("b", 2) | {"orders": 3}, as_schema=both)
    deliver(sink, wider, to=target(values=("total", "orders")))
    assert select(sink, "SELECT merchant, total, orders FROM TABLE ORDER BY 1") == [("a", 1, None), ("b", 2, 3)]
    with pytest.raises(SinkError, match=r"'total' .* is bigint, .* TEXT"):
        deliver(sink, record(staged, 3, pane("a", "x"), as_schema=schema(total=pa.string())))


def test_a_table_of_somebody_else_is_refused(sink: tg.Postgres, postgres: RunningServer) -> None:
    run(postgres, f"CREATE TABLE {sink.table} (merchant text, total bigint)")
    with pytest.raises(SinkError, match="not made by Tidegate"):
        sink.open(target())


def test_a_table_made_beforehand_needs_no_more_than_the_right_to_write(
    sink: tg.Postgres, namespace: str, postgres: RunningServer, staged: Path
) -> None:
    deliver(sink, record(staged, 1, pane("a", 1)))
    user = unique("writer")
    run(postgres, f"CREATE ROLE {user} LOGIN; GRANT USAGE ON SCHEMA {namespace} TO {user}; "
                  f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {namespace} TO {user}")  # fmt: skip
    restricted = tg.Postgres(postgres.address.replace("postgres@", f"{user}@"), sink.table)
    back = pane("a", 1, change="retract")
    assert deliver(restricted, record(staged, 2, pane("b", 2)), record(staged, 3, back)) == [1, 1]
    assert total(sink) == [2]
    run(postgres, f"REVOKE ALL ON ALL TABLES IN SCHEMA {namespace} FROM {user}")
    with pytest.raises(SinkError, match="permission denied") as error:
        restricted.open(target(claim=2))
    assert "INSERT" in str(error.value.hint)


def test_a_missing_schema_is_explained(postgres: RunningServer) -> None:
    with pytest.raises(SinkError, match="nowhere") as error:
        tg.Postgres(postgres.address, "nowhere.revenue").open(target())
    assert "CREATE SCHEMA" in str(error.value.hint)


def test_names_may_be_anything_that_fits(postgres: RunningServer, namespace: str, staged: Path) -> None:
    odd = tg.Postgres(postgres.address, f'{namespace}.Über "all"')
    deliver(odd, record(staged, 1, pane("a", 1)), record(staged, 2, pane("a", 1, change="retract")))
    assert select(odd, f'SELECT count(*) FROM {namespace}."Über ""all"""') == [(0,)]
    assert "63" in tg.Postgres(postgres.address, "ü" * 32).problems()[0]


def test_many_sinks_may_be_opened_in_a_new_database_at_once(postgres: RunningServer, namespace: str) -> None:
    troubles: list[Exception] = []

    def open_one(n: int) -> None:
        try:
            tg.Postgres(postgres.address, f"{namespace}.t{n}").open(target(f"sink{n}")).close()
        except Exception as error:
            troubles.append(error)

    threads = [threading.Thread(target=open_one, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert troubles == []


# Servers go away.


def test_a_server_restarted_in_the_middle_of_a_transaction_loses_and_doubles_nothing(
    sink: tg.Postgres, postgres: RunningServer, staged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver(sink, record(staged, 1, pane("a", 1)))
    troubles = iter([postgres.restart, postgres.restart])
    said: list[str] = []
    with closing(sink.open(target())) as writer, monkeypatch.context() as patch:
        # All rows are written, the marker is not: now the server goes. Then again, and the third time it stays.
        patch.setattr(crash, "point", lambda _: next(troubles, lambda: None)())
        second = record(staged, 2, pane("a", 2, index=1), pane("b", 3))
        assert patiently(lambda: writer.deliver(second), said.append) == 2
    assert next(troubles, None) is None
    assert said[0].startswith("waiting: PostgreSQL 127.0.0.1:")
    assert said[-1].startswith("going on after")
    assert total(sink) == [2, 3]


def test_a_commit_whose_answer_was_lost_is_not_repeated(
    sink: tg.Postgres, postgres: RunningServer, staged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = psycopg.Transaction.__exit__

    def lost(self: Any, *args: Any) -> Any:
        commit(self, *args)
        monkeypatch.setattr(psycopg.Transaction, "__exit__", commit)
        postgres.kill()
        postgres.start()
        self.connection.execute("SELECT 1")

    with closing(sink.open(target())) as writer:
        first = record(staged, 1, pane("a", 1))
        monkeypatch.setattr(psycopg.Transaction, "__exit__", lost)
        with pytest.raises(Unavailable):
            writer.deliver(first)
        assert writer.deliver(first) == 0
    assert total(sink) == [1]


def test_a_server_that_is_away_is_waited_for_and_said_so(
    sink: tg.Postgres, postgres: RunningServer, staged: Path
) -> None:
    said: list[str] = []
    with closing(sink.open(target())) as writer:
        postgres.stop()
        back = threading.Timer(3, postgres.start)
        back.start()
        try:
            assert patiently(lambda: writer.deliver(record(staged, 1, pane("a", 1))), said.append) == 1
        finally:
            back.join()
    assert any("does not answer" in message for message in said)
    assert total(sink) == [1]


def test_a_sink_that_cannot_be_reached_says_so_when_it_is_opened() -> None:
    with pytest.raises(Unavailable, match=r"PostgreSQL 127.0.0.1:1/x cannot be reached"):
        tg.Postgres("postgresql://u:secret@127.0.0.1:1/x", "t").open(target())


def test_too_many_connections_are_waited_for(postgres: RunningServer, sink: tg.Postgres, staged: Path) -> None:
    user = unique("few")
    run(postgres, f"CREATE ROLE {user} LOGIN SUPERUSER")
    address = postgres.address.replace("postgres@", f"{user}@")
    with closing(tg.Postgres(address, sink.table).open(target())) as writer:
        with closing(psycopg.connect(postgres.address, autocommit=True)) as admin:
            admin.execute(f"ALTER ROLE {user} NOSUPERUSER CONNECTION LIMIT 0".encode())
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", (user,))
            first = record(staged, 1, pane("a", 1))
            with pytest.raises(Unavailable, match=r"connection broke|shut down"):
                writer.deliver(first)
            with pytest.raises(Unavailable, match="too many connections"):
                writer.deliver(first)
            admin.execute(f"ALTER ROLE {user} SUPERUSER CONNECTION LIMIT -1".encode())
        assert writer.deliver(first) == 1


def test_a_zombie_that_waits_for_the_marker_finds_itself_fenced(
    sink: tg.Postgres, staged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver(sink, record(staged, 1, pane("a", 1)))
    results: list[object] = []
    zombie = sink.open(target(claim=1))
    successor = sink.open(target(claim=2))

    def meanwhile() -> None:
        try:
            results.append(zombie.deliver(record(staged, 2, pane("zombie", 666))))
        except Fenced as error:
            results.append(error)

    thread = threading.Thread(target=meanwhile)

    def in_the_middle(_: str) -> None:
        thread.start()
        time.sleep(0.5)
        assert results == []  # it waits: the marker is locked

    monkeypatch.setattr(crash, "point", in_the_middle)
    assert successor.deliver(record(staged, 2, pane("b", 2))) == 1
    thread.join()
    zombie.close()
    successor.close()
    assert [type(result) for result in results] == [Fenced]
    assert total(sink) == [1, 2]


def test_a_database_that_lost_confirmed_records_is_refused(
    sink: tg.Postgres, postgres: RunningServer, namespace: str, staged: Path
) -> None:
    with closing(sink.open(target())) as writer:
        writer.deliver(record(staged, 5, pane("a", 1)))
        run(postgres, f"UPDATE {namespace}.tidegate_markers SET sequence = 4")  # as a replica that was behind
        with pytest.raises(SinkError, match="gone back to record 4, though record 5 was confirmed"):
            writer.deliver(record(staged, 6, pane("a", 2)))
    assert total(sink) == [1]


def test_readers_see_the_last_record_while_the_next_is_written(
    sink: tg.Postgres, staged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[Any]] = []
    other = pane("a", 7, start=NOON + FIVE_MINUTES)
    deliver(sink, record(staged, 1, pane("a", 1), other))
    monkeypatch.setattr(crash, "point", lambda _: seen.append(total(sink)))
    deliver(sink, record(staged, 2, pane("a", 2, index=1), other | {"pane_change": "retract"}))
    assert seen == [[1, 7]]
    assert total(sink) == [2]


# Secrets.


def test_the_password_is_never_shown(postgres: RunningServer) -> None:
    run(postgres, "ALTER ROLE postgres PASSWORD 'other'")
    for url in (
        "postgresql://shop:geheim@127.0.0.1:1/sales",
        "host=127.0.0.1 port=1 password=geheim",
        "postgresql://shop:geheim@[broken/sales",
        "password=geheim nonsense",
    ):
        sink = tg.Postgres(url, "revenue")
        with pytest.raises((SinkError, Unavailable)) as error:
            sink.open(target())
        assert "geheim" not in f"{sink!r} {sink.describe()} {sink.problems()} {error.value}"


def test_a_refusal_of_the_server_is_final(postgres: RunningServer) -> None:
    with pytest.raises(SinkError, match="does not let us in") as error:
        tg.Postgres(postgres.address.replace("/postgres", "/nowhere"), "t").open(target())
    assert "names of user and database" in str(error.value.hint)
