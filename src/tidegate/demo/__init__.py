"""The demo: the same misbehaving traffic through Tidegate and through plain Spark, and what each of them made of it.

1. Payments of a mobile shop are generated, with the truth beside them (`tidegate.sources.traffic`).
2. The revenue pipeline takes them as they arrive, slot by slot, is stopped, and then drained: the end of the input.
3. The same query runs on plain Spark Structured Streaming, over the same files in the same batches.
4. Both results are held against the truth, per merchant and window, to the cent.

Everything stays in one folder: the traffic, the results in SQLite, the checkpoint with its dead letters, a picture
of the lateness, and ``report.json``.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path

from tidegate.demo.pipeline import ALLOWED_LATENESS, DELAY, IDLE_AFTER, OPERATOR, revenue_app
from tidegate.demo.plain_spark import PlainRun, run_plain_spark
from tidegate.demo.replay import PacedBy, Replay
from tidegate.demo.report import DemoReport, ledger_table, truth_table
from tidegate.demo.truth import (
    captured,
    counted_back,
    fates,
    late_letters,
    missed,
    parquet_cells,
    shortfall,
    sqlite_cells,
    true_cells,
)
from tidegate.errors import PipelineError
from tidegate.observe.lateness_plot import draw_lateness
from tidegate.runtime.drivers import run
from tidegate.runtime.ledger import Ledger
from tidegate.runtime.reports import RunOptions, Watcher
from tidegate.sources.traffic import Progress, Traffic
from tidegate.sources.traffic_truth import TrafficReport
from tidegate.time import SECOND, micros, show

__all__ = ["DemoReport", "run_demo"]

_MARKER = ".tidegate-demo"


def run_demo(folder: Path, events: int, watcher: Watcher, *, slots: int = 24) -> DemoReport:
    """Run the demo in `folder`, with about `events` events in `slots` batches, and tell `watcher` the story."""
    started = time.monotonic()
    _make_room(folder)
    traffic = Traffic(events=events, files_per_partition=slots)
    watcher.say(f"1/4  generating {events:,} payments of {show(micros(traffic.span))}, with repeats and broken records")
    written = traffic.write(folder / "traffic", _by_quarters(watcher))
    seconds = {"generate": time.monotonic() - started}

    watcher.say(f"2/4  Tidegate: revenue per merchant and 5 minutes, from {written.files} files as they arrive")
    replay = Replay(written.events_folder, folder)
    pace = PacedBy(replay, watcher)
    totals, seconds["tidegate"] = _run_tidegate(folder, replay, pace)
    watcher.say(_about_idleness(traffic, seconds["tidegate"]))

    watcher.say("3/4  plain Spark Structured Streaming: the same query, files and batches")
    plain_folder = folder / "plain-spark"
    plain = run_plain_spark(Replay(written.events_folder, plain_folder), plain_folder, watcher.say)
    seconds["plain_spark"] = plain.seconds

    watcher.say("4/4  both results against the truth")
    report = _compare(folder, written, totals, pace, plain, seconds)
    seconds["all"] = time.monotonic() - started
    (folder / "report.json").write_text(json.dumps(asdict(report), indent=2, default=str) + "\n")
    watcher.say(f"\n{ledger_table(report)}\n\n{truth_table(report)}\n\n{_where_to_look(folder)}")
    watcher.say(f"\nThe demo took {seconds['all']:.0f} s.")
    return report


def _run_tidegate(folder: Path, replay: Replay, pace: PacedBy) -> tuple[Ledger, float]:
    """Run until the last slot is decided, then drain: the ledger of it all, and the seconds of the first part."""
    app = revenue_app(replay.inbox, folder / "results.db")
    checkpoint = str(folder / "checkpoint")
    replay.show_next()
    summary = run(app, RunOptions(checkpoint, "continuous", interval=0), pace)
    if len(pace.judged_by) < len(replay):
        raise KeyboardInterrupt  # the stop was the user's, not ours
    pace.say("     the last files have been taken; draining: every open window speaks")
    return run(app, RunOptions(checkpoint, "drain"), pace).totals, summary.seconds


def _compare(
    folder: Path,
    written: TrafficReport,
    totals: Ledger,
    pace: PacedBy,
    plain: PlainRun,
    seconds: dict[str, float],
) -> DemoReport:
    """Hold both results against the truth, and draw the picture."""
    payments = captured(written.truth_path)
    truth, result, theirs = true_cells(payments), sqlite_cells(folder / "results.db"), parquet_cells(plain.result)
    letters = missed(late_letters(folder / "checkpoint"), written.events_folder)
    arrivals = fates(payments, {letter["payment_id"] for letter in letters}, pace.slot_ends, pace.judged_by)
    draw_lateness(folder / "lateness.svg", arrivals=arrivals, delay=DELAY, allowed_lateness=ALLOWED_LATENESS)
    source, operator = totals.sources["payments"], totals.operators[OPERATOR]
    return DemoReport(
        lines=written.lines,
        read=source.read,
        accepted=operator.accepted,
        accepted_late=sum(fate == "accepted_late" for _, _, fate in arrivals),
        late_panes=operator.panes.get("late", 0),
        filtered=totals.paths[OPERATOR].filtered,
        duplicates=source.duplicates,
        dead=totals.dead_letters(),
        unaccounted=totals.unaccounted(),
        orders=sum(cell.orders for cell in truth.values()),
        revenue=sum((cell.revenue for cell in truth.values()), Decimal(0)),
        windows=len(truth),
        tidegate=shortfall(result, truth),
        missed=len(letters),
        equals_truth=shortfall(counted_back(result, letters), truth).is_none,
        plain=shortfall(theirs, truth),
        plain_admitted=plain.admitted,
        seconds=seconds,
    )


def _make_room(folder: Path) -> None:
    """An empty folder, or that of an earlier demo, whose files are replaced; what is not ours is never touched."""
    if folder.exists() and any(folder.iterdir()):
        if not (folder / _MARKER).exists():
            raise PipelineError(
                f"{folder} is not empty, and no earlier demo made it", hint="choose another folder, or delete this one"
            )
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _MARKER).touch()


def _by_quarters(watcher: Watcher) -> Progress:
    """A line for each quarter of the work; the generator reports after each file."""
    said = 0

    def progress(done: int, total: int) -> None:
        nonlocal said
        if 4 * done // total > said:
            said = 4 * done // total
            watcher.say(f"     {done:,} of {total:,} lines written")

    return progress


def _about_idleness(traffic: Traffic, seconds: float) -> str:
    faster = micros(traffic.span) / SECOND / seconds
    in_life = show(max(round(faster * micros(IDLE_AFTER) / (60 * SECOND)), 1) * 60 * SECOND)
    return (
        f"     Partition {traffic.silent_partition} fell silent after two thirds and did not hold the others back: "
        f"it was idle after {IDLE_AFTER} by the clock on the wall\n"
        f"     (the replay ran {faster:.0f} times faster than life, where that would be about {in_life})."
    )


def _where_to_look(folder: Path) -> str:
    """Commands that work from where the demo was started, with what it was started by."""
    prefix = Path(sys.prefix)
    python = os.path.relpath(sys.executable) if prefix.is_relative_to(Path.cwd()) else "python3"
    tidegate = "tidegate" if shutil.which("tidegate") else f"{python} -m tidegate.cli"
    columns = "merchant_id, window_start, orders, revenue, p95, pane_timing"
    query = f"SELECT {columns} FROM {OPERATOR} ORDER BY orders DESC LIMIT 10"
    return "\n".join(
        [
            "Have a look:",
            f"  {tidegate} status {folder / 'checkpoint'}",
            f"  {tidegate} dlq stats {folder / 'checkpoint'}",
            f"  {tidegate} dlq list {folder / 'checkpoint'} --reason LATE --limit 5",
            f"  {python} -c \"import sqlite3; [print(*row) for row in sqlite3.connect('{folder / 'results.db'}')"
            f".execute('{query}')]\"",
            f"  the picture: {folder / 'lateness.svg'}, what was generated: {folder / 'traffic'}",
        ]
    )
