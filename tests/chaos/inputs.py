"""What the pipelines of the chaos tests read: the same lines each time, as files or as a topic, and their truth.

Input is written once, before anything runs: batches are then cut the same way in every run, and a killed run can be
compared with an undisturbed one row for row, late panes and dead letters included. Input without late events has a
truth that does not depend on batches at all; it is computed here in plain Python.
"""

from __future__ import annotations

import json
import os
import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.servers import RunningServer
from tests.sources.topics import TestTopic

START = datetime(2024, 3, 1, 12, tzinfo=UTC)
RECORDS_OF_A_FILE = 45


def make_input(*, files: int = 20, events: int = 40, late: bool = True, repeats: bool = True) -> list[list[bytes]]:
    """The lines of `files` files, half a minute of event time in two of them; with `repeats`, some lines come twice."""
    rng = random.Random(11)
    written: list[bytes] = []
    made: list[list[bytes]] = []
    for number in range(files):
        lines = []
        for place in range(events):
            seconds = 15 * number + rng.uniform(0, 20)
            if late and rng.random() < 0.08:
                seconds -= rng.choice((40, 200))
            event = {
                "id": f"e{number}-{place}",
                "k": f"k{rng.randrange(4)}",
                "v": rng.randrange(-2, 20),
                "d": f"{rng.randrange(10_000) / 100:.2f}",
                "x": rng.gauss(0, 1e6),
                "at": (START + timedelta(seconds=seconds)).isoformat(),
            }
            lines.append(json.dumps(event).encode())
        if repeats:
            lines += rng.sample(lines, 2)
        lines += [b"broken \xff %d" % number, json.dumps({"id": f"n{number}", "k": "k0"}).encode()]
        if repeats and written and number % 3 == 0:
            lines.append(written[-5])  # a repeat of an earlier file
        written += lines
        made.append(lines)
    return made


def write_files(folder: Path, made: list[list[bytes]]) -> None:
    """Each list as a file, in two partitions."""
    for number, lines in enumerate(made):
        path = folder / "input" / f"part={number % 2}" / f"{number:02d}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        moment = START.timestamp() + 86_400 + number
        os.utime(path, (moment, moment))


def write_topic(server: RunningServer, made: list[list[bytes]]) -> TestTopic:
    """The same lines as records of a topic with two partitions."""
    topic = TestTopic.make(server, partitions=2)
    for number, lines in enumerate(made):
        topic.send(lines, partition=number % 2, at=round((START.timestamp() + 86_400 + number) * 1000))
    return topic


def truth(written: list[bytes]) -> list[dict[str, Any]]:
    events = {}
    for line in written:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if event.get("at") and event["v"] >= 0:
            events[event["id"]] = event
    windows: dict[tuple[str, datetime], list[dict[str, Any]]] = defaultdict(list)
    for event in sorted(events.values(), key=lambda event: event["at"]):
        at = datetime.fromisoformat(event["at"])
        windows[event["k"], at.replace(second=at.second // 30 * 30, microsecond=0)].append(event)
    return [
        {
            "k": k,
            "window_start": start,
            "window_end": start + timedelta(seconds=30),
            "n": len(rows),
            "total": sum(row["v"] for row in rows),
            "money": str(sum(Decimal(row["d"]) for row in rows)),
            "ids": [row["id"] for row in rows],
        }
        for (k, start), rows in windows.items()
    ]
