"""The watermark of the model, moved by hand."""

from __future__ import annotations

import pytest

from tidegate.errors import PipelineError
from tidegate.model import Event, Model
from tidegate.model.values import BEGINNING
from tidegate.model.watermark import WatermarkTracker
from tidegate.time import SECOND
from tidegate.watermarks import Manual, Watermark
from tidegate.windows import Tumbling


def event(t: int, partition: int = 0, arrival: int | None = None) -> Event:
    return Event(t * SECOND, partition=partition, arrival=None if arrival is None else arrival * SECOND)


def after(tracker: WatermarkTracker, clock: int, *events: Event, backlog: tuple[int, ...] = ()) -> int:
    tracker.observe(events, clock * SECOND, backlog)
    return tracker.advance(clock * SECOND) // SECOND


def test_watermark_follows_the_newest_event_by_the_delay() -> None:
    tracker = WatermarkTracker(Watermark("5s"))
    assert after(tracker, 0, event(3), event(20), event(7)) == 15


def test_watermark_never_goes_back() -> None:
    tracker = WatermarkTracker(Watermark())
    assert after(tracker, 0, event(20)) == 20
    assert after(tracker, 0, event(3, partition=1)) == 20


def test_watermark_holds_when_every_partition_is_idle() -> None:
    tracker = WatermarkTracker(Watermark(idle_after="10s"))
    assert after(tracker, 0, event(5), event(9, partition=1)) == 5
    assert after(tracker, 100) == 5


def test_idle_flush_goes_to_the_furthest_partition() -> None:
    tracker = WatermarkTracker(Watermark(idle_after="10s", idle_flush=True))
    assert after(tracker, 0, event(5), event(9, partition=1)) == 5
    assert after(tracker, 100) == 9


def test_a_partition_with_unread_data_is_not_idle() -> None:
    tracker = WatermarkTracker(Watermark(idle_after="10s"))
    after(tracker, 0, event(5), event(9, partition=1))
    assert after(tracker, 50, event(30, partition=1), backlog=(0,)) == 5
    assert after(tracker, 55, event(30, partition=1)) == 5
    assert after(tracker, 60, event(30, partition=1)) == 30


def test_a_partition_with_unread_data_counts_before_its_first_event() -> None:
    tracker = WatermarkTracker(Watermark())
    tracker.observe([event(5)], 0, backlog=(1,))
    assert tracker.advance(0) == BEGINNING
    assert after(tracker, 0, event(3, partition=1)) == 3


def test_a_partition_that_was_read_and_brought_no_event_counts_no_more() -> None:
    tracker = WatermarkTracker(Watermark())
    tracker.observe([event(5)], 0, backlog=(1,))
    assert tracker.advance(0) == BEGINNING
    assert after(tracker, 1, event(6)) == 6, "all of partition 1 was refused"


def test_time_in_which_the_pipeline_was_down_does_not_make_a_partition_idle() -> None:
    tracker = WatermarkTracker(Watermark(idle_after="10s"))
    after(tracker, 0, event(5), event(9, partition=1))
    tracker.resume(1000 * SECOND)
    assert after(tracker, 1001, event(30, partition=1)) == 5


@pytest.mark.parametrize(
    ("t", "arrival", "is_future"),
    [(160, None, False), (161, None, True), (170, 500, True), (150, 80, True), (140, 80, False)],
)
def test_the_future_begins_a_bound_after_the_believed_arrival(t: int, arrival: int | None, is_future: bool) -> None:
    tracker = WatermarkTracker(Watermark(max_future="60s"))
    assert tracker.is_future(event(t, arrival=arrival), clock=100 * SECOND) is is_future


def test_only_a_manual_watermark_can_be_moved_by_hand() -> None:
    assert WatermarkTracker(Manual()).move_to(7) == 7
    with pytest.raises(PipelineError, match="cannot be moved by hand"):
        WatermarkTracker(Watermark()).move_to(7)


def test_the_backlog_of_one_source_holds_the_watermark_of_all() -> None:
    model = Model(Tumbling("10s"), watermark={"web": Watermark(), "mobile": Watermark(idle_after="10s")})
    both = [Event(20 * SECOND, source="web"), Event(5 * SECOND, source="mobile")]
    assert model.batch(both).watermark == 5 * SECOND
    step = model.batch([Event(30 * SECOND, source="mobile")], backlog={"mobile": [1]})
    assert step.watermark == 5 * SECOND, "partition 1 of mobile has shown nothing yet"
    assert model.sources == {"web": 20 * SECOND, "mobile": 5 * SECOND}
    assert model.batch([]).watermark == 20 * SECOND


def test_an_event_of_a_source_that_nobody_declared_is_refused() -> None:
    model = Model(Tumbling("10s"), watermark={"web": Manual(), "mobile": Manual()})
    with pytest.raises(PipelineError, match="no source 'tv'"):
        model.batch([Event(1, source="tv")])
    with pytest.raises(PipelineError, match="no source 'tv'"):
        model.move_watermark({"tv": 1})
