"""Transcripts on the reference model."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.model import SOURCE, Chain, Event, Model, Pane
from tidegate.model import Step as ModelStep
from tidegate.testing.outcomes import EventOut, PaneOut, Step
from tidegate.testing.steps import Aggregate, EventIn
from tidegate.testing.transcripts import Transcript


class ModelExecutor:
    """Plays transcripts on `tidegate.model`."""

    name = "model"

    def start(self, transcript: Transcript) -> ModelRun:
        return ModelRun(transcript)


class ModelRun:
    """One transcript on the model."""

    def __init__(self, transcript: Transcript) -> None:
        self._aggregate, self._shown = transcript.aggregate, transcript.shown
        self._model = Model(
            transcript.window,
            trigger=transcript.trigger,
            accumulation=transcript.accumulation,
            allowed_lateness=transcript.allowed_lateness,
            on_time=transcript.on_time,
            watermark=dict(transcript.sources) or transcript.watermark,
        )
        self._chain = Chain(self._model, Model(transcript.then.window), self._as_event) if transcript.then else None

    def batch(self, events: Sequence[EventIn]) -> Step:
        return self._step(
            self._model.batch(
                Event(e.time, e.key, e.value, e.partition, e.id, e.arrival, source=e.source or SOURCE) for e in events
            )
        )

    def watermark(self, us: int, source: str | None = None) -> Step:
        return self._step(self._model.move_watermark(us if source is None else {source: us}))

    def sources(self) -> dict[str, int | None]:
        """Where the watermark of each source is."""
        return self._model.sources

    def clock(self, us: int) -> Step:
        return self._step(self._model.move_clock(us))

    def restart(self) -> Step:
        """The model has no checkpoint: it is what a run without a stop looks like."""
        return Step(watermark=self._model.watermark)

    def close(self) -> None:
        """Nothing to release."""

    def _step(self, step: ModelStep) -> Step:
        said = step.panes if self._chain is None else self._chain.after(step).panes
        return Step(
            panes=tuple(self._pane(pane) for pane in said),
            late=self._events(step.late),
            partially_late=self._events(step.partially_late),
            future=self._events(step.future),
            duplicates=self._events(step.duplicates),
            watermark=step.watermark,
        )

    def _events(self, events: Sequence[Event]) -> tuple[EventOut, ...]:
        several = len(self._model.sources) > 1
        return tuple(EventOut(e.time, e.key, e.value, e.partition, e.id, e.source if several else None) for e in events)

    def _pane(self, pane: Pane) -> PaneOut:
        values = pane.values if self._shown == "collect" else None
        value = None if self._shown == "collect" else _number(pane, self._shown)
        return PaneOut(pane.key, pane.window, values, value, pane.timing, pane.index, pane.final, pane.change)

    def _as_event(self, pane: Pane, time: int) -> Event:
        """A result as the second operator sees it. Its id tells it from other results of the same value."""
        return Event(time, pane.key, _number(pane, self._aggregate), id=f"{pane.key} {pane.window}")


def _number(pane: Pane, aggregate: Aggregate) -> int | float:
    return len(pane.events) if aggregate == "count" else sum(pane.values)
