"""Transcripts: event-time behaviour as readable data, and the strict parser for it.

A transcript is a small play: micro-batches come in, the watermark moves, panes and dead letters come
out. A file holds one or more YAML documents, each a transcript. The parser knows exactly the words of
the format; everything else – a misspelt field, a trigger that does not exist, a time that is no
number – is a `TranscriptError` that names it, because a transcript that is only half understood would
pass for the wrong reason.

Times in the file are seconds; in these values they are whole microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tidegate.errors import PipelineError, TidegateError
from tidegate.stream import check_name
from tidegate.testing.reading import (
    Fields,
    TranscriptError,
    choice,
    listed,
    micros_of,
    read_trigger,
    read_watermark,
    read_window,
    text,
)
from tidegate.testing.steps import Aggregate, Batch, Scene, read_scenes
from tidegate.time import FOREVER
from tidegate.triggers import ACCUMULATIONS, Accumulation, OnTime, Trigger
from tidegate.watermarks import Manual, WatermarkStrategy
from tidegate.windows import Window

TAKEN = ("windows", "then", "out")
"""Names that an executor gives to other parts of the pipeline."""


@dataclass(frozen=True)
class Then:
    """A second operator, fed by the results of the first; `aggregate` is over their values."""

    window: Window
    aggregate: Aggregate


@dataclass(frozen=True)
class Transcript:
    """One transcript; durations and times in microseconds."""

    name: str
    why: str | None
    window: Window
    trigger: Trigger
    accumulation: Accumulation
    allowed_lateness: int
    on_time: OnTime
    aggregate: Aggregate
    watermark: WatermarkStrategy
    must_fail: str | None
    scenes: tuple[Scene, ...]
    path: Path | None = None
    then: Then | None = None
    sources: tuple[tuple[str, WatermarkStrategy], ...] = ()
    """With several sources: each with its watermark, which then takes the place of `watermark`."""

    @property
    def shown(self) -> Aggregate:
        """What the panes that come out hold: those of the last operator."""
        return self.aggregate if self.then is None else self.then.aggregate

    @property
    def uses_ids(self) -> bool:
        """Whether any event has an id, so that duplicates are looked for."""
        batches = (scene.action for scene in self.scenes if isinstance(scene.action, Batch))
        return any(event.id is not None for batch in batches for event in batch.events)


@dataclass(frozen=True)
class Unreadable:
    """A transcript, or a whole file, that cannot be read; it counts as failed, never as absent."""

    name: str
    message: str
    path: Path | None = None


class _StrictLoader(yaml.SafeLoader):
    """Safe YAML that refuses a field given twice, where PyYAML would keep the last one and say nothing."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                continue
            if key_node.value in seen:
                raise TranscriptError(f"field {key_node.value!r} is given twice, at line {node.start_mark.line + 1}")
            seen.add(key_node.value)
        return super().construct_mapping(node, deep)


def read_file(path: Path) -> list[Transcript | Unreadable]:
    """All transcripts of a file; what cannot be read stands in its place as `Unreadable`."""
    found: list[Transcript | Unreadable] = []
    names: set[str] = set()
    try:
        # The documents are read one by one, so that those before a mistake still count.
        for document in _documents(path.read_text(encoding="utf-8")):
            name = str(document.get("name", path)) if isinstance(document, Mapping) else str(path)
            try:
                transcript = parse(document, path)
                if transcript.name in names:
                    raise TranscriptError(f"name {transcript.name!r} is not unique in its file")
                names.add(transcript.name)
                found.append(transcript)
            except TidegateError as error:
                found.append(Unreadable(name, str(error), path))
    except (yaml.YAMLError, OSError, UnicodeDecodeError, TranscriptError) as error:
        found.append(Unreadable(str(path), f"cannot be read: {error}", path))
    return found or [Unreadable(str(path), "holds no transcript", path)]


