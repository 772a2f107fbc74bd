"""Other formats and other windows than the usual ones: the same events give the same counts."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.workbench import NOON, Bench, at

import tidegate as tg
from tidegate.model.windows import calendar_window, hopping_windows
from tidegate.operators.assign import Assignment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CONTRACT = "id STRING, k STRING, v BIGINT, at TIMESTAMP"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def us(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def iso(instant: int) -> str:
    return (EPOCH + timedelta(microseconds=instant)).isoformat(timespec="microseconds").replace("+00:00", "Z")


def an_event(number: int) -> dict[str, Any]:
    return {"id": f"e{number}", "k": "ab"[number % 2], "v": number, "at": at(number * 7)}


EVENTS = [an_event(number) for number in range(60)]


def csv_lines(rows: list[dict[str, Any]], delimiter: str = ",") -> list[bytes]:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\n").writerows(row.values() for row in rows)
    return text.getvalue().encode().splitlines()


def write_parquet(bench: Bench, name: str, rows: list[dict[str, Any]]) -> Path:
    typed = [row | {"at": datetime.fromisoformat(row["at"])} for row in rows]
    schema = pa.schema([("id", pa.string()), ("k", pa.string()), ("v", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    table = pa.Table.from_pylist(typed, schema=schema)
    path = bench.input / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return bench.publish(path, lambda hidden: pq.write_table(table, hidden))


def minutes(rows: list[dict[str, Any]]) -> dict[tuple[str, str], tuple[int, int]]:
    """Count and sum per key and minute, in plain Python."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for row in rows:
        place = row["k"], row["at"][:17] + "00.000000Z"
        n, total = found.get(place, (0, 0))
        found[place] = n + 1, total + row["v"]
    return found


def shown(bench: Bench, table: str) -> dict[tuple[str, str], tuple[int, int]]:
    return {(row["k"], row["window_start"]): (row["n"], row["total"]) for row in bench.table(table)}


def test_json_csv_and_parquet_sources_of_one_app_each_have_their_own_ledger_and_result(bench: Bench) -> None:
    """Files of different formats, some compressed, some of them arriving when the others bring nothing."""
    broken_csv = b"e98,a,not a number,2024-03-01T12:00:00Z"
    for half in (0, 1):
        part = EVENTS[half * 30 : half * 30 + 30]
        bench.write(f"json/{half}.jsonl", list(part))
        bench.publish(
            bench.input / "json" / f"{half}.jsonl.gz",
            lambda hidden, part=part: hidden.write_bytes(  # type: ignore[misc]
                gzip.compress(b"".join(json.dumps(row | {"k": "zipped"}).encode() + b"\n" for row in part))
            ),
        )
        bench.write(f"csv/{half}.csv", [b"id;k;v;at", *csv_lines(part, ";")] + [broken_csv] * half)
    write_parquet(bench, "parquet/0.parquet", [*EVENTS, {"id": "e99", "k": "ü", "v": None, "at": at(0)}])
    app = tg.App("formats")
    connectors = {
        "lines": tg.Files(str(bench.input / "json")),
        "commas": tg.Files(str(bench.input / "csv"), format="csv", header=True, delimiter=";"),
        "columns": tg.Files(str(bench.input / "parquet"), format="parquet"),
    }
    for name, connector in connectors.items():
        contract = tg.Contract(CONTRACT, required=["v"])
        source = app.source(name, connector, contract=contract, event_time="at")
        counts = source.key_by("k").window(f"{name}_w", tg.Tumbling("1m")).aggregate(n=tg.count(), total=tg.sum("v"))
        app.sink(f"{name}_s", counts, tg.SQLite(str(bench.database), table=name))

    totals = bench.run(app, "drain", max_batch=2).totals

    assert shown(bench, "commas") == shown(bench, "columns") == minutes(EVENTS)
    assert shown(bench, "lines") == minutes(EVENTS) | minutes([row | {"k": "zipped"} for row in EVENTS])
    assert {name: (line.read, line.dead) for name, line in totals.sources.items()} == {
        "lines": (120, {}),
        "commas": (61, {"MALFORMED": 1}),
        "columns": (61, {"CONTRACT_VIOLATION": 1}),
    }
    letters = {letter["source"]: letter for letter in bench.dead_letters()}
    assert letters["commas"]["raw"] == broken_csv
    assert letters["commas"]["origin"].endswith("csv/1.csv")
    typed = {"id": "e99", "k": "ü", "v": None, "at": "2024-03-01T12:00:00.000000Z"}
    assert json.loads(letters["columns"]["raw"]) == typed, "typed rows have no bytes of their own: JSON stands for them"
    assert letters["columns"]["position"] == 60
    assert all(record.ledger.unaccounted() == 0 for record in bench.records())


