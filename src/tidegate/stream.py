"""The declaration of a dataflow: streams, keys, windows, results – a graph of plain values.

Nothing here runs. Each verb returns a new immutable value that knows what came before it; `App` collects
the named nodes. Expressions are SQL strings, for they can be declared and shown without a Spark session.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidegate.aggregates import Aggregate
from tidegate.contracts import Contract
from tidegate.errors import PipelineError
from tidegate.sources.base import Source
from tidegate.time import Duration, micros
from tidegate.triggers import ACCUMULATIONS, Accumulation, AfterWatermark, Default, FinalOnly, OnTime, Trigger
from tidegate.watermarks import WatermarkStrategy
from tidegate.windows import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidegate.app import App

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def check_name(name: str, what: str) -> str:
    """Names are the identity of state: required, and safe as a folder and a column."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise PipelineError(
            f"{what} name {name!r} is not usable", hint="letters, digits and underscores, beginning with a letter"
        )
    return name


@dataclass(frozen=True)
class SourceNode:
    """A named source with its contract, its clock and its watermark."""

    name: str
    connector: Source
    contract: Contract
    event_time: str
    event_id: str | None
    watermark: WatermarkStrategy
    keep_duplicates: bool
    keep_partially_late: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """What its events have."""
        return self.contract.names


@dataclass(frozen=True)
class PaneSource:
    """The panes of an operator as the events of the next one, each at the last instant of its window."""

    operator: WindowNode
    event_time = "window_end - INTERVAL 1 MICROSECOND"
    event_id = None
    keep_duplicates = False
    keep_partially_late = False

    @property
    def name(self) -> str:
        return self.operator.name

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.operator.key_names, "window_start", "window_end", *self.operator.value_names)


Input = SourceNode | PaneSource
"""What feeds an operator."""


@dataclass(frozen=True)
class Where:
    """Keep what meets the condition; what does not is counted as filtered."""

    condition: str

    def __str__(self) -> str:
        return f"where {self.condition}"


@dataclass(frozen=True)
class Select:
    """Other columns instead of the present ones: (name, SQL) pairs."""

    columns: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return "select " + ", ".join(sql if name == sql else f"{sql} AS {name}" for name, sql in self.columns)


@dataclass(frozen=True)
class Transform:
    """Any stateless PySpark on the rows; the envelope must survive, each position at most once."""

    function: Callable[[DataFrame], DataFrame]

    def __str__(self) -> str:
        return f"transform {getattr(self.function, '__name__', 'function')}"


@dataclass(frozen=True)
class FlatMap:
    """One row per element of an array; the elements are numbered, and counted in and out."""

    name: str
    array: str

    def __str__(self) -> str:
        return f"flat_map {self.array} AS {self.name}"


Step = Where | Select | Transform | FlatMap


