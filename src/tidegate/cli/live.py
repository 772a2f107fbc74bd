"""The live view of a run on a terminal: the last record, the clocks, where the events went, the state, the balance.

It shows what the reports say and nothing else; between reports only the elapsed time moves.
"""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tidegate.app import App
from tidegate.cli.clocks import Clock, clocks, delays, feeders, held_by, lag
from tidegate.cli.output import ago, number, size
from tidegate.cli.watch import all_panes, read
from tidegate.runtime.ledger import Ledger
from tidegate.runtime.reports import BatchReport
from tidegate.time import show_instant

_PARTITIONS_SHOWN = 12


class LiveView:
    """A watcher that redraws one panel; messages scroll above it."""

    def __init__(self, app: App, console: Console | None = None) -> None:
        self._name = app.name
        self._delays = delays(app)
        self._feeders = feeders(app)
        self._began = time.monotonic()
        self._read = 0
        self._last: BatchReport | None = None
        self._console = console or Console()
        self._live = Live(get_renderable=self._render, console=self._console, refresh_per_second=4, transient=False)

    def __enter__(self) -> LiveView:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def say(self, message: str) -> None:
        self._console.print(message, style="dim", markup=False, highlight=False)

    def batch(self, report: BatchReport) -> None:
        self._read += read(report.ledger)
        self._last = report

    def _render(self) -> RenderableType:
        elapsed = time.monotonic() - self._began
        report = self._last
        if report is None:
            return Panel(Text(f"waiting for the first record … {elapsed:.0f} s"), title=self._name, title_align="left")
        parts = (
            self._headline(report, elapsed),
            Text(),
            self._clocks(report),
            Text(),
            self._events(report.ledger, report.totals),
            Text(),
            self._state(report),
            _balance(report.totals),
        )
        return Panel(Group(*parts), title=self._name, title_align="left", subtitle="Ctrl-C stops after the batch")

    def _headline(self, report: BatchReport, elapsed: float) -> Text:
        events = read(report.ledger)
        text = Text(f"record {report.sequence} ({report.kind})", style="bold")
        text.append(f"  {report.seconds:.2f} s, {number(events)} events", style="not bold")
        if events and report.seconds > 0:
            text.append(f", {number(round(events / report.seconds))}/s", style="not bold")
        text.append(f"   run {elapsed:.0f} s, {number(round(self._read / max(elapsed, 0.001)))}/s", style="dim")
        return text

    def _clocks(self, report: BatchReport) -> Table:
        table = _table("clock", "newest event", "watermark", "lag")
        for name, at in report.watermarks.items():
            label = Text(name, style="bold")
            if holding := held_by(self._feeders.get(name, ()), report.sources):
                label.append(f"   {holding}", style="not bold")
            table.add_row(label, "", show_instant(at), ago(lag(at, report.clock)))
        for source in clocks(report.sources, report.clock, self._delays):
            left = f"   {number(sum(source.unread.values()))} unread" if source.unread else ""
            table.add_row(f"source {source.name}{left}", *_cells(source))
            # the slowest partitions are the ones that hold the watermark back
            slowest = sorted(source.partitions, key=lambda clock: clock.lag or 0, reverse=True)
            for clock in slowest[:_PARTITIONS_SHOWN]:
                left = f"   {number(source.unread[clock.name])} unread" if source.unread.get(clock.name) else ""
                table.add_row(f"  partition {clock.name}{left}", *_cells(clock), style="dim")
            if len(slowest) > _PARTITIONS_SHOWN:
                table.add_row(f"  … {len(slowest) - _PARTITIONS_SHOWN} more that are further on", style="dim")
        return table

    def _events(self, ledger: Ledger, totals: Ledger) -> Table:
        table = _table("events", "this record", "in all", right=(1, 2))
        for label, count, total in _event_rows(ledger, totals):
            table.add_row(label, number(count), number(total))
        return table

    def _state(self, report: BatchReport) -> Text:
        open_windows = ", ".join(f"{name} {number(count)}" for name, count in report.open_windows.items())
        text = f"state {number(report.state_rows)} rows, {size(report.state_bytes)}"
        return Text(text + (f"; open windows: {open_windows}" if open_windows else ""))


def _event_rows(ledger: Ledger, totals: Ledger) -> list[tuple[str, int, int]]:
    def both(label: str, count: int, total: int) -> list[tuple[str, int, int]]:
        return [(label, count, total)] if total else []

    rows = [("read", read(ledger), read(totals))]
    for name, line in totals.operators.items():
        now = ledger.operators.get(name)
        rows.append((f"accepted by {name}", now.accepted if now else 0, line.accepted))
        rows += both("  partially late", now.partially_late if now else 0, line.partially_late)
    rows += both(
        "filtered",
        sum(path.filtered for path in ledger.paths.values()),
        sum(path.filtered for path in totals.paths.values()),
    )
    rows += both(
        "skipped",
        sum(line.skipped for line in ledger.sources.values()),
        sum(line.skipped for line in totals.sources.values()),
    )
    rows += both(
        "duplicates",
        sum(line.duplicates for line in ledger.sources.values()),
        sum(line.duplicates for line in totals.sources.values()),
    )
    dead, all_dead = ledger.dead_letters(), totals.dead_letters()
    for reason in sorted(all_dead):
        rows += both(f"dead letter {reason}", dead.get(reason, 0), all_dead[reason])
    panes, pane_totals = all_panes(ledger), all_panes(totals)
    for timing in sorted(pane_totals):
        rows += both(f"panes {timing}", panes.get(timing, 0), pane_totals[timing])
    return rows


def _balance(totals: Ledger) -> Text:
    unaccounted = totals.unaccounted()
    style = "bold red" if unaccounted else "green"
    return Text(f"unaccounted {number(unaccounted)}" + ("" if unaccounted else ": the ledger balances"), style=style)


def _cells(clock: Clock) -> tuple[str, str, str]:
    return show_instant(clock.newest), show_instant(clock.watermark), ago(clock.lag)


def _table(*columns: str, right: tuple[int, ...] = ()) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index in right else "left", no_wrap=True)
    return table
