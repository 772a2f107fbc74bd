"""Records and how they are published: one winner per name, a list of files that replay gives back, no gap unnoticed."""

from __future__ import annotations

import json
import multiprocessing
import random
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tidegate.errors import CheckpointError, Fenced
from tidegate.runtime.ledger import Ledger, SourceLine
from tidegate.runtime.records import (
    SNAPSHOT_EVERY,
    Checkpoint,
    Offsets,
    Outbox,
    PartitionClock,
    Record,
    Snapshot,
    SourceClock,
    StateFile,
)
from tidegate.storage.places import Place, place
from tidegate.storage.publish import publish

FILES = 60


def write_all(folder: Path, writer: int, count: int) -> list[int]:
    """Try to publish every name; the numbers of those that this writer won."""
    content = f"writer {writer} ".encode() * 200
    return [number for number in range(count) if publish(folder / f"{number:04d}", content)]


@pytest.mark.parametrize("pool", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_of_many_writers_of_one_name_exactly_one_wins(pool: Any, tmp_path: Path) -> None:
    context = {"mp_context": multiprocessing.get_context("spawn")} if pool is ProcessPoolExecutor else {}
    with pool(max_workers=4, **context) as workers:
        runs = [workers.submit(write_all, tmp_path, writer, FILES) for writer in range(4)]
        won = {writer: run.result() for writer, run in enumerate(runs)}
    assert sorted(number for numbers in won.values() for number in numbers) == list(range(FILES))
    for writer, numbers in won.items():
        for number in numbers:
            assert (tmp_path / f"{number:04d}").read_bytes() == f"writer {writer} ".encode() * 200
    assert len(list(tmp_path.iterdir())) == FILES, "drafts are not left behind"


def test_a_name_that_is_taken_is_never_overwritten(tmp_path: Path) -> None:
    assert publish(tmp_path / "x", b"first")
    assert not publish(tmp_path / "x", b"second")
    assert (tmp_path / "x").read_bytes() == b"first"


@pytest.mark.parametrize("location", ["s3://bucket/x", "gs://bucket/x", "abfss://x", "dbfs://x"])
def test_file_systems_without_a_safe_create_are_refused(location: str) -> None:
    with pytest.raises(CheckpointError, match="is not supported"):
        place(location)


def test_file_uris_and_plain_paths_are_the_same_folder(tmp_path: Path) -> None:
    assert place(f"file://{tmp_path}") == place(f"file:{tmp_path}") == place(str(tmp_path))


# -- records --------------------------------------------------------------------------------------------------------


def local(place: Place) -> Path:
    assert isinstance(place, Path)
    return place


def a_file(name: str, sequence: int = 1) -> StateFile:
    return StateFile(f"data/op/{name}.parquet", "op", "slice", 10, 100, 0, 60, sequence)


def a_record(sequence: int, **more: Any) -> Record:
    known: dict[str, Any] = {
        "kind": "batch",
        "claim": 1,
        "attempt": f"attempt{sequence}",
        "clock": 1_709_294_400_000_000 + sequence,
        "offsets": Offsets("query", None, f"end{sequence}", sequence),
        "sources": {"events": SourceClock(5, {"a": PartitionClock(7, 8), "b": PartitionClock(None, 9)})},
        "watermarks": {"op": 5, "other": None},
        "ledger": Ledger({"events": SourceLine(read=1, passed=1)}),
        "totals": Ledger({"events": SourceLine(read=sequence, passed=sequence, dead={"LATE": 0})}),
        "outbox": Outbox(sequence, sequence - 1, {"op": ("data/op/p.parquet",)}),
    }
    return Record(sequence, **known | more)


def a_claim(sequence: int, files: tuple[StateFile, ...] = ()) -> Record:
    return a_record(sequence, kind="claim", claim=sequence, snapshot=Snapshot(files, {"op": {"window": "1m"}}))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint.create_or_open(str(tmp_path / "checkpoint"), "shop")


def test_a_record_comes_back_from_json_as_it_was() -> None:
    record = replace(a_claim(3, (a_file("x"),)), added=(a_file("y"),), removed=("data/op/z.parquet",), terminal=True)
    assert Record.from_json(record.to_json()) == record


def test_a_new_checkpoint_stands_nowhere(checkpoint: Checkpoint) -> None:
    assert checkpoint.position() is None


def test_a_published_record_is_where_the_checkpoint_stands(checkpoint: Checkpoint) -> None:
    checkpoint.publish(a_claim(1))
    checkpoint.publish(a_record(2, added=(a_file("x"),)))
    position = checkpoint.position()
    assert position is not None
    assert position.last == a_record(2, added=(a_file("x"),))
    assert position.files == {a_file("x").path: a_file("x")}
    assert position.signatures == {"op": {"window": "1m"}}


def test_a_driver_whose_record_is_taken_is_told_that_another_has_taken_over(checkpoint: Checkpoint) -> None:
    checkpoint.publish(a_claim(1))
    with pytest.raises(Fenced, match="another driver"):
        checkpoint.publish(a_claim(1))


def test_the_live_files_are_those_of_the_last_full_list_and_all_changes_since(checkpoint: Checkpoint) -> None:
    """A hundred random records, with full lists at random: replay gives what a plain dictionary holds."""
    rng, live = random.Random(3), dict[str, StateFile]()
    checkpoint.publish(a_claim(1))
    for sequence in range(2, 102):
        added = tuple(a_file(f"{sequence}-{n}", sequence) for n in range(rng.randrange(4)))
        removed = tuple(rng.sample(sorted(live), min(len(live), rng.randrange(4))))
        live = {path: file for path, file in live.items() if path not in removed} | {file.path: file for file in added}
        full = Snapshot(tuple(live.values()), {}) if rng.random() < 0.1 else None
        checkpoint.publish(a_record(sequence, added=added, removed=removed, snapshot=full))
        if sequence % 9 == 0:
            position = checkpoint.position()
            assert position is not None
            assert position.files == live
    assert len(live) > 5


def test_a_missing_record_is_noticed(checkpoint: Checkpoint) -> None:
    for record in (a_claim(1), a_record(2), a_record(3), a_record(4)):
        checkpoint.publish(record)
    checkpoint.path(3).unlink()
    with pytest.raises(CheckpointError, match=r"record 3 .* is missing"):
        checkpoint.position()


def test_records_without_a_full_list_are_refused(checkpoint: Checkpoint) -> None:
    for record in (a_claim(1), a_record(2), a_record(3)):
        checkpoint.publish(record)
    checkpoint.path(1).unlink()
    with pytest.raises(CheckpointError, match="no full list"):
        checkpoint.position()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"format": 1}', b"\xff\xfe"])
