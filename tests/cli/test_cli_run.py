"""`tidegate run`: what a watcher shows of the reports. The driver is a stand-in; the real one has its own tests."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import Result
from rich.console import Console

from tidegate.app import App
from tidegate.cli.live import LiveView
from tidegate.cli.load import load_app
from tidegate.runtime.ledger import Ledger, OperatorLine, PathLine, SourceLine
from tidegate.runtime.records import PartitionClock, SourceClock
from tidegate.runtime.reports import BatchReport, RunOptions, RunSummary, Watcher

Cli = Callable[..., Result]
NOON = 1_772_366_400_000_000


def a_report(sequence: int = 7) -> BatchReport:
    ledger = Ledger(
        sources={"payments": SourceLine(1_000, 990, 4, {"MALFORMED": 6})},
        paths={"revenue": PathLine(990, filtered=90, arrived=900)},
        operators={"revenue": OperatorLine(900, 888, 12, panes={"on_time": 5, "late": 2})},
    )
    clock = SourceClock(NOON, {"north": PartitionClock(NOON + 60_000_000, NOON), "south": PartitionClock(None, NOON)})
    return BatchReport(
        sequence=sequence,
        kind="batch",
        seconds=0.5,
        clock=NOON + 90_000_000,
        ledger=ledger,
        totals=ledger.plus(ledger),
        sources={"payments": clock},
        watermarks={"revenue": NOON},
        state_rows=1_234,
        state_bytes=56_789,
        open_windows={"revenue": 3},
    )


class Driver:
    """Stands in for `tidegate.runtime.drivers` and remembers how it was called."""

    options: RunOptions | None = None

    def run(self, app: App, options: RunOptions, watcher: Watcher) -> RunSummary:
        self.options = options
        watcher.say("starting Spark")
        watcher.batch(a_report())
        return RunSummary(1, 2.5, a_report().totals, "stopped by Ctrl-C")


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    module, driver = ModuleType("tidegate.runtime.drivers"), Driver()
    module.__dict__["run"] = driver.run
    monkeypatch.setitem(sys.modules, "tidegate.runtime.drivers", module)
    monkeypatch.setenv("PYTHONPATH", "")  # `run` adds the app's folder for Spark's workers
    return driver


def test_without_a_terminal_each_record_is_a_line_and_one_ends_it(cli: Cli, app_file: Path, driver: Driver) -> None:
    assert cli("run", app_file, "--once").output.splitlines() == [
        "starting Spark",
        "#7 batch 0.50s | read 1,000 (2,000/s) | accepted 888, filtered 90, duplicates 4, "
        "dead letters 18 (LATE 12, MALFORMED 6) | panes on_time 5, late 2 | "
        "watermark revenue 2026-03-01T12:00:00Z | state 1,234 rows | balanced",
        "stopped by Ctrl-C: 1 records in 2.5 s; read 2,000, accepted 1,776, filtered 180, duplicates 8, "
        "dead letters 36 (LATE 24, MALFORMED 12), unaccounted 0",
    ]


def test_json_has_an_object_per_record_and_a_summary(cli: Cli, app_file: Path, driver: Driver) -> None:
    done = cli("run", app_file, "--json")
    record, summary = map(json.loads, done.stdout.splitlines())
    assert (record["type"], record["sequence"], record["unaccounted"]) == ("record", 7, 0)
    assert (summary["type"], summary["stopped"], summary["unaccounted"]) == ("summary", "stopped by Ctrl-C", 0)
    assert "starting Spark" in done.stderr


def test_options_reach_the_driver(cli: Cli, app_file: Path, driver: Driver) -> None:
    cli("run", app_file, "--drain", "--max-batch", "5", "--interval", "0.1", "--checkpoint", "elsewhere")
    assert driver.options == RunOptions("elsewhere", "drain", 5, 0.1)
    cli("run", app_file)
    assert driver.options == RunOptions(str(app_file.parent / ".tidegate" / "shop"))


def test_an_unbalanced_ledger_is_shown_loudly(app_file: Path) -> None:
    report = a_report()
    report.totals.sources["payments"].read += 3
    assert "unaccounted 3" in shown(load_app(app_file), report)


def test_the_live_view_shows_clocks_counts_and_balance(app_file: Path) -> None:
    text = shown(load_app(app_file), a_report())
    for expected in (
        "record 7 (batch)",
        "2,000/s",
        "partition north  ",
        "2026-03-01T12:00:30Z",  # its newest event less the delay of 30 s
        "1m 30s",
        "dead letter LATE",
        "state 1,234 rows, 56.8 kB; open windows: revenue 3",
        "unaccounted 0: the ledger balances",
    ):
        assert expected in text


def shown(app: App, report: BatchReport) -> str:
    out = io.StringIO()
    view = LiveView(app, Console(file=out, force_terminal=True, width=120, height=60, color_system=None))
    with view:
        view.say("a message with [brackets]")
        view.batch(report)
    return out.getvalue()
