"""The lateness picture: valid SVG that says what it was given."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tidegate.errors import PipelineError
from tidegate.observe.lateness_plot import Arrival, draw_lateness
from tidegate.time import SECOND

NOON = 1_772_366_400 * SECOND
SVG = "{http://www.w3.org/2000/svg}"

ARRIVALS: list[Arrival] = [
    *((NOON + i * SECOND, i % 50 * SECOND, "on_time") for i in range(1_980)),
    *((NOON + i * SECOND, 300 * SECOND + i, "accepted_late") for i in range(15)),
    *((NOON + i * SECOND, 7_200 * SECOND + i, "dead_lettered") for i in range(5)),
]


def draw(path: Path, arrivals: list[Arrival] = ARRIVALS, **options: str | int) -> ElementTree.Element:
    draw_lateness(path, arrivals=arrivals, **{"delay": "60s", "allowed_lateness": "10m", **options})  # type: ignore[arg-type]
    return ElementTree.fromstring(path.read_text(encoding="utf-8"))


def texts(svg: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in svg.iter(f"{SVG}text")]


def dots(svg: ElementTree.Element) -> list[int]:
    return [element.get("d", "").count("M") for element in svg.iter(f"{SVG}path")]


def test_the_legend_counts_every_event_by_fate(tmp_path: Path) -> None:
    said = texts(draw(tmp_path / "lateness.svg"))
    assert "on time 1,980 (99.00 %)" in said
    assert "accepted late 15 (0.75 %)" in said
    assert "dead letter LATE 5 (0.25 %)" in said


def test_the_lines_and_the_curve_name_the_delay_and_the_allowed_lateness(tmp_path: Path) -> None:
    said = texts(draw(tmp_path / "lateness.svg"))
    assert {"watermark delay 1m", "delay + allowed lateness 11m"} <= set(said)
    assert {"99.00 % within 1m", "99.75 % within 11m"} <= set(said)


@pytest.mark.parametrize("lateness", ["0s", "forever"])
def test_without_a_bound_on_lateness_there_is_one_line(tmp_path: Path, lateness: str) -> None:
    said = texts(draw(tmp_path / "lateness.svg", allowed_lateness=lateness))
    assert sum("within" in text for text in said) == 1
    assert not any("allowed lateness" in text for text in said)


def test_a_sample_thins_what_is_common_and_keeps_what_is_rare(tmp_path: Path) -> None:
    svg = draw(tmp_path / "lateness.svg", most_dots=300)
    assert dots(svg) == [100, 15, 5]
    assert "2,000 events; dots are a sample, at most 100 of a fate" in texts(svg)


def test_almost_all_is_not_shown_as_all(tmp_path: Path) -> None:
    arrivals: list[Arrival] = [(NOON, 3_600 * SECOND, "dead_lettered")]
    arrivals += [(NOON, 0, "on_time")] * 99_999
    said = texts(draw(tmp_path / "lateness.svg", arrivals))
    assert "99.99 % within 1m" in said
    assert "dead letter LATE 1 (0.01 %)" in said


def test_everything_drawn_lies_on_the_canvas(tmp_path: Path) -> None:
    svg = draw(tmp_path / "lateness.svg", delay="0s")
    places = [place for path in svg.iter(f"{SVG}path") for place in re.findall(r"M(\S+) (\S+?)h", path.get("d", ""))]
    places += [(text.get("x", ""), text.get("y", "")) for text in svg.iter(f"{SVG}text")]
    assert len(places) > 2_000
    assert all(0 <= float(x) <= 1200 and 0 <= float(y) <= 660 for x, y in places)


def test_one_event_is_enough_for_a_picture(tmp_path: Path) -> None:
    assert dots(draw(tmp_path / "lateness.svg", [(NOON, 0, "on_time")])) == [1, 0, 0]


def test_a_title_may_hold_any_character(tmp_path: Path) -> None:
    assert "a < b & c" in texts(draw(tmp_path / "lateness.svg", title="a < b & c"))


def test_the_same_events_give_the_same_picture(tmp_path: Path) -> None:
    draw(tmp_path / "a.svg", most_dots=300)
    draw(tmp_path / "b.svg", most_dots=300)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_no_events_and_unknown_fates_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="no event"):
        draw(tmp_path / "lateness.svg", [])
    with pytest.raises(PipelineError, match="cannot have the fate 'lost'"):
        draw(tmp_path / "lateness.svg", [(NOON, 0, "lost")])  # type: ignore[list-item]
