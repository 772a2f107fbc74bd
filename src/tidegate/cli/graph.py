"""The dataflow graph of an app as boxes and arrows, from which all forms of `explain` are drawn.

Sources, the path to an operator (its steps and keys), operators, sinks – and again a path and an operator where one
is fed by another. A box has a name and a few lines that say what it does, in the words of the declaration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tidegate.app import DEAD_LETTERS, App, SinkNode
from tidegate.stream import Branch, PaneSource, Select, SourceNode, WindowNode
from tidegate.time import show
from tidegate.triggers import Default

Column = Literal["source", "path", "operator", "sink"]


@dataclass(frozen=True)
class Box:
    """One node. `after` is the id of the box it gets its events from; a source has none, a union `others` besides."""

    id: str
    column: Column
    name: str
    lines: tuple[str, ...]
    after: str | None = None
    others: tuple[str, ...] = ()


def graph(app: App) -> list[Box]:
    """All boxes, each after the one it hangs on, those of one source together; a union hangs on its first source."""
    boxes: list[Box] = []
    for source in app.sources.values():
        boxes.append(_source(source))
        if app.letters is not None:
            described = (app.letters.describe(),)
            boxes.append(Box(f"sink.{source.name}.letters", "sink", DEAD_LETTERS, described, f"source.{source.name}"))
        boxes += _fed_by(app, source.name)
    return boxes


def _fed_by(app: App, name: str) -> list[Box]:
    """What hangs on a source or an operator."""
    boxes: list[Box] = []
    for operator in app.operators.values():
        branches = [branch for branch in operator.branches if branch.source.name == name]
        boxes += [_path(operator, branch) for branch in branches]
        if name == _first(app, operator):
            boxes.append(_operator(app, operator))
            boxes += [_sink(sink) for sink in app.sinks.values() if sink.operator.name == operator.name]
            boxes += _fed_by(app, operator.name)
    return boxes


def children(boxes: list[Box], parent: str | None) -> list[Box]:
    return [box for box in boxes if box.after == parent]


def _source(source: SourceNode) -> Box:
    lines = [source.connector.describe(), f"event time {source.event_time}"]
    lines += [f"event id {source.event_id}"] if source.event_id else []
    lines += [f"watermark: {source.watermark}"]
    required = ", ".join(source.contract.required)
    lines += [f"{len(source.contract.fields)} fields" + (f", required: {required}" if required else "")]
    wire = source.contract.wire
    lines += [wire.registry.describe() if wire.registry else "Avro"] if wire else []
    lines += [f"expect {name}" for name, _ in source.contract.expectations]
    return Box(f"source.{source.name}", "source", source.name, tuple(lines))


def _first(app: App, operator: WindowNode) -> str:
    """Of all that feeds an operator, what was declared first: there it is drawn."""
    feeders = {branch.source.name for branch in operator.branches}
    return next(name for name in (*app.sources, *app.operators) if name in feeders)


def _path_id(operator: WindowNode, source: str) -> str:
    return f"path.{operator.name}.{source}" if operator.is_union else f"path.{operator.name}"


def _path(operator: WindowNode, branch: Branch) -> Box:
    lines = tuple(
        f"select {_named(step.columns)}" if isinstance(step, Select) else str(step).replace("`", "")
        for step in branch.steps
    )
    key_by, source = f"key by {_named(operator.keys)}", branch.source
    feeder = "operator" if isinstance(source, PaneSource) else "source"
    return Box(_path_id(operator, source.name), "path", key_by, lines, f"{feeder}.{source.name}")


def _named(pairs: tuple[tuple[str, str], ...]) -> str:
    """Named expressions; a column that keeps its name is said once."""
    return ", ".join(name if sql.strip("`") == name else f"{name} = {sql.replace('`', '')}" for name, sql in pairs)


def _operator(app: App, operator: WindowNode) -> Box:
    sources = [branch.source.name for branch in operator.branches]
    lines = [f"union of {', '.join(sources)}"] if operator.is_union else []
    lines += [str(operator.window), f"allowed lateness {show(operator.allowed_lateness)}"]
    lines += [] if isinstance(operator.trigger, Default) else [f"trigger: {operator.trigger}"]
    lines += [operator.accumulation] if operator.accumulation != "accumulating" else []
    lines += [f"{name} = {aggregate}" for name, aggregate in operator.aggregates]
    first = _first(app, operator)
    others = tuple(_path_id(operator, source) for source in sources if source != first)
    after = _path_id(operator, first)
    return Box(f"operator.{operator.name}", "operator", operator.name, tuple(lines), after, others)


def _sink(sink: SinkNode) -> Box:
    lines = (sink.connector.describe(),)
    return Box(f"sink.{sink.name}", "sink", sink.name, lines, f"operator.{sink.operator.name}")
