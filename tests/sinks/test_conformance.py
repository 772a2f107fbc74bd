"""What every sink must do. To hold a new sink against it, add an adapter in sink_adapters.py; nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from sink_adapters import ADAPTERS, Adapter, deliver, expect, kinds, target_in  # type: ignore[import-not-found]
from sink_cases import FIVE_MINUTES, NOON, pane, record, schema, stage  # type: ignore[import-not-found]

from tidegate.errors import Fenced
from tidegate.sinks.base import Delivery


@pytest.fixture(params=kinds())
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def adapter(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Adapter:
    needed = ADAPTERS[kind].fixture and request.getfixturevalue(ADAPTERS[kind].fixture)
    adapter: Adapter = ADAPTERS[kind](tmp_path, getattr(needed, "address", ""))
    return adapter


@pytest.fixture
def staged(tmp_path: Path) -> Path:
    return tmp_path / "staged"


A, B = pane("a", 1), pane("b", 2)


def test_a_record_is_applied_and_confirmed(adapter: Adapter, staged: Path) -> None:
    with closing(adapter.sink("out").open(target_in(adapter))) as writer:
        assert writer.confirmed() is None
        assert writer.deliver(record(staged, 3, A, B)) == 2
        assert writer.confirmed() == 3
    expect(adapter, [A, B], [(3, A), (3, B)])


def test_a_record_that_comes_again_changes_nothing(adapter: Adapter, staged: Path) -> None:
    first = record(staged, 1, A, B)
    assert deliver(adapter, first, first) == [2, 0]
    assert deliver(adapter, first, claim=2) == [0]
    expect(adapter, [A, B], [(1, A), (1, B)])


def test_an_older_record_changes_nothing_even_when_its_files_are_gone(adapter: Adapter, staged: Path) -> None:
    newer, old = pane("a", 9, index=1), record(staged, 1, A)
    deliver(adapter, old, record(staged, 2, newer))
    old.files[0].unlink()
    assert deliver(adapter, old) == [0]
    expect(adapter, [newer], [(1, A), (2, newer)])


def test_what_was_delivered_needs_the_staged_files_no_longer(adapter: Adapter, staged: Path) -> None:
    first = record(staged, 1, A)
    deliver(adapter, first)
    first.files[0].unlink()
    expect(adapter, [A], [(1, A)])


def test_a_record_without_files_moves_the_marker(adapter: Adapter, staged: Path) -> None:
    assert deliver(adapter, record(staged, 1), record(staged, 2, A), record(staged, 4)) == [0, 1, 0]
    with closing(adapter.sink("out").open(target_in(adapter))) as writer:
        assert writer.confirmed() == 4
    expect(adapter, [A], [(2, A)])


def test_a_staged_file_without_rows_is_no_trouble(adapter: Adapter, staged: Path) -> None:
    assert deliver(adapter, Delivery(1, (stage(staged, []), stage(staged, [A])))) == [1]
    expect(adapter, [A], [(1, A)])


# A process that dies, and one that does not know it is dead.

DIES = """
import sys
from pathlib import Path
import sink_adapters
from tidegate.sinks.base import Delivery
kind, folder, address, *files = sys.argv[1:]
deliveries = [Delivery(n, (Path(file),)) for n, file in enumerate(files, start=1)]
sink_adapters.deliver(sink_adapters.ADAPTERS[kind](Path(folder), address), *deliveries)
"""


@pytest.mark.parametrize("kind", kinds(surviving=True))
def test_a_crash_between_write_and_commit_neither_loses_nor_doubles(adapter: Adapter, kind: str, staged: Path) -> None:
    newer = pane("a", 9, index=1)
    deliveries = [record(staged, 1, A, B), record(staged, 2, newer)]
    files = [str(delivery.files[0]) for delivery in deliveries]
    environment = os.environ | {
        "TIDEGATE_CRASH_AT": "mid_sink:2",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    command = [sys.executable, "-c", DIES, kind, str(adapter.folder), adapter.address, *files]
    died = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr

    expect(adapter, [A, B], [(1, A), (1, B)])
    with closing(adapter.sink("out").open(target_in(adapter, claim=2))) as writer:
        assert writer.confirmed() == 1
        assert [writer.deliver(delivery) for delivery in deliveries] == [0, 1]
    expect(adapter, [newer, B], [(1, A), (1, B), (2, newer)])


def test_a_zombie_is_fenced_and_harms_nothing(adapter: Adapter, staged: Path) -> None:
    sink = adapter.sink("out")
    zombie = sink.open(target_in(adapter, claim=1))
    zombie.deliver(record(staged, 1, A))
    successor = sink.open(target_in(adapter, claim=2))
    with pytest.raises(Fenced, match="claim 2"):
        zombie.deliver(record(staged, 2, pane("a", 666, index=1), pane("zombie", 1)))
    with pytest.raises(Fenced):
        sink.open(target_in(adapter, claim=1))
    assert successor.confirmed() == 1
    successor.deliver(record(staged, 2, B))
    zombie.close()
    successor.close()
    expect(adapter, [A, B], [(1, A), (2, B)])


def test_two_sinks_in_one_place_know_nothing_of_each_other(adapter: Adapter, staged: Path) -> None:
    assert deliver(adapter, record(staged, 1, A), name="first") == [1]
    assert deliver(adapter, record(staged, 1, B), record(staged, 2), name="second") == [1, 0]
    with closing(adapter.sink("first").open(target_in(adapter, "first"))) as writer:
        assert writer.confirmed() == 1
    expect(adapter, [A], [(1, A)], name="first")
    expect(adapter, [B], [(1, B)], name="second")


# What panes can say.


def test_a_later_pane_replaces_the_row_of_its_window(adapter: Adapter, staged: Path) -> None:
    newer = pane("a", 5, index=1)
    other_window = pane("a", 7, start=NOON + FIVE_MINUTES)
    deliver(adapter, record(staged, 1, A, other_window), record(staged, 2, newer))
    expect(adapter, [newer, other_window], [(1, A), (1, other_window), (2, newer)])


def test_a_retraction_deletes_the_row_and_stays_in_the_log(adapter: Adapter, staged: Path) -> None:
    back = pane("a", 1, change="retract")
    assert deliver(adapter, record(staged, 1, A, B), record(staged, 2, back)) == [2, 1]
    expect(adapter, [B], [(1, A), (1, B), (2, back)])


def test_a_row_taken_back_and_brought_anew_in_one_record_is_there(adapter: Adapter, staged: Path) -> None:
    back, anew = pane("a", 1, change="retract"), pane("a", 4, index=1)
    deliver(adapter, record(staged, 1, A), record(staged, 2, back, anew))
    expect(adapter, [anew], [(1, A), (2, back), (2, anew)])


def test_an_upsert_wins_over_a_retraction_in_a_later_file(adapter: Adapter, staged: Path) -> None:
    # Spark's files come in no promised order; a merged-away window that came again also starts at index 0.
    back, anew = pane("a", 1, change="retract", index=3), pane("a", 4)
    deliver(adapter, record(staged, 1, A), Delivery(2, (stage(staged, [anew]), stage(staged, [back]))))
    expect(adapter, [anew], [(1, A), (2, anew), (2, back)])


def test_a_replaced_session_leaves_the_table_and_is_not_in_the_log(adapter: Adapter, staged: Path) -> None:
    merged = pane("a", 3, start=NOON - FIVE_MINUTES)
    deliver(adapter, record(staged, 1, A), record(staged, 2, pane("a", 1, change="replaced"), merged))
    expect(adapter, [merged], [(1, A), (2, merged)])


def test_a_record_of_nothing_but_replaced_windows_empties_the_table(adapter: Adapter, staged: Path) -> None:
    deliver(adapter, record(staged, 1, A), record(staged, 2, pane("a", 1, change="replaced")))
    expect(adapter, [], [(1, A)])


def test_taking_back_what_never_was_is_no_trouble(adapter: Adapter, staged: Path) -> None:
    back = pane("never", 1, change="retract")
    deliver(adapter, record(staged, 1, back))
    expect(adapter, [], [(1, back)])


# What values can be.


def test_a_null_key_is_one_key(adapter: Adapter, staged: Path) -> None:
    first, newer, empty = pane(None, 1), pane(None, 2, index=1), pane("", 3)
    deliver(adapter, record(staged, 1, first, empty), record(staged, 2, newer))
    expect(adapter, [newer, empty], [(1, first), (1, empty), (2, newer)])
    back = pane(None, 2, change="retract")
    deliver(adapter, record(staged, 3, back))
    expect(adapter, [empty], [(1, first), (1, empty), (2, newer), (3, back)])


def test_the_global_window_is_one_window(adapter: Adapter, staged: Path) -> None:
    first, newer = pane("a", 1, start=None), pane("a", 2, start=None, index=1)
    deliver(adapter, record(staged, 1, first), record(staged, 2, newer))
    expect(adapter, [newer], [(1, first), (2, newer)])


def test_null_values_stay_null(adapter: Adapter, staged: Path) -> None:
    nothing = pane("a", None, index=1)
    deliver(adapter, record(staged, 1, A), record(staged, 2, nothing))
    expect(adapter, [nothing], [(1, A), (2, nothing)])


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        pytest.param(pa.string(), "Zoë 🌊 名前 'quoted' \"twice\"; DROP TABLE x --\n\x00", id="unicode"),
        pytest.param(pa.decimal128(38, 18), Decimal("12345678901234567890.123456789012345678"), id="decimal"),
        pytest.param(pa.decimal128(20, 9), Decimal("0.000000001"), id="small decimal"),
        pytest.param(pa.int64(), -(2**63), id="smallest integer"),
        pytest.param(pa.float64(), 0.1, id="double"),
        pytest.param(pa.float64(), float("-inf"), id="infinity"),
        pytest.param(pa.timestamp("us", "UTC"), NOON + timedelta(microseconds=1), id="timestamp"),
        pytest.param(pa.timestamp("us"), datetime(1677, 9, 21, 0, 12, 43, 145224), id="old timestamp"),
        pytest.param(pa.timestamp("us"), datetime(9999, 12, 31, 23, 59, 59, 999999), id="far timestamp"),
        pytest.param(pa.date32(), date(2024, 2, 29), id="date"),
        pytest.param(pa.bool_(), True, id="boolean"),
        pytest.param(pa.binary(), b"\x00\xff", id="binary"),
        pytest.param(pa.list_(pa.string()), ["ä", None, ""], id="array"),
        pytest.param(pa.struct({"x": pa.int64(), "y": pa.list_(pa.int32())}), {"x": 1, "y": [2]}, id="struct"),
    ],
)
def test_a_value_comes_back_as_it_was_put_in(adapter: Adapter, staged: Path, type_: pa.DataType, value: Any) -> None:
    as_value, as_key = pane("a", value), pane(value, 1)
    deliver(adapter, record(staged, 1, as_value, as_schema=schema(total=type_)), name="value")
    expect(adapter, [as_value], [(1, as_value)], name="value")

    # And as a key it finds its row again.
    newer, key_schema = pane(value, 2, index=1), schema(merchant=type_)
    records = record(staged, 1, as_key, as_schema=key_schema), record(staged, 2, newer, as_schema=key_schema)
    deliver(adapter, *records, name="key")
    expect(adapter, [newer], [(1, as_key), (2, newer)], name="key")


def test_columns_may_have_any_name(adapter: Adapter, staged: Path) -> None:
    odd_key, odd_value = 'the "key"', "select * from.währung"
    row = {odd_key: "a", odd_value: 1} | {k: v for k, v in A.items() if k not in ("merchant", "total")}
    names = {"merchant": odd_key, "total": odd_value}
    as_schema = pa.schema([field.with_name(names.get(field.name, field.name)) for field in schema()])
    deliver(adapter, record(staged, 1, row, as_schema=as_schema), key=(odd_key,), values=(odd_value,))
    expect(adapter, [row], [(1, row)], key=(odd_key,))


def test_a_pipeline_without_a_key_has_one_row_per_window(adapter: Adapter, staged: Path) -> None:
    no_key = [{k: v for k, v in pane("", n, index=n).items() if k != "merchant"} for n in range(2)]
    as_schema = pa.schema([field for field in schema() if field.name != "merchant"])
    deliver(adapter, *(record(staged, n, row, as_schema=as_schema) for n, row in enumerate(no_key)), key=())
    expect(adapter, [no_key[1]], list(enumerate(no_key)), key=())


def test_a_million_rows_are_applied_and_half_of_them_taken_back(adapter: Adapter, staged: Path) -> None:
    count = 1_000_000
    number = pa.array(range(count), pa.int64())
    start = pc.add(pc.multiply(pc.bit_wise_and(number, 7), 300_000_000), int(NOON.timestamp()) * 1_000_000)
    columns = {
        "merchant": pc.binary_join_element_wise("merchant", number.cast(pa.string()), "-"),
        "window_start": start.cast(pa.timestamp("us", "UTC")),
        "window_end": pc.add(start, 300_000_000).cast(pa.timestamp("us", "UTC")),
        "total": number,
        "pane_index": pa.repeat(pa.scalar(0, pa.int32()), count),
        "pane_timing": pa.repeat("on_time", count),
        "pane_final": pa.repeat(False, count),
    }
    staged.mkdir()
    pq.write_table(pa.table(columns | {"pane_change": pa.repeat("upsert", count)}), staged / "1.parquet")
    retractions = pa.table(columns | {"pane_change": pa.repeat("retract", count)}).slice(0, count // 2)
    pq.write_table(retractions, staged / "2.parquet")
    first, second = (Delivery(n, (staged / f"{n}.parquet",)) for n in (1, 2))
    # A sink counts the rows it really deletes, so the second number shows that the rows of the first were there.
    assert deliver(adapter, first, first, second) == [count, 0, count // 2]