def test_a_damaged_record_is_refused_with_its_name_and_never_skipped(checkpoint: Checkpoint, content: bytes) -> None:
    checkpoint.publish(a_claim(1))
    local(checkpoint.path(2)).write_bytes(content)
    with pytest.raises(CheckpointError, match=r"00000002\.json|format"):
        checkpoint.position()


def test_a_record_of_a_format_to_come_is_refused(checkpoint: Checkpoint) -> None:
    data = json.loads(a_claim(1).to_json()) | {"format": 99}
    local(checkpoint.path(1)).write_text(json.dumps(data))
    with pytest.raises(CheckpointError, match="format"):
        checkpoint.position()


def test_drafts_of_killed_drivers_are_not_records(checkpoint: Checkpoint) -> None:
    checkpoint.publish(a_claim(1))
    local(checkpoint.folder / "records" / ".00000002.json.abc").write_bytes(b"half")
    position = checkpoint.position()
    assert position is not None
    assert position.last.sequence == 1


# -- history --------------------------------------------------------------------------------------------------------


def history(checkpoint: Checkpoint) -> list[int]:
    """The sequences that the ledger files hold, as a reader finds them."""
    files = sorted((checkpoint.folder / "ledger").glob("*.parquet"))
    return [number for file in files for number in pq.read_table(file)["sequence"].to_pylist()]


