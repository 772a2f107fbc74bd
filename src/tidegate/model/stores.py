"""Open windows under each way of cutting time: fixed, session, rolling.

A store answers two questions and keeps the open windows: who of these events is late at `W_in` (`judge`), and what do
the windows look like with the accepted ones in them (`add`)? It keeps every element of every open window, also in
discarding mode. That makes it simple to say what a session is after a merge or a cut, and it *is* the memory for
duplicates: an id is remembered exactly as long as a window that accepted its event is open.

A **fixed** window (tumbling, hopping, calendar, global) stands before its events come. An event is late when all its
windows are closed, and partially late when only some are.

A **session** is made by its events, so it is judged after merging with what is retained and with the rest of the
batch. When it changes its bounds it is a new window: what its parts had not shown stays news, what they had said
stands until the first pane that replaces it. A session that `max_length` cuts anew says everything again.

A **rolling** window belongs to one event time: ``(t − size, t]``, complete when the watermark reaches t.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from tidegate.model.triggers import TriggerMemory
from tidegate.model.values import INFINITY, Bounds, Event, Pane, is_closed
from tidegate.model.windows import calendar_window, cut_sessions, hopping_windows
from tidegate.triggers import Accumulation
from tidegate.windows import Calendar, Global, Hopping, Rolling, Session, Window

GLOBAL: Bounds = (-INFINITY, INFINITY)


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


class Store(ABC):
    """Open windows under one way of cutting time."""

    def __init__(self, allowed_lateness: int) -> None:
        self.lateness = allowed_lateness
        self.open: dict[tuple[str, Bounds], OpenWindow] = {}

    @abstractmethod
    def judge(self, events: Sequence[Event], w_in: int) -> list[bool]:
        """Per event, whether it is late."""

    def is_partially_late(self, event: Event, w_in: int) -> bool:
        """Whether an event that is not late missed a window that had closed."""
        return False

    @abstractmethod
    def add(self, events: Sequence[Event], w_in: int) -> None:
        """Take in accepted events."""

    def windows(self) -> Iterator[OpenWindow]:
        """All open windows, by key and time."""
        return (self.open[name] for name in sorted(self.open))

    def drop_closed(self, w_out: int) -> None:
        """Forget what the watermark has closed."""
        self.open = {n: w for n, w in self.open.items() if not is_closed(w.end, self.lateness, w_out)}

    def withdraw(self, events: Collection[Event]) -> None:
        """Take out events that an operator before this one has taken back; a window without events is none."""
        assert not events, "only fixed windows go over corrected results: others could fall apart, or vanish"

    def remembered(self) -> Iterator[Event]:
        """The accepted events of which a repeat would be a duplicate: those whose windows are open."""
        return (element.event for window in self.windows() for element in window.elements)


def store_for(window: Window, allowed_lateness: int, accumulation: Accumulation) -> Store:
    """The store that cuts time as `window` says."""
    if isinstance(window, Session):
        return SessionStore(window, allowed_lateness, accumulation)
    if isinstance(window, Rolling):
        return RollingStore(window, allowed_lateness)
    return FixedStore(window, allowed_lateness)


class FixedStore(Store):
    """Tumbling, hopping, calendar and global windows."""

    def __init__(self, window: Hopping | Calendar | Global, allowed_lateness: int) -> None:
        super().__init__(allowed_lateness)
        self.window = window

    def judge(self, events: Sequence[Event], w_in: int) -> list[bool]:
        return [not self._open_windows_of(event, w_in) for event in events]

    def is_partially_late(self, event: Event, w_in: int) -> bool:
        return 0 < len(self._open_windows_of(event, w_in)) < len(self._windows_of(event))

    def add(self, events: Sequence[Event], w_in: int) -> None:
        for event in events:
            for bounds in self._open_windows_of(event, w_in):
                state = self.open.setdefault((event.key, bounds), OpenWindow(event.key, bounds))
                state.elements.append(Element(event))

    def withdraw(self, events: Collection[Event]) -> None:
        for window in self.windows():
            window.elements = [element for element in window.elements if element.event not in events]
        self.open = {name: window for name, window in self.open.items() if window.elements}

    def _windows_of(self, event: Event) -> list[Bounds]:
        if isinstance(self.window, Hopping):
            return hopping_windows(self.window, event.time)
        return [calendar_window(self.window, event.time) if isinstance(self.window, Calendar) else GLOBAL]

    def _open_windows_of(self, event: Event, w_in: int) -> list[Bounds]:
        return [bounds for bounds in self._windows_of(event) if not is_closed(bounds[1], self.lateness, w_in)]


class SessionStore(Store):
    """Sessions; those of a key never overlap."""

    def __init__(self, window: Session, allowed_lateness: int, accumulation: Accumulation) -> None:
        super().__init__(allowed_lateness)
        self.window, self.accumulation = window, accumulation

    def judge(self, events: Sequence[Event], w_in: int) -> list[bool]:
        late = [False] * len(events)
        for key in {event.key for event in events}:
            # Retained events carry no position: they were accepted once and for all.
            retained = [(element.event.time, -1) for session in self._of(key) for element in session.elements]
            arrived = [(event.time, position) for position, event in enumerate(events) if event.key == key]
            for (_, end), members in cut_sessions(self.window, retained + arrived, lambda item: item[0]):
                for _, position in members:
                    if position >= 0:
                        late[position] = is_closed(end, self.lateness, w_in)
        return late

    def add(self, events: Sequence[Event], w_in: int) -> None:
        for key in {event.key for event in events}:
            sessions = self._recut(key, [Element(event) for event in events if event.key == key])
            others = {name: window for name, window in self.open.items() if window.key != key}
            self.open = others | {(key, session.bounds): session for session in sessions}

    def _of(self, key: str) -> list[OpenWindow]:
        return [session for session in self.windows() if session.key == key]

    def _recut(self, key: str, arrived: list[Element]) -> list[OpenWindow]:
        before = self._of(key)
        session_of = {id(element): session for session in before for element in session.elements}
        elements = [element for session in before for element in session.elements] + arrived
        after = []
        for bounds, members in cut_sessions(self.window, elements, lambda element: element.event.time):
            # dict.fromkeys: each part once, in time order.
            parts = list(dict.fromkeys(session_of[id(m)] for m in members if id(m) in session_of))
            if len(parts) == 1 and parts[0].bounds == bounds:
                parts[0].elements = members
                after.append(parts[0])
            else:
                after.append(self._replace(key, bounds, members, parts))
        return after

    def _replace(self, key: str, bounds: Bounds, members: list[Element], parts: list[OpenWindow]) -> OpenWindow:
        """A session with new bounds: a new window that takes over what its parts remember and have said."""
        if self.accumulation != "discarding" and any(self._is_cut_anew(part, bounds) for part in parts):
            for element in members:
                element.shown = False
        memory = TriggerMemory.merged(part.memory for part in parts)
        # Only what still stands: of a session that was cut, a sibling may have taken it back already.
        said = [said for part in parts for said in part.said if not said.taken_back]
        return OpenWindow(key, bounds, members, memory, said=said)

    @staticmethod
    def _is_cut_anew(part: OpenWindow, bounds: Bounds) -> bool:
        """Whether a session that has said something is no longer inside one session.

        Its elements now lie in two, or it must end earlier because a new session begins inside its gap: what it said
        names a window that no longer exists. "Has said something" includes what its parts had said before a merge:
        otherwise a cut after a merge would leave elements that no standing pane shows.
        """
        inside = bounds[0] <= part.bounds[0] and part.bounds[1] <= bounds[1]
        return not inside and any(element.shown for element in part.elements)


class RollingStore(Store):
    """One window per key and event time; events of the same key and time share it.

    An event reaches into the windows of the events up to `size` after it, so it is kept longer than its own window.
    """

    def __init__(self, window: Rolling, allowed_lateness: int) -> None:
        super().__init__(allowed_lateness)
        self.window = window
        self.history: dict[str, list[Event]] = defaultdict(list)

    def judge(self, events: Sequence[Event], w_in: int) -> list[bool]:
        return [is_closed(event.time, self.lateness, w_in) for event in events]

    def add(self, events: Sequence[Event], w_in: int) -> None:
        for event in events:
            for window in self.open.values():
                if window.key == event.key and window.bounds[0] < event.time <= window.end:
                    window.elements.append(Element(event))
            self.history[event.key].append(event)
            bounds = (event.time - self.window.size, event.time)
            if (event.key, bounds) not in self.open:
                reach = [e for e in self.history[event.key] if bounds[0] < e.time <= bounds[1]]
                self.open[event.key, bounds] = OpenWindow(event.key, bounds, [Element(e) for e in reach])

    def drop_closed(self, w_out: int) -> None:
        super().drop_closed(w_out)
        for key, events in list(self.history.items()):
            self.history[key] = [e for e in events if not is_closed(e.time + self.window.size, self.lateness, w_out)]

    def remembered(self) -> Iterator[Event]:
        # The window that accepted an event is its own; others only reach back to it.
        return (e.event for window in self.windows() for e in window.elements if e.event.time == window.end)
