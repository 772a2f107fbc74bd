"""Spark's own log and our records belong together; when they have come apart, going on is refused and never skipped."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.workbench import Bench, at

import tidegate as tg
from tidegate.errors import CheckpointError, DataLossRisk, SinkError
from tidegate.runtime.identity import Fate, check_log, compare, offset_of, offsets_of
from tidegate.runtime.records import Checkpoint, Offsets
from tidegate.sources.filelog import files_between


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint.create_or_open(str(tmp_path / "checkpoint"), "shop")


def offsets(start: str | None, end: str, batch_id: int = 1, query: str = "q") -> Offsets:
    return Offsets(query, start, end, batch_id)


# -- one batch ------------------------------------------------------------------------------------------------------


def test_the_first_batch_of_all_is_new(checkpoint: Checkpoint) -> None:
    assert compare(offsets(None, "a", 0), None, checkpoint) is Fate.NEW


def test_a_batch_that_starts_where_the_last_one_ended_is_new(checkpoint: Checkpoint) -> None:
    assert compare(offsets("a", "b", 1), offsets(None, "a", 0), checkpoint) is Fate.NEW


def test_the_batch_that_was_decided_last_is_done(checkpoint: Checkpoint) -> None:
    assert compare(offsets("a", "b"), offsets("a", "b"), checkpoint) is Fate.DONE


@pytest.mark.parametrize(
    ("offered", "decided"),
    [
        (offsets("a", "b", 1), None),
        (offsets(None, "a", 0), offsets("a", "b", 1)),
        (offsets("b", "c", 2), offsets(None, "a", 0)),
        (offsets("a", "c", 1), offsets("a", "b", 1)),
        (offsets(None, "a", 0, query="other"), offsets(None, "a", 0)),
        (offsets("a", "b", 1, query="other"), offsets(None, "a", 0)),
    ],
    ids=[
        "Spark is past its beginning and nothing was decided",
        "an older batch comes again",
        "a batch was left out",
        "the same batch has another end",
        "the first batch of another query",
        "the next batch of another query",
    ],
)
def test_anything_else_is_refused_with_the_ways_out(
    offered: Offsets, decided: Offsets | None, checkpoint: Checkpoint
) -> None:
    with pytest.raises(DataLossRisk, match="do not fit together") as refusal:
        compare(offered, decided, checkpoint)
    assert "restore the checkpoint folder as a whole" in str(refusal.value.hint)
    assert "new --checkpoint" in str(refusal.value.hint)


# -- the log, before anything starts --------------------------------------------------------------------------------


def spark_log(folder: Path, *ends: str, query: str = "q", committed: int | None = None) -> Path:
    """What Spark leaves behind: offsets 0, 1, …, and commits for the first of them (all but the last when not said)."""
    for part in ("offsets", "commits"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text(json.dumps({"id": query}))
    for number, end in enumerate(ends):
        (folder / "offsets" / str(number)).write_text(f'v1\n{{"batchTimestampMs": {1000 + number}}}\n{end}')
        (folder / "offsets" / f".{number}.crc").write_bytes(b"crc")
    for number in range(max(len(ends) - 1, 0) if committed is None else committed):
        (folder / "commits" / str(number)).write_text("v1\n{}")
    return folder


def test_the_range_and_the_clock_of_a_batch_are_read_from_the_log(tmp_path: Path) -> None:
    folder = spark_log(tmp_path, "a", "b")
    assert offsets_of(folder, 0) == (offsets(None, "a", 0), 1_000_000)
    assert offsets_of(folder, 1) == (offsets("a", "b", 1), 1_001_000)


def test_the_files_of_a_batch_are_found_by_the_name_of_their_source(tmp_path: Path) -> None:
    """Also those of steps that Spark has compacted into one file; none is passed over."""
    folder = tmp_path / "sources" / "left"
    folder.mkdir(parents=True)
    entries = [json.dumps({"path": f"file:///in/{step}", "timestamp": 1, "batchId": step}) for step in range(12)]
    (folder / "9.compact").write_text("\n".join(["v1", *entries[:10]]))
    for step in (8, 10, 11):
        (folder / str(step)).write_text(f"v1\n{entries[step]}")
    span = offsets('right:{"logOffset":3}\nleft:{"logOffset":6}', 'left:{"logOffset":11}\nright:{"logOffset":3}')
    start, end = offset_of(span.start, "left"), offset_of(span.end, "left")
    assert files_between(folder, start, str(end)) == [f"file:///in/{step}" for step in (7, 8, 9, 10, 11)]
    right = offset_of(span.end, "right")
    assert files_between(tmp_path, right, str(right)) == []
    assert offset_of(span.end, "third") is None
    assert offset_of("left:-", "left") is None
    assert len(files_between(folder, None, '{"logOffset":9}')) == 10
    with pytest.raises(CheckpointError, match="left/12 is missing"):
        files_between(folder, '{"logOffset":11}', '{"logOffset":12}')
    with pytest.raises(CheckpointError, match="not that of a source of files"):
        files_between(folder, None, '{"topic":{"0":3}}')


@pytest.mark.parametrize(
    ("ends", "committed", "decided"),
    [
        ((), 0, None),
        (("a",), 0, None),
        (("a",), 0, offsets(None, "a", 0)),
        (("a",), 1, offsets(None, "a", 0)),
        (("a", "b"), 1, offsets(None, "a", 0)),
        (("a",), 1, None),
        (("a", "b"), 1, None),
        (("a", "b"), 2, offsets(None, "a", 0)),
        (("a", "b", "c"), 2, offsets(None, "a", 0)),
    ],
    ids=[
        "nothing has happened",
        "killed in the first batch",
        "killed between our record and Spark's commit",
        "all committed",
        "killed in the second batch",
        "killed between Spark's first commit and our first record",
        "the same, and the second batch had begun",
        "killed between Spark's second commit and our record",
        "the same, and the third batch had begun",
    ],
)
def test_a_log_as_a_kill_may_leave_it_is_accepted(
    ends: tuple[str, ...], committed: int, decided: Offsets | None, tmp_path: Path, checkpoint: Checkpoint
) -> None:
    check_log(spark_log(tmp_path / "spark", *ends, committed=committed), decided, checkpoint)


@pytest.mark.parametrize(
    ("ends", "committed", "decided", "why"),
    [
        ((), 0, offsets("a", "b", 1), "rolled back"),
        (("a",), 1, offsets("a", "b", 1), "rolled back"),
        (("a", "x"), 1, offsets("a", "b", 1), "not the one that was decided"),
        (("a", "b", "c"), 1, offsets(None, "a", 0), "not the one"),
        (("a", "b", "c"), 3, offsets(None, "a", 0), "batch 1 is committed, but was never decided"),
        (("a", "b"), 2, None, "batch 0 is committed, but was never decided"),
    ],
    ids=[
        "emptied",
        "rolled back by one",
        "another batch in the place of ours",
        "two batches ahead of the records",
        "two committed batches that no record knows",
        "two committed, and no record at all",
    ],
)
def test_a_log_that_does_not_fit_the_records_is_refused(
    ends: tuple[str, ...], committed: int, decided: Offsets | None, why: str, tmp_path: Path, checkpoint: Checkpoint
) -> None:
    with pytest.raises(DataLossRisk, match=why):
        check_log(spark_log(tmp_path / "spark", *ends, committed=committed), decided, checkpoint)


def test_a_log_that_is_gone_or_of_another_query_is_refused(tmp_path: Path, checkpoint: Checkpoint) -> None:
    with pytest.raises(DataLossRisk, match="Spark's log is missing"):
        check_log(tmp_path / "nothing", offsets(None, "a", 0), checkpoint)
    with pytest.raises(DataLossRisk, match="of another query"):
        check_log(spark_log(tmp_path / "spark", "a", query="other"), offsets(None, "a", 0), checkpoint)


@pytest.mark.parametrize("damaged", ["metadata", "offsets/0"])
@pytest.mark.parametrize("content", [b"", b"v1\n", b"\xff", b"null"])
def test_a_damaged_log_is_told_by_the_name_of_its_file(
    damaged: str, content: bytes, tmp_path: Path, checkpoint: Checkpoint
) -> None:
    folder = spark_log(tmp_path / "spark", "a")
    (folder / damaged).write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"{damaged} cannot be read"):
        check_log(folder, offsets(None, "a", 0), checkpoint)


# -- a real run -----------------------------------------------------------------------------------------------------


def an_app(bench: Bench, database: Path | None = None) -> tg.App:
    app = tg.App("identity")
    source = app.source(
        "events", tg.Files(str(bench.input)), contract="id STRING, at TIMESTAMP", event_time="at", event_id="id"
    )
    result = source.key_by(k="'all'").window("counts", tg.Tumbling("1m")).aggregate(n=tg.count())
    app.sink("table", result, tg.SQLite(str(database or bench.database), table="results"))
    return app


@pytest.fixture(scope="module")
def two_batches(module_bench: Bench) -> Bench:
    """A run of two batches, and a third file that nobody has read yet."""
    bench = module_bench
    bench.build = lambda: an_app(bench)
    for number in range(2):
        bench.write(f"{number}.jsonl", [{"id": f"e{number}", "at": at(number)}])
    bench.run(mode="once", max_batch=1)
    bench.write("2.jsonl", [{"id": "e2", "at": at(300)}])
    return bench


def delete_spark_log(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint / "spark")


def roll_back_spark_log(checkpoint: Path) -> None:
    for name in ("offsets/1", "commits/1"):
        (checkpoint / "spark" / name).unlink()


def replace_spark_log(checkpoint: Path) -> None:
    metadata = checkpoint / "spark" / "metadata"
    data = json.loads(metadata.read_text())
    metadata.write_text(json.dumps(data | {"id": "00000000-0000-0000-0000-000000000000"}))


def roll_back_records(checkpoint: Path, by: int = 2) -> None:
    for path in sorted((checkpoint / "records").glob("*.json"))[-by:]:
        path.unlink()


Damage = Callable[[Path], None]


@pytest.mark.spark
@pytest.mark.parametrize("damage", [delete_spark_log, roll_back_spark_log, replace_spark_log, roll_back_records])
@pytest.mark.parametrize("mode", ["once", "drain"])
def test_a_checkpoint_whose_halves_do_not_fit_is_refused_before_anything_changes(
    two_batches: Bench, damage: Damage, mode: Any, tmp_path: Path
) -> None:
    shutil.copytree(two_batches.checkpoint, tmp_path / "checkpoint")
    bench = Bench(two_batches.folder, two_batches.build)
    bench.checkpoint = tmp_path / "checkpoint"
    damage(bench.checkpoint)
    before = two_batches.table(), [record.to_json() for record in bench.records()]
    with pytest.raises(DataLossRisk, match="do not fit together") as refusal:
        bench.run(mode=mode)
    assert "restore the checkpoint folder as a whole" in str(refusal.value.hint)
    assert (two_batches.table(), [record.to_json() for record in bench.records()]) == before


@pytest.mark.spark
def test_a_batch_that_spark_has_committed_and_nobody_has_decided_is_decided_first(
    two_batches: Bench, tmp_path: Path
) -> None:
    """As a kill leaves it between Spark's commit, which comes when a batch is folded, and our record."""
    shutil.copytree(two_batches.checkpoint, tmp_path / "checkpoint")
    bench = Bench(tmp_path, lambda: an_app(two_batches, bench.database))
    roll_back_records(bench.checkpoint, by=1)
    assert bench.records()[-1].offsets is not None
    totals = bench.run(mode="drain").totals
    assert (totals.sources["events"].read, totals.operators["counts"].accepted) == (3, 3)
    decided = [record.offsets for record in bench.records() if record.kind == "batch" and record.offsets is not None]
    assert [offsets.batch_id for offsets in decided] == [0, 1, 2]


