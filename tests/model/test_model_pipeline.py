"""What the transcripts cannot say: draining, rolling windows, the clock, equal events."""

from __future__ import annotations

import pytest

from tidegate.errors import CheckpointError, PipelineError
from tidegate.model import Event, Model, Step
from tidegate.time import FOREVER
from tidegate.triggers import AllOf, Count, Default, EveryEventTime, EveryProcessingTime, FinalOnly
from tidegate.watermarks import Watermark
from tidegate.windows import Calendar, Global, Rolling, Session, Tumbling


def events(*times: int, key: str = "k") -> list[Event]:
    return [Event(time, key=key, value=time) for time in times]


def shown(step: Step) -> list[tuple[object, ...]]:
    return [(pane.window, pane.values, pane.timing, pane.final) for pane in step.panes]


def test_a_drain_fires_everything_and_closes_every_window() -> None:
    model = Model(Tumbling("10us"), allowed_lateness=FOREVER)
    model.batch(events(1, 15))
    step = model.drain()
    assert shown(step) == [((0, 10), (1,), "on_time", True), ((10, 20), (15,), "on_time", True)]


def test_a_drain_ends_the_global_window() -> None:
    model = Model(Global())
    model.batch(events(1, 15))
    assert shown(model.drain()) == [(None, (1, 15), "on_time", True)]


def test_a_drain_lets_final_only_speak() -> None:
    model = Model(Session("10us"), trigger=FinalOnly(), allowed_lateness=FOREVER)
    model.batch(events(1, 15))
    assert [pane.values for pane in model.drain().panes] == [(1,), (15,)]


def test_nothing_can_follow_a_drain() -> None:
    model = Model(Tumbling("10us"))
    model.drain()
    with pytest.raises(CheckpointError, match="drained"):
        model.batch(events(1))
    with pytest.raises(CheckpointError, match="drained"):
        model.move_watermark(100)


def test_a_calendar_window_is_judged_like_any_other() -> None:
    model = Model(Calendar("day", "Europe/Berlin"))
    model.batch(events(0))
    step = model.move_watermark(23 * 3_600_000_000)
    assert shown(step) == [((-3_600_000_000, 82_800_000_000), (0,), "on_time", True)]
    assert model.batch(events(5)).late == tuple(events(5))


def test_a_rolling_result_comes_when_the_watermark_reaches_its_event() -> None:
    model = Model(Rolling("10us"))
    model.batch(events(1, 8, 11))
    assert shown(model.move_watermark(7)) == [((-9, 1), (1,), "on_time", True)]
    assert shown(model.move_watermark(11)) == [((-2, 8), (1, 8), "on_time", True), ((1, 11), (8, 11), "on_time", True)]
    assert model.batch(events(11)).late == tuple(events(11))
    model.batch(events(17))
    assert shown(model.drain()) == [((7, 17), (8, 11, 17), "on_time", True)]


def test_a_late_event_updates_the_rolling_results_after_it() -> None:
    model = Model(Rolling("10us"), allowed_lateness=100)
    model.batch(events(5, 12, 30))
    model.move_watermark(30)
    step = model.batch(events(4))
    assert [(pane.window, pane.values, pane.timing, pane.index) for pane in step.panes] == [
        ((-6, 4), (4,), "late", 0),
        ((-5, 5), (4, 5), "late", 1),
        ((2, 12), (4, 5, 12), "late", 1),
    ]


def test_the_clock_never_goes_back() -> None:
    model = Model(Tumbling("1s"), trigger=EveryProcessingTime("10us"))
    model.batch(events(1), clock=5)
    assert shown(model.batch([], clock=12)) == [((0, 1_000_000), (1,), "early", False)]
    model.batch(events(2), clock=3)
    assert model.clock == 12
    assert model.move_clock(19).panes == ()
    assert len(model.move_clock(20).panes) == 1


def test_idleness_does_not_count_the_time_of_a_stop() -> None:
    model = Model(Tumbling("10us"), watermark=Watermark(idle_after="10us", max_future=None))
    model.batch([Event(5), Event(50, partition=1)])
    model.resume(clock=1000)
    assert model.batch([Event(60, partition=1)], clock=1000).watermark == 5
    assert model.batch([Event(60, partition=1)], clock=1010).watermark == 60


def test_an_all_trigger_with_a_default_part_may_speak_on_time_without_news() -> None:
    model = Model(Tumbling("10us"), trigger=AllOf(Default(), EveryEventTime("5us")), allowed_lateness=10)
    model.batch(events(1))
    assert shown(model.move_watermark(10)) == [((0, 10), (1,), "on_time", False)]
    # The default part was true once more only with news: a crossing alone says nothing.
    assert model.move_watermark(15).panes == ()


def test_a_repeat_of_a_refused_event_is_judged_for_itself() -> None:
    model = Model(Session("10us"))
    model.batch([Event(20, key="b")])
    model.move_watermark(15)
    step = model.batch([Event(4, key="a", id="x"), Event(4, key="a", id="x"), Event(12, key="b", id="y")])
    assert [event.key for event in step.late] == ["a", "a"]
    assert step.duplicates == ()


def test_the_second_holder_of_an_id_may_be_the_first_to_be_accepted() -> None:
    model = Model(Session("10us"))
    model.batch([Event(12, key="b")])
    model.move_watermark(15)
    x = [Event(4, key=key, id="x") for key in ("a", "b", "b")]
    step = model.batch(x)
    assert (step.late, step.accepted, step.duplicates) == ((x[0],), (x[1],), (x[2],))


def test_after_a_merge_and_a_cut_no_element_is_left_unsaid() -> None:
    # [20, 30) has fired and grew to [20, 40) without speaking; then 12 moves the cut through it.
    model = Model(Session("10us", "15us"), accumulation="retracting", allowed_lateness=1000)
    model.batch(events(20))
    model.move_watermark(30)
    model.batch(events(30))
    step = model.batch(events(12))
    standing = {(pane.window, pane.values) for pane in (*step.panes, *model.drain().panes) if pane.change == "upsert"}
    assert standing == {((12, 30), (12, 20)), ((30, 40), (30,))}


def test_a_count_of_a_merged_session_is_the_sum_of_its_parts() -> None:
    model = Model(Session("10us"), trigger=Count(3))
    model.batch(events(0, 16))
    assert [pane.values for pane in model.batch(events(8)).panes] == [(0, 8, 16)]


def test_a_negative_lateness_is_refused() -> None:
    with pytest.raises(PipelineError, match="must not be negative"):
        Model(Tumbling("10us"), allowed_lateness=-1)