def test_a_source_that_brings_nothing_in_a_batch_does_not_move(bench: Bench) -> None:
    """Two sources; the second one has its only file in the first batch."""
    bench.write("left/1.jsonl", [{"id": "l1", "k": "a", "v": 1, "at": at(0)}])
    bench.write("right/1.jsonl", [{"id": "r1", "k": "a", "v": 1, "at": at(0)}])
    bench.write("left/2.jsonl", [{"id": "l2", "k": "a", "v": 1, "at": at(600)}])
    app = tg.App("two")
    for side in ("left", "right"):
        source = app.source(side, tg.Files(str(bench.input / side)), contract=CONTRACT, event_time="at")
        counts = source.key_by("k").window(f"{side}_w", tg.Tumbling("1m")).aggregate(n=tg.count(), total=tg.sum("v"))
        app.sink(f"{side}_s", counts, tg.SQLite(str(bench.database), table=side))
    totals = bench.run(app, "once", max_batch=1).totals
    assert {name: line.read for name, line in totals.sources.items()} == {"left": 2, "right": 1}
    assert bench.records()[-1].watermarks == {"left_w": us(NOON) + 600_000_000, "right_w": us(NOON)}
    assert shown(bench, "left") == {("a", at(0)): (1, 1)}
    assert shown(bench, "right") == {}


BERLIN = ZoneInfo("Europe/Berlin")
SPRING = datetime(2024, 3, 31, tzinfo=BERLIN)
AUTUMN = datetime(2024, 10, 27, tzinfo=BERLIN)


def test_one_source_feeds_operators_with_all_kinds_of_windows(bench: Bench) -> None:
    """Events every half hour around both changes of daylight saving time."""
    times = [
        (day - timedelta(days=1)).astimezone(UTC) + timedelta(minutes=30 * step)
        for day in (SPRING, AUTUMN)
        for step in range(146)
    ]
    rows = [{"id": f"e{i}", "k": "a", "v": i, "at": time.isoformat()} for i, time in enumerate(times)]
    bench.write("1.jsonl", rows[:146])
    bench.write("2.jsonl", rows[146:])
    app = tg.App("windows")
    source = app.source(
        "events", tg.Files(str(bench.input)), contract=CONTRACT, event_time="at", watermark=tg.Watermark(delay="1h")
    )
    kinds: dict[str, Any] = {
        "hop": tg.Hopping("5h", "2h", offset="30m"),
        "day": tg.Calendar("day", "Europe/Berlin"),
        "hour": tg.Calendar("hour", "Europe/Berlin"),
        "month": tg.Calendar("month", "Europe/Berlin"),
        "everything": tg.Global(),
    }
    for name, window in kinds.items():
        counts = source.key_by("k").window(name, window).aggregate(n=tg.count(), total=tg.sum("v"))
        app.sink(f"{name}_s", counts, tg.SQLite(str(bench.database), table=f"{name}_t"))
        app.sink(f"{name}_again", counts, tg.SQLite(str(bench.database), table=f"{name}_u"))
    totals = bench.run(app, "drain", max_batch=1).totals

    for name, window in kinds.items():
        expected: Counter[tuple[Any, Any]] = Counter()
        for time in times:
            if name == "everything":
                found: list[tuple[Any, Any]] = [(None, None)]
            elif name == "hop":
                found = [(iso(start), iso(end)) for start, end in hopping_windows(window, us(time))]
            else:
                start, end = calendar_window(window, us(time))
                found = [(iso(start), iso(end))]
            expected.update(found)
        got = {(row["window_start"], row["window_end"]): row["n"] for row in bench.table(f"{name}_t")}
        assert got == expected, name
        assert bench.table(f"{name}_t") == bench.table(f"{name}_u"), "two sinks on one operator hold the same"
        assert totals.operators[name].accepted == len(rows)
    days = {row["window_start"]: row["n"] for row in bench.table("day_t")}
    assert days["2024-03-30T23:00:00.000000Z"] == 46, "the day that clocks go forward has 23 hours"
    assert days["2024-10-26T22:00:00.000000Z"] == 50, "the day that they go back has 25"


ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "Asia/Beirut",
)


