"""The lateness picture: how far behind events came, and what the watermark made of them.

One SVG, written by hand and without any dependency, that answers the question behind every watermark:
*is the delay right?* Left, each dot is an event: when it arrived, and how far behind the newest event
of its partition it came then, coloured by its fate. Two lines mark the delay and the delay plus the
allowed lateness. Right, on the same scale, the share of events that came no further behind than that.

An event may lie above the upper line and still be accepted: lateness is judged by the *window*, which
closes at its end plus the allowed lateness, and the watermark moves only between batches.

Counts and shares are of all events given; dots are a sample, of equal size for each fate where it can
be, or else the few dead letters would drown in what was on time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import escape
from math import log10, pow
from pathlib import Path
from random import Random
from typing import Literal

from tidegate.errors import PipelineError
from tidegate.time import FOREVER, SECOND, Duration, micros, show

Fate = Literal["on_time", "accepted_late", "dead_lettered"]
Arrival = tuple[int, int, Fate]
"""When it arrived, how far behind the newest event of its partition (both in µs), and its fate."""

_FATES: dict[str, tuple[str, str]] = {
    "on_time": ("on time", "#4c86c6"),
    "accepted_late": ("accepted late", "#e0952b"),
    "dead_lettered": ("dead letter LATE", "#c2344d"),
}
_INK, _SOFT, _GRID = "#1f2933", "#616e7c", "#e4e7eb"
_WIDTH, _HEIGHT = 1200, 660
_LEFT, _RIGHT, _TOP, _BOTTOM = 96, 880, 130, 580
_CURVE_LEFT, _CURVE_RIGHT = 930, 1160
_AXIS = _BOTTOM + 10  # apart from the lowest dots, which would else hide it
_FLOOR = SECOND // 10
_MINUTE, _HOUR, _DAY = 60 * SECOND, 3_600 * SECOND, 86_400 * SECOND
_Y_TICKS = (_FLOOR, SECOND, 10 * SECOND, _MINUTE, 10 * _MINUTE, _HOUR, 6 * _HOUR, _DAY, 7 * _DAY, 30 * _DAY, 365 * _DAY)
_X_STEPS = (1, 5, 10, 30, 60, 300, 600, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400, 604_800)
_X_STEPS_MOST = 8


@dataclass(frozen=True)
class _Scale:
    """From arrival and lateness to places on the picture."""

    first: int
    last: int
    highest: int

    def x(self, arrival: int) -> float:
        return _LEFT + (arrival - self.first) / max(self.last - self.first, 1) * (_RIGHT - _LEFT)

    def y(self, behind: int) -> float:
        """Logarithmic; what is less than a tenth of a second behind lies on the floor."""
        height = log10(max(behind, _FLOOR) / _FLOOR) / log10(self.highest / _FLOOR)
        return _BOTTOM - height * (_BOTTOM - _TOP)


def draw_lateness(
    path: Path,
    *,
    arrivals: Sequence[Arrival],
    delay: Duration,
    allowed_lateness: Duration = "0s",
    title: str = "Lateness against the watermark",
    most_dots: int = 6_000,
) -> Path:
    """Draw `arrivals` as an SVG at `path`; `delay` and `allowed_lateness` are those of the pipeline."""
    if not arrivals:
        raise PipelineError("there is no event to draw the lateness of", hint="draw after the first batch")
    for fate in {fate for _, _, fate in arrivals} - _FATES.keys():
        raise PipelineError(f"an event cannot have the fate {fate!r}", hint="choose from " + ", ".join(_FATES))
    delay_us = micros(delay, what="watermark delay")
    lateness_us = micros(allowed_lateness, what="allowed lateness")
    bounds = [(delay_us, "watermark delay")]
    if 0 < lateness_us < FOREVER:
        bounds.append((delay_us + lateness_us, "delay + allowed lateness"))

    behind = sorted(behind for _, behind, _ in arrivals)
    times = [arrival for arrival, _, _ in arrivals]
    # Room above the highest dot and line, so that a label fits there.
    highest = 2 * max(behind[-1], bounds[-1][0], 10 * SECOND)
    scale = _Scale(min(times), max(times), highest)

    parts = [
        *_header(title, arrivals, most_dots // len(_FATES)),
        *_axes(scale),
        *_dots(scale, arrivals, most_dots // len(_FATES)),
        *_bounds(scale, bounds),
        *_curve(scale, behind, bounds),
    ]
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}"'
        f' font-family="Inter, Helvetica, Arial, DejaVu Sans, sans-serif" font-size="13" fill="{_INK}">\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(svg, encoding="utf-8")
    return path


def _header(title: str, arrivals: Sequence[Arrival], most_of_a_fate: int) -> list[str]:
    counts = Counter[str](fate for _, _, fate in arrivals)
    sampled = max(counts.values()) > most_of_a_fate
    dots = f"dots are a sample, at most {most_of_a_fate:,} of a fate" if sampled else "each is a dot"
    parts = [
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fcfcfd"/>',
        _text(_LEFT, 44, title, size=22, weight=600),
        _text(_LEFT, 68, f"{len(arrivals):,} events; {dots}", colour=_SOFT),
    ]
    x = float(_LEFT)
    for fate, (name, colour) in _FATES.items():
        label = f"{name} {counts[fate]:,} ({_percent(counts[fate], len(arrivals))})"
        parts.append(f'<circle cx="{x + 5:.0f}" cy="96" r="5" fill="{colour}"/>')
        parts.append(_text(x + 17, 101, label))
        x += 17 + 7.6 * len(label) + 20
    return parts


def _axes(scale: _Scale) -> list[str]:
    parts = []
    for tick in (tick for tick in _Y_TICKS if tick <= scale.highest):
        y = scale.y(tick)
        for left, right in ((_LEFT, _RIGHT), (_CURVE_LEFT, _CURVE_RIGHT)):
            parts.append(_line(left, y, right, y, _GRID))
        label = f"≤ {show(tick)}" if tick == _FLOOR else show(tick)
        parts.append(_text(_LEFT - 10, y + 4.5, label, anchor="end", colour=_SOFT))
    step = next((s for s in _X_STEPS if (scale.last - scale.first) / (s * SECOND) <= _X_STEPS_MOST), _X_STEPS[-1])
    step_us = step * SECOND
    pattern = "%H:%M:%S" if step < 60 else "%H:%M" if step < 86_400 else "%d %b"
    for tick in range(-(-scale.first // step_us) * step_us, scale.last + 1, step_us):
        x = scale.x(tick)
        parts.append(_line(x, _AXIS, x, _AXIS + 6, _SOFT))
        parts.append(_text(x, _AXIS + 23, _instant(tick).strftime(pattern), anchor="middle", colour=_SOFT))
    days = dict.fromkeys(_instant(instant).strftime("%Y-%m-%d") for instant in (scale.first, scale.last))
    middle, centre = (_LEFT + _RIGHT) / 2, (_TOP + _BOTTOM) / 2
    return [
        *parts,
        _line(_LEFT, _AXIS, _RIGHT, _AXIS, _SOFT),
        _text(middle, _AXIS + 48, f"arrival time, UTC ({' – '.join(days)})", anchor="middle"),
        f'<g transform="rotate(-90 26 {centre:.0f})">'
        + _text(26, centre, "behind the newest event of its partition (log scale)", anchor="middle")
        + "</g>",
    ]


def _dots(scale: _Scale, arrivals: Sequence[Arrival], most_of_a_fate: int) -> list[str]:
    """One path per fate, each dot a line of no length with round ends: small, and quick to render."""
    parts = []
    for fate, (_, colour) in _FATES.items():
        mine = [(arrival, behind) for arrival, behind, its in arrivals if its == fate]
        if len(mine) > most_of_a_fate:
            # A fixed seed: the same events give the same picture.
            mine = Random(7).sample(mine, most_of_a_fate)
        dots = "".join(f"M{scale.x(arrival):.1f} {scale.y(behind):.1f}h.01" for arrival, behind in mine)
        parts.append(
            f'<path d="{dots}" stroke="{colour}" stroke-width="4.4" stroke-linecap="round" stroke-opacity="0.65"'
            f' fill="none"><title>{_FATES[fate][0]}: {len(mine):,} dots</title></path>'
        )
    return parts


def _bounds(scale: _Scale, bounds: list[tuple[int, str]]) -> list[str]:
    """The lowest line is labelled below, the other above, so that close lines do not cover each other's."""
    parts = []
    for index, (bound, name) in enumerate(bounds):
        y = scale.y(bound)
        above = index > 0 or y > _BOTTOM - 24
        parts.append(_line(_LEFT, y, _RIGHT, y, _INK, dash=not index))
        parts.append(_line(_CURVE_LEFT, y, _CURVE_RIGHT, y, _INK, dash=not index))
        parts.append(_text(_LEFT + 10, y - 8 if above else y + 18, f"{name} {show(bound)}", weight=600, halo=True))
    return parts


