"""Open windows under each way of cutting time: fixed, session, rolling.

A store answers two questions and keeps the open windows: who of these events is late at `W_in` (`judge`), and what do
the windows look like with the accepted ones in them (`add`)?

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

from tidegate.model.state import Element, OpenWindow
from tidegate.model.triggers import TriggerMemory
from tidegate.model.values import INFINITY, Bounds, Event, is_closed
from tidegate.model.windows import calendar_window, cut_sessions, hopping_windows
from tidegate.triggers import Accumulation
from tidegate.windows import Calendar, Global, Hopping, Rolling, Session, Window

GLOBAL: Bounds = (-INFINITY, INFINITY)


class Store(ABC):
    """Open windows under one way of cutting time."""

    @abstractmethod
    def judge(self, events: Sequence[Event], w_in: int) -> list[bool]:
        """Per event, whether it is late."""

    def is_partially_late(self, event: Event, w_in: int) -> bool:
        """Whether an event that is not late missed a window that had closed."""
        return False

    @abstractmethod
    def add(self, events: Sequence[Event], w_in: int) -> None:
        """Take in accepted events."""

    @abstractmethod
    def windows(self) -> Iterator[OpenWindow]:
        """All open windows, by key and time."""

    @abstractmethod
    def drop_closed(self, w_out: int) -> None:
        """Forget what the watermark has closed."""

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
        self.window = window
        self.lateness = allowed_lateness
        self.open: dict[tuple[str, Bounds], OpenWindow] = {}

    def judge(self, events: Sequence[Event], w_in: int) -> list[bool]:
        return [not self._open_windows_of(event, w_in) for event in events]

    def is_partially_late(self, event: Event, w_in: int) -> bool:
        return 0 < len(self._open_windows_of(event, w_in)) < len(self._windows_of(event))

    def add(self, events: Sequence[Event], w_in: int) -> None:
        for event in events:
            for bounds in self._open_windows_of(event, w_in):
                state = self.open.setdefault((event.key, bounds), OpenWindow(event.key, bounds))
                state.elements.append(Element(event))

    def windows(self) -> Iterator[OpenWindow]:
        return (self.open[name] for name in sorted(self.open))

    def drop_closed(self, w_out: int) -> None:
        self.open = {n: w for n, w in self.open.items() if not is_closed(w.end, self.lateness, w_out)}

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
    """Sessions of each key, in time order; they never overlap."""

    def __init__(self, window: Session, allowed_lateness: int, accumulation: Accumulation) -> None:
        self.window = window
        self.lateness = allowed_lateness
        self.accumulation = accumulation
        self.open: dict[str, list[OpenWindow]] = defaultdict(list)

    def judge(self, events: Sequence[Event], w_in: int) -> list[bool]:
        positions: dict[str, list[int]] = defaultdict(list)
        for position, event in enumerate(events):
            positions[event.key].append(position)
        late = [False] * len(events)
        for key, of_key in positions.items():
            # Retained events carry no position: they were accepted once and for all.
            retained = [(e.event.time, -1) for session in self.open[key] for e in session.elements]
            arrived = [(events[position].time, position) for position in of_key]
            for (_, end), members in cut_sessions(self.window, retained + arrived, lambda item: item[0]):
                if is_closed(end, self.lateness, w_in):
                    for _, position in members:
                        if position >= 0:
                            late[position] = True
        return late

    def add(self, events: Sequence[Event], w_in: int) -> None:
        arrived: dict[str, list[Element]] = defaultdict(list)
        for event in events:
            arrived[event.key].append(Element(event))
        for key, elements in arrived.items():
            self.open[key] = self._recut(key, elements)

    def windows(self) -> Iterator[OpenWindow]:
        return (session for key in sorted(self.open) for session in self.open[key])

    def drop_closed(self, w_out: int) -> None:
        for key, sessions in list(self.open.items()):
            self.open[key] = [s for s in sessions if not is_closed(s.end, self.lateness, w_out)]

    def _recut(self, key: str, arrived: list[Element]) -> list[OpenWindow]:
        before = self.open[key]
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
        self.window = window
        self.lateness = allowed_lateness
        self.open: dict[tuple[str, int], OpenWindow] = {}
        self.history: dict[str, list[Event]] = defaultdict(list)

    def judge(self, events: Sequence[Event], w_in: int) -> list[bool]:
        return [is_closed(event.time, self.lateness, w_in) for event in events]

    def add(self, events: Sequence[Event], w_in: int) -> None:
        for event in events:
            for window in self.open.values():
                if window.key == event.key and window.bounds[0] < event.time <= window.end:
                    window.elements.append(Element(event))
            self.history[event.key].append(event)
            name = (event.key, event.time)
            if name not in self.open:
                bounds = (event.time - self.window.size, event.time)
                reach = [e for e in self.history[event.key] if bounds[0] < e.time <= bounds[1]]
                self.open[name] = OpenWindow(event.key, bounds, [Element(e) for e in reach])

    def windows(self) -> Iterator[OpenWindow]:
        return (self.open[name] for name in sorted(self.open))

    def drop_closed(self, w_out: int) -> None:
        self.open = {n: w for n, w in self.open.items() if not is_closed(w.end, self.lateness, w_out)}
        for key, events in list(self.history.items()):
            self.history[key] = [e for e in events if not is_closed(e.time + self.window.size, self.lateness, w_out)]

    def remembered(self) -> Iterator[Event]:
        # The window that accepted an event is its own; others only reach back to it.
        return (e.event for window in self.windows() for e in window.elements if e.event.time == window.end)
