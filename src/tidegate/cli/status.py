"""`tidegate status`: where a pipeline stands, from its records alone – also while it runs, and after it died."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import click

from tidegate.cli.clocks import Clock, clocks, delays, feeders, held_by, lag
from tidegate.cli.locate import Found, locate
from tidegate.cli.output import ago, counts, number, print_json, size, table
from tidegate.runtime.ledger import Ledger, SourceLine
from tidegate.runtime.records import Record
from tidegate.time import show_instant


@click.command()
@click.argument("target", metavar="CHECKPOINT|APP")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def status(target: str, as_json: bool) -> None:
    """Show where a pipeline stands.

    From its records alone: the last one, totals, watermarks, state, unaccounted events.
    """
    found = locate(target)
    now = time.time_ns() // 1000
    if as_json:
        print_json(_as_json(found, now))
    else:
        click.echo(_as_text(found, now))


def _as_text(found: Found, now: int) -> str:
    last = found.position.last
    totals = last.totals
    when = f"{show_instant(last.clock)}, {ago(now - last.clock)} ago"
    ended = "  the input has ended; this checkpoint is closed\n" if last.terminal else ""
    parts = [
        f"pipeline {found.checkpoint.pipeline}, checkpoint {found.checkpoint.folder}\n"
        f"  last record {last.sequence} ({last.kind}), {when}, took {last.seconds:.2f} s\n"
        f"{ended}  unaccounted events: {number(totals.unaccounted())}",
        _sources(totals),
        _operators(totals),
        _clocks(clocks(last.sources, now, delays(found.app))),
        _unread(clocks(last.sources, now, {})),
        _watermarks(last, feeders(found.app), now),
        _state(found),
    ]
    differences = totals.differences()
    if differences:
        parts.insert(1, "NOT ACCOUNTED FOR\n" + "\n".join(f"  {line}" for line in differences))
    return "\n\n".join(part for part in parts if part)


def _sources(totals: Ledger) -> str:
    rows = [
        (name, line.read, line.passed, line.duplicates, sum(line.dead.values()), counts(_others(line)))
        for name, line in totals.sources.items()
    ]
    return table(("source", "read", "passed", "duplicates", "dead letters", ""), rows, indent="") if rows else ""


def _others(line: SourceLine) -> dict[str, int]:
    return line.dead | ({"skipped": line.skipped} if line.skipped else {})


def _operators(totals: Ledger) -> str:
    rows = []
    for name, line in totals.operators.items():
        panes = counts(line.panes)
        rows.append((name, totals.filtered(name), line.arrived, line.accepted, line.late, line.partially_late, panes))
    headers = ("operator", "filtered", "in", "accepted", "late", "partially late", "panes")
    return table(headers, rows, indent="") if rows else ""


def _clocks(sources: Iterable[Clock]) -> str:
    rows = []
    for source in sources:
        for name, clock in [(source.name, source), *((f"  partition {p.name}", p) for p in source.partitions)]:
            rows.append(
                (
                    name,
                    show_instant(clock.newest),
                    show_instant(clock.watermark),
                    ago(clock.lag),
                    show_instant(clock.last_seen),
                )
            )
    return table(("source", "newest event", "watermark", "lag", "last seen"), rows, indent="") if rows else ""


def _unread(sources: Iterable[Clock]) -> str:
    rows = [(source.name, name, records) for source in sources for name, records in source.unread.items()]
    return table(("source", "partition", "unread records"), rows, indent="") if rows else ""


def _watermarks(last: Record, feeders: dict[str, tuple[str, ...]], now: int) -> str:
    rows = [
        (name, show_instant(at), ago(lag(at, now)), held_by(feeders.get(name, ()), last.sources))
        for name, at in last.watermarks.items()
    ]
    return table(("operator", "watermark", "lag", ""), rows, indent="") if rows else ""


def _state(found: Found) -> str:
    rows = [
        (owner, kind, held["files"], held["rows"], size(held["bytes"])) for (owner, kind), held in _held(found).items()
    ]
    return table(("state of", "kind", "files", "rows", "size"), rows, indent="") if rows else ""


def _held(found: Found) -> dict[tuple[str, str], dict[str, int]]:
    held: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: {"files": 0, "rows": 0, "bytes": 0})
    for file in sorted(found.position.files.values(), key=lambda file: (file.owner, file.kind)):
        line = held[file.owner, file.kind]
        line["files"] += 1
        line["rows"] += file.rows
        line["bytes"] += file.bytes
    return held


def _as_json(found: Found, now: int) -> dict[str, Any]:
    last = found.position.last
    return {
        "pipeline": found.checkpoint.pipeline,
        "checkpoint": str(found.checkpoint.folder),
        "last_record": {
            "sequence": last.sequence,
            "kind": last.kind,
            "clock": show_instant(last.clock),
            "age_seconds": round((now - last.clock) / 1e6, 3),
            "seconds": last.seconds,
            "terminal": last.terminal,
        },
        "unaccounted": last.totals.unaccounted(),
        "totals": last.totals.to_json(),
        "dead_letters": last.totals.dead_letters(),
        "sources": [asdict(clock) for clock in clocks(last.sources, now, delays(found.app))],
        "watermarks": last.watermarks,
        "state": [{"owner": owner, "kind": kind, **held} for (owner, kind), held in _held(found).items()],
    }
