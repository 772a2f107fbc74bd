"""What the model keeps of a window while it is open.

The model keeps every element of every open window, also in discarding mode. That makes it simple to say what a session
is after a merge or a cut, and it *is* the memory for duplicates: an id is remembered exactly as long as a window that
accepted its event is open.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidegate.model.triggers import TriggerMemory
from tidegate.model.values import Bounds, Event, Pane


@dataclass(eq=False)
class Element:
    """One event in one window, and whether a pane of the window has shown it."""

    event: Event
    shown: bool = False


@dataclass(eq=False)
class Said:
    """A pane that stands until it is taken back; sessions that one session was cut into share it."""

    pane: Pane
    taken_back: bool = False


@dataclass(eq=False)
class OpenWindow:
    """A (key, window) that has elements and is not closed."""

    key: str
    bounds: Bounds
    elements: list[Element] = field(default_factory=list)
    memory: TriggerMemory = field(default_factory=TriggerMemory)
    next_index: int = 0
    said: list[Said] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.bounds[1]

    @property
    def news(self) -> list[Element]:
        """The elements that no pane has shown."""
        return [element for element in self.elements if not element.shown]
