"""Watching a run without a terminal: plain lines, or JSON, one per record – and the line that every run ends with."""

from __future__ import annotations

import json
from dataclasses import asdict
from types import TracebackType
from typing import Any

import click

from tidegate.cli.output import counts, number
from tidegate.runtime.ledger import Ledger
from tidegate.runtime.reports import BatchReport, RunSummary
from tidegate.time import show_instant


class _Watching:
    """A watcher that needs nothing opened or closed."""

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is held open."""


class PlainLines(_Watching):
    """One line per record, for logs and pipes."""

    def say(self, message: str) -> None:
        click.echo(message)

    def batch(self, report: BatchReport) -> None:
        click.echo(record_line(report))


class JsonLines(_Watching):
    """One JSON object per record on stdout; messages go to stderr, so that stdout stays JSON."""

    def say(self, message: str) -> None:
        click.echo(message, err=True)

    def batch(self, report: BatchReport) -> None:
        data = asdict(report) | {
            "type": "record",
            "unaccounted": report.ledger.unaccounted(),
            "dead_letters": report.ledger.dead_letters(),
        }
        click.echo(json.dumps(data, ensure_ascii=False))


def record_line(report: BatchReport) -> str:
    """A record in one line: what came in, what became of it, how far event time has come."""
    ledger, events = report.ledger, read(report.ledger)
    parts = [f"#{report.sequence} {report.kind} {report.seconds:.2f}s"]
    if events:
        rate = f" ({number(round(events / report.seconds))}/s)" if report.seconds > 0 else ""
        parts.append(f"read {number(events)}{rate}")
        parts.append(outcome(ledger))
    if panes := counts(all_panes(ledger)):
        parts.append(f"panes {panes}")
    parts.append("watermark " + ", ".join(f"{name} {show_instant(at)}" for name, at in report.watermarks.items()))
    if unread := {name: sum(clock.unread.values()) for name, clock in report.sources.items() if clock.unread}:
        parts.append("unread " + (counts(unread) or "0"))
    parts.append(f"state {number(report.state_rows)} rows")
    parts.append(balance(ledger))
    return " | ".join(parts)


def summary_line(summary: RunSummary) -> str:
    """How a run ended, with where all events of this checkpoint went."""
    totals = summary.totals
    return (
        f"{summary.stopped}: {number(summary.records)} records in {summary.seconds:.1f} s; "
        f"read {number(read(totals))}, {outcome(totals)}, unaccounted {number(totals.unaccounted())}"
    )


def summary_json(summary: RunSummary) -> str:
    totals = summary.totals
    more = {"type": "summary", "unaccounted": totals.unaccounted(), "dead_letters": totals.dead_letters()}
    return json.dumps(asdict(summary) | more, ensure_ascii=False)


def read(ledger: Ledger) -> int:
    return sum(line.read for line in ledger.sources.values())


def all_panes(ledger: Ledger) -> dict[str, int]:
    """Panes by timing, over all operators."""
    panes: dict[str, int] = {}
    for line in ledger.operators.values():
        for timing, count in line.panes.items():
            panes[timing] = panes.get(timing, 0) + count
    return panes


def outcome(ledger: Ledger) -> str:
    """What became of the events; operators judge separately, so accepted is per operator when there are several."""
    operators = ledger.operators
    accepted = [
        f"accepted {number(line.accepted)}" + (f" by {name}" if len(operators) > 1 else "")
        for name, line in operators.items()
    ]
    optional = {
        "filtered": sum(path.filtered for path in ledger.paths.values()),
        "skipped": sum(line.skipped for line in ledger.sources.values()),
        "duplicates": sum(line.duplicates for line in ledger.sources.values()),
        "partially late": sum(line.partially_late for line in operators.values()),
    }
    dead = ledger.dead_letters()
    letters = f"dead letters {number(sum(dead.values()))}" + (f" ({counts(dead)})" if dead else "")
    return ", ".join([*accepted, *(f"{name} {number(count)}" for name, count in optional.items() if count), letters])


def balance(ledger: Ledger) -> str:
    unaccounted = ledger.unaccounted()
    return f"UNACCOUNTED {number(unaccounted)}" if unaccounted else "balanced"
