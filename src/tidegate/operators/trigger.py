"""Trigger: the question "does this window speak now?" as SQL over the rows of open windows.

A trigger tree becomes two boolean expressions – *fires*, and *on time* (it may speak without news) – over these
columns: ``_news`` (elements that no pane has shown), ``_is_late``, ``_is_on_time``, ``_closing`` and one flag per
interval trigger that says whether its clock crossed a multiple in this batch.

What composite triggers remember is one column each in the open state: `Each` the part it has reached, `AllOf` one
flag per part that has come true since the last pane. Parts remember only when they are asked: an `early` trigger is
not asked once its window is complete, nor a part of `Each` that is not its turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import assert_never

from tidegate.triggers import (
    AfterWatermark,
    AllOf,
    AnyOf,
    Count,
    Default,
    Each,
    EveryEventTime,
    EveryProcessingTime,
    FinalOnly,
    OnTime,
    Trigger,
)

Path = tuple[int, ...]
Interval = EveryEventTime | EveryProcessingTime


@dataclass(frozen=True)
class Turn:
    """A batch as windows see it: watermark and clock before and after it; *closed* is minus the allowed lateness."""

    before: int
    after: int
    closed_before: int
    closed: int
    clock_before: int
    clock: int

    def crosses(self, trigger: Interval) -> bool:
        """Whether the trigger's clock came to or past a multiple of its interval."""
        low, high = self.clock_before, self.clock
        if isinstance(trigger, EveryEventTime):
            low, high = self.before, self.after
        return low // trigger.interval < high // trigger.interval


@dataclass(frozen=True)
class Memory:
    """One thing a composite trigger remembers per window, as a column of the open state."""

    column: str
    type: str
    following: str
    """Its value after the trigger was asked."""

    @property
    def initial(self) -> str:
        return "0" if self.type == "INT" else "false"

    def merged(self, column: str) -> str:
        """Windows that become one keep the furthest part, and what has come true for any of them."""
        return f"coalesce({'max' if self.type == 'INT' else 'bool_or'}({column}), {self.initial})"

    def settled(self) -> str:
        """Its value after the batch: with each pane `AllOf` starts anew, `Each` stays where it is."""
        return self.following if self.type == "INT" else f"(NOT _speaks AND ({self.following}))"


@dataclass(frozen=True)
class Question:
    """A trigger as SQL, and what it remembers."""

    fires: str
    on_time: str
    memory: tuple[Memory, ...]
    intervals: tuple[Interval, ...]

    def flags(self, turn: Turn) -> list[int]:
        """Per interval trigger, whether it crosses in this batch; the columns ``_crossed_<i>``."""
        return [int(turn.crosses(interval)) for interval in self.intervals]

    @property
    def follows_event_time(self) -> bool:
        """Whether a moving watermark alone, far from any window's end, can make it true."""
        return any(isinstance(interval, EveryEventTime) for interval in self.intervals)


def question(trigger: Trigger, on_time: OnTime) -> Question:
    """Compile a trigger.

    >>> question(Count(3), "always").fires
    '_news >= 3'
    """
    compiler = _Compiler(on_time == "always")
    fires, may_repeat = compiler.ask(trigger, (), "true")
    return Question(fires, may_repeat, tuple(compiler.memory), tuple(compiler.intervals))


@dataclass
class _Compiler:
    always: bool
    memory: list[Memory] = field(default_factory=list)
    intervals: list[Interval] = field(default_factory=list)

    def ask(self, trigger: Trigger, path: Path, asked: str) -> tuple[str, str]:
        """(fires, on time) of a trigger at `path`; `asked` is the condition under which it is asked at all."""
        match trigger:
            case Default():
                return self._watermark_part(AfterWatermark(), path, asked)
            case AfterWatermark():
                return self._watermark_part(trigger, path, asked)
            case Count(n=n):
                return f"_news >= {n}", "false"
            case EveryEventTime() | EveryProcessingTime():
                if trigger not in self.intervals:
                    self.intervals.append(trigger)
                return f"_crossed_{self.intervals.index(trigger)}", "false"
            case FinalOnly():
                return "_closing", "false"
            case AnyOf(parts=parts):
                answers = [self.ask(part, (*path, i), asked) for i, part in enumerate(parts)]
                return _any(fires for fires, _ in answers), _any(on_time for _, on_time in answers)
            case AllOf():
                return self._all(trigger, path, asked)
            case Each():
                return self._each(trigger, path, asked)
            case _:  # pragma: no cover
                assert_never(trigger)

    def _watermark_part(self, trigger: AfterWatermark, path: Path, asked: str) -> tuple[str, str]:
        early = late = ("false", "false")
        if trigger.early is not None:
            early = self.ask(trigger.early, (*path, 0), f"{asked} AND NOT _is_on_time AND NOT _is_late")
        if trigger.late is not None:
            late = self.ask(trigger.late, (*path, 1), f"{asked} AND _is_late")
        else:
            late = ("_news > 0", "false")
        complete = ("true", "true") if self.always else ("_news > 0", "false")
        fires, on_time = (
            f"CASE WHEN _is_on_time THEN {at_end} WHEN _is_late THEN {after} ELSE {before} END"
            for at_end, after, before in zip(complete, late, early, strict=True)
        )
        return fires, on_time

    def _all(self, trigger: AllOf, path: Path, asked: str) -> tuple[str, str]:
        held, repeats = [], []
        for i, part in enumerate(trigger.parts):
            fires, on_time = self.ask(part, (*path, i), asked)
            column = _column("all", (*path, i))
            held.append(f"({column} OR ({fires}))")
            repeats.append(on_time)
            self.memory.append(Memory(column, "BOOLEAN", f"CASE WHEN {asked} THEN {held[-1]} ELSE {column} END"))
        fires = " AND ".join(held)
        return f"({fires})", f"({fires} AND {_any(repeats)})"

    def _each(self, trigger: Each, path: Path, asked: str) -> tuple[str, str]:
        column = _column("each", path)
        answers = [self.ask(part, (*path, i), f"{asked} AND {column} = {i}") for i, part in enumerate(trigger.parts)]
        fires, on_time = (
            f"CASE {column} " + " ".join(f"WHEN {i} THEN {answer[side]}" for i, answer in enumerate(answers)) + " END"
            for side in (0, 1)
        )
        furthest = len(trigger.parts) - 1
        advance = f"CASE WHEN {asked} AND ({fires}) THEN least({column} + 1, {furthest}) ELSE {column} END"
        self.memory.append(Memory(column, "INT", advance))
        return fires, on_time


def _column(kind: str, path: Path) -> str:
    return "_" + "_".join([kind, *map(str, path)])


def _any(conditions: Iterable[str]) -> str:
    return "(" + " OR ".join(f"({condition})" for condition in conditions) + ")"
