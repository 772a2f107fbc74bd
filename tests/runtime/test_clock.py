"""The watermark of a source: idle, down, behind, and never back – and always what the reference model says."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.model.values import BEGINNING, Event
from tidegate.model.watermark import WatermarkTracker
from tidegate.runtime.clock import advance, resume
from tidegate.runtime.records import SourceClock
from tidegate.sources.base import Standing
from tidegate.watermarks import Manual, Watermark

SECOND = 1_000_000


def after(strategy: Watermark, *batches: tuple[int, dict[str, int | None]]) -> SourceClock:
    """The clock after batches of (processing time, newest event time per partition), all in seconds."""
    clock = SourceClock()
    for now, brought in batches:
        newest = {name: None if time is None else time * SECOND for name, time in brought.items()}
        clock = advance(strategy, clock, newest, now * SECOND)
    return clock


def test_it_is_the_newest_event_minus_the_delay() -> None:
    assert after(Watermark(delay="10s"), (0, {"a": 100})).watermark == 90 * SECOND


def test_there_is_none_before_the_first_event() -> None:
    assert after(Watermark(delay="10s"), (0, {})).watermark is None
    assert after(Watermark(delay="10s"), (0, {"a": None})).watermark is None, "refused records have no event time"


def test_the_slowest_partition_holds_it() -> None:
    assert after(Watermark(), (0, {"a": 100, "b": 30})).watermark == 30 * SECOND
    assert after(Watermark(), (0, {"a": 100, "b": 30}), (1, {"a": 200})).watermark == 30 * SECOND


def test_it_never_goes_back_when_a_partition_comes_in_behind_it() -> None:
    assert after(Watermark(), (0, {"a": 100}), (1, {"b": 30})).watermark == 100 * SECOND


def test_an_old_event_does_not_make_its_partition_older() -> None:
    clock = after(Watermark(), (0, {"a": 100}), (1, {"a": 30}))
    assert clock.partitions["a"].newest == 100 * SECOND


def test_an_idle_partition_no_longer_holds_it() -> None:
    strategy = Watermark(idle_after="60s")
    assert after(strategy, (0, {"a": 10, "b": 10}), (59, {"a": 100})).watermark == 10 * SECOND
    assert after(strategy, (0, {"a": 10, "b": 10}), (60, {"a": 100})).watermark == 100 * SECOND


def test_when_all_are_idle_it_holds() -> None:
    strategy = Watermark(delay="5s", idle_after="60s")
    clock = after(strategy, (0, {"a": 100, "b": 10}), (600, {}))
    assert clock.watermark == 5 * SECOND


def test_when_all_are_idle_and_a_flush_is_asked_for_it_goes_to_the_furthest() -> None:
    strategy = Watermark(delay="5s", idle_after="60s", idle_flush=True)
    assert after(strategy, (0, {"a": 100, "b": 10}), (600, {})).watermark == 95 * SECOND


def test_time_in_which_the_pipeline_was_down_makes_nobody_idle() -> None:
    strategy = Watermark(idle_after="60s")
    clock = after(strategy, (0, {"a": 10, "b": 10}))
    up_again = resume(clock, 1000 * SECOND)
    assert advance(strategy, up_again, {"a": 100 * SECOND}, 1059 * SECOND).watermark == 10 * SECOND
    assert advance(strategy, up_again, {"a": 100 * SECOND}, 1060 * SECOND).watermark == 100 * SECOND


def test_a_clock_that_was_set_back_while_the_pipeline_was_down_changes_nothing() -> None:
    clock = after(Watermark(), (100, {"a": 10}))
    assert resume(clock, -50 * SECOND) == clock


def test_unread_data_keeps_partitions_alive() -> None:
    strategy = Watermark(idle_after="60s")
    clock = after(strategy, (0, {"a": 10, "b": 10}))
    assert (
        advance(strategy, clock, {"a": 100 * SECOND}, 600 * SECOND, standing=Standing(behind_somewhere=True)).watermark
        == 10 * SECOND
    )
    assert advance(strategy, clock, {"a": 100 * SECOND}, 600 * SECOND).watermark == 100 * SECOND


def test_a_partition_with_unread_data_holds_it_before_its_first_event() -> None:
    clock = advance(Watermark(), SourceClock(), {"a": 100}, 0, standing=Standing({"a": 0, "b": 3}, frozenset("b")))
    assert clock.watermark is None
    assert clock.unread == {"a": 0, "b": 3}
    clock = advance(Watermark(), clock, {"a": 120, "b": 90}, 1, standing=Standing({"a": 0, "b": 0}))
    assert clock.watermark == 90


def test_a_partition_of_which_nothing_but_refused_records_came_holds_nothing() -> None:
    clock = advance(Watermark(), SourceClock(), {"a": 100}, 0, standing=Standing(behind=frozenset("b")))
    assert advance(Watermark(), clock, {"a": 110}, 1, standing=Standing({"b": 0})).watermark == 110


def test_a_manual_watermark_moves_only_by_hand_and_forward() -> None:
    clock = advance(Manual(), SourceClock(), {"a": 100}, 0)
    assert clock.watermark is None
    clock = advance(Manual(), clock, {"a": 100}, 1, manual=50)
    assert clock.watermark == 50
    assert advance(Manual(), clock, {}, 2, manual=20).watermark == 50


@dataclass(frozen=True)
class Step:
    """Something that happens `passed` seconds after the step before."""

    passed: int
    events: tuple[tuple[int, int], ...]
    backlog: tuple[int, ...]
    somewhere: bool
    downtime: int


STEPS = st.lists(
    st.builds(
        Step,
        passed=st.integers(0, 90),
        events=st.lists(st.tuples(st.integers(0, 3), st.integers(-100, 300)), max_size=4).map(tuple),
        backlog=st.lists(st.integers(0, 4), max_size=3).map(tuple),
        somewhere=st.booleans(),
        downtime=st.sampled_from([0, 0, 0, 500]),
    ),
    max_size=12,
)
STRATEGIES = st.builds(
    Watermark,
    delay=st.sampled_from(["0s", "7s"]),
    idle_after=st.sampled_from([None, "60s"]),
    max_future=st.none(),
    idle_flush=st.booleans(),
)


@settings(max_examples=300, deadline=None)
@given(strategy=STRATEGIES, steps=STEPS)
def test_it_is_always_what_the_model_says_and_never_goes_back(strategy: Watermark, steps: list[Step]) -> None:
    tracker, clock, now, highest = WatermarkTracker(strategy), SourceClock(), 0, BEGINNING
    for step in steps:
        if step.downtime:
            tracker.resume(step.downtime * SECOND)
            clock = resume(clock, step.downtime * SECOND)
            now += step.downtime * SECOND
        now += step.passed * SECOND
        events = [Event(time * SECOND, partition=p) for p, time in step.events]
        brought: dict[str, int | None] = {}
        for event in events:
            known = brought.get(str(event.partition))
            brought[str(event.partition)] = event.time if known is None else max(known, event.time)
        shown = [p for p, known in tracker.partitions.items() if known.newest is not None]
        shown += [event.partition for event in events]
        tracker.observe(events, now, backlog={*step.backlog, *(shown if step.somewhere else ())})
        standing = Standing(behind=frozenset(map(str, step.backlog)), behind_somewhere=step.somewhere)
        clock = advance(strategy, clock, brought, now, standing=standing)
        expected = tracker.advance(now)
        found = BEGINNING if clock.watermark is None else clock.watermark
        assert found == expected
        assert found >= highest
        highest = found
