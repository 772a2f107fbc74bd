"""Chaining: the panes of one operator are the events of the next.

A pane is an event at the last instant of its window, ``end − 1 µs``. An operator's output watermark is its own minus
what it may still say, ``W − allowed_lateness``: so no pane, however late, is late for the next operator. In
retracting mode a pane takes the place of the one it replaces: the next operator holds the current pane per key and
window, and folds anew what it has not yet said.
"""

from __future__ import annotations

from collections.abc import Callable

from tidegate.model.pipeline import Model
from tidegate.model.values import BEGINNING, INFINITY, Event, Pane, Step

ToEvent = Callable[[Pane, int], Event]
"""What the next operator sees of a pane, at the given event time."""


class Chain:
    """Two operators, one behind the other.

    >>> from tidegate.windows import Tumbling
    >>> chain = Chain(Model(Tumbling("10us")), Model(Tumbling("20us")), lambda p, t: Event(t, value=len(p.events)))
    >>> step = chain.after(chain.first.batch([Event(1), Event(2), Event(11)]))
    >>> [pane.values for pane in chain.after(chain.first.move_watermark(20)).panes]
    [(1, 2)]
    """

    def __init__(self, first: Model, second: Model, to_event: ToEvent) -> None:
        self.first, self.second, self.to_event = first, second, to_event
        self._current: dict[tuple[str, tuple[int, int]], Event] = {}

    def after(self, step: Step) -> Step:
        """What the second operator makes of a step of the first."""
        withdrawn, events = [], []
        for pane in step.panes:
            assert pane.window is not None, "the global window has no last instant"
            name = (pane.key, pane.window)
            if pane.change == "retract":
                withdrawn.append(self._current.pop(name))
            else:
                self._current[name] = self.to_event(pane, pane.window[1] - 1)
                events.append(self._current[name])
        lateness = self.first.allowed_lateness
        reached = BEGINNING if step.watermark is None else step.watermark
        if BEGINNING < reached < INFINITY:
            reached -= lateness
        return self.second.follow(events, withdrawn, reached, self.first.clock)
