"""What is particular to Delta: rows and marker in one commit, a table that grows, a zombie that Delta itself stops."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from sink_cases import NOON, Row, pane, record, schema, target  # type: ignore[import-not-found]

import tidegate as tg
from tidegate import crash
from tidegate.errors import Fenced, SinkError
from tidegate.sinks.base import Delivery, SinkTarget

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.fixture
def sink(tmp_path: Path) -> tg.Delta:
    return tg.Delta(tmp_path / "the table's `folder`")


@pytest.fixture
def staged(tmp_path: Path) -> Path:
    return tmp_path / "staged"


def deliver(sink: tg.Delta, *deliveries: Delivery, to: SinkTarget | None = None) -> list[int]:
    with closing(sink.open(to or target())) as writer:
        return [writer.deliver(delivery) for delivery in deliveries]


def rows(spark: SparkSession, sink: tg.Delta) -> list[Row]:
    found: list[Row] = spark.newSession().read.format("delta").load(str(sink.path)).toArrow().to_pylist()
    return sorted(found, key=repr)


def commits(sink: tg.Delta) -> list[dict[str, list[Any]]]:
    """The actions of each commit, by their kind."""
    found = []
    for file in sorted(Path(sink.path, "_delta_log").glob("*.json")):
        actions: dict[str, list[Any]] = {}
        for line in file.read_text("utf-8").splitlines():
            for kind, action in json.loads(line).items():
                actions.setdefault(kind, []).append(action)
        found.append(actions)
    return found


@pytest.mark.parametrize("changes", ["upsert", "log"])
def test_rows_and_marker_are_one_commit_under_the_identity_of_the_checkpoint(
    tmp_path: Path, staged: Path, changes: Any
) -> None:
    sink = tg.Delta(tmp_path / "t", changes=changes)
    deliver(sink, record(staged, 7, pane("a", 1)), record(staged, 8))
    with_rows = [commit for commit in commits(sink) if "add" in commit]
    assert [commit["txn"][0]["appId"] for commit in with_rows] == ["tidegate/shop/c0ffee/out"]
    assert [commit["txn"][0]["version"] for commit in with_rows] == [7]
    assert [commit["txn"][0]["version"] for commit in commits(sink) if "txn" in commit] == [7, 8]
    # A new checkpoint counts from 1 again, and is not taken for the old one.
    assert deliver(sink, record(staged, 1, pane("b", 1)), to=target(checkpoint_id="new")) == [1]


def test_a_table_grows_by_columns_of_any_name_and_type(spark: SparkSession, sink: tg.Delta, staged: Path) -> None:
    deliver(sink, record(staged, 1, pane("a", 1)))
    odd, then = "the time, local", datetime(2024, 2, 29)
    wider = schema(total=pa.int64(), orders=pa.int32(), **{odd: pa.timestamp("us")})
    delivery = record(staged, 2, pane("b", 2) | {"orders": 3, odd: then}, as_schema=wider)
    deliver(sink, delivery, to=target(values=("total", "orders", odd)))
    found = [(row["merchant"], row["total"], row["orders"], row[odd]) for row in rows(spark, sink)]
    assert found == [("a", 1, None, None), ("b", 2, 3, then)]
    with pytest.raises(SinkError, match=r"'total' .* is bigint, .* string"):
        deliver(sink, record(staged, 3, pane("a", "x"), as_schema=schema(total=pa.string())))


def test_another_key_and_a_table_of_somebody_else_are_refused(
    spark: SparkSession, sink: tg.Delta, tmp_path: Path, staged: Path
) -> None:
    deliver(sink, record(staged, 1, pane("a", 1)))
    with pytest.raises(SinkError, match=r"keyed by \(merchant\).*\(city\)"):
        sink.open(target(key=("city",)))
    spark.range(3).write.format("delta").save(str(tmp_path / "other"))
    with pytest.raises(SinkError, match="not made by Tidegate"):
        tg.Delta(tmp_path / "other").open(target())


def test_a_zombie_that_begins_after_its_successor_has_written_changes_nothing(
    spark: SparkSession, sink: tg.Delta, staged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver(sink, record(staged, 1, pane("a", 1)))
    decided = record(staged, 2, pane("b", 2))
    zombie = sink.open(target(claim=1))

    def taken_over(_: str) -> None:
        monkeypatch.setattr(crash, "point", lambda _: None)
        assert deliver(sink, decided, record(staged, 3, pane("b", 3, index=1)), to=target(claim=2)) == [1, 1]

    # It has looked at the claim, and found it its own. Its MERGE comes too late all the same.
    monkeypatch.setattr(crash, "point", taken_over)
    with pytest.raises(Fenced, match="claim 2"):
        zombie.deliver(decided)
    assert [(row["merchant"], row["total"]) for row in rows(spark, sink)] == [("a", 1), ("b", 3)]


def test_a_table_that_was_restored_to_an_older_version_is_refused(
    spark: SparkSession, tmp_path: Path, staged: Path
) -> None:
    sink = tg.Delta(tmp_path / "t")
    with closing(sink.open(target())) as writer:
        writer.deliver(record(staged, 1, pane("a", 1)))
        last = len(commits(sink)) - 1
        writer.deliver(record(staged, 2, pane("a", 2, index=1)))
        # Restoring keeps the markers, as Delta must not take an old write for a new one; a copy of the folder does not.
        for file in Path(sink.path, "_delta_log").glob(f"{last + 1:020d}.*"):
            file.unlink()
        spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
        with pytest.raises(SinkError, match="gone back to record 1, though record 2 was confirmed"):
            writer.deliver(record(staged, 3, pane("a", 3, index=2)))


def test_properties_are_those_of_the_table(sink: tg.Delta, staged: Path, spark: SparkSession, tmp_path: Path) -> None:
    sink = tg.Delta(tmp_path / "t", properties={"delta.appendOnly": "false", "owner's": "us\\them"})
    deliver(sink, record(staged, 1, pane("a", 1)))
    found = {row.key: row.value for row in spark.sql(f"SHOW TBLPROPERTIES delta.`{sink.path}`").collect()}
    assert found["owner's"] == "us\\them"
    assert found["tidegate.claim.c0ffee.out"] == "1"


def test_what_cannot_work_is_a_problem_that_check_finds(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for sink in (tg.Delta(tmp_path / "file"), tg.Delta(""), tg.Delta("x", changes="all")):  # type: ignore[arg-type]
        assert len(sink.problems()) == 1
    with pytest.raises(SinkError, match="upper from lower case"):
        tg.Delta("x").open(target(values=("Merchant",)))
    with pytest.raises(SinkError, match="two columns of the same name"):
        tg.Delta("x", changes="log").open(target(values=("sequence",)))


def test_values_and_keys_of_every_type_come_back_as_they_were(
    spark: SparkSession, tmp_path: Path, staged: Path
) -> None:
    """What the conformance suite asks type by type, in one table: a MERGE takes seconds."""
    values: dict[str, tuple[pa.DataType, Any]] = {
        "text": (pa.string(), "Zoë 🌊 'quoted' \"twice\"\n\x00"),
        "decimal": (pa.decimal128(38, 18), Decimal("12345678901234567890.123456789012345678")),
        "small": (pa.decimal128(20, 9), Decimal("0.000000001")),
        "int": (pa.int64(), -(2**63)),
        "double": (pa.float64(), float("-inf")),
        "instant": (pa.timestamp("us", "UTC"), NOON),
        "old": (pa.timestamp("us"), datetime(1677, 9, 21, 0, 12, 43, 145224)),
        "far": (pa.timestamp("us"), datetime(9999, 12, 31, 23, 59, 59, 999999)),
        "day": (pa.date32(), date(2024, 2, 29)),
        "yes": (pa.bool_(), True),
        "bytes": (pa.binary(), b"\x00\xff"),
        "list": (pa.list_(pa.string()), ["ä", None, ""]),
        "struct": (pa.struct({"x": pa.int64(), "y": pa.list_(pa.int32())}), {"x": 1, "y": [2]}),
        "nothing": (pa.string(), None),
    }
    row = {name: value for name, (_, value) in values.items()}
    rest = {name: value for name, value in pane("", 1).items() if name not in ("merchant", "total")}
    panes = [field for field in schema() if field.name not in ("merchant", "total")]
    fields = [pa.field(name, type_) for name, (type_, _) in values.items()]
    as_schema = pa.schema([*fields, *panes, *(field.with_name(f"v_{field.name}") for field in fields)])
    full = row | rest | {f"v_{name}": value for name, value in row.items()}
    to = target(key=tuple(values), values=tuple(f"v_{name}" for name in values))
    sink = tg.Delta(tmp_path / "t")
    newer = full | {"pane_index": 1, "pane_timing": "late"}
    records = (record(staged, n, pane_, as_schema=as_schema) for n, pane_ in enumerate((full, newer), start=1))
    assert deliver(sink, *records, to=to) == [1, 1]
    assert rows(spark, sink) == [{name: value for name, value in newer.items() if name != "pane_change"}]