def _curve(scale: _Scale, behind: list[int], bounds: list[tuple[int, str]]) -> list[str]:
    """How much of all came no further behind: the share to the right, on the lateness scale of the dots."""

    def x(share: float) -> float:
        return _CURVE_LEFT + share * (_CURVE_RIGHT - _CURVE_LEFT)

    def lateness(y: float) -> float:
        return _FLOOR * pow(scale.highest / _FLOOR, (_BOTTOM - y) / (_BOTTOM - _TOP))

    points = [f"{x(bisect_right(behind, lateness(y)) / len(behind)):.1f},{y}" for y in range(_BOTTOM, _TOP - 1, -3)]
    parts = [
        _text((_CURVE_LEFT + _CURVE_RIGHT) / 2, _TOP - 14, "share of events at most this far behind", anchor="middle"),
        _line(_CURVE_LEFT, _AXIS, _CURVE_RIGHT, _AXIS, _SOFT),
        f'<polyline points="{" ".join(points)}" fill="none" stroke="{_INK}" stroke-width="2"/>',
    ]
    for share in (0.0, 0.5, 1.0):
        parts.append(_line(x(share), _AXIS, x(share), _AXIS + 6, _SOFT))
        parts.append(_text(x(share), _AXIS + 23, f"{share:.0%}", anchor="middle", colour=_SOFT))
    for index, (bound, _) in enumerate(bounds):
        within, y = bisect_right(behind, bound), scale.y(bound)
        below = index == 0 and y <= _BOTTOM - 24
        label = f"{_percent(within, len(behind))} within {show(bound)}"
        dot = x(within / len(behind))
        parts.append(f'<circle cx="{dot:.1f}" cy="{y:.1f}" r="4.5" fill="{_INK}"/>')
        parts.append(_text(_CURVE_RIGHT - 12, y + 18 if below else y - 8, label, anchor="end", weight=600, halo=True))
    return parts


def _percent(part: int, whole: int) -> str:
    """`100 %` means all and `0 %` means none; what only rounds to them is shown as almost."""
    if part in (0, whole):
        return f"{100 * part // whole} %"
    return f"{min(max(100 * part / whole, 0.01), 99.99):.2f} %"


def _instant(us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, *, dash: bool = False) -> str:
    dashes = ' stroke-dasharray="6 4"' if dash else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{dashes}/>'


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    size: int = 13,
    weight: int = 400,
    colour: str = _INK,
    halo: bool = False,
) -> str:
    # A halo keeps a label readable where dots lie behind it.
    behind = ' stroke="#fcfcfd" stroke-width="4" stroke-linejoin="round" paint-order="stroke"' if halo else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}"'
        f' fill="{colour}"{behind}>{escape(text)}</text>'
    )
