"""A transcript as it went on the reference model: one lane per step, with all that a drawing needs to show.

The checker asks whether a transcript is right; a reader wants to see what happens in it. So the model plays it, and
each step becomes a `Lane`: the watermark before it (by which its events were judged) and after it (by which windows
fired), the fate of each event, the panes, and how far each window has come.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, assert_never

from tidegate.model.values import BEGINNING, Bounds, is_closed
from tidegate.model.windows import calendar_window, cut_sessions, hopping_windows
from tidegate.testing.flow import show_seconds
from tidegate.testing.model_executor import ModelExecutor, ModelRun
from tidegate.testing.outcomes import EventOut, PaneOut, Step
from tidegate.testing.steps import Action, Batch, EventIn, MoveClock, MoveWatermark, Restart
from tidegate.testing.transcripts import Transcript
from tidegate.windows import Calendar, Hopping, Rolling, Session, Window

Fate = Literal["accepted", "accepted_late", "partially_late", "late", "duplicate", "future"]
Stage = Literal["open", "complete", "closed"]


@dataclass(frozen=True)
class Mark:
    """An event and what became of it. Accepted late: at least one of its windows was complete already."""

    event: EventIn
    fate: Fate


@dataclass(frozen=True)
class Span:
    """A window that events have met, and how far it is after the step."""

    start: int
    end: int
    stage: Stage


@dataclass(frozen=True)
class Lane:
    """One step. `before` and `after` are the watermark, `None` while nothing has moved it."""

    title: str
    before: int | None
    after: int | None
    marks: tuple[Mark, ...]
    panes: tuple[PaneOut, ...]
    spans: tuple[Span, ...]
    sources: tuple[tuple[str, int | None], ...] = ()
    """With several sources: the watermark of each after the step."""


def play(transcript: Transcript) -> tuple[Lane, ...]:
    """Play a transcript on the model and keep what happened; what it expects does not matter here."""
    run = ModelExecutor().start(transcript)
    # With a second operator the panes are its own, and so are the windows; it is behind by the first one's lateness.
    window = transcript.window if transcript.then is None else transcript.then.window
    windows = _Windows(window, transcript.allowed_lateness)
    lanes: list[Lane] = []
    before: int | None = None
    batches = 0
    for scene in transcript.scenes:
        batches += isinstance(scene.action, Batch)
        step = _act(run, scene.action)
        events = scene.action.events if isinstance(scene.action, Batch) else ()
        marks = windows.judge(_fates(events, step), BEGINNING if before is None else before)
        spans = windows.advance(BEGINNING if step.watermark is None else step.watermark)
        sources = tuple(run.sources().items()) if transcript.sources else ()
        lanes.append(Lane(_title(scene.action, batches), before, step.watermark, marks, step.panes, spans, sources))
        before = step.watermark
    return tuple(lanes)


def _act(run: ModelRun, action: Action) -> Step:
    match action:
        case Batch(events=events):
            return run.batch(events)
        case MoveWatermark(to=to, source=source):
            return run.watermark(to, source)
        case MoveClock(to=to):
            return run.clock(to)
        case Restart():
            return run.restart()
        case _:  # pragma: no cover
            assert_never(action)


def _title(action: Action, batches: int) -> str:
    match action:
        case Batch():
            return f"batch {batches}"
        case MoveWatermark(to=to, source=source):
            return f"{source or 'watermark'} → {show_seconds(to)}"
        case MoveClock(to=to):
            return f"clock → {show_seconds(to)}"
        case Restart():
            return "restart"
        case _:  # pragma: no cover
            assert_never(action)


def _fates(events: Sequence[EventIn], step: Step) -> tuple[Mark, ...]:
    """Who was refused. Of equal events the first one counts, so refusals are handed out from the end."""
    refused: dict[Fate, Counter[EventOut]] = {
        "late": Counter(step.late),
        "future": Counter(step.future),
        "duplicate": Counter(step.duplicates),
        "partially_late": Counter(step.partially_late),
    }
    marks: list[Mark] = []
    for event in reversed(events):
        seen = EventOut(event.time, event.key, event.value, event.partition, event.id, event.source)
        fate: Fate = next((fate for fate, left in refused.items() if left[seen]), "accepted")
        if fate != "accepted":
            refused[fate][seen] -= 1
        marks.append(Mark(event, fate))
    return tuple(reversed(marks))


class _Windows:
    """The windows that events have met, kept as the model keeps them: while one of them is open."""

    def __init__(self, window: Window, allowed_lateness: int) -> None:
        self._window, self._lateness = window, allowed_lateness
        self._kept: list[EventIn] = []
        self._gone: set[Bounds] = set()

    def judge(self, marks: Sequence[Mark], w_in: int) -> tuple[Mark, ...]:
        """Take in the accepted events, and tell those that came after their window was complete."""
        self._kept += [mark.event for mark in marks if mark.fate in ("accepted", "partially_late")]
        if not isinstance(self._window, Session):
            # A session nobody is in does not exist; a fixed window that was missed does.
            self._gone.update(b for mark in marks if mark.fate == "late" for b, _ in self._cut([mark.event]))
        complete = {
            id(event)
            for bounds, events in self._cut(self._kept)
            if bounds[1] <= w_in and not is_closed(bounds[1], self._lateness, w_in)
            for event in events
        }
        return tuple(
            Mark(mark.event, "accepted_late") if mark.fate == "accepted" and id(mark.event) in complete else mark
            for mark in marks
        )

    def advance(self, w_out: int) -> tuple[Span, ...]:
        """How far each window is at `w_out`; closed ones are remembered, their events are not."""
        cut = self._cut(self._kept)
        alive = {id(event) for bounds, events in cut if not self._closed(bounds, w_out) for event in events}
        self._gone.update(bounds for bounds, _ in cut if self._closed(bounds, w_out))
        self._kept = [event for event in self._kept if id(event) in alive]
        stages: dict[Bounds, Stage] = dict.fromkeys(self._gone, "closed")
        for bounds, _ in cut:
            if not self._closed(bounds, w_out):
                stages[bounds] = "complete" if bounds[1] <= w_out else "open"
        return tuple(Span(start, end, stage) for (start, end), stage in sorted(stages.items()))

    def _closed(self, bounds: Bounds, watermark: int) -> bool:
        return is_closed(bounds[1], self._lateness, watermark)

    def _cut(self, events: Iterable[EventIn]) -> list[tuple[Bounds, list[EventIn]]]:
        """The windows of these events; the global window, which has no bounds, is none."""
        if isinstance(self._window, Session):
            by_key: dict[str, list[EventIn]] = defaultdict(list)
            for event in events:
                by_key[event.key].append(event)
            return [
                found for of_key in by_key.values() for found in cut_sessions(self._window, of_key, lambda e: e.time)
            ]
        return [(bounds, [event]) for event in events for bounds in self._fixed(event.time)]

    def _fixed(self, time: int) -> list[Bounds]:
        match self._window:
            case Hopping() as window:
                return hopping_windows(window, time)
            case Calendar() as window:
                return [calendar_window(window, time)]
            case Rolling(size=size):
                return [(time - size, time)]
            case _:
                return []