def test_calendar_windows_in_sql_are_those_of_the_model_in_every_zone_and_unit(spark: SparkSession) -> None:
    """Around every change of the clocks of some years, including midnights that do not exist."""
    moments = sorted(
        us(datetime(year, month, day, tzinfo=UTC)) + hour * 1_800_000_000 + jitter
        for year in (2017, 2018, 2024)
        for month, days in (
            (2, (17, 18, 29)),
            (3, (9, 10, 24, 25, 31)),
            (4, (7,)),
            (10, (5, 6, 7, 15, 27, 28)),
            (11, (3, 4, 5)),
        )
        for day in days
        if (month, day) != (2, 29) or year == 2024
        for hour in range(48)
        for jitter in (-1, 0)
    )
    events = spark.createDataFrame([(moment,) for moment in moments], "t BIGINT")
    columns, expected = [], []
    for zone in ZONES:
        for unit in ("hour", "day", "week", "month", "quarter", "year"):
            window = tg.Calendar(unit, zone)
            assignment = Assignment(window)
            name = f"{unit} in {zone}"
            columns += [f"{assignment.slice('t')} AS `{name} start`", f"{assignment.last_end('t')} AS `{name} end`"]
            expected.append((name, window))
    found = events.selectExpr("t", *columns).toArrow().to_pydict()
    for name, window in expected:
        wrong = [
            (iso(moment), [iso(start), iso(end)], [iso(bound) for bound in calendar_window(window, moment)])
            for moment, start, end in zip(found["t"], found[f"{name} start"], found[f"{name} end"], strict=True)
            if (start, end) != calendar_window(window, moment)
        ]
        assert wrong == [], name


def test_hopping_windows_in_sql_are_those_of_the_model(spark: SparkSession) -> None:
    moments = [*range(-50, 130), 1_709_294_400_000_000, 1_709_294_400_000_001, -1_709_294_399_999_999]
    events = spark.createDataFrame([(moment,) for moment in moments], "t BIGINT")
    spans = [
        (size, slide, offset)
        for size in (1, 4, 6, 10)
        for slide in (1, 3, 4, 6)
        for offset in (0, 1, 5)
        if slide <= size
    ]
    columns = []
    for size, slide, offset in spans:
        window = tg.Hopping(timedelta(microseconds=size), timedelta(microseconds=slide), timedelta(microseconds=offset))
        assignment = Assignment(window)
        name = f"{size}_{slide}_{offset}"
        slice_ = assignment.slice("t")
        starts = assignment.starts(slice_, f"(-{1 << 61}L)", f"{1 << 61}L") or f"array({slice_})"
        columns += [
            f"{assignment.first_end('t')} AS first_{name}",
            f"{assignment.last_end('t')} AS last_{name}",
            f"{starts} AS starts_{name}",
        ]
    for row in events.selectExpr("t", *columns).collect():
        for size, slide, offset in spans:
            window = tg.Hopping(
                timedelta(microseconds=size), timedelta(microseconds=slide), timedelta(microseconds=offset)
            )
            bounds, name = hopping_windows(window, row["t"]), f"{size}_{slide}_{offset}"
            assert (row[f"first_{name}"], row[f"last_{name}"]) == (bounds[0][1], bounds[-1][1])
            assert row[f"starts_{name}"] == [start for start, _ in bounds]
