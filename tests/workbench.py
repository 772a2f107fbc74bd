"""A bench on which tests run an app in this process: input, checkpoint, results, and what they hold afterwards."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tidegate.app import App
from tidegate.deadletter.store import DeadLetters, Filter
from tidegate.runtime.records import Checkpoint, Record
from tidegate.runtime.reports import BatchReport, Mode, RunOptions, RunSummary

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
"""Events are of 2024, so that no clock takes them for future ones; files say that they came in December."""
_ARRIVAL = datetime(2024, 12, 1, tzinfo=UTC)


@dataclass
class Watched:
    """A watcher that remembers."""

    said: list[str] = field(default_factory=list)
    reports: list[BatchReport] = field(default_factory=list)

    def say(self, message: str) -> None:
        self.said.append(message)

    def batch(self, report: BatchReport) -> None:
        self.reports.append(report)


def at(seconds: float) -> str:
    """An instant, `seconds` after noon, as events carry it."""
    return (NOON + timedelta(seconds=seconds)).isoformat(timespec="microseconds").replace("+00:00", "Z")


def line(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


@dataclass
class Bench:
    """A folder with input and a checkpoint, and an app that is built anew for every run, as a process would."""

    folder: Path
    build: Callable[[], App] | None = None
    checkpoint: Path = field(init=False)
    watched: Watched = field(default_factory=Watched)
    _mtime: float = field(default_factory=_ARRIVAL.timestamp)

    def __post_init__(self) -> None:
        self.checkpoint = self.folder / "checkpoint"
        self.input.mkdir(exist_ok=True)

    @property
    def input(self) -> Path:
        return self.folder / "input"

    @property
    def database(self) -> Path:
        return self.folder / "out.db"

    def write(self, name: str, lines: Iterable[bytes | dict[str, Any]]) -> Path:
        """A whole new file; modification times rise, so that Spark takes files in the order they were written."""
        path = self.input / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = b"".join((row if isinstance(row, bytes) else line(**row)) + b"\n" for row in lines)
        return self.publish(path, lambda hidden: hidden.write_bytes(content))

    def publish(self, path: Path, write: Callable[[Path], Any]) -> Path:
        hidden = path.with_name(f".{path.name}.hidden")
        write(hidden)
        self._mtime += 60
        os.utime(hidden, (self._mtime, self._mtime))
        hidden.rename(path)
        return path

    def run(self, app: App | None = None, mode: Mode = "drain", max_batch: int | None = None) -> RunSummary:
        """Run in this process; the watcher of this run is `watched`."""
        from tidegate.runtime.drivers import run

        if app is None:
            assert self.build is not None, "give the bench an app"
            app = self.build()
        self.watched = Watched()
        options = RunOptions(str(self.checkpoint), mode=mode, max_batch=max_batch, cores="2")
        return run(app, options, self.watched)

    def records(self) -> list[Record]:
        return list(Checkpoint.open(str(self.checkpoint)).records())

    def dead_letters(self, reason: str | None = None) -> list[dict[str, Any]]:
        """Every dead letter of the files that the last record lists."""
        position = Checkpoint.open(str(self.checkpoint)).position()
        assert position is not None
        files = [self.checkpoint / file.path for file in position.files.values() if file.kind == "dead"]
        return list(DeadLetters(files).letters(Filter(reason=reason)))

    def table(self, name: str = "results") -> list[dict[str, Any]]:
        """A table of the SQLite sink, in a fixed order."""
        return read_table(self.database, name)


def read_table(database: Path, name: str = "results") -> list[dict[str, Any]]:
    """The rows of a table in a fixed order; none when there is no such table yet."""
    with closing(sqlite3.connect(database)) as connection:
        connection.row_factory = sqlite3.Row
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)).fetchone():
            return []
        rows = [dict(row) for row in connection.execute(f'SELECT * FROM "{name}"')]
    return sorted(rows, key=lambda row: tuple(repr(value) for value in row.values()))


def live_rows(checkpoint: Path, owner: str, *kinds: str) -> list[dict[str, Any]]:
    """The rows of the live state files of an owner."""
    position = Checkpoint.open(str(checkpoint)).position()
    assert position is not None
    files = [file for file in position.files.values() if file.owner == owner and file.kind in kinds]
    return [row for file in files for row in pq.ParquetFile(checkpoint / file.path).read().to_pylist()]
