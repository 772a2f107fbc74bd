"""Checks: what is wrong, or risky, in an app that can be told before it runs and without a Spark session.

An *error* would make the run fail or its result go nowhere; a *warning* is something that works and may surprise.
Columns are followed from the contract through the steps of each path. Only what can be judged with certainty is an
error: a column that stands alone, or in backquotes, or alone in the parentheses of a function. Other words of an
expression might be keywords of a SQL dialect that only Spark knows in full, so an unknown one is a warning. After a
`transform`, which can do anything, columns are no longer judged.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

from tidegate.app import App
from tidegate.runtime.expressions import certain_columns, only_column, possible_columns
from tidegate.sinks.base import PANE_COLUMNS
from tidegate.stream import Branch, FlatMap, PaneSource, Select, SourceNode, Transform, Where, WindowNode
from tidegate.time import FOREVER, show
from tidegate.triggers import AfterWatermark, Default, FinalOnly
from tidegate.watermarks import Punctuated
from tidegate.windows import Global, Hopping, Rolling, Session

_MANY_WINDOWS = 1_000


@dataclass(frozen=True)
class Finding:
    """Something that `check` found: where, what, and what to do about it."""

    level: Literal["error", "warning"]
    where: str
    message: str
    hint: str | None = None


def check(app: App) -> list[Finding]:
    """Everything that can be found without Spark, errors first."""
    found = [*_shape(app), *_same_target(app)]
    for source in app.sources.values():
        found += _source(source)
    for operator in app.operators.values():
        found += _paths(operator)
        found += _windows(operator)
        found += _chaining(operator)
    for sink in app.sinks.values():
        found += [Finding("error", f"sink {sink.name}", problem) for problem in sink.connector.problems()]
    if app.letters is not None:
        found += [Finding("error", "dead letters", problem) for problem in app.letters.problems()]
    return sorted(dict.fromkeys(found), key=lambda finding: finding.level != "error")


def _shape(app: App) -> Iterator[Finding]:
    if not app.sources:
        yield Finding("error", f"app {app.name}", "has no source", "declare one with app.source(…)")
    used = {branch.source.name for operator in app.operators.values() for branch in operator.branches}
    for name in sorted(app.sources.keys() - used):
        yield Finding(
            "error",
            f"source {name}",
            "no operator reads it: its events would be read and go nowhere",
            "add .key_by(…).window(…).aggregate(…), or take the source out",
        )
    written = {sink.operator.name for sink in app.sinks.values()}
    for name in sorted(app.operators.keys() - written - used):
        yield Finding(
            "error",
            f"operator {name}",
            "no sink takes its results, and no other operator does",
            'add app.sink("a_name", result, connector)',
        )


def _same_target(app: App) -> Iterator[Finding]:
    """Two sinks in one table overwrite each other's rows. A change log keeps its sinks apart by name."""
    taken: dict[tuple[str, str, str], str] = {}
    for sink in app.sinks.values():
        table, path = getattr(sink.connector, "table", None), getattr(sink.connector, "path", None)
        if table is None or path is None:
            continue
        target = (type(sink.connector).__name__, str(Path(path).resolve()), str(table).lower())
        other = taken.setdefault(target, sink.name)
        if other != sink.name:
            yield Finding(
                "error",
                f"sink {sink.name}",
                f"writes to the same place as sink {other}: {sink.connector.describe()}",
                "give each sink a table of its own",
            )


