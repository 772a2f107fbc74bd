"""A changed definition meets the state of the old one: resumed when that is sound, else refused with the ways out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidegate as tg
from tidegate.errors import CheckpointError
from tidegate.runtime import state
from tidegate.runtime.signatures import added_aggregates, reconcile, signature
from tidegate.stream import WindowNode
from tidegate.testing.feed import Feed
from tidegate.testing.harness import Harness, seconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def an_app(
    *,
    key: str = "k",
    where: str | None = None,
    event_time: str = "at",
    window: Any = None,
    lateness: str = "10m",
    name: str = "counts",
    accumulation: Any = "accumulating",
    trigger: Any = None,
    sink: tg.Memory | None = None,
    **aggregates: tg.Aggregate,
) -> tg.App:
    app = tg.App("shop")
    stream = app.source(
        "events", Feed(), contract="k STRING, other STRING, v BIGINT, at TIMESTAMP", event_time=event_time
    )
    if where:
        stream = stream.where(where)
    windowed = stream.key_by(key).window(
        name, window or tg.Tumbling("1m"), allowed_lateness=lateness, accumulation=accumulation, trigger=trigger
    )
    app.sink("table", windowed.aggregate(**aggregates or {"n": tg.count()}), sink or tg.Memory())
    return app


def node(**definition: Any) -> WindowNode:
    return next(iter(an_app(**definition).operators.values()))


STORED = signature(node(n=tg.count(), total=tg.sum("v")), 1)


# -- in plain Python ------------------------------------------------------------------------------------------------


def test_an_unchanged_definition_is_resumed_as_it_was() -> None:
    first = reconcile(node(n=tg.count()), None, 1)
    assert reconcile(node(n=tg.count()), first, 50) == first
    assert added_aggregates(first) == {}


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("window", {"window": tg.Tumbling("2m")}),
        ("window", {"window": tg.Hopping("1m", "30s")}),
        ("window", {"window": tg.Calendar("hour")}),
        ("keys", {"key": "other"}),
        ("steps", {"where": "v > 0"}),
        ("event_time", {"event_time": "at + INTERVAL 1 HOUR"}),
        ("accumulation", {"accumulation": "discarding"}),
        ("trigger", {"trigger": tg.FinalOnly()}),
        ("allowed_lateness", {"lateness": "20m"}),
        ("aggregate total", {"total": tg.sum("v + 1")}),
    ],
    ids=str,
)
def test_a_change_that_state_cannot_follow_is_refused_with_both_definitions_and_the_ways_out(
    what: str, change: dict[str, Any]
) -> None:
    changed = node(**{"n": tg.count(), "total": tg.sum("v")} | change)
    with pytest.raises(CheckpointError, match="has state of another definition") as refusal:
        reconcile(changed, STORED, 50)
    said = str(refusal.value)
    assert f"\n  {what}: " in said
    assert "→" in said
    for way_out in ("rename the operator", "new --checkpoint", "restore the old definition"):
        assert way_out in said


def test_both_windows_stand_in_the_refusal() -> None:
    with pytest.raises(CheckpointError, match="window: 'tumbling 1m' → 'tumbling 2m'"):
        reconcile(node(n=tg.count(), total=tg.sum("v"), window=tg.Tumbling("2m")), STORED, 50)


@pytest.mark.parametrize("lateness", ["5m", "0s"])
def test_a_shorter_lateness_is_resumed(lateness: str) -> None:
    assert reconcile(node(lateness=lateness, n=tg.count(), total=tg.sum("v")), STORED, 50)


def test_an_aggregate_that_comes_goes_and_comes_back_is_known_by_its_last_coming() -> None:
    first = reconcile(node(n=tg.count()), None, 1)
    second = reconcile(node(n=tg.count(), total=tg.sum("v")), first, 10)
    assert added_aggregates(second) == {"total": 10}
    third = reconcile(node(n=tg.count()), second, 20)
    assert added_aggregates(third) == {}
    fourth = reconcile(node(n=tg.count(), total=tg.sum("v")), third, 30)
    assert added_aggregates(fourth) == {"total": 30}
    assert added_aggregates(reconcile(node(n=tg.count(), total=tg.sum("v")), fourth, 40)) == {"total": 30}


# -- on Spark -------------------------------------------------------------------------------------------------------


def event(second: int, v: int = 1, k: str = "a") -> dict[str, Any]:
    minutes, rest = divmod(second, 60)
    return {"k": k, "other": "o", "v": v, "at": f"1970-01-01T00:{minutes:02d}:{rest:02d}Z"}


class Pipeline:
    """A harness that is restarted with another definition, and goes on feeding where it was."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder, self.table, self.fed = spark, folder, tg.Memory(), 0

    def start(self, **definition: Any) -> Harness:
        app = an_app(sink=self.table, **definition)
        self.harness = Harness(self.spark, app, self.folder, clock=seconds(10_000))
        self.harness._fed = self.fed
        return self.harness

    def feed(self, *events: dict[str, Any]) -> list[dict[str, Any]]:
        self.fed += 1
        return self.harness.feed({"events": events}).of("counts")

    def stop(self) -> None:
        self.harness.close()