def _documents(content: str) -> Iterator[Any]:
    # A file may end with `---`; the empty document behind it is nobody's.
    return (document for document in yaml.load_all(content, Loader=_StrictLoader) if document is not None)


def parse(document: Any, path: Path | None = None) -> Transcript:
    """Read one YAML document as a transcript, or raise a `TranscriptError` that says where and why."""
    fields = Fields(document, "transcript")
    name = text(fields.need("name"), "name")
    try:
        return _transcript(name, fields, path)
    except PipelineError as error:
        raise TranscriptError(f"{name}: {error}") from error
    except TranscriptError as error:
        raise TranscriptError(f"{name}: {error.message}", hint=error.hint) from error


def _transcript(name: str, fields: Fields, path: Path | None) -> Transcript:
    why, must_fail = fields.take("why"), fields.take("must_fail")
    lateness = fields.take("allowed_lateness", 0)
    allowed_lateness = FOREVER if lateness == "forever" else micros_of(lateness, "allowed_lateness")
    if allowed_lateness < 0:
        raise TranscriptError(f"allowed_lateness must not be negative, but is {lateness!r}")
    if must_fail is not None:
        try:
            re.compile(text(must_fail, "must_fail"))
        except re.error as error:
            raise TranscriptError(f"must_fail {must_fail!r} is not a regular expression: {error}") from error
    aggregate = _aggregate(fields)
    then = _then(fields.take("then"), aggregate)
    sources = _sources(fields.take("sources"), alone="watermark" not in fields)
    watermark = read_watermark(fields.take("watermark", "manual"))
    window = read_window(fields.need("window"))
    trigger = read_trigger(fields.take("trigger", "default"))
    accumulation = choice(fields.take("accumulation", "accumulating"), "accumulation", ACCUMULATIONS)
    on_time = choice(fields.take("on_time", "always"), "on_time", ("always", "if_changed"))
    steps = listed(fields.need("steps"), "steps")
    fields.done()
    return Transcript(
        name=name,
        why=None if why is None else text(why, "why"),
        window=window,
        trigger=trigger,
        accumulation=accumulation,
        allowed_lateness=allowed_lateness,
        on_time=on_time,
        aggregate=aggregate,
        watermark=watermark,
        must_fail=must_fail,
        scenes=read_scenes(
            steps,
            then.aggregate if then else aggregate,
            manual=all(isinstance(strategy, Manual) for strategy in (watermark, *dict(sources).values())),
            sources={name: isinstance(strategy, Manual) for name, strategy in sources},
        ),
        path=path,
        then=then,
        sources=sources,
    )


def _sources(value: Any, *, alone: bool) -> tuple[tuple[str, WatermarkStrategy], ...]:
    """Sources by name, each with its watermark."""
    if value is None:
        return ()
    if not isinstance(value, Mapping) or len(value) < 2:
        raise TranscriptError(
            f"sources must be a mapping of at least two names, but is {value!r}",
            hint="{web: {delay: 5}, mobile: manual}",
        )
    if not alone:
        raise TranscriptError("with sources, each has its own watermark: leave the field 'watermark' out")
    for name in value:
        if name in TAKEN:
            raise TranscriptError(f"source name {name!r} is taken", hint=f"not one of {', '.join(TAKEN)}")
    return tuple((check_name(name, "source"), read_watermark(given)) for name, given in value.items())


def _aggregate(fields: Fields) -> Aggregate:
    chosen: Aggregate = choice(fields.take("aggregate", "collect"), "aggregate", ("collect", "sum", "count"))
    return chosen


def _then(value: Any, aggregate: Aggregate) -> Then | None:
    if value is None:
        return None
    if aggregate == "collect":
        raise TranscriptError("then: the results of the first operator must be numbers", hint="aggregate: sum or count")
    fields = Fields(value, "then")
    then = Then(read_window(fields.need("window")), _aggregate(fields))
    fields.done()
    return then