def publish_many(checkpoint: Checkpoint, first: int, last: int) -> None:
    for sequence in range(first, last + 1):
        checkpoint.publish(a_claim(sequence) if sequence % SNAPSHOT_EVERY == 1 else a_record(sequence))


def test_old_records_fold_into_the_ledger_and_the_rest_stays_loadable(checkpoint: Checkpoint) -> None:
    publish_many(checkpoint, 1, 3 * SNAPSHOT_EVERY)
    checkpoint.fold_history(keep=SNAPSHOT_EVERY)
    assert history(checkpoint) == list(range(1, 2 * SNAPSHOT_EVERY + 1))
    assert checkpoint.sequences() == list(range(2 * SNAPSHOT_EVERY + 1, 3 * SNAPSHOT_EVERY + 1))
    position = checkpoint.position()
    assert position is not None
    assert position.last == a_record(3 * SNAPSHOT_EVERY)
    (file,) = (checkpoint.folder / "ledger").glob("*.parquet")
    rows = pq.read_table(file).to_pylist()
    assert json.loads(rows[7]["ledger"])["sources"]["events"]["read"] == 1


def test_few_old_records_are_left_alone(checkpoint: Checkpoint) -> None:
    publish_many(checkpoint, 1, SNAPSHOT_EVERY + 10)
    checkpoint.fold_history(keep=SNAPSHOT_EVERY)
    assert history(checkpoint) == []
    assert len(checkpoint.sequences()) == SNAPSHOT_EVERY + 10


def test_a_fold_that_was_killed_before_it_deleted_the_records_counts_none_of_them_twice(checkpoint: Checkpoint) -> None:
    publish_many(checkpoint, 1, 3 * SNAPSHOT_EVERY)
    kept = {number: checkpoint.path(number).read_bytes() for number in range(20, SNAPSHOT_EVERY + 1)}
    checkpoint.fold_history(keep=2 * SNAPSHOT_EVERY)
    for number, content in kept.items():  # as if the driver had died after deleting the first 19
        local(checkpoint.path(number)).write_bytes(content)
    publish_many(checkpoint, 3 * SNAPSHOT_EVERY + 1, 4 * SNAPSHOT_EVERY)
    checkpoint.fold_history(keep=2 * SNAPSHOT_EVERY)
    assert history(checkpoint) == list(range(1, 2 * SNAPSHOT_EVERY + 1))
    assert checkpoint.sequences() == list(range(2 * SNAPSHOT_EVERY + 1, 4 * SNAPSHOT_EVERY + 1))


# -- the folder -----------------------------------------------------------------------------------------------------


def test_a_checkpoint_belongs_to_one_pipeline(checkpoint: Checkpoint) -> None:
    with pytest.raises(CheckpointError, match="is the checkpoint of pipeline 'shop', not 'bank'"):
        Checkpoint.create_or_open(str(checkpoint.folder), "bank")


def test_a_checkpoint_keeps_its_identity(checkpoint: Checkpoint) -> None:
    assert Checkpoint.create_or_open(str(checkpoint.folder), "shop").identity == checkpoint.identity


def test_a_folder_with_other_things_in_it_is_not_made_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    with pytest.raises(CheckpointError, match="is not empty and not a Tidegate checkpoint"):
        Checkpoint.create_or_open(str(tmp_path), "shop")


def test_a_checkpoint_whose_making_was_interrupted_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    assert Checkpoint.create_or_open(str(tmp_path), "shop").position() is None


def test_a_damaged_marker_is_refused(checkpoint: Checkpoint) -> None:
    local(checkpoint.folder / "checkpoint.json").write_bytes(b"{")
    with pytest.raises(CheckpointError, match=r"cannot read .*checkpoint\.json"):
        Checkpoint.open(str(checkpoint.folder))
