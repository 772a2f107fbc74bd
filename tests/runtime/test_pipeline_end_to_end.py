"""A folder of JSON lines through a tumbling window into SQLite and a Parquet log, held against plain Python.

The traffic misbehaves in every way the generator knows. Which events are accepted depends on the watermark, so the
events themselves are collected: what is accepted, late, duplicate, filtered or refused must add up, id by id, to
the lines that were written.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.workbench import Bench, at

import tidegate as tg
from tidegate.errors import CheckpointError
from tidegate.runtime.ledger import Ledger
from tidegate.runtime.reports import RunSummary
from tidegate.sinks.parquet_log import read_log
from tidegate.sources.traffic import Traffic

pytestmark = pytest.mark.spark

CONTRACT = tg.Contract(
    "payment_id STRING NOT NULL, merchant_id STRING NOT NULL, status STRING, amount DECIMAL(12,2), paid_at TIMESTAMP",
    expect={"amount is positive": "amount >= 0"},
)
WINDOW_US = 300_000_000


def revenue_app(folder: Path, events: Path) -> tg.App:
    app = tg.App("shop")
    payments = app.source(
        "payments",
        tg.Files(str(events), partition="path:partition"),
        contract=CONTRACT,
        event_time="paid_at",
        event_id="payment_id",
        watermark=tg.Watermark(delay="30s"),
        keep_duplicates=True,
    )
    revenue = (
        payments.where("status = 'captured'")
        .key_by("merchant_id")
        .window("revenue", tg.Tumbling("5m"), allowed_lateness="5m")
        .aggregate(orders=tg.count(), total=tg.sum("amount"), ids=tg.collect("payment_id", 100_000))
    )
    app.sink("warehouse", revenue, tg.SQLite(str(folder / "out.db"), table="results"))
    app.sink("log", revenue, tg.ParquetLog(str(folder / "log")))
    return app


@dataclass
class Traffics:
    """What was written, and what came out of it."""

    bench: Bench
    summary: RunSummary
    lines: list[bytes]
    originals: dict[str, dict[str, Any]]

    @property
    def totals(self) -> Ledger:
        return self.summary.totals

    def letters(self, reason: str | None = None) -> list[dict[str, Any]]:
        return self.bench.dead_letters(reason)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traffic")
    Traffic(
        events=4_000,
        start="2024-03-01T12:00:00Z",
        files_per_partition=4,
        merchants=20,
        malformed_share=0.01,
        null_event_time_share=0.002,
        violation_share=0.002,
        future_share=0.002,
    ).write(folder)
    return folder


@pytest.fixture(scope="module")
def drained(written: Path, module_bench: Bench) -> Traffics:
    events = written / "events"
    summary = module_bench.run(revenue_app(module_bench.folder, events), "drain", max_batch=4)
    lines = [line for path in events.rglob("*.jsonl") for line in path.read_bytes().removesuffix(b"\n").split(b"\n")]
    truth = pq.read_table(written / "truth" / "events.parquet").to_pylist()
    return Traffics(module_bench, summary, lines, {row["payment_id"]: row for row in truth})


def classify(line: bytes) -> str:
    """What a line is, told in plain Python and in the order of the rules."""
    try:
        event = json.loads(line.decode())
    except ValueError:
        return "MALFORMED"
    if not isinstance(event, dict) or event.get("amount") == "abc":
        return "MALFORMED"
    if event.get("paid_at") is None:
        return "NULL_EVENT_TIME"
    if event.get("merchant_id") is None or event["amount"] < 0:
        return "CONTRACT_VIOLATION"
    return "FUTURE" if event["paid_at"] > "2024-03-01T20" else "good"


def test_the_ledger_of_every_batch_and_of_the_run_balances(drained: Traffics) -> None:
    assert [record.ledger.differences() for record in drained.bench.records()] == [[]] * (drained.summary.records)
    assert drained.totals.unaccounted() == 0
    assert drained.totals == drained.bench.records()[-1].totals


def test_the_totals_are_the_truth(drained: Traffics) -> None:
    kinds = Counter(map(classify, drained.lines))
    line = drained.totals.sources["payments"]
    assert line.read == len(drained.lines)
    assert line.dead == {reason: n for reason, n in kinds.items() if reason != "good"}
    assert min(line.dead.values()) > 0
    assert line.passed + line.duplicates == kinds["good"]


def test_every_refused_line_is_a_dead_letter_byte_for_byte(drained: Traffics) -> None:
    refused: dict[str, Counter[bytes]] = defaultdict(Counter)
    for line in drained.lines:
        refused[classify(line)][line] += 1
    for reason in ("MALFORMED", "NULL_EVENT_TIME", "CONTRACT_VIOLATION", "FUTURE"):
        assert Counter(letter["raw"] for letter in drained.letters(reason)) == refused[reason]
    assert any(b"\xff\xfe" in letter["raw"] for letter in drained.letters("MALFORMED"))


def test_every_event_is_accepted_or_late_or_duplicate_or_filtered_exactly_once(drained: Traffics) -> None:
    good = Counter(json.loads(line)["payment_id"] for line in drained.lines if classify(line) == "good")
    accepted = Counter(name for row in drained.bench.table() for name in json.loads(row["ids"]))
    late = Counter(json.loads(letter["raw"])["payment_id"] for letter in drained.letters("LATE"))
    duplicate = Counter(json.loads(letter["raw"])["payment_id"] for letter in drained.letters("DUPLICATE"))
    filtered = Counter(
        {name: good[name] - duplicate[name] for name, row in drained.originals.items() if row["status"] != "captured"}
    )
    assert accepted + late + duplicate + filtered == good
    assert max(accepted.values()) == 1
    assert len(late) > 0
    assert drained.totals.paths["revenue"].filtered == filtered.total()
    assert drained.totals.operators["revenue"].late == late.total()
    assert drained.totals.operators["revenue"].accepted == accepted.total()


def test_the_result_is_what_plain_python_makes_of_the_accepted_events(drained: Traffics) -> None:
    for row in drained.bench.table():
        events = [drained.originals[name] for name in json.loads(row["ids"])]
        assert (row["orders"], row["total"]) == (len(events), str(sum(event["amount"] for event in events)))
        assert {event["merchant_id"] for event in events} == {row["merchant_id"]}
        starts = {int(event["paid_at"].timestamp() * 1e6) // WINDOW_US * WINDOW_US for event in events}
        assert [at_us(start) for start in starts] == [row["window_start"]]
        assert [at_us(start + WINDOW_US) for start in starts] == [row["window_end"]]


def at_us(us: int) -> str:
    return at((us - 1_709_294_400_000_000) / 1e6)


def test_the_last_pane_of_each_window_in_the_log_is_the_row_in_sqlite(drained: Traffics) -> None:
    log = read_log(drained.bench.folder / "log").to_pylist()
    last: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in sorted(log, key=lambda row: (row["sequence"], row["pane_index"])):
        last[row["merchant_id"], row["window_start"]] = row
    assert any(row["pane_timing"] == "late" for row in log)
    shown = {
        (row["merchant_id"], row["window_start"]): (row["orders"], row["total"], json.loads(row["ids"]))
        for row in drained.bench.table()
    }
    assert {
        (key, start.isoformat(timespec="microseconds").replace("+00:00", "Z")): (
            row["orders"],
            str(row["total"]),
            row["ids"],
        )
        for (key, start), row in last.items()
    } == shown


def test_panes_of_a_window_are_numbered_without_gaps(drained: Traffics) -> None:
    indexes = defaultdict(list)
    for row in read_log(drained.bench.folder / "log").to_pylist():
        indexes[row["merchant_id"], row["window_start"]].append(row["pane_index"])
    assert all(sorted(numbers) == list(range(len(numbers))) for numbers in indexes.values())


def test_a_late_letter_says_by_how_much_and_which_window_it_missed(drained: Traffics) -> None:
    letters = drained.letters("LATE")
    for letter in letters:
        assert (letter["operator"], letter["allowed_lateness_ms"]) == ("revenue", 300_000)
        assert letter["window_start"] <= letter["event_time"] < letter["window_end"]
        assert letter["late_by_ms"] == (letter["watermark"] - letter["event_time"]).total_seconds() * 1000 // 1
        assert (letter["watermark"] - letter["window_end"]).total_seconds() >= 300
    assert len({letter["dlq_id"] for letter in drained.letters()}) == len(drained.letters())


def test_a_run_on_a_drained_checkpoint_is_refused_with_the_way_out(drained: Traffics, written: Path) -> None:
    before = drained.bench.table(), drained.bench.records()
    for mode in ("drain", "once", "batch", "continuous"):
        with pytest.raises(CheckpointError, match="was drained") as refusal:
            drained.bench.run(revenue_app(drained.bench.folder, written / "events"), mode)
        assert "new --checkpoint" in str(refusal.value.hint)
    assert (drained.bench.table(), drained.bench.records()) == before


def test_batch_mode_gives_the_whole_truth_for_nothing_is_late_in_it(bench: Bench, written: Path) -> None:
    summary = bench.run(revenue_app(bench.folder, written / "events"), "batch")
    expected: dict[tuple[str, str], list[Any]] = defaultdict(lambda: [0, Decimal(0), set()])
    for row in pq.read_table(written / "truth" / "events.parquet").to_pylist():
        if row["status"] == "captured":
            start = int(row["paid_at"].timestamp() * 1e6) // WINDOW_US * WINDOW_US
            place = expected[row["merchant_id"], at_us(start)]
            place[0] += 1
            place[1] += row["amount"]
            place[2].add(row["payment_id"])
    assert summary.totals.operators["revenue"].late == 0
    assert {
        (row["merchant_id"], row["window_start"]): [
            row["orders"],
            Decimal(row["total"]),
            set(json.loads(row["ids"])),
        ]
        for row in bench.table()
    } == expected


def small_app(folder: Path) -> tg.App:
    app = tg.App("small")
    events = app.source(
        "events",
        tg.Files(str(folder / "input")),
        contract="id STRING, k STRING, v BIGINT, at TIMESTAMP",
        event_time="at",
        event_id="id",
        watermark=tg.Watermark(delay="10s"),
    )
    counts = events.key_by("k").window("counts", tg.Tumbling("1m")).aggregate(n=tg.count(), total=tg.sum("v"))
    app.sink("table", counts, tg.SQLite(str(folder / "out.db"), table="results"))
    return app


def event(name: str, seconds: float, k: str = "a", v: int = 1) -> dict[str, Any]:
    return {"id": name, "k": k, "v": v, "at": at(seconds)}


def windows(bench: Bench) -> dict[tuple[str, str], tuple[int, int]]:
    return {(row["k"], row["window_start"]): (row["n"], row["total"]) for row in bench.table()}


def test_a_second_run_goes_on_where_the_first_one_stopped(bench: Bench) -> None:
    bench.build = lambda: small_app(bench.folder)
    bench.write("1.jsonl", [event("e1", 0), event("e2", 65)])
    first = bench.run(mode="once")
    assert first.totals.sources["events"].read == 2
    assert windows(bench) == {}, "the watermark is at 55 s: the first minute is not over"

    bench.write("2.jsonl", [event("e1", 0), event("e3", 30), event("e4", 75)])
    second = bench.run(mode="once")
    assert second.totals.sources["events"].read == 5
    assert second.totals.sources["events"].duplicates == 1, "e1 is remembered from the run before"
    assert windows(bench) == {("a", at(0)): (2, 2)}

    bench.write("3.jsonl", [event("e5", 59), event("e6", 119)])
    third = bench.run(mode="drain")
    assert third.totals.operators["counts"].late == 1, "the watermark of the run before is in force"
    assert [json.loads(letter["raw"])["id"] for letter in bench.dead_letters("LATE")] == ["e5"]
    assert windows(bench) == {("a", at(0)): (2, 2), ("a", at(60)): (3, 3)}
    assert third.totals.unaccounted() == 0


def test_a_run_without_new_input_changes_nothing(bench: Bench) -> None:
    bench.build = lambda: small_app(bench.folder)
    bench.write("1.jsonl", [event("e1", 0), event("e2", 90)])
    first = bench.run(mode="once")
    shown, watermarks = windows(bench), bench.records()[-1].watermarks
    again = bench.run(mode="once")
    assert shown == windows(bench) == {("a", at(0)): (1, 1)}
    assert again.totals == first.totals
    assert bench.records()[-1].watermarks == watermarks
    assert [record.kind for record in bench.records()] == ["claim", "batch", "claim"]


def test_an_empty_folder_is_a_run_without_events(bench: Bench) -> None:
    bench.build = lambda: small_app(bench.folder)
    assert bench.run(mode="drain").totals.unaccounted() == 0
    assert bench.dead_letters() == []
    assert windows(bench) == {}
    with pytest.raises(CheckpointError, match="was drained"):
        bench.run(mode="drain")


LINES_THAT_ARE_NO_EVENTS: list[tuple[str, bytes, str]] = [
    ("nothing at all", b"", "MALFORMED"),
    ("spaces", b"   ", "MALFORMED"),
    ("a bare number", b"42", "MALFORMED"),
    ("a bare null", b"null", "MALFORMED"),
    ("an array", b"[]", "MALFORMED"),
    ("half an object", b'{"id": "x", "k": ', "MALFORMED"),
    (
        "bytes that are not UTF-8",
        b'{"id": "\xff\xfe\x80", "k": "a", "v": 1, "at": "2024-03-01"}',
        "MALFORMED",
    ),
    ("NUL bytes", b"\x00\x00\x00", "MALFORMED"),
    ("a word for a number", b'{"id": "x", "k": "a", "v": "many", "at": "2024-03-01"}', "MALFORMED"),
    ("a fraction for a whole", b'{"id": "x", "k": "a", "v": 1.5, "at": "2024-03-01"}', "MALFORMED"),
    (
        "a number too large",
        b'{"id": "x", "k": "a", "v": 9223372036854775808, "at": "2024-03-01"}',
        "MALFORMED",
    ),
    ("a time that is none", b'{"id": "x", "k": "a", "v": 1, "at": "soon"}', "MALFORMED"),
    ("no time", b'{"id": "x", "k": "a", "v": 1}', "NULL_EVENT_TIME"),
    ("an empty object", b"{}", "NULL_EVENT_TIME"),
    ("the year 9999", b'{"id": "x", "k": "a", "v": 1, "at": "9999-12-31T23:59:59Z"}', "FUTURE"),
    ("two objects in a line", b'{"id": "x"}{"id": "y"}', "NULL_EVENT_TIME"),
    ("deep nesting", b"[" * 5000, "MALFORMED"),
    ("a huge field", b'{"id": "' + b"x" * 300_000, "MALFORMED"),
]


def test_each_kind_of_garbage_is_a_dead_letter_with_a_reason(bench: Bench) -> None:
    bench.build = lambda: small_app(bench.folder)
    bench.write("1.jsonl", [raw for _, raw, _ in LINES_THAT_ARE_NO_EVENTS] + [b'{"at": "1677-01-01T00:00:00Z"}'])
    bench.write("2.jsonl", [event("e1", 0)])
    totals = bench.run(mode="drain").totals
    found = {letter["raw"]: letter["reason"] for letter in bench.dead_letters()}
    assert {name: found.get(raw) for name, raw, _ in LINES_THAT_ARE_NO_EVENTS} == {
        name: reason for name, _, reason in LINES_THAT_ARE_NO_EVENTS
    }
    assert totals.sources["events"].read == len(LINES_THAT_ARE_NO_EVENTS) + 2
    assert windows(bench) == {("a", at(0)): (1, 1), (None, "1677-01-01T00:00:00.000000Z"): (1, None)}


def test_lines_that_end_as_windows_does_and_a_last_line_without_an_end_are_read(bench: Bench) -> None:
    bench.build = lambda: small_app(bench.folder)
    good: Callable[[str, float], bytes] = lambda name, s: json.dumps(event(name, s)).encode()  # noqa: E731
    content = good("e1", 0) + b"\r\n" + b"broken\r\n" + good("e2", 1)
    bench.publish(bench.input / "1.jsonl", lambda hidden: hidden.write_bytes(content))
    totals = bench.run(mode="drain").totals
    assert windows(bench) == {("a", at(0)): (2, 2)}
    assert [letter["raw"] for letter in bench.dead_letters()] == [b"broken"]
    assert totals.sources["events"].read == 3
