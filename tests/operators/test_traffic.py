"""The traffic generator: it misbehaves in every way it says, and the truth beside it is the truth."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tidegate.errors import PipelineError, SourceError
from tidegate.sources.traffic import SLOW_PARTITION_LAG, Traffic
from tidegate.sources.traffic_truth import TrafficReport
from tidegate.time import SECOND

TRAFFIC = Traffic(
    events=6_000,
    files_per_partition=12,
    merchants=50,
    duplicate_share=0.03,
    malformed_share=0.01,
    null_event_time_share=0.005,
    violation_share=0.005,
    future_share=0.005,
)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> TrafficReport:
    return TRAFFIC.write(tmp_path_factory.mktemp("traffic"))


def files_of(report: TrafficReport, partition: int | None = None) -> list[Path]:
    return sorted(report.events_folder.glob(f"partition={'*' if partition is None else partition}/*.jsonl"))


def lines_of(report: TrafficReport, partition: int | None = None) -> list[bytes]:
    return [line for path in files_of(report, partition) for line in path.read_bytes().splitlines()]


def truth_of(report: TrafficReport) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(report.truth_path).to_pylist()
    return rows


def parsed(lines: list[bytes]) -> Iterator[dict[str, Any]]:
    """What a strict reader makes of the lines: those that are UTF-8, JSON, complete and well typed."""
    for line in lines:
        try:
            record = json.loads(line.decode(), parse_float=Decimal)
        except ValueError:
            continue
        if {"merchant_id", "paid_at"} <= record.keys() and isinstance(record["amount"], Decimal):
            yield record


def is_future(record: dict[str, Any]) -> bool:
    return datetime.fromisoformat(record["paid_at"]) > datetime.fromisoformat(TRAFFIC.start) + timedelta(days=1)


def is_valid(record: dict[str, Any]) -> bool:
    return record["paid_at"] is not None and record["amount"] >= 0 and not is_future(record)


def digest(folder: Path) -> dict[str, tuple[str, int]]:
    return {
        str(path.relative_to(folder)): (
            hashlib.sha256(path.read_bytes()).hexdigest(),
            path.stat().st_mtime_ns if path.suffix == ".jsonl" else 0,
        )
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_same_parameters_give_the_same_bytes_and_file_times(tmp_path: Path) -> None:
    TRAFFIC.write(tmp_path / "a")
    TRAFFIC.write(tmp_path / "b")
    assert digest(tmp_path / "a") == digest(tmp_path / "b")


def test_another_seed_gives_other_traffic(tmp_path: Path) -> None:
    ids = [
        {row["payment_id"] for row in truth_of(Traffic(events=500, seed=seed).write(tmp_path / str(seed)))}
        for seed in (1, 2)
    ]
    assert not ids[0] & ids[1]


def test_every_line_is_exactly_one_kind(report: TrafficReport) -> None:
    summary = json.loads(report.summary_path.read_text())
    broken = sum(summary["malformed"].values()) + summary["null_event_time"] + summary["contract_violations"]
    assert len(lines_of(report)) == summary["lines"]
    assert summary["lines"] == summary["originals"] + summary["duplicates"] + broken + summary["future"]
    assert report.balances


def test_lines_per_partition_are_the_lines_of_its_files(report: TrafficReport) -> None:
    assert report.lines_per_partition == {p: len(lines_of(report, p)) for p in range(TRAFFIC.partitions)}


def test_truth_is_what_a_strict_reader_finds_in_the_files(report: TrafficReport) -> None:
    valid = [record for record in parsed(lines_of(report)) if is_valid(record)]
    found = Counter(record["payment_id"] for record in valid)
    truth = truth_of(report)
    assert set(found) == {row["payment_id"] for row in truth}
    assert len(truth) == len(found) == report.originals
    assert sum(found.values()) - len(found) == report.duplicates
    first = {record["payment_id"]: record for record in reversed(valid)}
    for row in truth:
        record = first[row["payment_id"]]
        assert (row["merchant_id"], row["status"], row["amount"], row["latency_ms"]) == (
            record["merchant_id"],
            record["status"],
            record["amount"],
            record["latency_ms"],
        )
        assert row["paid_at"] == datetime.fromisoformat(record["paid_at"])


def test_a_repeat_is_byte_for_byte_its_original_and_comes_later(report: TrafficReport) -> None:
    repeats = 0
    for partition in range(TRAFFIC.partitions):
        seen: dict[str, bytes] = {}
        for line in lines_of(report, partition):
            for record in parsed([line]):
                repeats += record["payment_id"] in seen
                assert seen.setdefault(record["payment_id"], line) == line
    assert repeats == report.duplicates > 0


def test_each_kind_of_broken_record_is_there(report: TrafficReport) -> None:
    kinds: Counter[str] = Counter()
    for line in lines_of(report):
        try:
            record = json.loads(line.decode())
        except UnicodeDecodeError:
            kinds["invalid_utf8"] += 1
        except json.JSONDecodeError:
            kinds["truncated"] += 1
        else:
            kinds["empty_object"] += not record
            kinds["missing_merchant"] += bool(record) and "merchant_id" not in record
            kinds["wrong_type"] += record.get("amount") == "abc"
    assert dict(kinds) == report.malformed
    assert min(kinds.values()) > 0


def test_null_times_negative_amounts_and_future_dates_are_counted(report: TrafficReport) -> None:
    records = list(parsed(lines_of(report)))
    timed = [record for record in records if record["paid_at"] is not None]
    assert len(records) - len(timed) == report.null_event_time == 30
    assert sum(record["amount"] < 0 for record in timed) == report.contract_violations == 30
    assert sum(is_future(record) for record in timed) == report.future == 30


def test_only_future_dated_events_are_ahead_of_the_time_of_their_file(report: TrafficReport) -> None:
    for path in files_of(report):
        for record in parsed(path.read_bytes().splitlines()):
            if record["paid_at"] is not None:
                ahead = datetime.fromisoformat(record["paid_at"]).timestamp() - path.stat().st_mtime
                assert (ahead > 86_400) if is_future(record) else (ahead <= 0)


def test_files_hold_what_arrived_in_their_slot_and_partitions_advance_together(report: TrafficReport) -> None:
    ends = {
        path.name: {p.stat().st_mtime for p in report.events_folder.glob(f"*/{path.name}")} for path in files_of(report)
    }
    assert all(len(times) == 1 for times in ends.values())
    in_order = [ends[name].pop() for name in sorted(ends)]
    assert len({round(b - a) for a, b in pairwise(in_order)}) == 1
    slot = timedelta(seconds=in_order[1] - in_order[0])
    place = {
        record["payment_id"]: path
        for path in reversed(files_of(report))
        for record in parsed(path.read_bytes().splitlines())
    }
    for row in truth_of(report):
        end = datetime.fromtimestamp(place[row["payment_id"]].stat().st_mtime, tz=row["arrival"].tzinfo)
        assert end - slot <= row["arrival"] < end


def test_most_events_come_out_of_order_by_seconds_and_offline_phones_by_minutes(report: TrafficReport) -> None:
    late = sorted(row["behind_us"] for row in truth_of(report) if row["is_late_candidate"])
    assert 0 < len(late) == report.late_candidates <= report.offline == 120
    assert late[0] > 60 * SECOND
    assert late[-1] > 1800 * SECOND
    assert any(0 < row["behind_us"] < 10 * SECOND for row in truth_of(report))


def test_lateness_is_measured_against_the_newest_event_of_the_partition_so_far(report: TrafficReport) -> None:
    newest: dict[int, datetime] = {}
    for row in sorted(truth_of(report), key=lambda row: row["arrival"]):
        newest[row["partition"]] = max(newest.get(row["partition"], row["paid_at"]), row["paid_at"])
        assert row["behind_us"] == (newest[row["partition"]] - row["paid_at"]) // timedelta(microseconds=1)


def test_an_offline_phone_brings_its_payments_in_one_clump(tmp_path: Path) -> None:
    report = Traffic(events=500, offline_share=0.9, duplicate_share=0).write(tmp_path)
    arrivals = {row["payment_id"]: row["arrival"] for row in truth_of(report)}
    clumps: dict[str, list[datetime]] = {}
    for record in parsed(lines_of(report)):
        if record["payment_id"] in arrivals:
            clumps.setdefault(record["customer_id"], []).append(arrivals[record["payment_id"]])
    tight = [times for times in clumps.values() if len(times) >= 3 and max(times) - min(times) < timedelta(seconds=1)]
    assert len(tight) > 10


def test_the_slow_partition_lags_by_a_constant(report: TrafficReport) -> None:
    def least_lag(partition: int) -> timedelta:
        lags = [row["arrival"] - row["paid_at"] for row in truth_of(report) if row["partition"] == partition]
        return min(lags, default=timedelta())

    assert TRAFFIC.slow_partition == 1
    assert least_lag(1) >= timedelta(microseconds=SLOW_PARTITION_LAG)
    assert least_lag(0) < timedelta(seconds=1)


def test_the_silent_partition_brings_nothing_in_the_last_third(report: TrafficReport) -> None:
    assert TRAFFIC.silent_partition == 3
    silent = timedelta(microseconds=TRAFFIC.silent_from_us) + datetime.fromisoformat("1970-01-01T00:00:00Z")
    last = {
        p: max(row["arrival"] for row in truth_of(report) if row["partition"] == p) for p in range(TRAFFIC.partitions)
    }
    assert last[3] < silent + timedelta(seconds=30)
    assert min(last[p] for p in (0, 1, 2)) > silent + timedelta(minutes=30)
    assert len(files_of(report, 3)) < len(files_of(report, 0)) == TRAFFIC.files_per_partition


def test_few_merchants_get_most_of_the_traffic(report: TrafficReport) -> None:
    sales = Counter(row["merchant_id"] for row in truth_of(report))
    assert sum(count for _, count in sales.most_common(5)) > 5 * sum(sorted(sales.values())[:5])


def test_progress_is_told_up_to_the_last_line(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    report = Traffic(events=200).write(tmp_path, progress=lambda done, total: calls.append((done, total)))
    assert calls == sorted(calls)
    assert calls[-1] == (report.lines, report.lines)


@pytest.mark.parametrize("partitions", [1, 2, 3])
def test_any_number_of_partitions_balances(tmp_path: Path, partitions: int) -> None:
    report = Traffic(events=300, partitions=partitions, span="90s", files_per_partition=3).write(tmp_path)
    assert report.balances
    assert len(report.lines_per_partition) == partitions


def test_a_folder_that_holds_traffic_is_refused(tmp_path: Path) -> None:
    Traffic(events=10).write(tmp_path)
    with pytest.raises(SourceError, match="already holds files"):
        Traffic(events=10).write(tmp_path)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"events": 0}, "at least 1"),
        ({"future_share": 1.5}, "from 0 to 1"),
        ({"offline_share": 0.6, "malformed_share": 0.6}, "more than all"),
        ({"span": "0s"}, "longer than zero"),
        ({"start": "2026-03-01T12:00:00"}, "no time zone"),
        ({"start": "noon"}, "not an instant"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        Traffic(**wrong)
