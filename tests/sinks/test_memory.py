"""What is particular to the sinks that live in the process: Memory and Console."""

from __future__ import annotations

from pathlib import Path

import pytest
from sink_cases import pane, record, target  # type: ignore[import-not-found]

from tidegate.errors import SinkError
from tidegate.sinks.memory import Console, Memory


def test_a_pipeline_built_anew_goes_on_with_the_memory_of_its_checkpoint(tmp_path: Path) -> None:
    Memory().open(target(checkpoint_id=str(tmp_path))).deliver(record(tmp_path, 1, pane("a", 1)))
    again = Memory()
    assert again.open(target(checkpoint_id=str(tmp_path), claim=2)).confirmed() == 1
    assert [row["total"] for row in again.rows()] == [1]


def test_a_new_checkpoint_starts_with_an_empty_memory(tmp_path: Path) -> None:
    Memory().open(target(checkpoint_id=f"{tmp_path} old")).deliver(record(tmp_path, 1, pane("a", 1)))
    memory = Memory()
    assert memory.open(target(checkpoint_id=f"{tmp_path} new")).confirmed() is None
    assert memory.rows() == memory.log() == []


def test_one_memory_for_two_sinks_has_no_one_table(tmp_path: Path) -> None:
    memory = Memory()
    for name in ("first", "second"):
        memory.open(target(name, checkpoint_id=str(tmp_path)))
    with pytest.raises(SinkError, match=r"shop/first, shop/second"):
        memory.rows()


def test_the_console_prints_a_record_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    delivery = record(tmp_path, 1, pane("a", 1), pane(None, 2), pane("c", 3))
    writer = Console(limit=2).open(target(checkpoint_id=str(tmp_path)))
    assert writer.deliver(delivery) == 3
    assert writer.deliver(delivery) == 0
    title, header, first, second, more = capsys.readouterr().out.splitlines()
    assert title == "-- out, record 1: 3 rows"
    assert header.split()[:4] == ["merchant", "window_start", "window_end", "total"]
    assert first.split()[:2] == ["a", "2026-03-01T12:00:00.000000Z"]
    assert second.startswith("NULL ")
    assert more.strip() == "… and 1 more"


def test_a_console_that_would_print_nothing_is_a_problem_that_check_finds() -> None:
    assert Console(limit=0).problems()
    assert not Console().problems()
