"""Operators on operators: the panes of one are the events of the next, on Spark as in the model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import tidegate as tg
from tidegate.model import Event, Model, Pane
from tidegate.model.chain import Chain
from tidegate.runtime.checks import check
from tidegate.testing.feed import Feed
from tidegate.testing.harness import Harness, Outcome
from tidegate.time import SECOND

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = int(os.environ.get("TIDEGATE_EXAMPLES", "6"))
LATE = {"allowed_lateness": "20s", "accumulation": "retracting"}


def chained(first: Any, second: Any, before: dict[str, Any], after: dict[str, Any], key: str = "key") -> tg.App:
    app = tg.App("chained")
    events = app.source(
        "events",
        Feed(),
        contract="t BIGINT, key STRING, value BIGINT",
        event_time="timestamp_micros(t)",
        watermark=tg.Manual(),
    )
    counts = events.key_by("key").window("counts", first, **before).aggregate(n=tg.count(), total=tg.sum("value"))
    peaks = (
        counts.as_stream()
        .key_by(key=key)
        .window("peaks", second, **after)
        .aggregate(highest=tg.max("n"), windows=tg.count(), total=tg.sum("total"))
    )
    app.sink("counts_out", counts, tg.Memory())
    app.sink("peaks_out", peaks, tg.Memory())
    return app


def rows(*events: tuple[int, str, int]) -> dict[str, list[dict[str, Any]]]:
    return {"events": [{"t": second * SECOND, "key": key, "value": value} for second, key, value in events]}


def shown(outcome: Outcome, operator: str = "peaks") -> list[tuple[Any, ...]]:
    found = [
        (
            row["pane_change"],
            row["key"],
            int(row["window_start"].timestamp()),
            int(row["window_end"].timestamp()),
            row["highest"],
            row["windows"],
            row["total"],
        )
        for row in outcome.of(operator)
    ]
    return sorted(found)


@pytest.mark.spark
def test_per_minute_counts_become_the_maximum_of_the_hour(spark: SparkSession, tmp_path: Path) -> None:
    app = chained(tg.Tumbling("60s"), tg.Tumbling("3600s"), {}, {})
    harness = Harness(spark, app, tmp_path / "checkpoint")
    try:
        assert shown(harness.feed(rows((1, "a", 5), (2, "a", 6), (70, "a", 7), (3_590, "b", 1)))) == []
        assert shown(harness.move_watermark("events", 3_599 * SECOND)) == []
        harness.restart()
        done = shown(harness.move_watermark("events", 3_600 * SECOND))
        assert done == [("upsert", "a", 0, 3_600, 2, 2, 18), ("upsert", "b", 0, 3_600, 1, 1, 1)]
        last = harness.engine.last
        assert last.ledger.operators["peaks"].arrived == last.ledger.operators["peaks"].accepted == 1
        assert last.totals.operators["peaks"].accepted == 3
    finally:
        harness.close()


@pytest.mark.spark
def test_unique_users_of_an_hour_are_counted_in_two_steps(spark: SparkSession, tmp_path: Path) -> None:
    app = chained(tg.Tumbling("3600s"), tg.Tumbling("3600s"), {}, {}, key="'all'")
    harness = Harness(spark, app, tmp_path / "checkpoint")
    try:
        harness.feed(rows((1, "ada", 1), (2, "ada", 1), (3, "ben", 1), (4_000, "ada", 1)))
        done = shown(harness.move_watermark("events", 3_600 * SECOND))
        assert done == [("upsert", "all", 0, 3_600, 2, 2, 3)]
    finally:
        harness.close()


@pytest.mark.spark
def test_a_corrected_result_takes_the_place_of_the_old_one(spark: SparkSession, tmp_path: Path) -> None:
    app = chained(tg.Tumbling("10s"), tg.Tumbling("60s"), LATE, {})
    harness = Harness(spark, app, tmp_path / "checkpoint")
    try:
        harness.feed(rows((1, "a", 5), (12, "a", 6), (13, "a", 6)))
        harness.move_watermark("events", 20 * SECOND)
        harness.feed(rows((2, "a", 5), (3, "a", 5)))  # late, and allowed: the first window now counts three
        assert harness.engine.last.ledger.panes["peaks"].taken_back == 1
        harness.restart()
        assert shown(harness.move_watermark("events", 79 * SECOND)) == []  # 59 for the second operator
        done = shown(harness.move_watermark("events", 80 * SECOND))
        assert done == [("upsert", "a", 0, 60, 3, 2, 27)]
        assert not [file for file in harness.engine.state.files.values() if file.kind == "held"]
        assert harness.engine.last.totals.panes["peaks"].difference == 0
    finally:
        harness.close()


@pytest.mark.spark
def test_the_end_of_the_input_goes_through_the_whole_chain(spark: SparkSession, tmp_path: Path) -> None:
    for name, before in (("final", {}), ("corrected", LATE)):
        app = chained(tg.Tumbling("10s"), tg.Session("30s") if not before else tg.Tumbling("60s"), before, {})
        harness = Harness(spark, app, tmp_path / name)
        try:
            harness.feed(rows((1, "a", 5), (12, "a", 6)))
            assert [row[4:] for row in shown(harness.drain())] == [(1, 2, 11)]
        finally:
            harness.close()


# What check refuses.


def findings(first: Any, second: Any, before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    found = check(chained(first, second, before, after))
    return [finding.message for finding in found if finding.level == "error"]


def test_results_that_are_corrected_silently_may_not_feed_an_aggregate() -> None:
    for before in ({"allowed_lateness": "1m"}, {"trigger": tg.AfterWatermark(early=tg.Count(1))}):
        (message,) = findings(tg.Tumbling("10s"), tg.Tumbling("60s"), before, {})
        assert "without taking the old ones back" in message
    assert findings(tg.Tumbling("10s"), tg.Tumbling("60s"), LATE, {}) == []
    assert findings(tg.Tumbling("10s"), tg.Tumbling("60s"), {"trigger": tg.FinalOnly()}, {}) == []


def test_windows_that_would_fall_apart_over_corrected_results_are_refused() -> None:
    for second in (tg.Session("30s"), tg.Rolling("30s")):
        assert any("fall apart" in message for message in findings(tg.Tumbling("10s"), second, LATE, {}))
        assert findings(tg.Tumbling("10s"), second, {}, {}) == []


def test_a_trigger_that_would_not_be_asked_is_refused() -> None:
    early = {"trigger": tg.AfterWatermark(early=tg.Count(1))}
    assert any("would not be asked" in m for m in findings(tg.Tumbling("10s"), tg.Tumbling("60s"), LATE, early))


def test_the_global_window_feeds_nobody() -> None:
    assert any("no event time" in m for m in findings(tg.Global(), tg.Tumbling("60s"), {}, {}))


# Spark against the model.

firsts = st.sampled_from([tg.Tumbling("10s"), tg.Hopping("10s", "5s"), tg.Session("5s")])
moves = st.one_of(
    st.lists(st.tuples(st.integers(0, 60), st.sampled_from("ab"), st.integers(0, 9)), min_size=1, max_size=4),
    st.integers(0, 90),
)


@pytest.mark.slow
@pytest.mark.spark
@settings(
    max_examples=EXAMPLES,
    derandomize="TIDEGATE_EXAMPLES" not in os.environ,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)
@given(
    first=firsts,
    second=st.sampled_from([tg.Tumbling("20s"), tg.Hopping("20s", "10s")]),
    retracts=st.booleans(),
    acts=st.lists(moves, min_size=3, max_size=6),
)
def test_a_chain_on_spark_says_what_the_model_says(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    first: Any,
    second: Any,
    retracts: bool,
    acts: list[list[tuple[int, str, int]] | int],
) -> None:
    before: dict[str, Any] = LATE if retracts else {}
    harness = Harness(spark, chained(first, second, before, {}), tmp_path_factory.mktemp("chain") / "checkpoint")
    model = Model(
        first,
        allowed_lateness=20 * SECOND if retracts else 0,
        accumulation="retracting" if retracts else "accumulating",
    )
    chain = Chain(model, Model(second), _as_event)
    try:
        for act in acts:
            if isinstance(act, int):
                outcome, step = harness.move_watermark("events", act * SECOND), model.move_watermark(act * SECOND)
            else:
                outcome = harness.feed(rows(*act))
                step = model.batch([Event(second * SECOND, key, value) for second, key, value in act])
            expected = [_as_row(pane) for pane in chain.after(step).panes]
            assert shown(outcome) == sorted(expected), act
        expected = [_as_row(pane) for pane in chain.after(model.drain()).panes]
        assert shown(harness.drain()) == sorted(expected)
    finally:
        harness.close()


def _as_event(pane: Pane, time: int) -> Event:
    """The first operator's count and total, in one number: a pane of the model holds whole events."""
    assert pane.window is not None
    return Event(time, pane.key, len(pane.events) * 1_000_000 + sum(pane.values), id=f"{pane.key}{pane.window}")


def _as_row(pane: Pane) -> tuple[Any, ...]:
    assert pane.window is not None
    counts = [int(value) // 1_000_000 for value in pane.values]
    totals = [int(value) % 1_000_000 for value in pane.values]
    low, high = (bound // SECOND for bound in pane.window)
    return (pane.change, pane.key, low, high, max(counts), len(counts), sum(totals))