@pytest.fixture
def pipeline(spark: SparkSession, tmp_path: Path) -> Pipeline:
    return Pipeline(spark, tmp_path / "checkpoint")


def values(panes: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return sorted(
        ((int(row["window_start"].timestamp()) // 60, *(row.get(name) for name in names)) for row in panes),
        key=str,
    )


@pytest.mark.spark
def test_an_added_aggregate_is_null_for_windows_with_older_slices_and_right_for_the_others(
    pipeline: Pipeline,
) -> None:
    pipeline.start(n=tg.count(), window=tg.Hopping("2m", "1m"))
    pipeline.feed(event(10), event(70))  # watermark 70 s: the window from −60 s has spoken
    pipeline.stop()

    pipeline.start(n=tg.count(), total=tg.sum("v"), window=tg.Hopping("2m", "1m"))
    assert values(pipeline.feed(event(80, v=5), event(130, v=7)), "n", "total") == [(0, 3, None)]
    assert values(pipeline.feed(event(190, v=9)), "n", "total") == [(1, 3, None)]
    assert values(pipeline.feed(event(330)), "n", "total") == [(2, 2, 16), (3, 1, 9)]
    pipeline.stop()
    shown = {int(row["window_start"].timestamp()) // 60: (row["n"], row.get("total")) for row in pipeline.table.rows()}
    assert shown == {-1: (1, None), 0: (3, None), 1: (3, None), 2: (2, 16), 3: (1, 9)}


@pytest.mark.spark
@pytest.mark.parametrize("accumulation", ["accumulating", "retracting", "discarding"])
def test_a_late_event_for_a_window_that_spoke_before_an_aggregate_was_added_makes_a_pane(
    pipeline: Pipeline, accumulation: Any
) -> None:
    """What the window said is in a file without the new column."""
    pipeline.start(n=tg.count(), accumulation=accumulation)
    assert values(pipeline.feed(event(10), event(70)), "n", "pane_index") == [(0, 1, 0)]
    pipeline.stop()

    pipeline.start(n=tg.count(), total=tg.sum("v"), accumulation=accumulation)
    panes = pipeline.feed(event(20, v=5), event(130))
    upserts = [row for row in panes if row["pane_change"] == "upsert"]
    if accumulation == "discarding":
        assert values(upserts, "n", "total", "pane_index") == [(0, 1, 5, 1), (1, 1, None, 0)]
    else:
        assert values(upserts, "n", "total", "pane_index") == [(0, 2, None, 1), (1, 1, None, 0)]
    taken_back = [row for row in panes if row["pane_change"] == "retract"]
    assert values(taken_back, "n", "total") == ([(0, 1, None)] if accumulation == "retracting" else [])
    pipeline.stop()


@pytest.mark.spark
def test_a_dropped_aggregate_is_no_longer_there_and_the_others_go_on(pipeline: Pipeline) -> None:
    pipeline.start(n=tg.count(), total=tg.sum("v"))
    pipeline.feed(event(10, v=3))
    pipeline.stop()
    pipeline.start(total=tg.sum("v"))
    assert values(pipeline.feed(event(20, v=4), event(70)), "total") == [(0, 7)]
    pipeline.stop()


@pytest.mark.spark
def test_state_is_still_compacted_after_an_aggregate_was_added(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "FAN_IN", 3)
    definition: dict[str, Any] = {"window": tg.Tumbling("59m"), "n": tg.count()}
    pipeline.start(**definition)
    pipeline.feed(event(1, v=1))
    pipeline.feed(event(2, v=2))
    pipeline.stop()
    harness = pipeline.start(**definition, total=tg.sum("v"))
    for second in range(3, 9):
        pipeline.feed(event(second, v=second))
    assert len(harness.engine.state.of("counts", "slice")) <= 5
    (pane,) = harness.drain().of("counts")
    assert (pane["n"], pane["total"]) == (8, None)
    pipeline.stop()


@pytest.mark.spark
def test_a_changed_window_is_refused_and_nothing_has_changed(pipeline: Pipeline) -> None:
    pipeline.start(n=tg.count())
    pipeline.feed(event(10), event(70))
    pipeline.stop()
    records = sorted(path.name for path in (pipeline.folder / "records").iterdir())
    with pytest.raises(CheckpointError, match="window: 'tumbling 1m' → 'tumbling 5m'"):
        pipeline.start(n=tg.count(), window=tg.Tumbling("5m"))
    assert sorted(path.name for path in (pipeline.folder / "records").iterdir()) == records

    pipeline.start(n=tg.count())
    assert values(pipeline.feed(event(80), event(130)), "n") == [(1, 2)], "the old definition still goes on"
    pipeline.stop()


@pytest.mark.spark
def test_a_renamed_operator_starts_empty(pipeline: Pipeline) -> None:
    pipeline.start(n=tg.count())
    pipeline.feed(event(10), event(70))
    pipeline.stop()
    harness = pipeline.start(n=tg.count(), window=tg.Tumbling("5m"), name="other")
    pipeline.fed += 1
    assert values(harness.feed({"events": [event(80), event(310)]}).of("other"), "n") == [(0, 1)]
    pipeline.stop()
