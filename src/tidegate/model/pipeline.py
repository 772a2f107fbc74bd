"""The batch loop of the model: one windowed aggregation over one source, or over several.

A micro-batch is judged by `W_in`, the watermark before it, and fires by `W_out`, the one after it:

1. what is too far in the future is refused, as if it had never come;
2. what an open window has already accepted is a duplicate;
3. what has only closed windows is late; the rest is accepted;
4. the watermark moves;
5. every open window is asked once whether it speaks; closed ones are forgotten.

With several sources, each has its own watermark and its own ids; the operator's watermark is the minimum.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from tidegate.errors import CheckpointError, PipelineError
from tidegate.model.stores import GLOBAL, OpenWindow, Said, store_for
from tidegate.model.triggers import Moment, ask
from tidegate.model.values import BEGINNING, INFINITY, SOURCE, Event, Pane, Step, Timing, is_closed
from tidegate.model.watermark import OperatorWatermark
from tidegate.triggers import Accumulation, Default, OnTime, Trigger
from tidegate.watermarks import Manual, WatermarkStrategy
from tidegate.windows import Window


class Model:
    """The semantics page as code: feed it batches, read the steps.

    >>> from tidegate.windows import Tumbling
    >>> model = Model(Tumbling("10s"))
    >>> model.batch([Event(time=1_000_000, value=1)]).panes
    ()
    >>> [pane.values for pane in model.move_watermark(10_000_000).panes]
    [(1,)]
    """

    def __init__(
        self,
        window: Window,
        *,
        trigger: Trigger | None = None,
        accumulation: Accumulation = "accumulating",
        allowed_lateness: int = 0,
        on_time: OnTime = "always",
        watermark: WatermarkStrategy | Mapping[str, WatermarkStrategy] | None = None,
    ) -> None:
        """`watermark` is a strategy, or with several sources one per name."""
        if allowed_lateness < 0:
            raise PipelineError(f"allowed_lateness must not be negative, but is {allowed_lateness} µs")
        self.trigger: Trigger = trigger or Default()
        self.accumulation, self.allowed_lateness, self.on_time = accumulation, allowed_lateness, on_time
        self.clock = 0
        self._store = store_for(window, allowed_lateness, accumulation)
        several = watermark if isinstance(watermark, Mapping) else {SOURCE: watermark or Manual()}
        self._watermark = OperatorWatermark(several)

    @property
    def watermark(self) -> int | None:
        """Where the watermark is; `None` before it has moved."""
        return None if self._watermark.value == BEGINNING else self._watermark.value

    @property
    def sources(self) -> dict[str, int | None]:
        """Where the watermark of each source is."""
        trackers = self._watermark.sources.items()
        return {name: None if tracker.value == BEGINNING else tracker.value for name, tracker in trackers}

    def batch(
        self,
        events: Iterable[Event],
        *,
        clock: int | None = None,
        backlog: Collection[int] | Mapping[str, Collection[int]] = (),
    ) -> Step:
        """One micro-batch at processing time `clock` (default: the clock stays).

        `backlog`: partitions of which the source knows that they hold unread data; with several sources, by name.
        """
        clock_in, w_in = self._begin(self.clock if clock is None else clock)
        came: list[Event] = []
        future: list[Event] = []
        for event in events:
            (future if self._watermark.is_future(event, self.clock) else came).append(event)
        accepted, late, duplicates = self._admit(came, w_in)
        self._store.add(accepted, w_in)
        self._watermark.observe(came, self.clock, backlog if isinstance(backlog, Mapping) else {SOURCE: backlog})
        return Step(
            accepted=tuple(accepted),
            late=tuple(late),
            future=tuple(future),
            duplicates=tuple(duplicates),
            partially_late=tuple(event for event in accepted if self._store.is_partially_late(event, w_in)),
            panes=tuple(self._fire(w_in, clock_in)),
            watermark=self.watermark,
        )

    def follow(self, events: Iterable[Event], withdrawn: Collection[Event], watermark: int, clock: int) -> Step:
        """One micro-batch of the panes of another operator: new events, those that are taken back, and its watermark.

        The other operator's watermark is minus what it may still say, so nothing that it says or takes back belongs
        to a window that is complete here.
        """
        clock_in, w_in = self._begin(clock)
        self._store.withdraw(withdrawn)
        accepted, late, duplicates = self._admit(list(events), w_in)
        self._store.add(accepted, w_in)
        self._watermark.move_to(watermark)
        panes = tuple(self._fire(w_in, clock_in))
        return Step(tuple(accepted), tuple(late), duplicates=tuple(duplicates), panes=panes, watermark=self.watermark)

    def move_watermark(self, time: int | Mapping[str, int]) -> Step:
        """An empty micro-batch that moves a manual watermark; with several sources all to `time`, or each by name."""
        clock_in, w_in = self._begin(self.clock)
        for source, to in time.items() if isinstance(time, Mapping) else [(None, time)]:
            self._watermark.move_to(to, source)
        return Step(panes=tuple(self._fire(w_in, clock_in)), watermark=self.watermark)

    def move_clock(self, time: int) -> Step:
        """An empty micro-batch at processing time `time`."""
        return self.batch([], clock=time)

    def resume(self, clock: int) -> None:
        """Come back at `clock` after a stop: the time in between does not count towards idleness."""
        self._watermark.resume(max(0, clock - self.clock))

    def drain(self) -> Step:
        """The end of bounded input: the watermark goes to infinity and everything fires."""
        clock_in, w_in = self._begin(self.clock)
        self._watermark.end()
        return Step(panes=tuple(self._fire(w_in, clock_in)), watermark=self.watermark)

    def _begin(self, clock: int) -> tuple[int, int]:
        """The clock and the watermark before a batch at `clock`. Like the watermark, the clock never goes back."""
        if self._watermark.value >= INFINITY:
            raise CheckpointError("the stream was drained: its end is recorded, and nothing can follow it")
        clock_in, self.clock = self.clock, max(self.clock, clock)
        return clock_in, self._watermark.value

    def _admit(self, events: list[Event], w_in: int) -> tuple[list[Event], list[Event], list[Event]]:
        """Split events into accepted, late and duplicates; the first of a batch in the order given counts."""
        remembered = {_name(event) for event in self._store.remembered()}
        taken = set(remembered)
        firsts: list[int] = []
        repeats: list[int] = []
        for position, event in enumerate(events):
            if event.id is not None and _name(event) in taken:
                repeats.append(position)
            else:
                firsts.append(position)
                taken.add(_name(event))
        verdicts = self._store.judge([events[position] for position in firsts], w_in)
        late = {position for position, is_late in zip(firsts, verdicts, strict=True) if is_late}
        accepted = [position for position in firsts if position not in late]
        # A refused event is not remembered, so a repeat of it in the same batch is judged for itself.
        names = remembered | {_name(events[position]) for position in accepted}
        duplicates = []
        for position in repeats:
            if _name(events[position]) in names:
                duplicates.append(position)
            elif self._store.judge([events[p] for p in [*accepted, position]], w_in)[-1]:
                late.add(position)
            else:
                accepted.append(position)
                names.add(_name(events[position]))
        return (
            [events[position] for position in sorted(accepted)],
            [events[position] for position in sorted(late)],
            [events[position] for position in duplicates],
        )

    def _fire(self, w_in: int, clock_in: int) -> list[Pane]:
        panes = [pane for window in self._store.windows() for pane in self._speak(window, w_in, clock_in)]
        self._store.drop_closed(self._watermark.value)
        return panes

    def _speak(self, window: OpenWindow, w_in: int, clock_in: int) -> list[Pane]:
        """What a window says in this batch: nothing, or one pane after what it takes back."""
        w_out, news = self._watermark.value, window.news
        closing = is_closed(window.end, self.allowed_lateness, w_out)
        now = Moment(len(news), window.end, w_in, w_out, clock_in, self.clock, closing, self.on_time)
        answer = ask(self.trigger, now, window.memory)
        # A pane without news comes only as the on-time pane; a closing window hides nothing.
        if not ((answer.fires and (news or answer.on_time)) or (closing and news)):
            return []
        timing: Timing = "late" if now.is_late else "on_time" if now.is_on_time else "early"
        shown = news if self.accumulation == "discarding" else window.elements
        pane = Pane(
            key=window.key,
            window=None if window.bounds == GLOBAL else window.bounds,
            events=tuple(element.event for element in shown),
            timing=timing,
            index=window.next_index,
            final=closing,
        )
        taken_back = self._take_back(window)
        window.said = [Said(pane)]
        window.next_index += 1
        window.memory.after_pane()
        for element in news:
            element.shown = True
        return [*taken_back, pane]

    def _take_back(self, window: OpenWindow) -> list[Pane]:
        if self.accumulation != "retracting":
            return []
        standing = [said for said in window.said if not said.taken_back]
        for said in standing:
            said.taken_back = True
        return [replace(said.pane, change="retract") for said in standing]


def _name(event: Event) -> tuple[str, str | None, int]:
    """What makes two events the same: the source, the full id and the event time (the key does not count)."""
    return event.source, event.id, event.time
