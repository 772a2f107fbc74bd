"""What the colours and shapes of a drawing mean, and the legend that says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidegate.testing.outcomes import PaneOut
from tidegate.testing.svg import element, text, width
from tidegate.testing.timeline import Fate, Lane

COLOURS = {
    "accepted": "#2166ac",
    "accepted_late": "#e08214",
    "partially_late": "#e08214",
    "late": "#c4161c",
    "duplicate": "#8b97a3",
    "future": "#7b3294",
    "early": "#d6e9f8",
    "on_time": "#cfe8cf",
    "late_pane": "#fde0bd",
    "retract": "#c4161c",
    "watermark": "#2b7a78",
    "shade": "#eef4f4",
    "open": "#ffffff",
    "complete": "#cfe3f5",
    "closed": "#9aa5b0",
}
HATCH = (
    '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="6" height="6" fill="#fff5f5"/><line x1="0" y1="0" x2="0" y2="6" stroke="#eba7a9" stroke-width="2"/>'
    "</pattern></defs>"
)
"""The filling of a pane that is taken back."""

_EVENTS: dict[Fate, str] = {
    "accepted": "event, accepted",
    "accepted_late": "accepted late",
    "partially_late": "partially late: missed a closed window",
    "late": "LATE: dead letter",
    "duplicate": "duplicate",
    "future": "future: refused",
}
_PANES = {"early": "early pane", "on_time": "on-time pane", "late": "late pane"}
_STAGES = {"open": "window, open", "complete": "window, complete", "closed": "window, closed"}


def symbol(fate: Fate, x: float, y: float) -> str:
    """The sign of an event: a dot, or a cross when it was too late."""
    colour = COLOURS[fate]
    if fate == "late":
        shape = f"M{x - 4.5:.1f} {y - 4.5:.1f}l9 9m0 -9l-9 9"
        return element("path", d=shape, stroke=colour, stroke_width=2.4, fill="none")
    if fate == "partially_late":
        return element("circle", cx=x, cy=y, r=4.4, fill="#ffffff", stroke=colour, stroke_width=2.4)
    return element("circle", cx=x, cy=y, r=5, fill=colour)


def pane_style(pane: PaneOut) -> dict[str, str]:
    """How the bar of a pane looks: by its timing, or as something that is taken back."""
    if pane.change == "retract":
        return {"fill": "url(#hatch)", "stroke": COLOURS["retract"], "stroke_dasharray": "4 2"}
    return {"fill": _timing_colour(pane.timing), "stroke": "#7f8c98"}


def _timing_colour(timing: str) -> str:
    return COLOURS["late_pane" if timing == "late" else timing]


def legend(lanes: Sequence[Lane], top: float, left: float, right: float) -> tuple[str, float]:
    """The signs that this drawing uses, in as many lines as they need, and how high that is."""
    x, y, parts = left, top, []
    for sign, said in _items(lanes):
        room = 24 + width(said, 11) + 14
        if x + room > right and x > left:
            x, y = left, y + 20
        parts += [sign(x, y), text(said, x + 24, y + 4, 11, fill="#44525f")]
        x += room
    return element("g", "".join(parts), class_="legend"), y - top + 18


Sign = Callable[[float, float], str]


def _items(lanes: Sequence[Lane]) -> list[tuple[Sign, str]]:
    fates = {mark.fate for lane in lanes for mark in lane.marks}
    panes = [pane for lane in lanes for pane in lane.panes]
    timings = {pane.timing for pane in panes if pane.change == "upsert"}
    stages = {span.stage for lane in lanes for span in lane.spans}
    items: list[tuple[Sign, str]] = [(_event(fate), said) for fate, said in _EVENTS.items() if fate in fates]
    items += [(_bar(12, fill=_timing_colour(t), stroke="#7f8c98"), said) for t, said in _PANES.items() if t in timings]
    if any(pane.change == "retract" for pane in panes):
        retraction = _bar(12, fill="url(#hatch)", stroke=COLOURS["retract"], stroke_dasharray="4 2")
        items.append((retraction, "pane taken back"))
    items += [(_bar(5, fill=COLOURS[s], stroke="#9fabb6"), said) for s, said in _STAGES.items() if s in stages]
    if any(lane.after is not None for lane in lanes):
        items.append((_watermark, "watermark W, what is behind it shaded"))
    return items


def _event(fate: Fate) -> Sign:
    return lambda x, y: symbol(fate, x + 9, y)


def _bar(height: float, **style: str) -> Sign:
    return lambda x, y: element("rect", x=x, y=y - height / 2, width=18, height=height, rx=2, **style)


def _watermark(x: float, y: float) -> str:
    shade = element("rect", x=x, y=y - 7, width=12, height=14, fill=COLOURS["shade"])
    return shade + element(
        "line", x1=x + 12, y1=y - 7, x2=x + 12, y2=y + 7, stroke=COLOURS["watermark"], stroke_width=2
    )