@pytest.mark.spark
def test_a_checkpoint_that_was_made_anew_under_its_sinks_does_not_write_over_them(two_batches: Bench) -> None:
    """The folder is deleted as a whole: a new pipeline begins, and the table of the old one is not its own."""
    bench = Bench(two_batches.folder, two_batches.build)
    bench.checkpoint = two_batches.folder / "another"
    log = tg.ParquetLog(str(two_batches.folder / "log"))
    for place in (two_batches.folder / "one", two_batches.folder / "other"):
        app = an_app(bench)
        app.sink("log", next(iter(results(app))), log)
        bench.checkpoint = place
        if place.name == "one":
            bench.run(app, mode="once")
        else:
            with pytest.raises(SinkError, match="another checkpoint"):
                bench.run(app, mode="once")


def results(app: tg.App) -> list[Any]:
    from tidegate.stream import Result

    return [Result(app, node) for node in app.operators.values()]


@pytest.mark.spark
def test_an_undamaged_copy_goes_on(two_batches: Bench, tmp_path: Path) -> None:
    """The control: the copy that the refusals above were made from is good."""
    shutil.copytree(two_batches.checkpoint, tmp_path / "checkpoint")
    bench = Bench(tmp_path, two_batches.build)
    totals = bench.run(mode="drain").totals
    assert (totals.sources["events"].read, totals.operators["counts"].accepted) == (3, 3)


