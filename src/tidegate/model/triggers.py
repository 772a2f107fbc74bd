"""Triggers, asked once per micro-batch and window, after the batch is in and the watermark has moved.

A trigger answers whether it is true now. It never finishes and never loses anything: the driver (`pipeline.py`) lets
a closing window say what no pane has shown, whatever the trigger answers.

Two triggers remember something between batches. `Each` remembers which part it has reached and advances whenever that
part was true; `AllOf` remembers which parts have come true since the last pane. How many elements have come since the
last pane is not the trigger's to count: the window knows which of its elements no pane has shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, assert_never

from tidegate import triggers as t

Path = tuple[int, ...]
"""Where a trigger stands inside a composite one."""


@dataclass(frozen=True)
class Moment:
    """Everything a trigger may look at. `news` counts the elements that no pane has shown."""

    news: int
    end: int
    w_in: int
    w_out: int
    clock_in: int
    clock_out: int
    closing: bool
    on_time: t.OnTime

    @property
    def is_late(self) -> bool:
        return self.end <= self.w_in

    @property
    def is_on_time(self) -> bool:
        return self.w_in < self.end <= self.w_out


class Answer(NamedTuple):
    """`fires`: the trigger is true. `on_time`: and it may speak without news, as the on-time pane."""

    fires: bool
    on_time: bool = False


@dataclass
class TriggerMemory:
    """What a window's composite triggers remember: the part each has reached, the parts that came true."""

    reached: dict[Path, int] = field(default_factory=dict)
    came_true: dict[Path, set[int]] = field(default_factory=dict)

    def after_pane(self) -> None:
        """`AllOf` starts anew with each pane; `Each` stays where it is."""
        self.came_true.clear()

    @staticmethod
    def merged(memories: Iterable[TriggerMemory]) -> TriggerMemory:
        """Sessions that merge keep the furthest part, and what has come true for any of them."""
        result = TriggerMemory()
        for memory in memories:
            for path, part in memory.reached.items():
                result.reached[path] = max(part, result.reached.get(path, 0))
            for path, parts in memory.came_true.items():
                result.came_true.setdefault(path, set()).update(parts)
        return result


def ask(trigger: t.Trigger, now: Moment, memory: TriggerMemory, path: Path = ()) -> Answer:
    """Ask a trigger and let it remember."""
    match trigger:
        case t.Default():
            return _watermark_part(t.AfterWatermark(), now, memory, path)
        case t.AfterWatermark():
            return _watermark_part(trigger, now, memory, path)
        case t.Count(n=n):
            return Answer(now.news >= n)
        case t.EveryEventTime(interval=interval):
            # From "no watermark yet" to any value crosses a multiple: there is one below every time.
            return Answer(now.w_in // interval < now.w_out // interval)
        case t.EveryProcessingTime(interval=interval):
            return Answer(now.clock_in // interval < now.clock_out // interval)
        case t.FinalOnly():
            return Answer(now.closing)
        case t.AnyOf(parts=parts):
            answers = _ask_all(parts, now, memory, path)
            return Answer(any(a.fires for a in answers), any(a.on_time for a in answers))
        case t.AllOf(parts=parts):
            answers = _ask_all(parts, now, memory, path)
            held = memory.came_true.setdefault(path, set())
            held.update(position for position, answer in enumerate(answers) if answer.fires)
            fires = len(held) == len(parts)
            return Answer(fires, fires and any(a.on_time for a in answers))
        case t.Each(parts=parts):
            reached = memory.reached.get(path, 0)
            answer = ask(parts[reached], now, memory, (*path, reached))
            # "Was true" is enough, a pane need not have come of it: a crossing without news counts as its once.
            if answer.fires:
                memory.reached[path] = min(reached + 1, len(parts) - 1)
            return answer
        case _:  # pragma: no cover
            assert_never(trigger)


def _ask_all(parts: tuple[t.Trigger, ...], now: Moment, memory: TriggerMemory, path: Path) -> list[Answer]:
    # Every part is asked, also when the first one has decided: asking is how parts remember.
    return [ask(part, now, memory, (*path, position)) for position, part in enumerate(parts)]


def _watermark_part(trigger: t.AfterWatermark, now: Moment, memory: TriggerMemory, path: Path) -> Answer:
    if now.is_on_time:
        always = now.on_time == "always"
        return Answer(always or now.news > 0, always)
    if now.is_late:
        if trigger.late is None:
            return Answer(now.news > 0)
        return ask(trigger.late, now, memory, (*path, 1))
    return Answer(False) if trigger.early is None else ask(trigger.early, now, memory, (*path, 0))
