"""The checker, fed what is right and what is wrong: a loss, an extra, a swap, a wrong order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tidegate.testing import (
    EventOut,
    ModelExecutor,
    PaneOut,
    Run,
    Step,
    Transcript,
    collect,
    compare,
    parse,
    run_all,
    run_transcript,
)
from tidegate.testing.matching import match_in_order
from tidegate.time import SECOND

TRANSCRIPTS = Path(__file__).parents[2] / "transcripts"

ONE = PaneOut("k", (0, 10 * SECOND), (1,), None, "on_time", 0, True, "upsert")
BACK = replace(ONE, change="retract")
TWO = replace(ONE, values=(1, 2), index=1)
OTHER = replace(ONE, key="b", values=(2,))
LATE = EventOut(3 * SECOND, "k", 3.0, 0, None)


def mismatches(step: Step, *checks: dict[str, Any]) -> list[str]:
    """Compare a step with the checks that follow an empty batch."""
    steps = [{"batch": []}, *checks]
    (scene,) = parse({"name": "n", "window": {"tumbling": 10}, "steps": steps}).scenes
    return compare(step, scene.checks)


def test_what_fits_is_no_mismatch() -> None:
    step = Step(panes=(ONE, OTHER), late=(LATE,), watermark=10 * SECOND)
    expected = [{"values": [2]}, {"window": [0, 10], "key": "k", "index": 0, "final": True}]
    assert mismatches(step, {"expect": expected}, {"late": [3]}, {"watermark_is": 10}) == []


def test_a_lost_pane_is_missing() -> None:
    assert mismatches(Step(), {"expect": [{"key": "k", "window": [0, 10], "values": [1]}]}) == [
        "missing pane: {key: k, window: [0, 10], values: [1]}"
    ]


def test_an_extra_pane_is_unexpected() -> None:
    assert mismatches(Step(panes=(ONE, ONE)), {"expect": [{"values": [1]}]}) == [
        "unexpected pane: {key: k, window: [0, 10], values: [1], "
        "timing: on_time, index: 0, final: true, change: upsert}"
    ]


def test_swapped_values_are_two_missing_and_two_unexpected_panes() -> None:
    expected = [{"key": "k", "values": [2]}, {"key": "b", "values": [1]}]
    lines = mismatches(Step(panes=(ONE, OTHER)), {"expect": expected})
    assert [line.split(":")[0] for line in lines] == ["missing pane"] * 2 + ["unexpected pane"] * 2


def test_a_wrong_order_within_a_window_is_one_missing_and_one_unexpected_pane() -> None:
    expected = [{"values": [1, 2]}, {"change": "retract"}]
    lines = mismatches(Step(panes=(BACK, TWO)), {"expect": expected})
    assert [line.split(":")[0] for line in lines] == ["missing pane", "unexpected pane"]
    assert mismatches(Step(panes=(BACK, TWO)), {"expect": expected[::-1]}) == []


def test_order_across_windows_does_not_matter() -> None:
    assert mismatches(Step(panes=(ONE, OTHER)), {"expect": [{"key": "b"}, {"key": "k"}]}) == []


def test_an_ambiguous_expectation_leaves_the_pane_that_another_one_needs() -> None:
    assert mismatches(Step(panes=(ONE, OTHER)), {"expect": [{"index": 0}, {"key": "k"}]}) == []
    assert mismatches(Step(panes=(BACK, TWO, OTHER)), {"expect": [{}, {}, {"key": "k", "index": 0}]}) != []
    assert mismatches(Step(panes=(BACK, TWO, OTHER)), {"expect": [{}, {"key": "k", "index": 0}, {}]}) == []


def test_refused_events_are_multisets() -> None:
    assert mismatches(Step(late=(LATE, LATE)), {"late": [3]}) == [
        "unexpected late event: {t: 3, key: k, value: 3, partition: 0}"
    ]
    assert mismatches(Step(duplicates=(replace(LATE, id="x"),))) == [
        "unexpected duplicate event: {t: 3, key: k, value: 3, partition: 0, id: x}"
    ]
    assert mismatches(Step(), {"partially_late": [7]}) == ["missing partially late event: {t: 7}"]
    assert mismatches(Step(), {"future": [{"t": 7.5, "key": "a"}]}) == ["missing future event: {t: 7.5, key: a}"]


def test_a_wrong_watermark_names_both() -> None:
    assert mismatches(Step(watermark=4_500_000), {"watermark_is": 5}) == ["watermark is 4.5, expected 5"]
    assert mismatches(Step(), {"watermark_is": 5}) == ["watermark is none, expected 5"]


def test_sums_of_fractions_need_not_agree_in_the_last_bit() -> None:
    assert mismatches(Step(panes=(replace(ONE, values=(0.1 + 0.2,)),)), {"expect": [{"values": [0.3]}]}) == []


def test_a_large_ambiguous_expectation_is_matched_quickly() -> None:
    positions = list(range(60))
    assert None not in match_in_order([positions] * 60, positions)
    # Two of one group in the wrong order, among many that fit everywhere: the search must give up in time.
    groups = [0, 0, *positions[2:]]
    assert match_in_order([[1], [0], *[positions[2:]] * 58], groups).count(None) == 1


def transcript(must_fail: str | None = None, window: int = 10) -> Transcript:
    steps = [{"batch": [1]}, {"watermark": 10}, {"expect": [{"window": [0, window], "values": [1]}]}]
    document = {"name": "n", "window": {"tumbling": 10}, "steps": steps}
    return parse(document if must_fail is None else document | {"must_fail": must_fail})


def test_must_fail_passes_only_with_a_matching_mismatch() -> None:
    assert run_transcript(transcript(), ModelExecutor()).passed
    assert not run_transcript(transcript(window=5), ModelExecutor()).passed
    assert run_transcript(transcript("missing pane", window=5), ModelExecutor()).passed
    assert not run_transcript(transcript("late event", window=5), ModelExecutor()).passed
    unfailed = run_transcript(transcript("missing pane"), ModelExecutor())
    assert not unfailed.passed
    assert unfailed.error is not None


class BrokenExecutor:
    name = "broken"

    def start(self, transcript: Transcript) -> Run:
        raise RuntimeError("no cluster")


def test_an_executor_that_breaks_fails_even_where_failure_is_wanted() -> None:
    result = run_transcript(transcript("missing pane", window=5), BrokenExecutor())
    assert not result.passed
    assert result.error == "RuntimeError: no cluster"


def test_what_cannot_be_read_is_a_failed_result(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "bad.yml").write_text("name: x\nwindow: {tumblin: 3}\nsteps: [{batch: []}]\n")
    (tmp_path / "empty").mkdir()
    found = collect([tmp_path, tmp_path / "missing.yaml", tmp_path / "empty"])
    results = list(run_all(found, [ModelExecutor()]))
    assert [result.passed for result in results] == [False, False, False]
    assert results[0].name == "x"
    assert "tumblin" in str(results[0].error)


@pytest.mark.parametrize("item", collect([TRANSCRIPTS]), ids=lambda item: item.name)
def test_the_model_agrees_with_every_transcript_of_the_repository(item: Transcript) -> None:
    (result,) = run_all([item], [ModelExecutor()])
    assert (result.passed, result.mismatches if item.must_fail is None else [], result.error) == (True, [], None)


def test_every_transcript_of_the_repository_says_why() -> None:
    own = [item for item in collect([TRANSCRIPTS]) if item.path is not None and item.path.name != "examples.yaml"]
    assert len(own) >= 60
    assert [item.name for item in own if not isinstance(item, Transcript) or not item.why] == []
