"""State holds what is open and nothing else: once the watermark has passed, every kind of operator has forgotten all it
knew.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tidegate.testing import EventIn, Transcript
from tidegate.testing.spark_executor import SparkExecutor, SparkRun
from tidegate.testing.steps import Batch, Scene
from tidegate.time import SECOND
from tidegate.triggers import Accumulation, AfterWatermark, Count, Default, Each, Trigger
from tidegate.watermarks import Manual
from tidegate.windows import Calendar, Global, Hopping, Rolling, Session, Tumbling, Window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EARLY = AfterWatermark(early=Count(2))
KINDS: list[tuple[Window, Trigger, Accumulation]] = [
    (Tumbling("10s"), Default(), "accumulating"),
    (Hopping("10s", "5s"), Default(), "retracting"),
    (Calendar("hour"), EARLY, "accumulating"),
    (Tumbling("10s"), Each(Count(2), Default()), "discarding"),
    (Hopping("10s", "5s"), EARLY, "retracting"),
    (Rolling("10s"), Default(), "retracting"),
    (Rolling("10s"), EARLY, "discarding"),
    (Session("10s"), Default(), "accumulating"),
    (Session("10s"), EARLY, "retracting"),
    (Session("10s", "20s"), EARLY, "retracting"),
]


@pytest.mark.parametrize(("window", "trigger", "accumulation"), KINDS, ids=str)
def test_nothing_is_kept_of_what_has_closed(
    spark: SparkSession, window: Window, trigger: Trigger, accumulation: Accumulation
) -> None:
    run = start(spark, window, trigger, accumulation)
    try:
        for second in (0, 7, 14):
            run.batch(events(second, second + 4))
        assert rows(run) > 0
        run.watermark(7_300 * SECOND)
        assert rows(run) == 0, "closed windows have left state behind"
        late = run.batch(events(3, 8))
        assert len(late.late) == 4
        assert rows(run) == 0, "late events have left state behind"
    finally:
        run.close()


UNITED: list[tuple[Window, Trigger, Accumulation]] = [
    (Tumbling("10s"), Default(), "accumulating"),
    (Rolling("10s"), EARLY, "discarding"),
    (Session("10s", "20s"), EARLY, "retracting"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("window", "trigger", "accumulation"), UNITED, ids=str)
def test_a_union_keeps_nothing_of_what_has_closed(
    spark: SparkSession, window: Window, trigger: Trigger, accumulation: Accumulation
) -> None:
    run = start(spark, window, trigger, accumulation, sources=("web", "mobile"))

    def both(*seconds: int) -> tuple[EventIn, ...]:
        return tuple(replace(event, source=name) for name in ("web", "mobile") for event in events(*seconds))

    try:
        for second in (0, 7, 14):
            run.batch(both(second, second + 4))
        held = rows(run)
        run.watermark(7_300 * SECOND, "web")
        assert rows(run) == held > 0, "mobile may still bring events for every window"
        run.watermark(7_300 * SECOND, "mobile")
        assert rows(run) == 0, "closed windows have left state behind"
        late = run.batch(both(3, 8))
        assert [event.source for event in late.late].count("web") == 4
        assert len(late.late) == 8
        assert rows(run) == 0, "late events have left state behind"
    finally:
        run.close()


def test_the_global_window_keeps_one_row_per_key(spark: SparkSession) -> None:
    run = start(spark, Global(), Count(2), "accumulating", named=False)
    try:
        for second in (0, 7, 14):
            run.batch(events(second, second + 4, named=False))
        run.watermark(7_300 * SECOND)
        assert rows(run) == 2
    finally:
        run.close()


def start(
    spark: SparkSession,
    window: Window,
    trigger: Trigger,
    accumulation: Accumulation,
    *,
    named: bool = True,
    sources: tuple[str, ...] = (),
) -> SparkRun:
    play = Transcript(
        name="bounded",
        why=None,
        window=window,
        trigger=trigger,
        accumulation=accumulation,
        allowed_lateness=5 * SECOND,
        on_time="always",
        aggregate="sum",
        watermark=Manual(),
        must_fail=None,
        scenes=(Scene(Batch(events(0, named=named)), ()),),
        sources=tuple((name, Manual()) for name in sources),
    )
    return SparkExecutor(spark).start(play)


def events(*seconds: int, named: bool = True) -> tuple[EventIn, ...]:
    """Events of two keys; with ids, so that the memory for duplicates is part of the state."""
    return tuple(
        EventIn(second * SECOND, key, 1, 0, f"{key}{second}" if named else None, None)
        for second in seconds
        for key in "ab"
    )


def rows(run: SparkRun) -> int:
    """What the checkpoint keeps, dead letters apart."""
    return sum(file.rows for file in run._harness.engine.state.files.values() if file.kind != "dead")