@dataclass(frozen=True)
class Branch:
    """One way to an operator: what feeds it, and the steps in between."""

    source: Input
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class WindowNode:
    """A named windowed aggregation: the operator that holds state. A union of streams has several branches."""

    name: str
    branches: tuple[Branch, ...]
    keys: tuple[tuple[str, str], ...]
    window: Window
    aggregates: tuple[tuple[str, Aggregate], ...]
    trigger: Trigger
    accumulation: Accumulation
    allowed_lateness: int
    on_time: OnTime

    @property
    def source(self) -> Input:
        """What feeds an operator that has one branch."""
        return self._only.source

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps to an operator that has one branch."""
        return self._only.steps

    @property
    def _only(self) -> Branch:
        assert len(self.branches) == 1, f"{self.name} has several sources: ask for the node as one of them sees it"
        return self.branches[0]

    @property
    def is_union(self) -> bool:
        """Whether several sources feed it."""
        return len(self.branches) > 1

    def of(self, source: str) -> WindowNode:
        """The operator as one of its sources sees it: with that branch alone."""
        return replace(self, branches=tuple(branch for branch in self.branches if branch.source.name == source))

    @property
    def key_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.keys)

    @property
    def value_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.aggregates)

    @property
    def speaks_once(self) -> bool:
        """Whether a window says nothing before it closes, so that nothing it says is ever corrected."""
        at_its_end = isinstance(self.trigger, Default) or (
            isinstance(self.trigger, AfterWatermark) and self.trigger.early is None
        )
        return isinstance(self.trigger, FinalOnly) or (at_its_end and self.allowed_lateness == 0)

    @property
    def is_corrected(self) -> bool:
        """Whether what feeds the operator may be taken back: results of an operator that retracts."""
        feeders = [branch.source.operator for branch in self.branches if isinstance(branch.source, PaneSource)]
        return any(not feeder.speaks_once for feeder in feeders)


@dataclass(frozen=True)
class Stream:
    """The events of one or several sources, or the results of an operator, on their way; verbs add steps."""

    app: App
    branches: tuple[Branch, ...]

    def where(self, condition: str) -> Stream:
        """Keep the events for which the SQL `condition` is true; the others are counted as filtered."""
        if not condition.strip():
            raise PipelineError("where() needs a condition", hint="where(\"status = 'captured'\")")
        return self._then(Where(condition))

    def select(self, *columns: str, **named: str) -> Stream:
        """Go on with these columns: names, or `name="SQL expression"`."""
        pairs = tuple((column, f"`{column}`") for column in columns) + tuple(named.items())
        if not pairs:
            raise PipelineError("select() needs at least one column")
        for name, _ in pairs:
            check_name(name, "column")
        return self._then(Select(pairs))

    def transform(self, function: Callable[[DataFrame], DataFrame]) -> Stream:
        """Apply any stateless PySpark; keep the column `_tg`, which identifies the event."""
        return self._then(Transform(function))

    def flat_map(self, **array: str) -> Stream:
        """One row per element of a SQL array: ``flat_map(item="items")`` adds the column `item`."""
        if len(array) != 1:
            raise PipelineError("flat_map() takes exactly one name=array", hint='flat_map(item="items")')
        ((name, sql),) = array.items()
        return self._then(FlatMap(check_name(name, "column"), sql))

    def union(self, *others: Stream) -> Stream:
        """This stream and others as one: ``web.union(mobile).key_by("customer")…``.

        What reaches the operator must have the same columns, by name and type, whichever source it comes from; their
        order does not matter. Steps that follow apply to all. An event still belongs to its source: contract,
        duplicates, dead letters and the ledger are kept source by source, and the operator's watermark is the minimum
        over its sources.
        """
        if not others:
            raise PipelineError("union() needs another stream", hint="web.union(mobile)")
        branches = list(self.branches)
        for other in others:
            if not isinstance(other, Stream):
                raise PipelineError(
                    f"union() was given {type(other).__name__}, not a stream",
                    hint="unite streams before .key_by(…)",
                )
            if other.app is not self.app:
                raise PipelineError(
                    f"union() of streams of two apps, {self.app.name!r} and {other.app.name!r}",
                    hint="declare all sources with the same App",
                )
            branches += other.branches
        names = [branch.source.name for branch in branches]
        for name in names:
            if names.count(name) > 1:
                raise PipelineError(
                    f"union(): {name!r} is in it twice, and an event that both ways lead through would count twice",
                    hint='say in one stream what is wanted of it: where("a OR b"), or flat_map',
                )
        return replace(self, branches=tuple(branches))

    def key_by(self, *columns: str, **named: str) -> KeyedStream:
        """Group by these columns: names, or `name="SQL expression"`."""
        pairs = tuple((column, f"`{column}`") for column in columns) + tuple(named.items())
        if not pairs:
            raise PipelineError("key_by() needs at least one column", hint='key_by("merchant_id")')
        for name, _ in pairs:
            check_name(name, "key")
        return KeyedStream(self, pairs)

    def _then(self, step: Step) -> Stream:
        return replace(self, branches=tuple(replace(b, steps=(*b.steps, step)) for b in self.branches))


@dataclass(frozen=True)
class KeyedStream:
    """A stream whose events belong to keys."""

    stream: Stream
    keys: tuple[tuple[str, str], ...]

    def window(
        self,
        name: str,
        window: Window,
        *,
        allowed_lateness: Duration = "0s",
        trigger: Trigger | None = None,
        accumulation: Accumulation = "accumulating",
        on_time: OnTime = "always",
    ) -> WindowedStream:
        """Cut each key's events into windows. `name` is the identity of the operator's state."""
        if accumulation not in ACCUMULATIONS:
            raise PipelineError(f"accumulation {accumulation!r} is unknown", hint=f"one of {', '.join(ACCUMULATIONS)}")
        lateness = micros(allowed_lateness, what="allowed_lateness")
        return WindowedStream(
            self, check_name(name, "operator"), window, lateness, trigger or Default(), accumulation, on_time
        )


@dataclass(frozen=True)
class WindowedStream:
    """A keyed stream with windows; say what to compute."""

    keyed: KeyedStream
    name: str
    window: Window
    allowed_lateness: int
    trigger: Trigger
    accumulation: Accumulation
    on_time: OnTime

    def aggregate(self, **aggregates: Aggregate) -> Result:
        """Compute these values per key and window: ``aggregate(orders=tg.count(), revenue=tg.sum("amount"))``."""
        if not aggregates:
            raise PipelineError(f"operator {self.name!r}: aggregate() needs at least one value")
        taken = {name for name, _ in self.keyed.keys}
        for alias, aggregate in aggregates.items():
            check_name(alias, "value")
            if alias in taken:
                raise PipelineError(f"operator {self.name!r}: {alias!r} is both a key and a value")
            if not isinstance(aggregate, Aggregate):
                raise PipelineError(
                    f"operator {self.name!r}: {alias}={aggregate!r} is not an aggregate",
                    hint='use tg.count(), tg.sum("amount"), … or tg.custom(…)',
                )
        stream = self.keyed.stream
        node = WindowNode(
            name=self.name,
            branches=stream.branches,
            keys=self.keyed.keys,
            window=self.window,
            aggregates=tuple(aggregates.items()),
            trigger=self.trigger,
            accumulation=self.accumulation,
            allowed_lateness=self.allowed_lateness,
            on_time=self.on_time,
        )
        return stream.app.register(node)


@dataclass(frozen=True)
class Result:
    """The panes of an operator: give it to `app.sink`, or go on with it as a stream."""

    app: App
    node: WindowNode

    def as_stream(self) -> Stream:
        """The results as events for another operator, each at the last instant of its window.

        They have the key, ``window_start``, ``window_end`` and the values as columns.
        """
        return Stream(self.app, (Branch(PaneSource(self.node)),))