@pytest.mark.spark
def test_a_draft_that_spark_left_when_it_was_killed_does_not_keep_the_pipeline_down(bench: Bench) -> None:
    bench.build = lambda: an_app(bench)
    bench.run(mode="once")
    (bench.checkpoint / "spark" / "offsets").mkdir(exist_ok=True)
    (bench.checkpoint / "spark" / "offsets" / ".0.5a1f.tmp").write_bytes(b"v2\n{")
    bench.write("1.jsonl", [{"id": "e1", "at": at(0)}])
    assert bench.run(mode="drain").totals.operators["counts"].accepted == 1


@pytest.mark.spark
def test_sources_declared_in_another_order_are_neither_mixed_up_nor_read_again(bench: Bench) -> None:
    """Spark numbers the sources of a query; ours have names."""

    def app(*names: str) -> tg.App:
        app = tg.App("several")
        for name in names:
            source = app.source(
                name, tg.Files(str(bench.input / name)), contract="id STRING, at TIMESTAMP", event_time="at"
            )
            result = source.key_by("id").window(f"{name}_w", tg.Tumbling("1m")).aggregate(n=tg.count())
            app.sink(f"{name}_s", result, tg.SQLite(str(bench.database), table=name))
        return app

    for name in ("left", "right"):
        bench.write(f"{name}/1.jsonl", [{"id": f"{name}1", "at": at(0)}])
    bench.run(app("left", "right"), "once")
    for name in ("left", "right"):
        bench.write(f"{name}/2.jsonl", [{"id": f"{name}2", "at": at(1)}])
    totals = bench.run(app("right", "left"), "drain").totals
    assert {name: line.read for name, line in totals.sources.items()} == {"left": 2, "right": 2}
    assert {row["id"]: row["n"] for row in bench.table("left")} == {"left1": 1, "left2": 1}
    assert {row["id"]: row["n"] for row in bench.table("right")} == {"right1": 1, "right2": 1}


@pytest.mark.spark
def test_a_source_that_was_added_to_a_running_pipeline_is_read_from_its_beginning(bench: Bench) -> None:
    def app(*names: str) -> tg.App:
        app = tg.App("several")
        for name in names:
            source = app.source(
                name, tg.Files(str(bench.input / name)), contract="id STRING, at TIMESTAMP", event_time="at"
            )
            result = source.key_by("id").window(f"{name}_w", tg.Tumbling("1m")).aggregate(n=tg.count())
            app.sink(f"{name}_s", result, tg.SQLite(str(bench.database), table=name))
        return app

    for name in ("left", "right"):
        bench.write(f"{name}/1.jsonl", [{"id": f"{name}1", "at": at(0)}])
    bench.run(app("left"), "once")
    bench.write("left/2.jsonl", [{"id": "left2", "at": at(1)}])
    totals = bench.run(app("left", "right"), "drain").totals
    assert {name: line.read for name, line in totals.sources.items()} == {"left": 2, "right": 1}
