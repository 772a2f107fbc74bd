"""What is particular to SQLite: a table that people read, a file that may be in any state."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sink_cases import NOON, pane, record, schema, target  # type: ignore[import-not-found]

from tidegate import crash
from tidegate.errors import SinkError
from tidegate.sinks.base import Delivery, SinkTarget
from tidegate.sinks.sqlite import SQLite


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "results.db"


@pytest.fixture
def staged(tmp_path: Path) -> Path:
    return tmp_path / "staged"


def deliver(database: Path, *deliveries: Delivery, to: SinkTarget | None = None, table: str = "revenue") -> None:
    with closing(SQLite(database, table).open(to or target())) as writer:
        for delivery in deliveries:
            writer.deliver(delivery)


def select(database: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(query).fetchall()


def test_the_table_can_be_read_by_people(database: Path, staged: Path) -> None:
    deliver(database, record(staged, 1, pane("a", 5)))
    columns = [name for (name,) in select(database, "SELECT name FROM pragma_table_info('revenue')")]
    pane_columns = ["pane_index", "pane_timing", "pane_final"]
    assert columns == ["merchant", "window_start", "window_end", "total", *pane_columns]
    assert select(database, "SELECT * FROM revenue") == [
        ("a", "2026-03-01T12:00:00.000000Z", "2026-03-01T12:05:00.000000Z", 5, 0, "on_time", 0)
    ]
    assert select(database, "SELECT strftime('%H:%M', window_end) FROM revenue") == [("12:05",)]


def test_the_marker_stands_in_the_same_database(database: Path, staged: Path) -> None:
    deliver(database, record(staged, 7, pane("a", 5)))
    columns = "checkpoint_id, pipeline, sink, sequence, claim"
    assert select(database, f"SELECT {columns} FROM tidegate_markers") == [("c0ffee", "shop", "out", 7, 1)]


def test_a_new_checkpoint_has_a_marker_of_its_own(database: Path, staged: Path) -> None:
    deliver(database, record(staged, 7, pane("a", 5)))
    with closing(SQLite(database, "revenue").open(target(checkpoint_id="new"))) as writer:
        assert writer.confirmed() is None
        assert writer.deliver(record(staged, 1, pane("a", 6))) == 1
    assert select(database, "SELECT total FROM revenue") == [(6,)]


def test_a_reader_sees_the_last_record_while_the_next_is_written(
    database: Path, staged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[tuple[Any, ...]]] = []
    deliver(database, record(staged, 1, pane("a", 1), pane("b", 1)))
    monkeypatch.setattr(crash, "point", lambda _: seen.append(select(database, "SELECT total FROM revenue")))
    deliver(database, record(staged, 2, pane("a", 2, index=1), pane("b", 1, change="retract")))
    assert seen == [[(1,), (1,)]]
    assert select(database, "SELECT total FROM revenue") == [(2,)]


def test_an_error_in_the_middle_leaves_nothing_behind(
    database: Path, staged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = record(staged, 1, pane("a", 1))

    def fail(_: str) -> None:
        raise KeyboardInterrupt

    with closing(SQLite(database, "revenue").open(target())) as writer:
        with monkeypatch.context() as patch:
            patch.setattr(crash, "point", fail)
            with pytest.raises(KeyboardInterrupt):
                writer.deliver(first)
        assert select(database, "SELECT name FROM sqlite_master WHERE name = 'revenue'") == []
        assert writer.confirmed() is None
        assert writer.deliver(first) == 1


@pytest.mark.parametrize(
    ("type_", "almost_null"), [(pa.float64(), float("nan")), (pa.string(), ""), (pa.binary(), b""), (pa.int64(), 0)]
)
def test_no_key_is_taken_for_the_null_key(database: Path, staged: Path, type_: pa.DataType, almost_null: Any) -> None:
    as_schema = schema(merchant=type_)
    deliver(database, record(staged, 1, pane(None, 1), pane(almost_null, 2), as_schema=as_schema))
    deliver(database, record(staged, 2, pane(None, 3), pane(almost_null, 4), as_schema=as_schema))
    assert select(database, "SELECT total FROM revenue ORDER BY total") == [(3,), (4,)]


def test_nan_is_stored_as_null(database: Path, staged: Path) -> None:
    deliver(database, record(staged, 1, pane("a", float("nan")), as_schema=schema(total=pa.float64())))
    assert select(database, "SELECT total FROM revenue") == [(None,)]


def test_nested_values_are_json_that_sql_can_look_into(database: Path, staged: Path) -> None:
    nested = pa.map_(
        pa.string(), pa.struct({"at": pa.timestamp("us", "UTC"), "sum": pa.decimal128(5, 2), "b": pa.binary()})
    )
    value = [("x", {"at": NOON, "sum": 1, "b": b"\x00"})]
    deliver(database, record(staged, 1, pane("a", value), as_schema=schema(total=nested)))
    assert select(database, "SELECT total -> 'x' FROM revenue") == [
        ('{"at":"2026-03-01T12:00:00.000000Z","sum":"1.00","b":"AA=="}',)
    ]


def test_a_new_value_column_is_added_to_the_table(database: Path, staged: Path) -> None:
    deliver(database, record(staged, 1, pane("a", 1)))
    both = schema(total=pa.int64(), orders=pa.int64())
    delivery = record(staged, 2, pane("b", 2) | {"orders": 3}, as_schema=both)
    deliver(database, delivery, to=target(values=("total", "orders")))
    assert select(database, "SELECT merchant, total, orders FROM revenue ORDER BY 1") == [("a", 1, None), ("b", 2, 3)]


def test_another_key_is_refused_when_the_sink_is_opened(database: Path, staged: Path) -> None:
    deliver(database, record(staged, 1, pane("a", 1)))
    with pytest.raises(SinkError, match=r"keyed by \(merchant\).*\(city\)") as error:
        SQLite(database, "revenue").open(target(key=("city",)))
    assert error.value.hint


def test_a_value_of_another_type_is_refused(database: Path, staged: Path) -> None:
    deliver(database, record(staged, 1, pane("a", 1)))
    with pytest.raises(SinkError, match=r"'total' .* is INTEGER, .* TEXT"):
        deliver(database, record(staged, 2, pane("a", "1"), as_schema=schema(total=pa.string())))
    assert select(database, "SELECT total FROM revenue") == [(1,)]


def test_a_table_of_somebody_else_is_refused(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE revenue (merchant TEXT, total INTEGER)")
    with pytest.raises(SinkError, match="not made by Tidegate"):
        SQLite(database, "revenue").open(target())


def test_columns_that_differ_only_in_case_are_refused(database: Path) -> None:
    with pytest.raises(SinkError, match="upper from lower case"):
        SQLite(database, "revenue").open(target(values=("Merchant",)))


def test_a_folder_as_path_is_a_problem_that_check_finds(tmp_path: Path) -> None:
    assert "is a folder" in SQLite(tmp_path, "revenue").problems()[0]
    with pytest.raises(SinkError, match="is a folder"):
        SQLite(tmp_path, "revenue").open(target())


@pytest.mark.parametrize(
    "sink", [SQLite(":memory:", "revenue"), SQLite("x.db", ""), SQLite("x.db", "tidegate_markers")]
)
def test_what_cannot_work_is_a_problem_that_check_finds(sink: SQLite) -> None:
    assert len(sink.problems()) == 1


def test_a_path_that_cannot_be_created_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SinkError, match="cannot be created") as error:
        SQLite(tmp_path / "file" / "results.db", "revenue").open(target())
    assert error.value.hint


def test_a_file_that_is_no_database_is_explained(database: Path) -> None:
    database.write_text("merchant,total\n" * 100)
    with pytest.raises(SinkError, match="not a database") as error:
        SQLite(database, "revenue").open(target())
    assert error.value.hint


def test_a_locked_database_is_explained(database: Path, staged: Path) -> None:
    sink = SQLite(database, "revenue", busy_timeout="50ms")
    with closing(sink.open(target())) as writer, closing(sqlite3.connect(database)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(SinkError, match="locked") as error:
            writer.deliver(record(staged, 1, pane("a", 1)))
        assert "busy_timeout" in str(error.value.hint)
        other.rollback()
        assert writer.deliver(record(staged, 1, pane("a", 1))) == 1


def test_a_database_deleted_under_the_writer_stops_it(database: Path, staged: Path) -> None:
    with closing(SQLite(database, "revenue").open(target())) as writer:
        database.unlink()
        with pytest.raises(SinkError, match="deleted or replaced"):
            writer.deliver(record(staged, 1, pane("a", 1)))


def test_a_marker_deleted_under_the_writer_stops_it(database: Path, staged: Path) -> None:
    with closing(SQLite(database, "revenue").open(target())) as writer, closing(sqlite3.connect(database)) as other:
        other.execute("DELETE FROM tidegate_markers")
        other.commit()
        with pytest.raises(SinkError, match=r"marker .* has vanished"):
            writer.deliver(record(staged, 1, pane("a", 1)))


def test_a_missing_staged_file_stops_the_delivery(database: Path, staged: Path) -> None:
    delivery = record(staged, 1, pane("a", 1))
    delivery.files[0].unlink()
    with pytest.raises(SinkError, match="cannot be read"):
        deliver(database, delivery)


def test_an_unknown_change_is_refused(database: Path, staged: Path) -> None:
    with pytest.raises(SinkError, match="pane_change must be one of"):
        deliver(database, record(staged, 1, pane("a", 1, change="upsrt")))
