"""Drawings: every event and pane of the model's run is in them, they are XML, and always the same."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidegate.cli import main
from tidegate.testing import ModelExecutor, Transcript, collect, parse
from tidegate.testing.draw import LEFT, RIGHT, WIDTH, draw
from tidegate.testing.flow import show_pane
from tidegate.testing.steps import Batch, MoveClock, MoveWatermark
from tidegate.testing.svg import Axis, Rows, shorten, width, wrap
from tidegate.testing.timeline import Fate, play

ROOT = Path(__file__).resolve().parents[2]
SVG = "{http://www.w3.org/2000/svg}"
ALL = [found for found in collect([ROOT / "transcripts"]) if isinstance(found, Transcript)]


def groups(picture: str, kind: str) -> list[tuple[str, str]]:
    """The (class, title) of each event or pane."""
    found = ET.fromstring(picture).iter(f"{SVG}g")
    return [(g.attrib["class"], g[0].text or "") for g in found if g.attrib["class"].split()[0] == kind]


def transcript(**fields: object) -> Transcript:
    return parse({"name": "drawn", "window": {"tumbling": 10}, **fields})


def fates(of: Transcript) -> list[list[Fate]]:
    return [[mark.fate for mark in lane.marks] for lane in play(of)]


@pytest.mark.parametrize("one", ALL, ids=lambda one: f"{one.path.stem}.{one.name}")
def test_every_transcript_can_be_drawn_with_all_its_events_and_panes(one: Transcript) -> None:
    picture = draw(one)
    run = ModelExecutor().start(one)
    events, panes, refused = 0, [], {"late": 0, "future": 0, "duplicate": 0, "partially_late": 0}
    for scene in one.scenes:
        match scene.action:
            case Batch(given):
                events += len(given)
                step = run.batch(given)
            case MoveWatermark(to):
                step = run.watermark(to)
            case MoveClock(to):
                step = run.clock(to)
            case _:
                step = run.restart()
        panes += [show_pane(pane) for pane in step.panes]
        for fate, of_step in zip(refused, (step.late, step.future, step.duplicates, step.partially_late), strict=True):
            refused[fate] += len(of_step)
    drawn = [kind.split()[1] for kind, _ in groups(picture, "event")]
    assert len(drawn) == events
    assert {fate: drawn.count(fate) for fate in refused} == refused
    assert sorted(title for _, title in groups(picture, "pane")) == sorted(panes)
    assert picture == draw(one)


@pytest.mark.parametrize("one", ALL, ids=lambda one: f"{one.path.stem}.{one.name}")
def test_no_text_is_clipped(one: Transcript) -> None:
    for text in ET.fromstring(draw(one)).iter(f"{SVG}text"):
        x, size, wide = float(text.attrib["x"]), float(text.attrib["font-size"]), text.text or ""
        share = {"start": 0.0, "middle": 0.5, "end": 1.0}[text.attrib.get("text-anchor", "start")]
        assert x - share * width(wide, size) >= 0
        assert x + (1 - share) * width(wide, size) <= WIDTH


def test_each_fate_is_told_apart() -> None:
    steps = [
        {"batch": [{"t": 1, "id": "x"}, {"t": 1, "id": "x"}, 70]},
        {"batch": [19]},
        {"batch": [12, 2]},
    ]
    guarded = transcript(watermark={"delay": 0, "max_future": 60}, allowed_lateness=5, steps=steps)
    assert fates(guarded) == [["accepted", "duplicate", "future"], ["accepted"], ["accepted", "late"]]
    updated = transcript(allowed_lateness=10, steps=[{"watermark": 12}, {"batch": [2, 12]}])
    assert fates(updated) == [[], ["accepted_late", "accepted"]]


def test_a_session_is_late_only_when_all_of_it_is() -> None:
    steps = [{"batch": [0]}, {"watermark": 12}, {"batch": [1]}, {"batch": [9, 2]}]
    assert fates(transcript(window={"session": {"gap": 10}}, allowed_lateness=50, steps=steps)) == [
        ["accepted"],
        [],
        ["accepted_late"],
        ["accepted", "accepted"],
    ]


def test_windows_are_open_then_complete_then_closed() -> None:
    steps = [{"batch": [1]}, {"watermark": 10}, {"watermark": 15}]
    lanes = play(transcript(allowed_lateness=5, steps=steps))
    assert [[span.stage for span in lane.spans] for lane in lanes] == [["open"], ["complete"], ["closed"]]


def test_what_yaml_may_hold_does_not_break_xml() -> None:
    hostile = '<b>&"\x07'
    picture = draw(transcript(why=hostile, steps=[{"batch": [{"t": 1, "key": hostile}, 2]}]))
    assert "&lt;b&gt;&amp;" in picture
    ET.fromstring(picture)


def test_an_axis_keeps_order_and_cuts_out_only_what_is_empty() -> None:
    axis = Axis.over([5, 0, 10, 1_000_000, 1_000_010], LEFT, RIGHT)
    assert list(axis.places) == sorted(axis.places)
    assert (axis.places[0], round(axis.places[-1], 6)) == (LEFT, RIGHT)
    assert len(axis.breaks) == 1
    assert Axis.over([0, 1, 10], LEFT, RIGHT, whole=10).breaks == ()


def test_texts_are_made_to_fit() -> None:
    assert shorten("short", 10, 100) == "short"
    assert shorten("a long text that does not fit", 10, 60).endswith("…")
    lines = wrap("words that need more than one line", 10, 90)
    assert len(lines) > 1
    assert all(width(line, 10) <= 90 for line in lines)
    rows = Rows(gap=0)
    assert [rows.place(0, 10), rows.place(5, 15), rows.place(10, 20)] == [0, 1, 0]


def test_the_command_draws_a_file_per_transcript_and_reports_what_it_cannot(tmp_path: Path) -> None:
    plays = tmp_path / "plays.yaml"
    plays.write_text(
        "name: a/b\nwindow: {tumbling: 10}\nsteps: [{batch: [1]}]\n---\nname: broken\nwindow: {spiral: 1}\n"
    )
    done = CliRunner().invoke(main, ["conformance", "--draw", str(tmp_path / "out"), str(plays)])
    assert done.exit_code == 1
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["plays.a_b.svg"]
    assert done.output.startswith(f"drew   {tmp_path / 'out' / 'plays.a_b.svg'}\nFAILED broken: ")
    assert done.output.endswith("1 drawn, 1 failed\n")


def test_the_drawings_of_the_documentation_are_those_of_today() -> None:
    by_name = {f"{one.path.stem}.{one.name}.svg": one for one in ALL if one.path}
    folder = ROOT / "docs" / "images" / "timelines"
    kept = sorted(path.name for path in folder.iterdir())
    assert kept == sorted(re.findall(r"timelines/([\w.]+\.svg)", (folder.parent / "README.md").read_text()))
    for name in kept:
        assert (folder / name).read_text(encoding="utf-8") == draw(by_name[name]), f"see {folder.parent / 'README.md'}"
