"""The harness: an app on the real engine, fed by hand.

It is a driver like any other – records, state files, delivery, resume – except that rows, the clock and the watermark
come from a test. Each call is one micro-batch and returns what came out of it. Rows for a source of text (JSON, CSV)
are written as text and decoded by the engine; those for any other are typed by its contract."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidegate.app import App
from tidegate.operators.decode import RAW
from tidegate.runtime.engine import Batch, Engine
from tidegate.runtime.records import Checkpoint, Offsets, Record
from tidegate.runtime.reports import BatchReport
from tidegate.sources.base import Records, Standing
from tidegate.storage.parquet import read_table
from tidegate.storage.places import Place
from tidegate.testing.wire import Row, to_bytes, to_json
from tidegate.time import SECOND

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FED = pa.schema(
    [
        ("_partition", pa.string()),
        ("_origin", pa.string()),
        ("_position", pa.int64()),
        ("_arrival", pa.int64()),
        ("_raw", pa.binary()),
        ("_json", pa.string()),
    ]
)


@dataclass(frozen=True)
class Outcome:
    """What one micro-batch brought: panes by operator, dead letters, and the record that decided it."""

    record: Record | None
    panes: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    letters: list[dict[str, Any]] = field(default_factory=list)

    def of(self, operator: str) -> list[dict[str, Any]]:
        return self.panes.get(operator, [])


class Quiet:
    """A watcher that keeps what it is told, for a test that wants to see it."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.reports: list[BatchReport] = []

    def say(self, message: str) -> None:
        self.messages.append(message)

    def batch(self, report: BatchReport) -> None:
        self.reports.append(report)


class Harness:
    """An app on a checkpoint folder, driven by a test. Times are microseconds; the clock starts at 0 unless told."""

    def __init__(self, spark: SparkSession, app: App, folder: Path, clock: int = 0) -> None:
        self.spark, self.app, self.folder = spark, app, folder
        self.clock = clock
        self.watcher = Quiet()
        self._fed = 0
        self.engine = self._start()

    def _start(self) -> Engine:
        checkpoint = Checkpoint.create_or_open(str(self.folder), self.app.name)
        return Engine(self.spark, self.app, checkpoint, self.watcher, self.clock)

    def feed(
        self, rows: Mapping[str, Sequence[Row | str | bytes]], *, backlog: frozenset[str] = frozenset()
    ) -> Outcome:
        """One micro-batch of rows by source name. `_partition` and `_arrival` (µs) may stand in a row.

        For a source of text a row may be the record itself, as text or bytes.
        """
        self._fed += 1
        start = None if self._fed == 1 else str(self._fed - 1)
        offsets = Offsets("harness", start, str(self._fed), self._fed)
        standing = {name: Standing(behind_somewhere=True) for name in backlog}
        return self._run(Batch(self.clock, self._records(rows), offsets, standing))

    def move_watermark(self, source: str | Collection[str], to: int) -> Outcome:
        """A tick that moves the manual watermark of a source, or of several."""
        names = [source] if isinstance(source, str) else source
        return self._run(Batch(self.clock, manual=dict.fromkeys(names, to)))

    def move_clock(self, to: int) -> Outcome:
        """A tick at processing time `to`; the clock never goes back."""
        self.clock = max(self.clock, to)
        return self._run(Batch(self.clock))

    def drain(self) -> Outcome:
        """The end of the input: everything fires."""
        return self._run(Batch(self.clock, end_of_input=True))

    def restart(self) -> None:
        """Stop, and resume from the checkpoint as a new driver would."""
        self.close()
        self.engine = self._start()

    def close(self) -> None:
        self.engine.finish()
        self.engine.close()

    def _run(self, batch: Batch) -> Outcome:
        is_new = self.engine.batch(batch)
        self.engine.finish()
        if not is_new:
            return Outcome(None)
        record = self.engine.last
        folder = self.engine.state.folder
        panes = {}
        if record.outbox.sequence == record.sequence:
            panes = {name: list(_rows(folder, paths)) for name, paths in record.outbox.files.items()}
        dead = [file.path for file in record.added if file.kind == "dead" and file.tier == 0]
        return Outcome(record, panes, list(_rows(folder, dead)))

    def _records(self, rows: Mapping[str, Sequence[Row | str | bytes]]) -> dict[str, Records]:
        """The rows as connectors hand them over."""
        found = {}
        position = 0
        for name, given in rows.items():
            node = self.app.sources[name]
            typed = node.connector.encoding == "record"
            lines = []
            for row in given:
                about = row if isinstance(row, Mapping) else {}
                lines.append(
                    {
                        "_partition": str(about.get("_partition", "0")),
                        "_origin": "feed",
                        "_position": self._fed * 1_000_000 + position,
                        "_arrival": about.get("_arrival", self.clock),
                        "_raw": None if typed else to_bytes(row, node),
                        "_json": to_json(about) if typed else None,
                    }
                )
                position += 1
            frame = self.spark.createDataFrame(pa.Table.from_pylist(lines, schema=_FED))
            if typed:
                frame = frame.selectExpr(*RAW, f"from_json(_json, '{node.contract.ddl}') AS _record")
                frame = frame.selectExpr(*RAW, "_record.*")
            nothing = [f"CAST(NULL AS {kind}) AS {column}" for column, kind in node.connector.extra.items()]
            found[name] = Records(frame.selectExpr("*", *nothing).coalesce(1))
        return found


def _rows(folder: Place, paths: Sequence[str]) -> Iterator[dict[str, Any]]:
    for path in paths:
        yield from read_table(folder / path).to_pylist()


def seconds(value: float) -> int:
    """Seconds as the microseconds that the harness counts in."""
    return round(value * SECOND)
