"""Spark against the model, on generated plays: every window kind × trigger × accumulation, with disorder and restarts.

A *play* is what a transcript is, without expectations: the model says what must come out. Each step is compared as a
whole – panes, dead letters, watermark – so a difference is found where it begins. Times lie on a coarse grid, for
equal, touching and just missing bounds are where windows go wrong.

A few plays by default, always the same; ``TIDEGATE_EXAMPLES=500`` looks for more, and at random.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from tidegate.testing import EventIn, EventOut, ModelExecutor, PaneOut, Step, Transcript
from tidegate.testing.checker import Run
from tidegate.testing.spark_executor import SparkExecutor
from tidegate.testing.steps import REFUSALS, Action, Batch, MoveClock, MoveWatermark, Restart, Scene
from tidegate.time import SECOND
from tidegate.triggers import (
    AfterWatermark,
    AllOf,
    AnyOf,
    Count,
    Default,
    Each,
    EveryEventTime,
    EveryProcessingTime,
    FinalOnly,
    Trigger,
)
from tidegate.watermarks import Manual, Watermark
from tidegate.windows import Global, Hopping, Rolling, Session, Tumbling, Window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EXAMPLES = int(os.environ.get("TIDEGATE_EXAMPLES", "25"))

windows: st.SearchStrategy[Window] = st.sampled_from(
    [
        Tumbling("10s"),
        Hopping("10s", "5s"),
        Hopping("9s", "6s", "2s"),
        Global(),
        Session("5s"),
        Session("10s"),
        Session("5s", "10s"),
        Session("4s", "9s"),
        Rolling("7s"),
        Rolling("15s"),
    ]
)
simple: st.SearchStrategy[Trigger] = st.one_of(
    st.just(Default()),
    st.just(FinalOnly()),
    st.builds(Count, st.integers(1, 3)),
    st.builds(EveryEventTime, st.just("4s")),
    st.builds(EveryProcessingTime, st.just("30s")),
)
triggers: st.SearchStrategy[Trigger] = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.builds(AfterWatermark, st.none() | inner, st.none() | inner),
        st.builds(lambda parts: AnyOf(*parts), st.lists(inner, min_size=1, max_size=2)),
        st.builds(lambda parts: AllOf(*parts), st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda parts: Each(*parts), st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=4,
)


@st.composite
def events(draw: st.DrawFn, with_ids: bool) -> EventIn:
    time = draw(st.integers(0, 40)) * SECOND
    name = draw(st.sampled_from([None, "x", "y"])) if with_ids else None
    return EventIn(
        time=time,
        key=draw(st.sampled_from("ab")),
        value=draw(st.integers(-5, 5)),
        partition=draw(st.integers(0, 1)),
        id=name,
        arrival=None,
    )


@st.composite
def plays(draw: st.DrawFn) -> Transcript:
    manual = draw(st.booleans())
    with_ids = draw(st.integers(0, 3)) == 0
    acts: list[st.SearchStrategy[Action]] = [
        st.builds(lambda batch: Batch(tuple(batch)), st.lists(events(with_ids), min_size=1, max_size=5)),
        st.builds(lambda batch: Batch(tuple(batch)), st.lists(events(with_ids), min_size=1, max_size=5)),
        st.builds(MoveClock, st.integers(0, 100).map(lambda s: s * SECOND)),
        st.builds(Restart),
    ]
    if manual:
        acts += [st.builds(MoveWatermark, st.integers(0, 60).map(lambda s: s * SECOND))] * 2
    actions = draw(st.lists(st.one_of(acts), min_size=3, max_size=8))
    return Transcript(
        name="generated",
        why=None,
        window=draw(windows),
        trigger=draw(triggers),
        accumulation=draw(st.sampled_from(["accumulating", "discarding", "retracting"])),
        allowed_lateness=draw(st.sampled_from([0, 0, 5, 30])) * SECOND,
        on_time=draw(st.sampled_from(["always", "always", "if_changed"])),
        aggregate=draw(st.sampled_from(["collect", "sum", "count"])),
        watermark=Manual() if manual else Watermark("5s", idle_after="60s", max_future=None),
        must_fail=None,
        scenes=tuple(Scene(action, ()) for action in actions),
    )


@settings(
    max_examples=EXAMPLES,
    derandomize="TIDEGATE_EXAMPLES" not in os.environ,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    print_blob=True,
)
@given(play=plays())
def test_spark_says_what_the_model_says(spark: SparkSession, play: Transcript) -> None:
    compare(SparkExecutor(spark).start(play), ModelExecutor().start(play), play)


@st.composite
def unions(draw: st.DrawFn) -> Transcript:
    """The same over two sources: each event is of one, each manual watermark of one or of both."""
    play, names = draw(plays()), ("web", "mobile")
    several = ((names[0], play.watermark), (names[1], play.watermark))
    if not isinstance(play.watermark, Manual):
        several = (several[0], (names[1], draw(st.sampled_from([play.watermark, Watermark("1s", max_future=None)]))))

    def of_a_source(action: Action) -> Action:
        if isinstance(action, Batch):
            return Batch(tuple(replace(event, source=draw(st.sampled_from(names))) for event in action.events))
        if isinstance(action, MoveWatermark):
            return replace(action, source=draw(st.sampled_from([None, *names])))
        return action

    scenes = tuple(Scene(of_a_source(scene.action), ()) for scene in play.scenes)
    return replace(play, sources=several, scenes=scenes)


@settings(
    max_examples=max(EXAMPLES // 2, 1),
    derandomize="TIDEGATE_EXAMPLES" not in os.environ,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    print_blob=True,
)
@given(play=unions())
def test_spark_says_of_two_sources_what_the_model_says(spark: SparkSession, play: Transcript) -> None:
    compare(SparkExecutor(spark).start(play), ModelExecutor().start(play), play)


def compare(real: Run, model: Run, play: Transcript) -> None:
    try:
        for number, scene in enumerate(play.scenes, start=1):
            note(f"step {number}: {scene.action}")
            mine, theirs = _act(real, scene.action), _act(model, scene.action)
            assert _readable(mine) == _readable(theirs), f"step {number} of {play}"
    finally:
        real.close()


def _act(run: Run, action: Action) -> Step:
    match action:
        case Batch(events):
            return run.batch(events)
        case MoveWatermark(to, source):
            return run.watermark(to, source)
        case MoveClock(to):
            return run.clock(to)
        case Restart():
            return run.restart()


def _readable(step: Step) -> dict[str, Any]:
    """A step with everything in one order: what is taken back before what replaces it, everything else by name."""
    return {
        "panes": sorted(map(_pane, step.panes), key=str),
        "watermark": step.watermark,
        **{name: sorted(map(_event, getattr(step, name))) for name in REFUSALS},
    }


def _event(event: EventOut) -> tuple[Any, ...]:
    return (event.time, event.key, event.value, event.partition, event.id or "", event.source or "")


def _pane(pane: PaneOut) -> tuple[Any, ...]:
    value = tuple(map(float, pane.values)) if pane.values is not None else float(pane.value or 0)
    final = None if pane.change == "retract" else pane.final
    timing = None if pane.change == "retract" else pane.timing
    return (pane.key, pane.window, pane.change, pane.index, timing, final, value)
