"""Drivers: who calls the engine. A streaming query, a bounded run, and the tick when nothing comes.

The streaming query itself is stateless: ``readStream → foreachBatch``. Spark keeps the offsets and the schedule, and
every batch is handed to the engine as the range that it covers, to be read there: a micro-batch that crosses into
`foreachBatch` has every row copied, and nothing on the other side can be optimised through it (decision 007). When no
data comes, the driver calls the engine with a tick, under the same lock, so that idleness and the clock go on."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate import crash
from tidegate.app import App
from tidegate.errors import CheckpointError, Fenced, PipelineError, TidegateError, Unavailable
from tidegate.patience import patiently
from tidegate.runtime.checks import check
from tidegate.runtime.claims import finish_ended
from tidegate.runtime.engine import Batch, Engine
from tidegate.runtime.identity import check_log, last_committed, offset_of, offsets_of
from tidegate.runtime.poison import sentence
from tidegate.runtime.records import Checkpoint, Offsets
from tidegate.runtime.reports import RunOptions, RunSummary, Watcher
from tidegate.runtime.session import OUR_QUERY, make_session
from tidegate.sources.base import Reader, Records
from tidegate.storage.hadoop import JARS
from tidegate.storage.places import Place, place, scheme_of
from tidegate.watermarks import Watermark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Readers = Mapping[str, Reader]
"""The open sources of a run, by name."""


def run(app: App, options: RunOptions, watcher: Watcher) -> RunSummary:
    """Run an app as `options` say, until it is done or told to stop (SIGINT, SIGTERM)."""
    started = time.monotonic()
    refuse_unsound(app)
    for source in app.sources.values():
        source.connector.ready()
    # A checkpoint that is not local is read through Spark's JVM, with the settings of the session.
    spark = None if isinstance(place(options.checkpoint), Path) else _session(app, options, watcher)
    checkpoint = Checkpoint.create_or_open(options.checkpoint, app.name)
    position = checkpoint.position()
    if position is not None and position.last.terminal:
        with _clear_errors(app):
            if jars := _jars(*(sink.connector for sink in app.sinks.values())):  # a sink that writes through Spark
                make_session(app.name, options.cores, jars=jars)
            last = finish_ended(app, checkpoint, position, _now(), watcher)
        return RunSummary(1, time.monotonic() - started, last.totals, "input had ended")
    if options.mode == "batch" and position is not None and position.last.offsets is not None:
        raise CheckpointError(
            f"{checkpoint.folder} belongs to a streaming run", hint="give --batch a --checkpoint of its own"
        )
    spark_folder = checkpoint.folder / "spark"
    if options.mode != "batch":
        check_log(spark_folder, position.last.offsets if position else None, checkpoint)
    spark = spark or _session(app, options, watcher)
    with _clear_errors(app), _stop_signals() as stop:
        first = position.last.sequence if position else 0
        engine = Engine(spark, app, checkpoint, watcher, _now(), stop)
        readers = {
            name: node.connector.open(spark, node.contract, name, options.max_batch)
            for name, node in app.sources.items()
        }
        try:
            if options.mode == "batch":
                work = partial(_run_bounded, engine, readers)
            else:
                work = partial(_run_query, engine, readers, options, spark_folder, stop)
            _until_it_answers(engine, readers, work, watcher, stop)
            if options.mode == "drain" and not stop.is_set():
                engine.batch(Batch(clock=max(_now(), engine.reached.clock), end_of_input=True))
            engine.finish()
        except Exception as error:
            # A driver that has been replaced finds Spark's log or its own files changed under it: the claim tells why.
            position = checkpoint.position()
            if position is not None and position.last.claim != engine.last.claim:
                raise Fenced("another driver is running on the same checkpoint; this one stops") from error
            raise
        finally:
            for reader in readers.values():
                reader.close()
            engine.close()
    why = "stopped by signal" if stop.is_set() else {"continuous": "stopped"}.get(options.mode, "input taken")
    return RunSummary(engine.last.sequence - first, time.monotonic() - started, engine.last.totals, why)


def _session(app: App, options: RunOptions, watcher: Watcher) -> SparkSession:
    watcher.say("starting Spark")
    parts: list[object] = [source.connector for source in app.sources.values()]
    parts += [sink.connector for sink in app.sinks.values()]
    parts += [node.contract.wire for node in app.sources.values()]
    jars = (*_jars(*parts), *JARS.get(scheme_of(options.checkpoint) or "", ()))
    return make_session(app.name, options.cores, jars=jars)


def _jars(*parts: object) -> tuple[str, ...]:
    """The groups of jars that these connectors and wire formats need; most need none."""
    return tuple(dict.fromkeys(group for part in parts for group in getattr(part, "jars", ())))


def refuse_unsound(app: App) -> None:
    """What cannot be safe is refused before it runs."""
    errors = [finding for finding in check(app) if finding.level == "error"]
    if errors:
        raise PipelineError(
            f"app {app.name!r} cannot run:\n  " + "\n  ".join(f"{f.where}: {f.message}" for f in errors),
            hint=errors[0].hint or "see `tidegate check`",
        )


def _stream(engine: Engine, readers: Readers) -> DataFrame:
    """All sources as one stream, of which only the ranges matter."""
    for setting, value in OUR_QUERY.items():
        engine.spark.conf.set(setting, value)
    parts = [reader.stream().select("_origin") for reader in readers.values()]
    return reduce(lambda one, other: one.union(other), parts)


def _records(readers: Readers, spans: Mapping[str, Any], without: frozenset[str]) -> dict[str, Records]:
    """The raw records of the range of each source that has one, without the given origins."""
    rest = {name: readers[name].without(span, without) if without else span for name, span in spans.items()}
    return {name: readers[name].records(span) for name, span in rest.items() if span}


def _source_of(readers: Readers, origin: str) -> str:
    """The source that an origin is of; the first when none claims it, for a dead letter must have one."""
    return max(readers, key=lambda name: readers[name].holds(origin))


def _batch(engine: Engine, readers: Readers, spans: Mapping[str, Any], clock: int, offsets: Offsets) -> Batch:
    read = partial(_records, readers, spans)
    standing = {name: readers[name].standing(span) for name, span in spans.items()}
    whose = partial(_source_of, readers)
    return Batch(max(clock, engine.reached.clock), {}, offsets, standing, read=read, source_of=whose)


def _run_bounded(engine: Engine, readers: Readers) -> None:
    """A batch is a bounded stream: everything in one batch, then the end of time."""
    spans = {name: reader.whole() for name, reader in readers.items()}
    offsets = Offsets("batch", None, "\n".join(sorted(str(span) for span in spans.values() if span)), 0)
    engine.batch(replace(_batch(engine, readers, spans, _now(), offsets), end_of_input=True))


def _run_query(
    engine: Engine, readers: Readers, options: RunOptions, spark_folder: Place, stop: threading.Event
) -> None:
    """The streaming query until it ends: nothing more to take, a stop, or a failure."""
    failures: list[BaseException] = []
    last_call = time.monotonic()
    gate = threading.Lock()

    def on_batch(_: DataFrame, batch_id: int) -> None:
        nonlocal last_call
        with gate:
            if stop.is_set():
                raise _StopAskedError  # Spark has not committed the batch and will offer it again
            try:
                _decide_committed(engine, readers, spark_folder, before=batch_id)
                engine.batch(_batch_of(engine, readers, batch_id, spark_folder))
                last_call = time.monotonic()
                crash.point("before_spark_commit")
            except BaseException as error:
                if isinstance(error, Unavailable) and stop.is_set():
                    raise _StopAskedError from None  # the batch was not decided; it will be offered again
                failures.append(error)
                raise

    writer = _stream(engine, readers).writeStream.queryName(f"tidegate_{engine.app.name}")
    writer = writer.option("checkpointLocation", str(spark_folder))
    bounded = options.mode in ("once", "drain")
    writer = (
        writer.trigger(availableNow=True) if bounded else writer.trigger(processingTime=f"{options.interval} seconds")
    )
    engine.settle()
    _decide_committed(engine, readers, spark_folder, before=last_committed(spark_folder) + 1)
    crash.point("before_offset_log")
    query = writer.foreachBatch(on_batch).start()
    try:
        while not query.awaitTermination(0.2):  # type: ignore[arg-type]  # fractions are fine
            if stop.is_set():
                with gate:  # the running batch ends; no other begins
                    break
            is_due = time.monotonic() - last_call > max(options.interval, _tick_interval(engine.app))
            # No tick while a batch runs: what it knows of unread data would be older than what the batch knows.
            if is_due and not bounded and gate.acquire(blocking=False):
                try:
                    standing = {name: reader.standing(None) for name, reader in readers.items()}
                    engine.batch(Batch(clock=max(_now(), engine.reached.clock), standing=standing))
                finally:
                    gate.release()
                last_call = time.monotonic()
    except Exception as error:
        if not failures and not stop.is_set():
            failures.append(error)
    finally:
        if query.isActive:
            query.stop()
    if failures:
        raise failures[0]


def _until_it_answers(
    engine: Engine, readers: Readers, action: Callable[[], None], watcher: Watcher, stop: threading.Event
) -> None:
    """Run `action` to its end. A source that goes away is waited for, aloud; then the action begins again.

    It begins again where our records end: a batch that was under way is offered and computed anew.
    """
    trouble: TidegateError | None = None

    def answer() -> None:
        nonlocal trouble
        if (told := trouble) is not None:
            trouble = None
            raise told
        for name, reader in readers.items():
            clock = engine.reached.sources.get(name)
            reader.check(clock.identity if clock else None)

    while True:
        was_away = trouble is not None
        try:
            patiently(answer, watcher.say, stop)
        except Unavailable:
            if stop.is_set():
                return None
            raise
        if was_away:
            engine.pause(_now() - engine.reached.clock)
        try:
            return action()
        except Exception as error:
            trouble = _trouble(readers, error)
            if trouble is None:
                raise
            trouble.__cause__ = error


def _trouble(readers: Readers, error: BaseException) -> TidegateError | None:
    """What an error means, when it comes from a source."""
    if isinstance(error, TidegateError):
        return error if isinstance(error, Unavailable) else None
    return next((found for reader in readers.values() if (found := reader.trouble(error)) is not None), None)


def _batch_of(engine: Engine, readers: Readers, batch_id: int, spark_folder: Place) -> Batch:
    """A micro-batch of the query as the engine wants it: its identity, its clock, its records."""
    offsets, clock = offsets_of(spark_folder, batch_id)
    spans = {}
    for name, reader in readers.items():
        end = offset_of(offsets.end, name)
        if end is not None:
            spans[name] = reader.taken(spark_folder / "sources" / name, offset_of(offsets.start, name), end)
    return _batch(engine, readers, spans, clock, offsets)


def _decide_committed(engine: Engine, readers: Readers, spark_folder: Place, before: int) -> None:
    """Take the batches that Spark has committed and nobody has decided: it will not offer them again.

    Spark commits a batch when it is folded; a driver that ends between that and the record leaves one behind.
    """
    reached = engine.reached.offsets
    for number in range(reached.batch_id + 1 if reached else 0, before):
        engine.batch(_batch_of(engine, readers, number, spark_folder))


def _tick_interval(app: App) -> float:
    """How often the clock must be looked at when nothing comes: a fraction of the shortest idleness."""
    waits = [
        source.watermark.idle_after / 4_000_000
        for source in app.sources.values()
        if isinstance(source.watermark, Watermark) and source.watermark.idle_after
    ]
    return min([10.0, *waits])


class _StopAskedError(Exception):
    """A batch came after a stop was asked for."""


def _now() -> int:
    return time.time_ns() // 1000


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """SIGINT and SIGTERM ask for a stop after the running batch; a second one is not waited for."""
    stop = threading.Event()

    def ask(_signal: int, _frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _clear_errors(app: App) -> Iterator[None]:
    """What Spark throws, in the user's words."""
    from py4j.protocol import Py4JError
    from pyspark.errors import AnalysisException, PySparkException

    try:
        yield
    except TidegateError:
        raise
    except AnalysisException as error:
        raise PipelineError(
            f"Spark cannot plan app {app.name!r}: {sentence(error)}", hint="check column names and types in the app"
        ) from error
    except (PySparkException, Py4JError) as error:
        if "CONCURRENT_STREAM_LOG_UPDATE" in str(error):
            raise Fenced("another driver is running on the same checkpoint; this one stops") from error
        raise TidegateError(
            f"Spark failed: {sentence(error)}", hint="set TIDEGATE_DEBUG=1 for the whole story"
        ) from error
