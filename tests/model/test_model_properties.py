"""Properties of the model alone, on generated streams: conservation, batch cuts, change logs, sessions."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.model import Event, Model, Pane, Step
from tidegate.time import FOREVER
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

SIZE = 20
quick = settings(max_examples=150, deadline=None)

disjoint_windows: st.SearchStrategy[Window] = st.sampled_from(
    [Tumbling("7us"), Tumbling("10us", "3us"), Session("3us"), Session("4us", "9us"), Global()]
)
windows = st.one_of(disjoint_windows, st.sampled_from([Hopping("10us", "4us"), Rolling("6us")]))
simple: st.SearchStrategy[Trigger] = st.one_of(
    st.sampled_from([Default(), FinalOnly(), EveryEventTime("4us"), EveryProcessingTime("5us")]),
    st.builds(Count, st.integers(1, 3)),
)


def composed(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(parts, min_size=1, max_size=3)
    return st.one_of(
        st.builds(AfterWatermark, st.none() | parts, st.none() | parts),
        several.map(lambda found: AnyOf(*found)),
        several.map(lambda found: AllOf(*found)),
        several.map(lambda found: Each(*found)),
    )


triggers: st.SearchStrategy[Trigger] = st.recursive(simple, composed, max_leaves=5)
events = st.builds(
    Event,
    time=st.integers(-5, 60),
    key=st.sampled_from("ab"),
    value=st.integers(0, 9),
    partition=st.integers(0, 1),
    id=st.none() | st.sampled_from("xyz"),
)
actions = st.lists(
    st.one_of(
        st.lists(events, max_size=8),
        st.tuples(st.just("watermark"), st.integers(0, 70)),
        st.tuples(st.just("clock"), st.integers(0, 40)),
    ),
    max_size=12,
)
lateness = st.sampled_from([0, 5, 30, FOREVER])
guarded = Watermark("5us", idle_after="10us", max_future="30us")


def act(model: Model, action: Any) -> tuple[list[Event], Step]:
    if isinstance(action, list):
        return action, model.batch(action)
    return [], model.move_watermark(action[1]) if action[0] == "watermark" else model.move_clock(action[1])


def run(model: Model, script: list[Any]) -> tuple[list[Event], list[Pane]]:
    """Play a script and drain; the accepted events and all panes."""
    steps = [act(model, action)[1] for action in script] + [model.drain()]
    return [e for step in steps for e in step.accepted], [pane for step in steps for pane in step.panes]


def truth(window: Window, accepted: list[Event]) -> Counter[Any]:
    """What one batch with everything in it says."""
    _, panes = run(Model(window), [[Event(e.time, e.key, e.value) for e in accepted]])
    return table(panes)


def table(panes: list[Pane]) -> Counter[Any]:
    return Counter((pane.key, pane.window, pane.values) for pane in panes)


@quick
@given(windows, triggers, lateness, st.booleans(), actions)
def test_every_event_is_in_exactly_one_place(
    window: Window, trigger: Trigger, lateness: int, manual: bool, script: list[Any]
) -> None:
    model = Model(window, trigger=trigger, allowed_lateness=lateness, watermark=Manual() if manual else guarded)
    for action in script:
        if not manual and not isinstance(action, list) and action[0] == "watermark":
            continue
        came, step = act(model, action)
        assert Counter(came) == Counter(step.accepted + step.late + step.future + step.duplicates)
        assert not Counter(step.partially_late) - Counter(step.accepted)


@quick
@given(disjoint_windows, triggers, lateness, actions)
def test_discarding_panes_show_every_accepted_event_once(
    window: Window, trigger: Trigger, lateness: int, script: list[Any]
) -> None:
    model = Model(window, trigger=trigger, accumulation="discarding", allowed_lateness=lateness)
    accepted, panes = run(model, script)
    assert Counter(accepted) == Counter(event for pane in panes for event in pane.events)


@quick
@given(windows, triggers, lateness, actions)
def test_whatever_the_trigger_the_last_word_is_complete(
    window: Window, trigger: Trigger, lateness: int, script: list[Any]
) -> None:
    same = [
        run(Model(window, trigger=chosen, accumulation="retracting", allowed_lateness=lateness), script)
        for chosen in (trigger, Default())
    ]
    assert Counter(same[0][0]) == Counter(same[1][0])
    assert replay(same[0][1]) == replay(same[1][1])


def replay(panes: list[Pane]) -> dict[Any, tuple[Any, ...]]:
    """Apply a change log; a retraction must take back exactly what stands."""
    standing: dict[Any, tuple[Any, ...]] = {}
    for pane in panes:
        name = (pane.key, pane.window)
        if pane.change == "retract":
            assert standing.pop(name) == pane.values
        else:
            assert name not in standing
            standing[name] = pane.values
    return standing


@quick
@given(
    st.sampled_from([Tumbling("7us"), Hopping("10us", "4us"), Global(), Rolling("6us")]), triggers, lateness, actions
)
def test_a_replayed_change_log_is_the_accumulating_table(
    window: Window, trigger: Trigger, lateness: int, script: list[Any]
) -> None:
    _, log = run(Model(window, trigger=trigger, accumulation="retracting", allowed_lateness=lateness), script)
    _, panes = run(Model(window, trigger=trigger, allowed_lateness=lateness), script)
    assert replay(log) == {(pane.key, pane.window): pane.values for pane in panes}


@quick
@given(windows, triggers, actions)
def test_with_unlimited_lateness_the_change_log_ends_at_the_truth(
    window: Window, trigger: Trigger, script: list[Any]
) -> None:
    model = Model(window, trigger=trigger, accumulation="retracting", allowed_lateness=FOREVER)
    accepted, log = run(model, script)
    assert Counter((key, bounds, values) for (key, bounds), values in replay(log).items()) == truth(window, accepted)


@st.composite
def ordered_within_delay(draw: st.DrawFn) -> list[Event]:
    """Events that come at most 5 µs after a later one."""
    drawn = draw(st.lists(st.tuples(st.integers(0, 80), st.integers(0, 5), st.sampled_from("ab")), max_size=SIZE))
    arrived = sorted(drawn, key=lambda item: item[0] + item[1])
    return [Event(time, key, value=position) for position, (time, _, key) in enumerate(arrived)]


@quick
@given(windows, ordered_within_delay(), st.sets(st.integers(1, SIZE)))
def test_without_late_events_results_do_not_depend_on_batch_cuts(
    window: Window, stream: list[Event], cuts: set[int]
) -> None:
    edges = [0, *sorted(cuts), SIZE]
    script = [stream[start:stop] for start, stop in pairwise(edges)]
    # A rolling window is complete when the watermark reaches its event, so the delay must exceed the disorder.
    accepted, panes = run(Model(window, watermark=Watermark("6us", max_future=None)), script)
    assert len(accepted) == len(stream)
    assert table(panes) == truth(window, stream)


@quick
@given(st.lists(st.integers(0, 60), max_size=15))
def test_sessions_are_those_of_brute_force(times: list[int]) -> None:
    groups: list[set[int]] = []
    for time in times:
        touching = [group for group in groups if any(abs(time - other) <= 4 for other in group)]
        groups = [group for group in groups if group not in touching] + [{time}.union(*touching)]
    expected = Counter((min(group), max(group) + 4) for group in groups)
    _, panes = run(Model(Session("4us")), [[Event(time)] for time in times])
    assert Counter(pane.window for pane in panes) == expected


@quick
@given(st.lists(st.integers(0, 60), max_size=15), st.integers(4, 15))
def test_capped_sessions_are_bounded_disjoint_and_complete(times: list[int], cap: int) -> None:
    _, panes = run(Model(Session("4us", f"{cap}us")), [[Event(time, value=time) for time in times]])
    assert sorted(value for pane in panes for value in pane.values) == sorted(times)
    last_end = -1
    for pane in panes:
        assert pane.window is not None
        assert pane.values[-1] - pane.values[0] <= cap
        assert last_end <= pane.window[0] == pane.values[0]
        assert pane.values[-1] < pane.window[1] <= pane.values[-1] + 4
        last_end = pane.window[1]


@quick
@given(
    window=windows,
    trigger=triggers,
    batches=st.lists(st.lists(events, max_size=6), max_size=6),
    first=st.tuples(st.integers(0, 60), st.integers(0, 60)),
)
def test_sources_of_one_partition_are_together_what_one_source_of_several_partitions_is(
    window: Window, trigger: Trigger, batches: list[list[Event]], first: tuple[int, int]
) -> None:
    """Once all have spoken: before that, a silent partition does not count, and a silent source holds."""
    script = [[Event(time, partition=number) for number, time in enumerate(first)], *batches]
    # Ids belong to the source, and here one source becomes two.
    script = [[replace(event, id=None) for event in batch] for batch in script]
    strategy = Watermark("3us", max_future=None)
    one = Model(window, trigger=trigger, watermark=strategy)
    two = Model(window, trigger=trigger, watermark={"0": strategy, "1": strategy})
    for batch in script:
        alone = one.batch(batch)
        united = two.batch([replace(event, partition=0, source=str(event.partition)) for event in batch])
        assert united.watermark == alone.watermark
        assert [event.time for event in united.late] == [event.time for event in alone.late]
        assert [(p.key, p.window, p.values, p.timing) for p in united.panes] == [
            (p.key, p.window, p.values, p.timing) for p in alone.panes
        ]
