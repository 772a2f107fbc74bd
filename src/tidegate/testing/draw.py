"""Transcripts as pictures: a time line in SVG, made by playing a transcript on the reference model.

Event time runs from left to right, the steps from top to bottom. In each lane the events stand above the panes, and
the watermark makes its step between the two, for that is what it does: events are judged by the watermark before their
batch, windows fire by the one after it. What lies behind the watermark is shaded. A thin strip at the bottom of a lane
shows the windows: still open, complete, or closed.

>>> from tidegate.testing import parse
>>> play = parse({"name": "two", "window": {"tumbling": 10}, "steps": [{"batch": [1, 2]}, {"watermark": 10}]})
>>> draw(play).startswith("<svg")
True
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.testing.flow import show_event, show_number, show_pane, show_seconds
from tidegate.testing.legend import COLOURS, HATCH, legend, pane_style, symbol
from tidegate.testing.outcomes import EventOut, PaneOut
from tidegate.testing.svg import FONT, Axis, Rows, element, shorten, text, title, width, wrap
from tidegate.testing.timeline import Lane, Mark, Span, play
from tidegate.testing.transcripts import Transcript
from tidegate.time import show

WIDTH = 960
LEFT, RIGHT = 180, WIDTH - 28
"""Where event time begins and ends; the steps are named to the left of it."""
EVENT_ROW, PANE_ROW, WINDOW_ROW = 18, 22, 7
MOST_LABELS = 14
"""A lane with more events shows them without labels; the mouse still finds each."""
MOST_WINDOW_ROWS = 5
KEY_COLOURS = ("#1d3557", "#8a3ffc", "#00695c", "#9c2a6b", "#7a5200", "#37474f")


def draw(transcript: Transcript) -> str:
    """The time line of one transcript, as the text of an SVG file."""
    return _Drawing(transcript).render()


class _Drawing:
    """One drawing: where things go is decided from top to bottom, `y` is how far it is."""

    def __init__(self, transcript: Transcript) -> None:
        self.transcript = transcript
        self.lanes = play(transcript)
        events = [mark.event for lane in self.lanes for mark in lane.marks]
        keys = list(dict.fromkeys(event.key for event in events))
        self.key_colours = {key: KEY_COLOURS[i % len(KEY_COLOURS)] for i, key in enumerate(keys)}
        self.several_keys = len(keys) > 1
        self.several_partitions = len({event.partition for event in events}) > 1
        longest = max((span.end - span.start for lane in self.lanes for span in lane.spans), default=0)
        self.axis = Axis.over(_times(self.lanes), LEFT + 14, RIGHT - 14, whole=longest)
        self.shades: list[str] = []
        self.parts: list[str] = []
        self.y = 0.0

    def render(self) -> str:
        self._heading()
        self._ticks(self.y + 12)
        self.y += 20
        top, below = self.y, len(self.parts)
        for lane in self.lanes:
            self._lane(lane)
        self.parts[below:below] = [*self.shades, *self._grid(top)]
        self._ticks(self.y + 15)
        self.y += 36
        drawn, height = legend(self.lanes, self.y, 20, RIGHT)
        self.parts.append(drawn)
        self.y += height
        page = element("rect", width=WIDTH, height=self.y, fill="#ffffff")
        return element(
            "svg",
            "\n".join(["", title(self.transcript.name), HATCH, page, *self.parts, ""]),
            xmlns="http://www.w3.org/2000/svg",
            width=WIDTH,
            height=self.y,
            viewBox=f"0 0 {WIDTH} {self.y:.0f}",
            font_family=FONT,
            role="img",
        )

    def _heading(self) -> None:
        transcript = self.transcript
        self.y = 14
        for line in wrap(transcript.name.replace("_", " "), 17 * 1.12, RIGHT - 20):  # bold is wider
            self._line(line, 17, "#1b2733", font_weight="bold")
        for line in wrap(transcript.why or "", 13, RIGHT - 20):
            self._line(line, 13, "#44525f")
        settings = [str(transcript.window), f"trigger {transcript.trigger}", transcript.accumulation]
        settings += [f"allowed lateness {show(transcript.allowed_lateness)}"] if transcript.allowed_lateness else []
        watermarks = [f"watermark of {name}: {strategy}" for name, strategy in transcript.sources]
        settings += [*(watermarks or [f"watermark {transcript.watermark}"]), f"aggregate {transcript.aggregate}"]
        if transcript.then is not None:
            settings.append(f"then {transcript.then.window}, aggregate {transcript.then.aggregate}: its panes")
        for line in wrap("  ·  ".join(settings), 11, RIGHT - 20):
            self._line(line, 11, "#7a8794")
        self.y += 10

    def _line(self, content: str, size: float, fill: str, **attributes: str) -> None:
        self.y += size * 1.35
        self.parts.append(text(content, 20, self.y, size, fill=fill, **attributes))

    def _tick_times(self) -> list[int]:
        """The bounds of windows say most, then where the watermark was, then events."""
        bounds = [t for lane in self.lanes for span in lane.spans for t in (span.start, span.end)]
        watermarks = [lane.after for lane in self.lanes if lane.after is not None]
        events = [mark.event.time for lane in self.lanes for mark in lane.marks]
        return list(dict.fromkeys([*bounds, *watermarks, *events]))

    def _ticks(self, y: float) -> None:
        self.parts.append(text("event time, seconds", 20, y, 10, fill="#7a8794"))
        taken = Rows(gap=8)
        for time in self._tick_times():
            label, x = show_seconds(time), self.axis.at(time)
            half = width(label, 10) / 2
            if x + half <= WIDTH - 4 and taken.place(x - half, x + half) == 0:
                self.parts.append(text(label, x, y, 10, fill="#5b6875", text_anchor="middle"))

    def _grid(self, top: float) -> list[str]:
        """Lines at the bounds of windows, and a mark where the axis leaves something out."""
        bounds = dict.fromkeys(t for lane in self.lanes for span in lane.spans for t in (span.start, span.end))
        lines = [
            element("line", x1=self.axis.at(t), y1=top, x2=self.axis.at(t), y2=self.y, stroke="#e3e8ed") for t in bounds
        ]
        for x in self.axis.breaks:
            for y in (top - 12, self.y + 10):
                shape = f"M{x - 5:.1f} {y + 5:.1f}l4 -9m3 9l4 -9"
                lines.append(element("path", title("time left out"), d=shape, stroke="#8b97a3", fill="none"))
        return lines

    def _lane(self, lane: Lane) -> None:
        marks, events_height = self._marks(lane.marks, self.y + 6)
        step_at = self.y + (events_height + 9 if lane.marks else 0)
        panes, panes_height = self._panes(lane.panes, step_at + 5)
        strip_at = max(step_at + 5 + panes_height, self.y + (44 if lane.sources else 31))
        spans, spans_height = self._spans(lane.spans, strip_at)
        bottom = strip_at + spans_height + 5
        self._watermark(lane, self.y, step_at, bottom)
        self.parts.append(text(shorten(lane.title, 12, LEFT - 24), 20, self.y + 16, 12, fill="#1b2733"))
        said = "no watermark yet" if lane.after is None else f"W = {show_seconds(lane.after)}"
        each = ", ".join(f"{name} {'–' if at is None else show_seconds(at)}" for name, at in lane.sources)
        for number, line in enumerate([said, *([each] if each else [])]):
            y = self.y + 30 + 13 * number
            self.parts.append(text(shorten(line, 10, LEFT - 24), 20, y, 10, fill=COLOURS["watermark"]))
        self.parts += [*spans, *marks, *panes]
        self.parts.append(element("line", x1=20, y1=bottom, x2=RIGHT, y2=bottom, stroke="#c9d1d9"))
        self.y = bottom

    def _watermark(self, lane: Lane, top: float, step_at: float, bottom: float) -> None:
        """The shade behind the watermark and its line, with the step that it makes in this lane."""
        if lane.after is None:
            return
        after = self.axis.at(lane.after)
        corners = [(after, step_at), (after, bottom)]
        if lane.before is not None:
            before = self.axis.at(lane.before)
            corners = [(before, top), (before, step_at), *corners]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
        shade = f"{LEFT},{corners[0][1]:.1f} {line} {LEFT},{bottom:.1f}"
        self.shades.append(element("polygon", points=shade, fill=COLOURS["shade"]))
        self.parts.append(element("polyline", points=line, fill="none", stroke=COLOURS["watermark"], stroke_width=1.6))

    def _marks(self, marks: Sequence[Mark], top: float) -> tuple[list[str], float]:
        rows, drawn = Rows(gap=4), []
        for mark in marks:
            event, x = mark.event, self.axis.at(mark.event.time)
            label = shorten(self._event_label(mark), 11, 150) if len(marks) <= MOST_LABELS else ""
            room = width(label, 11) + 3 if label else 0
            to_right = x + 7 + room <= RIGHT
            reach = (x - 6, x + 6 + room) if to_right else (x - 6 - room, x + 6)
            y = top + rows.place(*reach) * EVENT_ROW + EVENT_ROW / 2
            full = show_event(EventOut(event.time, event.key, event.value, event.partition, event.id, event.source))
            parts = [title(f"{full} {mark.fate.replace('_', ' ')}"), symbol(mark.fate, x, y)]
            if label:
                place = (x + 8, "start") if to_right else (x - 8, "end")
                fill = self.key_colours[event.key]
                parts.append(_edged(label, place[0], y + 4, 11, fill=fill, text_anchor=place[1]))
            drawn.append(element("g", "".join(parts), class_=f"event {mark.fate}"))
        return drawn, len(rows) * EVENT_ROW

    def _event_label(self, mark: Mark) -> str:
        event = mark.event
        parts = [self._key(event.key) + show_number(event.value)]
        parts += [event.source] if event.source is not None else []
        parts += [f"p{event.partition}"] if self.several_partitions else []
        parts += [f"id {event.id}"] if event.id is not None else []
        return " ".join(parts)

    def _panes(self, panes: Sequence[PaneOut], top: float) -> tuple[list[str], float]:
        rows, drawn = Rows(gap=0), []  # bars may touch, as their windows do
        for pane in panes:
            start, end = (LEFT, RIGHT) if pane.window is None else (self.axis.at(t) for t in pane.window)
            # At most a third of the width: then a label that does not fit its bar fits on one side of it.
            label = self._pane_label(pane, (RIGHT - LEFT) / 3)
            room = width(label, 11) + 10
            if room <= end - start:
                reach, x, anchor = (start, end), (start + end) / 2, "middle"
            elif end + room <= RIGHT:
                reach, x, anchor = (start, end + room), end + 5, "start"
            else:
                reach, x, anchor = (start - room, end), start - 5, "end"
            y = top + rows.place(*reach) * PANE_ROW
            size = {"width": max(end - start, 2), "height": PANE_ROW - 5}
            bar = element("rect", x=start, y=y, rx=3, **size, **pane_style(pane))
            fill = self.key_colours.get(pane.key, KEY_COLOURS[0])
            plain = anchor == "middle" and pane.change == "upsert"  # on a bar of one colour nothing is behind the text
            said = (text if plain else _edged)(label, x, y + 12.5, 11, fill=fill, text_anchor=anchor)
            parts = [title(show_pane(pane)), bar, said]
            drawn.append(element("g", "".join(parts), class_=f"pane {pane.change} {pane.timing}"))
        return drawn, len(rows) * PANE_ROW

    def _pane_label(self, pane: PaneOut, room: float) -> str:
        timing = "taken back" if pane.change == "retract" else pane.timing.replace("_", " ")
        rest = f" · {timing} #{pane.index}" + (" · final" if pane.final and pane.change == "upsert" else "")
        if pane.values is None:
            values = show_number(pane.value if pane.value is not None else 0)
        else:
            values = f"[{', '.join(map(show_number, pane.values))}]"
        key = self._key(pane.key)
        return key + shorten(values, 11, room - width(key + rest, 11)) + rest

    def _key(self, key: str) -> str:
        """How a label begins; with one key there is nothing to tell apart."""
        return f"{shorten(key, 11, 70)}: " if self.several_keys else ""

    def _spans(self, spans: Sequence[Span], top: float) -> tuple[list[str], float]:
        rows, drawn = Rows(gap=0), []
        for span in spans:
            start, end = self.axis.at(span.start) + 1, self.axis.at(span.end) - 1
            row = rows.place(start, end)
            if row < MOST_WINDOW_ROWS:
                said = title(f"window [{show_seconds(span.start)}, {show_seconds(span.end)}] {span.stage}")
                box = element(
                    "rect",
                    said,
                    x=start,
                    y=top + row * WINDOW_ROW,
                    width=max(end - start, 1),
                    height=WINDOW_ROW - 3,
                    fill=COLOURS[span.stage],
                    stroke="#9fabb6",
                    stroke_width=0.6,
                    class_=f"window {span.stage}",
                )
                drawn.append(box)
        return drawn, min(len(rows), MOST_WINDOW_ROWS) * WINDOW_ROW


def _edged(content: str, x: float, y: float, size: float, **attributes: str | float) -> str:
    """Text with a light edge, so that lines behind it do not cut through it."""
    edge: dict[str, str | float] = {"stroke": "#ffffff", "stroke_width": 3, "stroke_opacity": 0.8}
    return text(content, x, y, size, paint_order="stroke", **edge, **attributes)


def _times(lanes: Sequence[Lane]) -> list[int]:
    """Every instant that the drawing needs a place for."""
    times = [t for lane in lanes for t in (lane.before, lane.after) if t is not None]
    for lane in lanes:
        times += [mark.event.time for mark in lane.marks]
        times += [t for span in lane.spans for t in (span.start, span.end)]
        times += [t for pane in lane.panes if pane.window is not None for t in pane.window]
    return times
