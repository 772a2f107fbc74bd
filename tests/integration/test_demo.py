"""The demo keeps its word: every event is somewhere, and result plus dead letters are the truth."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tidegate.demo import DemoReport, run_demo
from tidegate.errors import PipelineError
from tidegate.runtime.reports import BatchReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Listener:
    """A watcher that remembers."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.records = 0

    def say(self, message: str) -> None:
        self.said.append(message)

    def batch(self, report: BatchReport) -> None:
        self.records += 1


class Told:
    """One run of the demo: its report, its folder, and what it said."""

    def __init__(self, folder: Path) -> None:
        listener = Listener()
        self.folder = folder
        self.report: DemoReport = run_demo(folder, 20_000, listener, slots=8)
        self.records = listener.records
        self.text = "\n".join(listener.said)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Told:
    return Told(tmp_path_factory.mktemp("demo") / "out")


def test_every_event_that_was_written_is_read_and_accounted_for(told: Told) -> None:
    report = told.report
    assert report.read == report.lines == 20_200
    assert report.unaccounted == 0
    assert report.balances


def test_the_traffic_shows_every_way_an_event_can_go(told: Told) -> None:
    report = told.report
    assert set(report.dead) == {"LATE", "MALFORMED", "NULL_EVENT_TIME", "CONTRACT_VIOLATION", "FUTURE"}
    assert min(report.accepted_late, report.late_panes, report.filtered, report.duplicates) > 0


def test_result_and_dead_letters_together_are_the_truth(told: Told) -> None:
    report = told.report
    assert report.equals_truth
    assert report.tidegate.orders == report.missed > 0
    assert report.tidegate.surplus == 0
    assert report.accepted == report.orders - report.missed


def test_plain_spark_loses_orders_that_the_truth_knows(told: Told) -> None:
    report = told.report
    assert report.plain.orders > 0
    assert report.plain.surplus == 0
    assert report.plain.wrong > 0


def test_results_picture_and_report_are_left_behind(told: Told) -> None:
    connection = sqlite3.connect(told.folder / "results.db")
    try:
        ((orders, rows),) = connection.execute("SELECT sum(orders), count(*) FROM merchant_revenue").fetchall()
    finally:
        connection.close()
    assert orders == told.report.accepted
    assert 0 < rows <= told.report.windows
    assert (told.folder / "lateness.svg").read_text().startswith("<svg")
    assert json.loads((told.folder / "report.json").read_text())["equals_truth"] is True


def test_it_shows_progress_a_table_and_where_to_look(told: Told) -> None:
    assert told.records >= 8
    for words in ("1/4", "4/4", "unaccounted", "result + dead letters = truth", "status", "dlq stats", "sqlite3"):
        assert words in told.text


def test_a_folder_that_no_demo_made_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("ten years of work")
    with pytest.raises(PipelineError, match="is not empty"):
        run_demo(tmp_path, 1_000, Listener())
    assert (tmp_path / "thesis.txt").exists()
