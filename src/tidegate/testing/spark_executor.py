"""Transcripts on Spark: the real engine with its records, state files and delivery, fed by the harness."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tidegate.aggregates as tg
from tidegate.app import App
from tidegate.contracts import Contract
from tidegate.model import SOURCE
from tidegate.operators.sql import END_OF_TIME
from tidegate.sinks.memory import Memory
from tidegate.testing.feed import Feed
from tidegate.testing.harness import Harness, Outcome
from tidegate.testing.outcomes import EventOut, PaneOut, Step
from tidegate.testing.steps import EventIn
from tidegate.testing.transcripts import Transcript

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_VALUES = {"collect": tg.collect("value"), "sum": tg.sum("value"), "count": tg.count()}
_KINDS = {"late": "LATE", "partially_late": "PARTIALLY_LATE", "future": "FUTURE", "duplicates": "DUPLICATE"}


class SparkExecutor:
    """Plays transcripts on one Spark session."""

    name = "spark"

    def __init__(self, spark: SparkSession | None = None) -> None:
        self._given = spark

    def start(self, transcript: Transcript) -> SparkRun:
        if self._given is None:
            from tidegate.runtime.session import make_session

            # Transcripts are tiny: one task per stage is all they need.
            self._given = make_session("conformance", "2", brief=True)
            self._given.conf.set("spark.sql.shuffle.partitions", "1")
        return SparkRun(self._given, transcript)


class SparkRun:
    """One transcript on the engine, in a checkpoint of its own."""

    def __init__(self, spark: SparkSession, transcript: Transcript) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="tidegate-transcript-"))
        self._shown = transcript.shown
        self._union = bool(transcript.sources)
        app = App("transcript")
        streams = [
            app.source(
                name,
                Feed(),
                contract=Contract("t BIGINT, key STRING, value DOUBLE, id STRING"),
                event_time="timestamp_micros(t)",
                event_id="id" if transcript.uses_ids else None,
                watermark=strategy,
                keep_duplicates=True,
                keep_partially_late=True,
            )
            for name, strategy in transcript.sources or [(SOURCE, transcript.watermark)]
        ]
        events = streams[0].union(*streams[1:]) if self._union else streams[0]
        lateness = "forever" if transcript.allowed_lateness >= END_OF_TIME else f"{transcript.allowed_lateness}us"
        result = (
            events.key_by("key")
            .window(
                "windows",
                transcript.window,
                allowed_lateness=lateness,
                trigger=transcript.trigger,
                accumulation=transcript.accumulation,
                on_time=transcript.on_time,
            )
            .aggregate(value=_VALUES[transcript.aggregate])
        )
        if transcript.then is not None:
            following = result.as_stream().key_by("key").window("then", transcript.then.window)
            result = following.aggregate(value=_VALUES[transcript.then.aggregate])
        self._last = result.node.name
        app.sink("out", result, Memory())
        self._harness = Harness(spark, app, self._folder / "checkpoint")

    def batch(self, events: Sequence[EventIn]) -> Step:
        rows: dict[str, list[dict[str, Any]]] = {} if self._union else {SOURCE: []}
        for e in events:
            row = {"t": e.time, "key": e.key, "value": e.value, "id": e.id, "_partition": e.partition}
            row |= {"_arrival": e.arrival} if e.arrival is not None else {}
            rows.setdefault(e.source or SOURCE, []).append(row)
        return self._step(self._harness.feed(rows))

    def watermark(self, us: int, source: str | None = None) -> Step:
        return self._step(self._harness.move_watermark(source or list(self._harness.app.sources), us))

    def clock(self, us: int) -> Step:
        return self._step(self._harness.move_clock(us))

    def restart(self) -> Step:
        self._harness.restart()
        return Step(watermark=self._watermark())

    def close(self) -> None:
        self._harness.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _watermark(self) -> int | None:
        return self._harness.engine.last.watermarks.get("windows")

    def _step(self, outcome: Outcome) -> Step:
        refused = {
            kind: tuple(self._event(letter) for letter in outcome.letters if letter["reason"] == reason)
            for kind, reason in _KINDS.items()
        }
        rows = [row for row in outcome.of(self._last) if row["pane_change"] != "replaced"]
        panes = tuple(self._pane(row) for row in sorted(rows, key=_order))
        return Step(panes=panes, watermark=self._watermark(), **refused)

    def _event(self, letter: dict[str, Any]) -> EventOut:
        record = json.loads(letter["raw"])
        return EventOut(
            time=record["t"],
            key=record["key"],
            value=record["value"],
            partition=int(letter["partition"]),
            id=record.get("id"),
            source=letter["source"] if self._union else None,
        )

    def _pane(self, row: dict[str, Any]) -> PaneOut:
        value = row["value"]
        window = None if row["window_start"] is None else (_micros(row["window_start"]), _micros(row["window_end"]))
        return PaneOut(
            key=row["key"],
            window=window,
            values=tuple(sorted(value)) if self._shown == "collect" else None,
            # The sum of an empty pane is NULL in SQL, and 0 in the format, whose values are numbers.
            value=None if self._shown == "collect" else value or 0,
            timing=row["pane_timing"],
            index=row["pane_index"],
            final=row["pane_final"],
            change=row["pane_change"],
        )


def _order(row: dict[str, Any]) -> tuple[Any, ...]:
    """What is taken back comes before what replaces it."""
    return (row["pane_change"] == "upsert", row["pane_index"])


def _micros(instant: datetime) -> int:
    passed = instant - _EPOCH
    return (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds
