"""An app: the named sources, operators and sinks of one pipeline.

Names are required, unique, and the identity of state: an operator keeps its state under its name, wherever
it stands in the file. Building and checking an app needs no Spark session.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tidegate.contracts import Contract, Registry, load_contract
from tidegate.errors import PipelineError
from tidegate.sinks.base import Sink
from tidegate.sources.base import Source
from tidegate.stream import Branch, Result, SourceNode, Stream, WindowNode, check_name
from tidegate.watermarks import Watermark, WatermarkStrategy

DEAD_LETTERS = "dead_letters"
"""The name of the sink that takes dead letters; no other part of an app may have it."""


@dataclass(frozen=True)
class SinkNode:
    """A named sink on an operator."""

    name: str
    operator: WindowNode
    connector: Sink


class App:
    """One pipeline. The only mutable thing of the declaration: it collects what is named.

    >>> app = App("payments")
    """

    def __init__(self, name: str) -> None:
        self.name = check_name(name, "app")
        self.sources: dict[str, SourceNode] = {}
        self.operators: dict[str, WindowNode] = {}
        self.sinks: dict[str, SinkNode] = {}
        self.letters: Sink | None = None

    def source(
        self,
        name: str,
        connector: Source,
        *,
        contract: str | Path | Contract | Registry,
        event_time: str,
        event_id: str | None = None,
        watermark: WatermarkStrategy | None = None,
        keep_duplicates: bool = False,
        keep_partially_late: bool = False,
    ) -> Stream:
        """Declare a source.

        `event_time` is a column, or a SQL expression, of type TIMESTAMP. With `event_id`, repeats of the same id and
        event time are counted as duplicates (and kept as dead letters with `keep_duplicates`).
        """
        node = SourceNode(
            name=self._new(name, "source"),
            connector=connector,
            contract=load_contract(contract),
            event_time=event_time,
            event_id=event_id,
            watermark=watermark or Watermark(),
            keep_duplicates=keep_duplicates,
            keep_partially_late=keep_partially_late,
        )
        self.sources[name] = node
        return Stream(self, (Branch(node),))

    def register(self, node: WindowNode) -> Result:
        """Called by the stream verbs when an operator is complete."""
        self.operators[self._new(node.name, "operator")] = node
        return Result(self, node)

    def sink(self, name: str, result: Result, connector: Sink) -> None:
        """Send an operator's panes to a sink; several sinks may take the same operator."""
        if not isinstance(result, Result):
            raise PipelineError(
                f"sink {name!r} was given {type(result).__name__}, not a result",
                hint="end the stream with .key_by(…).window(…).aggregate(…) before app.sink",
            )
        if _takes_letters(connector):
            raise PipelineError(
                f"sink {name!r} takes dead letters, not panes", hint="declare it with app.dead_letters(…)"
            )
        self.sinks[self._new(name, "sink")] = SinkNode(name, result.node, connector)

    def dead_letters(self, connector: Sink) -> None:
        """Send the dead letters of all sources to a sink as well, exactly once; they stay in the checkpoint too."""
        if not _takes_letters(connector):
            raise PipelineError(
                f"{type(connector).__name__} takes panes, not dead letters",
                hint='app.dead_letters(tg.KafkaDeadLetters("broker:9092"))',
            )
        if self.letters is not None:
            raise PipelineError(f"app {self.name!r} has a sink for its dead letters already", hint="one is enough")
        self.letters = connector

    def _new(self, name: str, what: str) -> str:
        check_name(name, what)
        if name in self.sources or name in self.operators or name in self.sinks or name == DEAD_LETTERS:
            raise PipelineError(
                f"{what} name {name!r} is already taken in app {self.name!r}",
                hint="names of sources, operators and sinks are the identity of state; give each its own",
            )
        return name


def _takes_letters(connector: Sink) -> bool:
    return getattr(connector, "takes", "panes") == "letters"
