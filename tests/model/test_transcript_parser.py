"""The parser knows exactly the words of the format and names what it does not know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidegate.testing import Transcript, TranscriptError, Unreadable, parse, read_file
from tidegate.time import FOREVER, SECOND
from tidegate.triggers import AfterWatermark, AllOf, AnyOf, Count, Default, Each, EveryEventTime, FinalOnly
from tidegate.watermarks import Manual, Watermark
from tidegate.windows import Global, Hopping, Session, Tumbling

STEPS: list[Any] = [{"batch": [1]}]
SOURCES: dict[str, Any] = {"web": "manual", "mobile": {"delay": 5}}


def document(**fields: Any) -> dict[str, Any]:
    return {"name": "n", "window": {"tumbling": 10}, "steps": STEPS} | fields


def test_defaults_are_those_of_the_format() -> None:
    transcript = parse(document())
    assert transcript.trigger == Default()
    assert transcript.watermark == Manual()
    assert (transcript.accumulation, transcript.on_time, transcript.aggregate) == ("accumulating", "always", "collect")
    assert transcript.allowed_lateness == 0


@pytest.mark.parametrize(
    ("given", "window"),
    [
        ({"tumbling": 0.5}, Tumbling("500ms")),
        ({"tumbling": {"size": 10, "offset": 3}}, Tumbling("10s", "3s")),
        ({"hopping": {"size": 10, "slide": 5}}, Hopping("10s", "5s")),
        ({"session": {"gap": 10, "max_length": 60}}, Session("10s", "60s")),
        ("global", Global()),
    ],
)
def test_every_window_of_the_format_is_known(given: Any, window: object) -> None:
    assert parse(document(window=given)).window == window


@pytest.mark.parametrize(
    ("given", "trigger"),
    [
        ({"any": [{"count": 2}, "default"]}, AnyOf(Count(2), Default())),
        ({"all": [{"every_event_time": 2}]}, AllOf(EveryEventTime("2s"))),
        ({"each": ["final_only"]}, Each(FinalOnly())),
        ({"after_watermark": {"late": {"count": 1}}}, AfterWatermark(late=Count(1))),
    ],
)
def test_triggers_compose(given: Any, trigger: object) -> None:
    assert parse(document(trigger=given)).trigger == trigger


def test_a_strategy_guards_the_future_only_when_asked() -> None:
    assert parse(document(watermark={"delay": 5})).watermark == Watermark("5s", max_future=None)


def test_lateness_may_be_forever() -> None:
    assert parse(document(allowed_lateness="forever")).allowed_lateness == FOREVER


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"windov": 1}, "unknown field 'windov'"),
        ({"window": {"tumbling": {"size": 1, "slide": 1}}}, "unknown field 'slide'"),
        ({"window": {"sliding": 10}}, "window 'sliding' is unknown"),
        ({"window": {"hopping": {"size": 5, "slide": 10}}}, "would skip events"),
        ({"window": {"session": {"gap": 10, "max_length": 5}}}, "shorter than its gap"),
        ({"window": {"tumbling": 0}}, "longer than zero"),
        ({"window": {"tumbling": 1e30}}, "out of range"),
        ({"trigger": "sometimes"}, "trigger 'sometimes' is unknown"),
        ({"trigger": {"cuont": 2}}, "trigger 'cuont' is unknown"),
        ({"trigger": {"count": 0}}, "at least 1"),
        ({"trigger": {"any": []}}, "has no parts"),
        ({"accumulation": "adding"}, "accumulation 'adding' is unknown"),
        ({"aggregate": "avg"}, "aggregate 'avg' is unknown"),
        ({"on_time": True}, "on_time True is unknown"),
        ({"watermark": "auto"}, "watermark 'auto' is unknown"),
        ({"watermark": {"dealy": 5}}, "unknown field 'dealy'"),
        ({"allowed_lateness": -1}, "must not be negative"),
        ({"must_fail": "("}, "not a regular expression"),
        ({"steps": []}, "at least one step that acts"),
        ({"steps": [{"expect": []}]}, "step 1: 'expect' comes before any step that acts"),
        ({"steps": [{"bacth": []}]}, "step 1: step 'bacth' is unknown"),
        ({"steps": [{"batch": [1], "late": [1]}]}, "mapping with one field"),
        ({"steps": [{"batch": ["1"]}]}, "event t must be a number, but is '1'"),
        ({"steps": [{"batch": [True]}]}, "event t must be a number, but is True"),
        ({"steps": [{"batch": [{"t": 1, "kye": "a"}]}]}, "event has an unknown field 'kye'"),
        ({"steps": [{"restart": False}]}, "restart must be true"),
        ({"steps": [*STEPS, {"expect": [{"timing": "soon"}]}]}, "pane timing 'soon' is unknown"),
        ({"steps": [*STEPS, {"expect": [{"value": 1}]}]}, "aggregate collect gives 'values'"),
        ({"steps": [*STEPS, {"expect": [{"window": [1]}]}]}, "must be \\[start, end\\] or global"),
        ({"steps": [*STEPS, {"late": [{"arrival": 1}]}]}, "unknown field 'arrival'"),
        ({"steps": [{"watermark": 5}], "watermark": {"delay": 1}}, "need a manual watermark"),
        ({"steps": [{"batch": [{"t": 1, "source": "web"}]}]}, "event has an unknown field 'source'"),
        ({"steps": [{"watermark": {"web": 5}}]}, "watermark must be a number"),
        ({"sources": {"web": "manual"}}, "at least two names"),
        ({"sources": {"web": "manual", "out": "manual"}}, "source name 'out' is taken"),
        ({"sources": {"web": "manual", "a-b": "manual"}}, "source name 'a-b' is not usable"),
        ({"sources": {"web": "manual", "mobile": {"dealy": 1}}}, "unknown field 'dealy'"),
        ({"sources": SOURCES, "watermark": "manual"}, "leave the field 'watermark' out"),
        ({"sources": SOURCES, "steps": [{"batch": [{"t": 1, "source": "tv"}]}]}, "source 'tv' is unknown"),
        ({"sources": SOURCES, "steps": [{"watermark": {"tv": 5}}]}, "source 'tv' is unknown"),
        ({"sources": SOURCES, "steps": [{"watermark": {"mobile": 5}}]}, "need a manual watermark"),
        ({"sources": SOURCES, "steps": [{"watermark": 5}]}, "need a manual watermark"),
        ({"sources": SOURCES, "steps": [{"watermark": {"web": 5, "mobile": 5}}]}, "names one source"),
    ],
)
def test_what_is_unknown_is_refused_by_name(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(TranscriptError, match=message):
        parse(document(**wrong))


def test_an_event_without_value_has_its_time_as_value() -> None:
    (scene,) = parse(document(steps=[{"batch": [{"t": 2.5, "key": 7}]}])).scenes
    (event,) = scene.action.events  # type: ignore[union-attr]
    assert (event.time, event.value, event.key, event.partition) == (2.5 * SECOND, 2.5, "7", 0)


def test_with_several_sources_an_event_that_names_none_is_of_the_first() -> None:
    steps: list[Any] = [{"batch": [1, {"t": 2, "source": "mobile"}]}, {"watermark": {"web": 9}}]
    transcript = parse(document(sources=SOURCES, steps=steps))
    assert transcript.sources == (("web", Manual()), ("mobile", Watermark("5s", max_future=None)))
    first, second = (scene.action for scene in transcript.scenes)
    assert [event.source for event in first.events] == ["web", "mobile"]  # type: ignore[union-attr]
    assert (second.to, second.source) == (9 * SECOND, "web")  # type: ignore[union-attr]


def test_a_file_keeps_its_good_transcripts_and_names_the_bad(tmp_path: Path) -> None:
    good = "name: {}\nwindow: {{tumbling: 10}}\nsteps: [{{batch: [1]}}]\n"
    path = tmp_path / "t.yaml"
    path.write_text("---\n".join([good.format("a"), good.format("a"), "name: b\n", good.format("c"), ""]))
    found = read_file(path)
    assert [type(item) for item in found] == [Transcript, Unreadable, Unreadable, Transcript]
    assert "not unique" in found[1].message  # type: ignore[union-attr]
    assert "no field 'window'" in found[2].message  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("content", "message"),
    [("name: [", "cannot be read"), ("", "no transcript"), ("- 1", "mapping"), ("name: a\nname: b", "given twice")],
)
def test_a_broken_file_is_unreadable_and_not_a_crash(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(content)
    (found,) = read_file(path)
    assert isinstance(found, Unreadable)
    assert message in found.message
