"""Replay: files that arrive slot by slot, at the pace at which they are processed.

A folder that is full from the start is a backlog, and a backlog is not a stream: as long as there are unread files,
nobody can say that a partition is silent. So the generated files wait outside, and those that arrived in the same
slot of time are shown together, by one rename, when the slot before has been dealt with. A batch is then exactly one
slot – for Tidegate and for plain Spark alike.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tidegate.demo.pipeline import OPERATOR
from tidegate.runtime.reports import BatchReport, Watcher


class Replay:
    """Generated files, as hard links under `folder`: first in ``waiting/``, then in ``inbox/``."""

    def __init__(self, events: Path, folder: Path) -> None:
        self.inbox, self._waiting = folder / "inbox", folder / "waiting"
        self.inbox.mkdir(parents=True)
        ends: dict[str, int] = {}
        for file in sorted(events.glob("partition=*/*.jsonl")):
            slot = self._waiting / file.stem / file.parent.name
            slot.mkdir(parents=True)
            os.link(file, slot / file.name)
            # The generator dates each file to the end of its slot.
            ends[file.stem] = file.stat().st_mtime_ns // 1000
        self._slots = sorted(ends)
        self.ends = [ends[slot] for slot in self._slots]
        self.shown = 0

    def __len__(self) -> int:
        return len(self._slots)

    def show_next(self) -> bool:
        """Let the files of the next slot appear, all at once; False when all have appeared."""
        if self.shown == len(self):
            return False
        slot = self._slots[self.shown]
        (self._waiting / slot).rename(self.inbox / slot)
        self.shown += 1
        return True


class PacedBy:
    """A watcher that shows the next slot when the last was decided, and in the end stops the run as Ctrl-C would."""

    def __init__(self, replay: Replay, watcher: Watcher) -> None:
        self._replay, self._watcher = replay, watcher
        self._watermark: int | None = None
        self.slot_ends = replay.ends
        self.judged_by: list[int | None] = []
        """Per slot, the watermark before its batch: the one by which its events were judged."""

    def say(self, message: str) -> None:
        self._watcher.say(message)

    def batch(self, report: BatchReport) -> None:
        watermark = report.watermarks[OPERATOR]
        if report.kind == "batch" or watermark != self._watermark:
            self._watcher.batch(report)
        if report.kind == "batch":
            self.judged_by.append(self._watermark)
        self._watermark = watermark
        if report.kind == "batch" and not self._replay.show_next():
            os.kill(os.getpid(), signal.SIGINT)
