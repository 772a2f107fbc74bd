"""A trial: your own app on the real engine, in a test that has time in its hands.

Sources keep their contract, encoding and watermark, but what they read comes from the test; sinks are replaced by
memory, so no test writes into a warehouse, and a sink for dead letters (`app.dead_letters`) by nothing: what it would
be sent is what `Trial.dead_letters` returns. Everything between the two is what runs in production: decoding, routing,
state files, records, resume. Each call is one micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from tidegate.app import App, SinkNode
from tidegate.deadletter.letter import Reason
from tidegate.errors import PipelineError
from tidegate.runtime.drivers import refuse_unsound
from tidegate.sinks.memory import Memory
from tidegate.stream import Branch, PaneSource
from tidegate.testing.harness import Harness, Outcome
from tidegate.testing.wire import Row
from tidegate.time import Duration, micros
from tidegate.watermarks import Manual

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Instant = datetime | str
"""A `datetime`, or ISO 8601; without a time zone it is UTC."""

FAR = datetime(2100, 1, 1, tzinfo=UTC)
"""The clock of a trial that is given none: after every event, so that none is from the future."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Start(Protocol):
    """What the fixture `pipeline` gives to a test: ``run = pipeline(app)``."""

    def __call__(self, app: App, *, clock: Instant = ..., watermark: Literal["own", "manual"] = ...) -> Trial: ...


class Trial:
    """One app on a checkpoint of its own, fed by a test.

    `clock` is where processing time stands. With ``watermark="manual"`` the sources' own watermarks are set aside
    and only `Trial.watermark` moves them.
    """

    def __init__(
        self,
        spark: SparkSession,
        app: App,
        folder: Path,
        *,
        clock: Instant = FAR,
        watermark: Literal["own", "manual"] = "own",
    ) -> None:
        refuse_unsound(app)
        self._outcomes: list[Outcome] = []
        self._harness = Harness(spark, _for_trial(app, watermark == "manual"), folder, clock=_micros(clock))

    def feed(self, source: str, rows: Sequence[Row | str | bytes]) -> Outcome:
        """One micro-batch for a source.

        A row is a mapping, with times as `datetime` or ISO strings; it is written in the source's encoding and
        decoded from that. Text or bytes are a record as it came, so broken ones can be tried too. `_partition` and
        `_arrival` in a mapping say where it came from and when.
        """
        self._known(source, self._harness.app.sources, "source")
        return self._step(lambda: self._harness.feed({source: [_with_arrival(row) for row in rows]}))

    def watermark(self, to: Instant, source: str | None = None) -> Outcome:
        """Move a manual watermark: nothing before `to` is expected any more."""
        sources = self._harness.app.sources
        if source is None:
            if len(sources) > 1:
                raise PipelineError("which watermark?", hint=f"name a source: {', '.join(sources)}")
            (source,) = sources
        self._known(source, sources, "source")
        if not isinstance(sources[source].watermark, Manual):
            raise PipelineError(
                f"the watermark of source {source!r} follows its events ({sources[source].watermark})",
                hint='feed later events, or begin with pipeline(app, watermark="manual")',
            )
        name, target = source, _micros(to)
        return self._step(lambda: self._harness.move_watermark(name, target))

    def clock(self, by: Duration | datetime) -> Outcome:
        """Let processing time pass, or go to an instant: for idleness and processing-time triggers."""
        to = _micros(by) if isinstance(by, datetime) else self._harness.clock + micros(by, what="clock")
        return self._step(lambda: self._harness.move_clock(to))

    def drain(self) -> Outcome:
        """The end of the input: every window closes, and nothing can follow."""
        return self._step(self._harness.drain)

    def restart(self) -> None:
        """Stop, and resume from the checkpoint as a new process would."""
        self._refuse_after_drain()
        self._harness.restart()

    def panes(self, operator: str) -> list[dict[str, Any]]:
        """All panes of an operator so far; those of one micro-batch by window and key."""
        operators = self._harness.app.operators
        self._known(operator, operators, "operator")
        return [
            row for outcome in self._outcomes for row in _in_order(outcome.of(operator), operators[operator].key_names)
        ]

    def dead_letters(self, reason: Reason | None = None) -> list[dict[str, Any]]:
        """All dead letters so far, or those with a reason; the app's own sink for them, if any, is sent none."""
        if reason is not None:
            self._known(reason, get_args(Reason), "reason")
        letters = [letter for outcome in self._outcomes for letter in outcome.letters]
        return [letter for letter in letters if reason in (None, letter["reason"])]

    def close(self) -> None:
        self._harness.close()

    def _step(self, act: Callable[[], Outcome]) -> Outcome:
        self._refuse_after_drain()
        outcome = act()
        self._outcomes.append(outcome)
        return outcome

    def _refuse_after_drain(self) -> None:
        if self._harness.engine.last.terminal:
            raise PipelineError("the input has ended: nothing can follow drain()", hint="begin anew: pipeline(app)")

    @staticmethod
    def _known(name: str, names: Mapping[str, Any] | Sequence[str], what: str) -> None:
        if name not in names:
            raise PipelineError(f"there is no {what} {name!r}", hint=f"there are {', '.join(names)}")


def _for_trial(app: App, manual: bool) -> App:
    """A copy of the app whose sinks are memory, and without one for dead letters; the given one stays as it is."""
    copy = App(app.name)
    copy.sources = {n: replace(node, watermark=Manual()) if manual else node for n, node in app.sources.items()}
    for name, node in app.operators.items():  # in order: each is fed by a source, or by one before it
        copy.operators[name] = replace(node, branches=tuple(_for_copy(copy, branch) for branch in node.branches))
    copy.sinks = {n: SinkNode(n, copy.operators[sink.operator.name], Memory()) for n, sink in app.sinks.items()}
    return copy


def _for_copy(copy: App, branch: Branch) -> Branch:
    name = branch.source.name
    of_panes = isinstance(branch.source, PaneSource)
    return replace(branch, source=PaneSource(copy.operators[name]) if of_panes else copy.sources[name])


def _with_arrival(row: Row | str | bytes) -> Row | str | bytes:
    if isinstance(row, Mapping) and isinstance(row.get("_arrival"), Instant):
        return {**row, "_arrival": _micros(row["_arrival"])}
    return row


def _in_order(rows: Sequence[dict[str, Any]], keys: Sequence[str]) -> list[dict[str, Any]]:
    """What is taken back comes before what replaces it; `replaced` is between the engine and upsert sinks."""
    shown = [row for row in rows if row["pane_change"] != "replaced"]
    return sorted(shown, key=lambda row: (row["window_start"], [str(row[k]) for k in keys], _turn(row)))


def _turn(row: dict[str, Any]) -> tuple[bool, int]:
    return row["pane_change"] == "upsert", row["pane_index"]


def _micros(instant: Instant) -> int:
    if isinstance(instant, str):
        try:
            instant = datetime.fromisoformat(instant)
        except ValueError as error:
            raise PipelineError(f"{instant!r} is not an instant", hint='write "2026-03-01T12:00:00Z"') from error
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    return (instant - _EPOCH) // timedelta(microseconds=1)
