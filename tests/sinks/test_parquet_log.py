"""What is particular to the Parquet log: its files, and what a crash leaves of them."""

from __future__ import annotations

import json
import os
from contextlib import closing
from pathlib import Path

import pytest
from sink_cases import pane, record, target  # type: ignore[import-not-found]

from tidegate import crash
from tidegate.errors import SinkError
from tidegate.sinks.base import Delivery, SinkTarget
from tidegate.sinks.parquet_log import ParquetLog, read_log


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def staged(tmp_path: Path) -> Path:
    return tmp_path / "staged"


def deliver(log: Path, *deliveries: Delivery, to: SinkTarget | None = None) -> None:
    with closing(ParquetLog(log).open(to or target())) as writer:
        for delivery in deliveries:
            writer.deliver(delivery)


def data_files(log: Path) -> list[Path]:
    return sorted(log.rglob("*.parquet"))


def test_the_manifest_names_the_files_of_its_record(log: Path, staged: Path) -> None:
    deliver(log, record(staged, 42, pane("a", 1)))
    manifest = json.loads((log / "_manifests" / "out" / "00000042.json").read_text())
    assert [log / file["path"] for file in manifest["files"]] == data_files(log)
    assert (manifest["sequence"], manifest["rows"], manifest["claim"]) == (42, 1, 1)


def test_rows_come_in_the_order_of_records_with_their_sequence(log: Path, staged: Path) -> None:
    deliver(log, *(record(staged, n, pane("a", n, index=n)) for n in (2, 9, 10, 100)))
    assert read_log(log).select(["sequence", "total"]).to_pylist() == [
        {"sequence": n, "total": n} for n in (2, 9, 10, 100)
    ]


def test_data_is_linked_not_copied_where_the_file_system_allows_it(log: Path, staged: Path) -> None:
    delivery = record(staged, 1, pane("a", 1))
    deliver(log, delivery)
    assert data_files(log)[0].samefile(delivery.files[0])


def test_data_is_copied_where_links_do_not_work(log: Path, staged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def only_inside_the_log(source: Path, destination: Path) -> None:
        if source.is_relative_to(staged):
            raise OSError("Invalid cross-device link")
        link(source, destination)

    monkeypatch.setattr(os, "link", only_inside_the_log)
    delivery = record(staged, 1, pane("a", 1))
    deliver(log, delivery)
    assert not data_files(log)[0].samefile(delivery.files[0])
    assert read_log(log).num_rows == 1


def test_what_a_crash_left_is_never_read_and_deleted_when_the_record_comes_again(
    log: Path, staged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery = record(staged, 2, pane("b", 2))
    deliver(log, record(staged, 1, pane("a", 1)))

    def die(_: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(crash, "point", die)
        with pytest.raises(KeyboardInterrupt):
            deliver(log, delivery)
    assert len(data_files(log)) == 2
    assert read_log(log)["total"].to_pylist() == [1]
    deliver(log, delivery, to=target(claim=2))
    assert len(data_files(log)) == 2
    assert read_log(log)["total"].to_pylist() == [1, 2]


def test_a_manifest_that_a_zombie_published_at_the_last_moment_is_not_doubled(
    log: Path, staged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery = record(staged, 1, pane("a", 1))
    zombie = ParquetLog(log).open(target(claim=1))
    successor = ParquetLog(log).open(target(claim=1))

    def zombie_wakes_up(_: str) -> None:
        monkeypatch.undo()
        zombie.deliver(delivery)

    monkeypatch.setattr(crash, "point", zombie_wakes_up)
    assert successor.deliver(delivery) == 0
    assert read_log(log)["total"].to_pylist() == [1]
    assert len(data_files(log)) == 1


def test_a_log_of_another_checkpoint_is_refused(log: Path, staged: Path) -> None:
    deliver(log, record(staged, 1, pane("a", 1)))
    with pytest.raises(SinkError, match="another checkpoint") as error:
        ParquetLog(log).open(target(checkpoint_id="new", claim=2))
    assert "new folder" in str(error.value.hint)


def test_a_folder_with_several_logs_wants_a_name(log: Path, staged: Path) -> None:
    deliver(log, record(staged, 1, pane("a", 1)), to=target("first"))
    deliver(log, record(staged, 1, pane("b", 2)), to=target("second"))
    with pytest.raises(SinkError, match="exactly one sink") as error:
        read_log(log)
    assert error.value.hint == "name one of: first, second"
    assert read_log(log, sink="second")["total"].to_pylist() == [2]


def test_a_log_without_rows_reads_as_an_empty_table(log: Path, staged: Path) -> None:
    deliver(log, record(staged, 1))
    assert read_log(log).num_rows == 0


def test_a_folder_without_a_log_is_explained(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="does not hold the log"):
        read_log(tmp_path / "nowhere")


def test_no_sink_name_leads_out_of_the_folder(log: Path, staged: Path, tmp_path: Path) -> None:
    name = "../../ö/.."
    before = {path.name for path in tmp_path.iterdir()}
    deliver(log, record(staged, 1, pane("a", 1)), to=target(name))
    assert {path.name for path in tmp_path.iterdir()} - before == {"log", "staged"}
    assert read_log(log, sink=name).num_rows == 1


def test_a_column_called_sequence_is_refused(log: Path) -> None:
    with pytest.raises(SinkError, match="'sequence' is taken"):
        ParquetLog(log).open(target(values=("sequence",)))


def test_what_is_no_local_folder_is_a_problem_that_check_finds(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for sink in (ParquetLog("s3a://bucket/log"), ParquetLog(tmp_path / "file")):
        assert len(sink.problems()) == 1
        with pytest.raises(SinkError):
            sink.open(target())


def test_a_folder_that_cannot_be_created_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SinkError, match="cannot be used") as error:
        ParquetLog(tmp_path / "file" / "log").open(target())
    assert error.value.hint