def _source(source: SourceNode) -> Iterator[Finding]:
    where = f"source {source.name}"
    yield from (Finding("error", where, problem) for problem in source.connector.problems(source.contract))
    registry = source.contract.wire.registry if source.contract.wire else None
    if registry and registry.wire == "header" and "_headers" not in source.connector.extra:
        yield Finding("error", where, "the schema id is said to be in a header, and this source has no headers")
    columns = source.contract.names
    yield from _expression(where, "event_time", source.event_time, columns)
    if source.event_id is not None:
        yield from _expression(where, "event_id", source.event_id, columns)
    if isinstance(source.watermark, Punctuated):
        yield from _expression(where, "watermark", source.watermark.column, columns)
    for name, sql in source.contract.expectations:
        yield from _expression(where, f"expectation {name!r}", sql, columns)
    alone = only_column(source.event_time)
    for field in source.contract.fields:
        if alone and field.name.lower() == alone.lower() and not field.type.upper().startswith("TIMESTAMP"):
            yield Finding(
                "error",
                where,
                f"event_time {field.name!r} is {field.type} in the contract, not TIMESTAMP",
                f'declare it as TIMESTAMP, or convert it: event_time="timestamp_millis({field.name})"',
            )


def _paths(operator: WindowNode) -> Iterator[Finding]:
    """Follow the columns from each contract to the operator; they must arrive as the same ones."""
    where = f"operator {operator.name}"
    arriving: dict[str, tuple[str, ...]] = {}
    for branch in operator.branches:
        from_ = f" from {branch.source.name}" if operator.is_union else ""
        columns = yield from _path(f"{where}{from_}", operator, branch)
        if columns is not None:
            arriving[branch.source.name] = columns
    for name in (*operator.key_names, *operator.value_names):
        if name.lower() in PANE_COLUMNS:
            yield Finding(
                "error", where, f"the name {name!r} is taken: each result has a column of that name", "rename it"
            )
    if arriving:
        (first, known), *others = arriving.items()
        for other, columns in others:
            yield from _differences(where, (first, known), (other, columns))
            yield from _differences(where, (other, columns), (first, known))


def _differences(where: str, one: tuple[str, tuple[str, ...]], other: tuple[str, tuple[str, ...]]) -> Iterator[Finding]:
    """The columns that one side of a union has and the other lacks."""
    there = {column.lower() for column in other[1]}
    if lacking := [column for column in one[1] if column.lower() not in there]:
        yield Finding(
            "error",
            where,
            f"a union needs the same columns, but {', '.join(map(repr, lacking))} of {one[0]} "
            f"{'is' if len(lacking) == 1 else 'are'} not among those of {other[0]}",
            "give both the same columns with select(…) before the union",
        )


def _path(where: str, operator: WindowNode, branch: Branch) -> Generator[Finding, None, tuple[str, ...] | None]:
    """Follow the columns of one branch; which ones arrive, as far as that can be known."""
    columns: tuple[str, ...] | None = branch.source.columns
    for step in branch.steps:
        match step:
            case Transform():
                columns = None
            case Where(condition):
                yield from _expression(where, "where", condition, columns)
            case Select(pairs):
                for name, sql in pairs:
                    yield from _expression(where, f"select {name}", sql, columns)
                columns = tuple(name for name, _ in pairs)
            case FlatMap(name, array):
                yield from _expression(where, f"flat_map {name}", array, columns)
                columns = None if columns is None else (*columns, name)
    for name, sql in operator.keys:
        yield from _expression(where, f"key {name}", sql, columns)
    for name, aggregate in operator.aggregates:
        for _, sql in aggregate.partial:
            yield from _expression(where, f"{name} = {aggregate}", sql, columns)
    return columns


def _expression(where: str, what: str, sql: str, columns: tuple[str, ...] | None) -> Iterator[Finding]:
    if columns is None:
        return
    certain = certain_columns(sql)
    yield from _unknown("error", where, what, certain, columns)
    yield from _unknown("warning", where, what, possible_columns(sql) - certain, columns)


def _unknown(
    level: Literal["error", "warning"], where: str, what: str, names: Iterable[str], columns: tuple[str, ...]
) -> Iterator[Finding]:
    known = {column.lower(): column for column in columns}
    for name in sorted(names):
        # Names that begin with an underscore are the engine's own, such as `_order` in aggregates.
        if name.lower() in known or name.startswith("_"):
            continue
        close = get_close_matches(name.lower(), known, n=1)
        hint = f"did you mean {known[close[0]]!r}?" if close else f"there are {', '.join(columns)}"
        verb = "is not" if level == "error" else "does not seem to be"
        yield Finding(level, where, f"{what}: {name!r} {verb} a column here", hint)


def _windows(operator: WindowNode) -> Iterator[Finding]:
    where, window, lateness = f"operator {operator.name}", operator.window, operator.allowed_lateness
    if isinstance(window, Session) and window.max_length is None:
        yield Finding(
            "warning",
            where,
            "sessions have no max_length: a key that never rests never closes its session, and its state only grows",
            'Session("30m", max_length="12h")',
        )
    if isinstance(window, Global):
        if isinstance(operator.trigger, Default | FinalOnly):
            yield Finding(
                "warning",
                where,
                "the global window speaks only when the input ends (--drain or --batch)",
                "give it a trigger, such as EveryEventTime or Count, to see results before",
            )
    elif lateness >= FOREVER:
        yield Finding(
            "warning",
            where,
            "allowed_lateness is forever: no window ever closes, no event is ever late, and state only grows",
            'choose a bound, such as "7d"; what comes later is kept as a dead letter, not lost',
        )
        if isinstance(operator.trigger, FinalOnly):
            yield Finding("error", where, "FinalOnly waits for windows to close, and with lateness forever none does")
    if isinstance(window, Hopping):
        yield from _cost(where, operator, window)


def _chaining(operator: WindowNode) -> Iterator[Finding]:
    """Only results that are final, or that are taken back before they are corrected, may feed another operator."""
    where = f"operator {operator.name}"
    fed_by = [branch.source.operator for branch in operator.branches if isinstance(branch.source, PaneSource)]
    if fed_by and operator.is_union:
        yield Finding(
            "error",
            where,
            f"a union takes the events of sources, and {fed_by[0].name} is an operator: its results cannot be in it",
            f"unite the sources before {fed_by[0].name}, or send the results to a sink and read them as a source",
        )
        return
    if not fed_by:
        return
    upstream = fed_by[0]
    if isinstance(upstream.window, Global):
        yield Finding(
            "error",
            where,
            f"it is fed by {upstream.name}, whose global window ends with the stream: its results have no event time",
            "give the first operator windows that end",
        )
    if not upstream.speaks_once and upstream.accumulation != "retracting":
        yield Finding(
            "error",
            where,
            f"it is fed by {upstream.name}, which corrects its results without taking the old ones back: "
            "an aggregate over them would count both",
            f'give {upstream.name} accumulation="retracting", or trigger=tg.FinalOnly()',
        )
    if operator.is_corrected:
        if isinstance(operator.window, Session | Rolling):
            yield Finding(
                "error",
                where,
                f"{upstream.name} takes results back, and a {operator.window} over them would fall apart again",
                f"give {upstream.name} trigger=tg.FinalOnly(), or use tumbling, hopping or calendar windows",
            )
        if not isinstance(operator.trigger, Default | FinalOnly) or operator.on_time != "always":
            yield Finding(
                "error",
                where,
                f"{upstream.name} takes results back, so a window here speaks once, when nothing in it can change: "
                f"the trigger {operator.trigger} would not be asked",
                f"leave the trigger out, or give {upstream.name} trigger=tg.FinalOnly()",
            )


def _cost(where: str, operator: WindowNode, window: Hopping) -> Iterator[Finding]:
    kept = operator.allowed_lateness // window.slide
    if operator.allowed_lateness < FOREVER and kept > _MANY_WINDOWS:
        yield Finding(
            "warning",
            where,
            f"allowed_lateness {show(operator.allowed_lateness)} keeps {kept:,} complete windows per key open",
            "that is state and file reads; a shorter lateness sends what comes later to the dead letters",
        )
    overlap = window.size // window.slide
    if overlap > 1 and isinstance(operator.trigger, AfterWatermark) and operator.trigger.early is not None:
        yield Finding(
            "warning",
            where,
            f"early panes of a hopping window keep up to {overlap:,} pane rows per key, one per overlapping window",
        )
