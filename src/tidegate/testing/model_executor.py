"""Transcripts on the reference model."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.model import Event, Model, Pane
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
        self._aggregate: Aggregate = transcript.aggregate
        self._model = Model(
            transcript.window,
            trigger=transcript.trigger,
            accumulation=transcript.accumulation,
            allowed_lateness=transcript.allowed_lateness,
            on_time=transcript.on_time,
            watermark=transcript.watermark,
        )

    def batch(self, events: Sequence[EventIn]) -> Step:
        return self._step(
            self._model.batch(Event(e.time, e.key, e.value, e.partition, e.id, e.arrival) for e in events)
        )

    def watermark(self, us: int) -> Step:
        return self._step(self._model.move_watermark(us))

    def clock(self, us: int) -> Step:
        return self._step(self._model.move_clock(us))

    def restart(self) -> Step:
        """The model has no checkpoint: it is what a run without a stop looks like."""
        return Step(watermark=self._model.watermark)

    def close(self) -> None:
        """Nothing to release."""

    def _step(self, step: ModelStep) -> Step:
        return Step(
            panes=tuple(self._pane(pane) for pane in step.panes),
            late=_events(step.late),
            partially_late=_events(step.partially_late),
            future=_events(step.future),
            duplicates=_events(step.duplicates),
            watermark=step.watermark,
        )

    def _pane(self, pane: Pane) -> PaneOut:
        values = value = None
        if self._aggregate == "collect":
            values = pane.values
        else:
            value = len(pane.events) if self._aggregate == "count" else sum(pane.values)
        return PaneOut(pane.key, pane.window, values, value, pane.timing, pane.index, pane.final, pane.change)


def _events(events: Sequence[Event]) -> tuple[EventOut, ...]:
    return tuple(EventOut(e.time, e.key, e.value, e.partition, e.id) for e in events)
