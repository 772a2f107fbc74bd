"""Sessions on the engine: which candidates are refused, however many there are and whatever their keys."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidegate as tg
from tidegate.runtime import open_operation
from tidegate.testing.feed import Feed
from tidegate.testing.harness import Harness, seconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def event(t: float, user: str | None, place: str | None, name: str | None = None) -> dict[str, Any]:
    return {"t": seconds(t), "user": user, "place": place, "id": name}


def app_of(window: tg.Session, event_id: str | None = None) -> tg.App:
    app = tg.App("sessions")
    events = app.source(
        "events",
        Feed(),
        contract=tg.Contract("t BIGINT, user STRING, place STRING, id STRING"),
        event_time="timestamp_micros(t)",
        event_id=event_id,
        watermark=tg.Manual(),
    )
    app.sink("out", events.key_by("user", "place").window("visits", window).aggregate(n=tg.count()), tg.Memory())
    return app


@pytest.mark.parametrize("small", [100_000, -1], ids=["few", "many"])
@pytest.mark.parametrize("window", [tg.Session("10s"), tg.Session("10s", "60s")], ids=str)
def test_a_candidate_is_late_with_its_stretch_and_null_is_a_key_like_others(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: tg.Session, small: int
) -> None:
    monkeypatch.setattr(open_operation, "FEW", small)
    harness = Harness(spark, app_of(window), tmp_path / "checkpoint")
    try:
        harness.feed({"events": [event(100, "a", None)]})
        harness.move_watermark("events", seconds(200))
        outcome = harness.feed(
            {
                "events": [
                    event(50, "a", None),
                    event(56, "a", None),
                    event(60, "a", "x"),
                    event(130, "a", None),
                    event(185, "b", None),  # saved by the next one
                    event(193, "b", None),
                    event(185, "b", "x"),
                    event(150, None, None),
                    event(189, None, None),  # saved too
                    event(192, None, None),
                ]
            }
        )
        assert {letter["reason"] for letter in outcome.letters} == {"LATE"}
        times = sorted(letter["event_time"].timestamp() for letter in outcome.letters)
        assert times == [50, 56, 60, 130, 150, 185]
        assert outcome.record is not None
        line = outcome.record.ledger.operators["visits"]
        assert (line.arrived, line.accepted, line.late) == (10, 4, 6)
        panes = harness.move_watermark("events", seconds(300)).of("visits")
        assert sorted((pane["user"] or "", pane["n"]) for pane in panes) == [("", 2), ("b", 2)]
    finally:
        harness.close()


def test_a_repeat_is_late_with_its_session_and_a_duplicate_in_an_open_one(spark: SparkSession, tmp_path: Path) -> None:
    harness = Harness(spark, app_of(tg.Session("10s"), "id"), tmp_path / "checkpoint")
    try:
        harness.move_watermark("events", seconds(200))
        twice = [event(50, "a", None, "e1"), event(50, "a", None, "e1")]
        saved = [event(185, "b", None, "e2"), event(185, "b", None, "e2"), event(193, "b", None, "e3")]
        outcome = harness.feed({"events": [*twice, *saved]})
        assert [letter["reason"] for letter in outcome.letters] == ["LATE", "LATE"]
        assert outcome.record is not None
        line = outcome.record.ledger.operators["visits"]
        assert (line.accepted, line.late, line.duplicates) == (2, 2, 1)
    finally:
        harness.close()


def test_a_session_that_has_said_nothing_keeps_no_bounds(spark: SparkSession, tmp_path: Path) -> None:
    harness = Harness(spark, app_of(tg.Session("10s")), tmp_path / "checkpoint")
    try:
        harness.feed({"events": [event(100, "a", None), event(104, "a", None)]})
        (kept,) = harness.engine.state.of("visits", "open")
        assert (kept.low, kept.high) == (seconds(114), seconds(114))
        assert not harness.move_watermark("events", seconds(113)).panes
        (pane,) = harness.move_watermark("events", seconds(114)).of("visits")
        assert (pane["window_start"].timestamp(), pane["window_end"].timestamp()) == (100, 114)
        assert harness.engine.state.of("visits", "open") == []
    finally:
        harness.close()
