"""Watermarks that follow arrivals, or marks in the events: on Spark as in the model, partition by partition."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidegate as tg
from tidegate.model import Event, Model
from tidegate.testing.feed import Feed
from tidegate.testing.harness import Harness
from tidegate.time import SECOND

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def app(strategy: tg.Watermark) -> tg.App:
    app = tg.App("strategies")
    events = app.source(
        "events",
        Feed(),
        contract="t BIGINT, key STRING, mark BIGINT",
        event_time="timestamp_micros(t)",
        watermark=strategy,
    )
    counts = events.key_by("key").window("counts", tg.Tumbling("10s")).aggregate(n=tg.count())
    app.sink("out", counts, tg.Memory())
    return app


STRATEGIES = [
    tg.Punctuated("timestamp_micros(mark)", idle_after="60s", max_future=None),
    tg.ArrivalTime("5s", idle_after="60s", max_future=None),
]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_spark_moves_the_watermark_as_the_model_does(
    spark: SparkSession, tmp_path: Path, strategy: tg.Watermark
) -> None:
    dice = random.Random(11)
    harness = Harness(spark, app(strategy), tmp_path / "checkpoint")
    model = Model(tg.Tumbling("10s"), watermark=strategy)
    moved = set()
    try:
        for clock in range(0, 200, 25):
            events = [_event(dice, clock) for _ in range(dice.randrange(0, 4))]
            if clock == 100:
                harness.restart()
            harness.clock = clock * SECOND
            outcome = harness.feed({"events": [_row(event) for event in events]})
            step = model.batch(events, clock=clock * SECOND)
            moved.add(step.watermark)
            assert harness.engine.last.watermarks["counts"] == step.watermark, clock
            panes = [(row["key"], row["n"]) for row in outcome.of("counts")]
            assert sorted(panes) == sorted((pane.key, len(pane.events)) for pane in step.panes)
            assert len(outcome.letters) == len(step.late)
    finally:
        harness.close()
    assert len(moved) > 3, "the watermark hardly moved: the test shows nothing"


def _event(dice: random.Random, clock: int) -> Event:
    return Event(
        time=dice.randrange(0, 100) * SECOND,
        key=dice.choice("ab"),
        partition=dice.randrange(2),
        arrival=dice.choice([None, (clock + dice.randrange(-20, 20)) * SECOND]),
        mark=dice.choice([None, (clock + dice.randrange(-30, 0)) * SECOND]),
    )


def _row(event: Event) -> dict[str, Any]:
    row = {"t": event.time, "key": event.key, "mark": event.mark, "_partition": event.partition}
    return row | ({"_arrival": event.arrival} if event.arrival is not None else {})


def test_a_partition_without_a_mark_holds_the_watermark_back(spark: SparkSession, tmp_path: Path) -> None:
    harness = Harness(spark, app(STRATEGIES[0]), tmp_path / "checkpoint")
    try:
        first = {"t": 5 * SECOND, "key": "a", "mark": 50 * SECOND, "_partition": 0}
        silent = {"t": 90 * SECOND, "key": "a", "mark": None, "_partition": 1}
        harness.feed({"events": [first, silent]})
        assert harness.engine.last.watermarks["counts"] is None
        harness.feed({"events": [silent | {"mark": 20 * SECOND}]})
        assert harness.engine.last.watermarks["counts"] == 20 * SECOND
    finally:
        harness.close()
