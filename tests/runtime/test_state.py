"""The upkeep of state: many tiny batches leave few files, what has closed goes, only what nobody names is deleted."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tidegate.runtime import engine as engines
from tidegate.runtime import state as states
from tidegate.runtime.records import StateFile
from tidegate.runtime.state import FAN_IN, GRACE_RECORDS, ORPHAN_SECONDS, Change, State
from tidegate.storage.places import Place
from tidegate.stream import Result
from tidegate.testing.feed import Feed
from tidegate.testing.harness import Harness, seconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# -- the live list, in plain Python ---------------------------------------------------------------------------------


def a_file(state: State, name: str, *, owner: str = "op", high: int = 60, tier: int = 0) -> StateFile:
    path = state.folder / "data" / owner / name / "part.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"x": [1, 2, 3]}), path)
    return state.entry(path, owner, "slice", low=0, high=high, sequence=1, tier=tier)


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path, {})


def add(state: State, *files: StateFile) -> None:
    state.apply(Change(added=list(files)), 1)


def test_an_entry_says_what_is_in_the_file(state: State) -> None:
    file = a_file(state, "a", high=120)
    assert (file.path, file.rows, file.high) == ("data/op/a/part.parquet", 3, 120)
    assert file.bytes == (state.folder / file.path).stat().st_size


def test_files_whose_windows_have_all_closed_are_expired(state: State) -> None:
    add(state, *(a_file(state, f"f{high}", high=high) for high in (59, 60, 61)), a_file(state, "x", owner="other"))
    assert sorted(state.expired("op", ("slice",), 60)) == ["data/op/f59/part.parquet", "data/op/f60/part.parquet"]


def test_a_tier_is_crowded_when_it_has_enough_files_and_large_ones_do_not_count(state: State) -> None:
    add(state, *(a_file(state, f"f{n}") for n in range(FAN_IN - 1)))
    assert state.crowded("op", ("slice",)) == []
    add(state, a_file(state, "tier1", tier=1))
    assert state.crowded("op", ("slice",)) == []
    add(state, a_file(state, "last"))
    assert len(state.crowded("op", ("slice",))) == FAN_IN
    assert {file.tier for file in state.crowded("op", ("slice",))} == {0}


def test_what_was_removed_is_deleted_only_after_the_grace_that_readers_get(state: State) -> None:
    file = a_file(state, "a")
    add(state, file)
    state.apply(Change(removed=[file.path]), 10)
    assert state.files == {}
    state.sweep(10 + GRACE_RECORDS - 1)
    assert (state.folder / file.path).exists()
    state.sweep(10 + GRACE_RECORDS)
    assert not (state.folder / file.path).exists()
    assert list((state.folder / "data").rglob("a")) == [], "nor is its empty folder left"


def test_a_file_that_is_live_is_never_deleted_though_it_was_discarded_before(state: State) -> None:
    file = a_file(state, "a")
    state.discard([file.path], 1)
    add(state, file)
    state.sweep(100)
    assert (state.folder / file.path).exists()


def age(path: Place) -> None:
    assert isinstance(path, Path)
    long_ago = time.time() - ORPHAN_SECONDS - 60
    os.utime(path, (long_ago, long_ago))


def test_orphans_of_attempts_that_were_never_decided_are_deleted_when_they_are_old(state: State) -> None:
    live, orphan, young, kept, half = (a_file(state, name) for name in ("live", "orphan", "young", "kept", "half"))
    beside = state.folder / "data" / "op" / "live" / "beside.parquet"
    pq.write_table(pa.table({"x": [1]}), beside)
    add(state, live)
    for file in (live, orphan, kept, half):
        age(state.folder / file.path)
    age(beside)
    Path(str(state.folder / half.path)).with_name("_temporary").write_bytes(b"young")
    state.sweep_orphans([kept.path])
    there = {path.relative_to(state.folder / "data" / "op").parts[0] for path in state.folder.rglob("*.parquet")}
    assert there == {"live", "young", "kept", "half"}, "a young file may belong to a driver that is only paused"
    assert not beside.exists()
    assert (state.folder / young.path).exists()


# -- many tiny batches ----------------------------------------------------------------------------------------------


def an_app(table: tg.Memory, window: Any, lateness: str = "0s") -> tg.App:
    app = tg.App("state")
    contract = tg.Contract("id STRING, v BIGINT NOT NULL, at TIMESTAMP")
    events = app.source("events", Feed(), contract=contract, event_time="at", event_id="id", keep_duplicates=True)
    result = events.key_by(k="v % 3").window("sums", window, allowed_lateness=lateness)
    app.sink("table", result.aggregate(n=tg.count(), ids=tg.collect("id")), table)
    return app


def event(number: int, second: int) -> dict[str, Any]:
    minutes, rest = divmod(second, 60)
    return {"id": f"e{number}", "v": number, "at": f"1970-01-01T00:{minutes:02d}:{rest:02d}Z"}


@pytest.fixture
def lower(monkeypatch: pytest.MonkeyPatch) -> None:
    """Housekeeping of long runs, in a short one."""
    monkeypatch.setattr(states, "FAN_IN", 3)
    monkeypatch.setattr(states, "GRACE_RECORDS", 3)
    monkeypatch.setattr(engines, "SNAPSHOT_EVERY", 5)
    monkeypatch.setattr(engines, "KEEP_SNAPSHOTS", 2)
    monkeypatch.setattr("tidegate.runtime.records.SNAPSHOT_EVERY", 5)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.usefixtures("lower")
def test_sixty_tiny_batches_leave_few_live_files_few_records_and_no_garbage(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Windows of ten batches each: state is made, compacted, fired, forgotten, again and again; restarts in between."""
    table = tg.Memory()
    harness = Harness(spark, an_app(table, tg.Tumbling("1m"), lateness="30s"), tmp_path / "checkpoint", seconds(10_000))
    live, on_disk, records = [], [], []
    for number in range(60):
        repeat = [event(number - 1, 6 * (number - 1))] if number % 5 == 0 and number else []
        harness.feed({"events": [event(number, 6 * number), *repeat, {"id": "broken", "at": None}]})
        live.append(len(harness.engine.state.files))
        on_disk.append(len(list((tmp_path / "checkpoint" / "data").rglob("*.parquet"))))
        records.append(len(harness.engine.checkpoint.sequences()))
        if number == 31:
            harness.restart()
    assert max(live[30:]) <= max(live[:30]) + 4, live
    assert max(live) < 40, live
    # files in their grace, of a few records, come on top; what a stopped driver still had to delete waits for a claim
    assert max(on_disk) < 110, on_disk
    assert max(records) < 20, records
    harness.drain()
    harness.close()
    ids = sorted(int(name[1:]) for row in table.rows() for name in row["ids"])
    assert ids == list(range(60)), "nothing was lost or doubled on the way"
    assert harness.engine.last.totals.unaccounted() == 0
    letters = [file for file in harness.engine.state.files.values() if file.kind == "dead"]
    assert sum(file.rows for file in letters) == 60 + 11, "dead letters are kept for ever, in few files"
    assert len(letters) < 15
    assert [file.kind for file in harness.engine.state.files.values() if file.kind not in ("dead", "ids")] == []


@pytest.mark.spark
@pytest.mark.usefixtures("lower")
def test_a_sink_that_is_added_later_gets_the_last_panes_though_their_windows_have_long_closed(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Panes that the last outbox names stay on disk until another outbox takes its place, expired or not."""

    def app(*sinks: tg.Memory) -> tg.App:
        app = an_app(sinks[0], tg.Tumbling("1m"), lateness="10s")
        for number, sink in enumerate(sinks[1:]):
            app.sink(f"added{number}", Result(app, app.operators["sums"]), sink)
        return app

    first, second = tg.Memory(), tg.Memory()
    harness = Harness(spark, app(first), tmp_path / "checkpoint", clock=seconds(10_000))
    harness.feed({"events": [event(0, 10), event(1, 61)]})  # the first minute speaks
    for number in range(2, 10):
        outcome = harness.feed({"events": [event(number, 70 + number)]})  # and closes; nobody speaks any more
        assert outcome.panes == {}
    harness.close()

    harness = Harness(spark, app(first, second), tmp_path / "checkpoint", clock=seconds(10_000))
    harness.close()
    assert second.rows() == first.rows()
    assert [row["ids"] for row in second.rows()] == [["e0"]]


@pytest.mark.spark
@pytest.mark.usefixtures("lower")
def test_compacting_again_and_again_changes_no_result(spark: SparkSession, tmp_path: Path) -> None:
    """One long window over many batches: partials of partials of partials."""
    table = tg.Memory()
    harness = Harness(spark, an_app(table, tg.Tumbling("10m")), tmp_path / "checkpoint", clock=seconds(10_000))
    for number in range(12):
        harness.feed({"events": [event(number, 2 * number)]})
    assert max(file.tier for file in harness.engine.state.of("sums", "slice")) >= 2
    harness.drain()
    harness.close()
    shown = {row["k"]: (row["n"], row["ids"]) for row in table.rows()}
    assert shown == {k: (4, [f"e{number}" for number in range(k, 12, 3)]) for k in range(3)}
