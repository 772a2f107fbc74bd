"""The engine: one batch, from the events that were read to the panes that were delivered.

A batch is computed, *decided* by one atomic record, and only then shown to the outside world, from the files that the
record names. A retry never recomputes what was decided. The story of a batch is `Engine.batch`, in seven steps:

1. identify   is this batch new, done, or not ours?
2. decode     raw records to typed rows, with the schemas they name
3. route      what is refused before any operator: reasons
4. operate    fold into slices, move the watermark, fire what is due – all staged, nothing decided
5. balance    every event accounted for, or nothing happens
6. decide     one record, created atomically
7. deliver    to every sink, from the staged files

Once a batch is folded, it is known where it ends and how far the watermark has come: all that the next one needs to be
folded. So `batch` returns there, and the rest happens in `_conclude`, in the background, while the next batch is being
read. Batches are concluded one after the other: records have no gaps (decision 011).

Who calls it is a driver: a streaming query, a bounded run, a transcript. A *tick* is a batch without events.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tidegate import crash
from tidegate.app import App
from tidegate.operators.sql import END_OF_TIME
from tidegate.patience import patiently
from tidegate.runtime import clock as clocks
from tidegate.runtime.attempt import Attempt
from tidegate.runtime.chained_operation import Feed, kind_of, output_watermark
from tidegate.runtime.claims import claim
from tidegate.runtime.delivery import Deliverer
from tidegate.runtime.identity import Fate, compare
from tidegate.runtime.operate import Operation
from tidegate.runtime.records import (
    KEEP_SNAPSHOTS,
    SNAPSHOT_EVERY,
    Checkpoint,
    Offsets,
    Outbox,
    Reached,
    Record,
    Snapshot,
    SourceClock,
)
from tidegate.runtime.reports import BatchReport, Watcher
from tidegate.runtime.signatures import added_aggregates, reconcile
from tidegate.runtime.source_work import SourceWork
from tidegate.runtime.state import Change, State
from tidegate.sources.base import NOTHING_LEFT, Records, Standing
from tidegate.stream import PaneSource, WindowNode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Batch:
    """What a driver hands to the engine: raw records by source (none for a tick), where they came from, and the clock.

    `standing` is what each source still holds. Instead of `records` there may be `read`, which is called only for a
    batch that is new, and again without the given origins when a file turns out to be unreadable; `source_of` tells
    whose it is.
    """

    clock: int
    records: Mapping[str, Records] = field(default_factory=dict)
    offsets: Offsets | None = None
    standing: Mapping[str, Standing] = field(default_factory=dict)
    manual: Mapping[str, int] = field(default_factory=dict)
    end_of_input: bool = False
    read: Callable[[frozenset[str]], Mapping[str, Records]] | None = None
    source_of: Callable[[str], str] | None = None


class Engine:
    """A pipeline on a checkpoint, held by a claim. Batches and ticks come one at a time, under its lock."""

    def __init__(
        self,
        spark: SparkSession,
        app: App,
        checkpoint: Checkpoint,
        watcher: Watcher,
        now: int,
        stop: threading.Event | None = None,
    ) -> None:
        """Claim the checkpoint, reconcile state with the app's definition, open the sinks, deliver what was decided."""
        self.spark, self.app, self.checkpoint, self.watcher = spark, app, checkpoint, watcher
        self.lock = threading.Lock()
        self.stop = stop or threading.Event()
        position = checkpoint.position()
        self.state = State(checkpoint.folder, position.files if position else {})
        self.sources = {name: SourceWork(source) for name, source in app.sources.items()}
        stored = position.signatures if position else {}
        sequence = position.last.sequence + 1 if position else 1
        self.signatures = stored | {n: reconcile(node, stored.get(n), sequence) for n, node in app.operators.items()}
        self.feeds: dict[str, Feed] = {}
        """Operators that are fed by others: what feeds them."""
        self.operations: dict[str, Operation] = {}
        for name, node in app.operators.items():  # in order: each is fed by a source, or by one before it
            samples = {}
            for source in (branch.source for branch in node.branches):
                work: SourceWork | Feed
                if isinstance(source, PaneSource):
                    work = self.feeds[name] = Feed(self.operations[source.name], source)
                else:
                    work = self.sources[source.name]
                samples[source.name] = work.sample(spark)
            added = added_aggregates(self.signatures[name])
            self.operations[name] = kind_of(node)(spark, node, self.state, app.name, added, samples)
        self.last = claim(checkpoint, position, now, self.signatures)
        self.reached = self.last.reached
        """What was folded last; `last` is what was decided last, the same or the one before."""
        self._remembers_ids = any(source.event_id is not None for source in app.sources.values())
        self._conclusion: Future[None] | None = None
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tidegate-conclude")
        self._published = 0.0
        self.deliverer = Deliverer(
            app, checkpoint.folder, checkpoint.identity, self.last.claim, self.last.outbox, watcher.say
        )
        if self.last.outbox.sequence:
            self.deliverer.start(self.last.outbox)
        orphans = self.state.sweep_orphans(path for paths in self.last.outbox.files.values() for path in paths)
        if orphans:
            watcher.say(f"removed {orphans} files of attempts that were never decided")

    # -- the story of a batch ---------------------------------------------------------------------------------------

    def batch(self, batch: Batch) -> bool:
        """Fold one batch, and conclude it while the next is being read; False when it had been decided before."""
        with self.lock:
            started = time.monotonic()
            # 1. identify
            if batch.offsets is not None and compare(batch.offsets, self.reached.offsets, self.checkpoint) is Fate.DONE:
                self._settle()
                self.watcher.say(
                    f"batch {batch.offsets.batch_id} was decided as record {self.last.sequence}: delivered, skipped"
                )
                return False
            if self._remembers_ids:  # those of the batch before are state only when it is decided
                self._settle()
            attempt = Attempt(self, batch, self.reached, uuid.uuid4().hex)
            try:
                self._resolve(attempt)
                # 2. decode, 3. route and 4. operate: one plan, one scan
                attempt.fold()
                clock = self._clocks(batch, attempt)
                after = self._watermarks(clock, batch)
                crash.point("after_fold")
                self._settle()
            except BaseException:
                attempt.release()
                raise
            offsets = batch.offsets or self.reached.offsets
            self.reached = Reached(attempt.sequence, batch.clock, offsets, clock, after)
            self._conclusion = self._worker.submit(self._conclude, attempt, self.reached, started)
            return True

    def _conclude(self, attempt: Attempt, reached: Reached, started: float) -> None:
        """What a folded batch does to state and results; and its record."""
        try:
            attempt.fire(dict(reached.watermarks))
            crash.point("after_staging")
            # 5. balance
            attempt.balance()
        finally:
            attempt.release()
        # 6. decide
        self.deliverer.finish()
        record = self._record(attempt, reached, time.monotonic() - max(started, self._published))
        self.checkpoint.publish(record)
        self._published = time.monotonic()
        self._follow(record)
        # 7. deliver
        if record.outbox.sequence == record.sequence:
            self.deliverer.start(record.outbox)
        self._report(record)

    def _settle(self) -> None:
        """Wait until the batch that was folded last is decided; raise what has kept it from that."""
        conclusion, self._conclusion = self._conclusion, None
        if conclusion is not None:
            try:
                conclusion.result()
            finally:
                self.reached = self.last.reached

    def settle(self) -> None:
        """Wait until everything that was folded is decided."""
        with self.lock:
            self._settle()

    def finish(self) -> None:
        """Wait until everything that was folded is decided and delivered."""
        with self.lock:
            self._settle()
            self.deliverer.finish()

    def pause(self, time: int) -> None:
        """No source could be read for `time`: no partition could bring anything, so none has grown idler."""
        with self.lock:
            self._settle()
            sources = {name: clocks.resume(clock, time) for name, clock in self.last.sources.items()}
            self.last = replace(self.last, sources=sources)
            self.reached = self.last.reached

    def close(self) -> None:
        """Give up what is not decided: it was not shown to anyone, and will be offered again."""
        self.deliverer.give_up()
        self._worker.shutdown(wait=True)
        self.deliverer.close()

    # -- what an attempt asks ---------------------------------------------------------------------------------------

    def fed_by(self, source: str) -> list[Operation]:
        """The operators that a source (or an operator) feeds, alone or with others."""
        every = self.operations.values()
        return [op for op in every if any(branch.source.name == source for branch in op.node.branches)]

    def closed_for(self, source: str, reached: Reached) -> list[tuple[WindowNode, int]]:
        """The operators of a source, each with its watermark minus allowed lateness."""
        return [(op.node, op.closed(reached.watermarks.get(op.node.name))) for op in self.fed_by(source)]

    # -- parts ------------------------------------------------------------------------------------------------------

    def _resolve(self, attempt: Attempt) -> None:
        """Learn the schemas that the batch's records can have been written with; a registry that is away is awaited.

        It is fixed by now which records these are, and a producer registers a schema before it writes with it: what the
        registry does not know now, no producer of ours has written.
        """
        for name in attempt.sources:
            patiently(self.sources[name].resolve, self.watcher.say, self.stop)

    def _clocks(self, batch: Batch, attempt: Attempt) -> dict[str, SourceClock]:
        """How far each source has come, with what this batch brought."""
        return {
            name: clocks.advance(
                source.watermark,
                self.reached.sources.get(name, SourceClock()),
                attempt.newest(name),
                batch.clock,
                standing=batch.standing.get(name, NOTHING_LEFT),
                manual=batch.manual.get(name),
            )
            for name, source in self.app.sources.items()
        }

    def _watermarks(self, clock: Mapping[str, SourceClock], batch: Batch) -> dict[str, int | None]:
        """The watermark of each operator after the batch, the minimum over what feeds it.

        A source that has none yet holds it; at the end of input it is the end of time.
        """
        if batch.end_of_input:
            return dict.fromkeys(self.app.operators, END_OF_TIME)
        moved: dict[str, int | None] = {}
        for name, node in self.app.operators.items():
            reached = [
                output_watermark(source.operator, moved[source.name])
                if isinstance(source, PaneSource)
                else clock[source.name].watermark
                for source in (branch.source for branch in node.branches)
            ]
            known = [w for w in reached if w is not None]
            slowest = [min(known)] if len(known) == len(reached) else []
            before = self.reached.watermarks.get(name)
            moved[name] = max([*slowest, *([] if before is None else [before])], default=None)
        return moved

    def _record(self, attempt: Attempt, reached: Reached, seconds: float) -> Record:
        batch, files = attempt.batch, attempt.outbox
        outbox = Outbox(attempt.sequence, self.last.outbox.sequence, files) if files else self.last.outbox
        change = attempt.change
        full = attempt.sequence % SNAPSHOT_EVERY == 0
        live = {path: file for path, file in self.state.files.items() if path not in set(change.removed)}
        live |= {file.path: file for file in change.added}
        return Record(
            sequence=attempt.sequence,
            kind="tick" if batch.offsets is None else "batch",
            claim=self.last.claim,
            attempt=attempt.identity,
            clock=reached.clock,
            offsets=reached.offsets,
            sources=dict(reached.sources),
            watermarks=dict(reached.watermarks),
            ledger=attempt.ledger,
            totals=self.last.totals.plus(attempt.ledger),
            added=tuple(change.added),
            removed=tuple(change.removed),
            outbox=outbox,
            terminal=batch.end_of_input,
            seconds=round(seconds, 3),
            snapshot=Snapshot(tuple(live.values()), self.signatures) if full else None,
        )

    def _follow(self, record: Record) -> None:
        """The record is published: memory follows, and what nobody needs any more is deleted."""
        previous, self.last = self.last, record
        self.state.apply(Change(list(record.added), list(record.removed)), record.sequence)
        if record.outbox.sequence == record.sequence:
            old = [path for paths in previous.outbox.files.values() for path in paths]
            self.state.discard([path for path in old if path not in self.state.files], record.sequence)
        self.state.sweep(record.sequence, {path for paths in record.outbox.files.values() for path in paths})
        if record.snapshot is not None:
            self.checkpoint.fold_history(keep=SNAPSHOT_EVERY * KEEP_SNAPSHOTS)

    def _report(self, record: Record) -> None:
        files = self.state.files.values()
        self.watcher.batch(
            BatchReport(
                sequence=record.sequence,
                kind=record.kind,
                seconds=record.seconds,
                clock=record.clock,
                ledger=record.ledger,
                totals=record.totals,
                sources=record.sources,
                watermarks=record.watermarks,
                open_windows={
                    name: operation.open_windows(record.watermarks[name]) for name, operation in self.operations.items()
                },
                state_rows=sum(file.rows for file in files if file.kind != "dead"),
                state_bytes=sum(file.bytes for file in files if file.kind != "dead"),
            )
        )
