"""An attempt at a batch: everything that is computed and staged before it is decided, and thrown away if it is not.

It folds all sources, fires all operators, and keeps the ledger of both. Whom to blame when a fold throws is found in
`isolation`, what is remembered of event ids in `ids`, dead letters are written in `letters`.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from tidegate.errors import DataLossRisk
from tidegate.operators.fold import FATES, fold_source
from tidegate.operators.path import has_transform
from tidegate.runtime.counting import Counter
from tidegate.runtime.folded import Fed, Fired, Folded, Folds, Routed
from tidegate.runtime.ids import Ids
from tidegate.runtime.isolation import Isolation
from tidegate.runtime.ledger import Ledger, SourceLine, path_name
from tidegate.runtime.letters import Letters
from tidegate.runtime.merge import join_crowd
from tidegate.runtime.moment import Moment
from tidegate.runtime.operate import Operation, account
from tidegate.runtime.records import Reached, StateFile
from tidegate.runtime.staging import stage
from tidegate.runtime.state import Change
from tidegate.sources.base import Records
from tidegate.storage.places import Place, remove_tree
from tidegate.windows import Session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidegate.runtime.engine import Batch, Engine


class Attempt:
    """One try at the record after what was `reached`, in a folder of its own under each owner's data folder."""

    def __init__(self, engine: Engine, batch: Batch, reached: Reached, identity: str) -> None:
        self.engine, self.batch, self.reached, self.identity = engine, batch, reached, identity
        self.sequence = sequence = reached.sequence + 1
        self.ledger = Ledger()
        self.change = Change()
        self.outbox: dict[str, tuple[str, ...]] = {}
        self.after: dict[str, int | None] = {}
        self._folded: dict[str, Folds] = {}
        """What was folded, by operator and source."""
        self._fired: dict[str, Fired] = {}
        self._source_folds: dict[str, Folded] = {}
        self._carriers: dict[str, str] = {}
        self._persisted: list[DataFrame] = []
        self._isolation = Isolation(engine, batch, reached, self._persist)
        self._ids = Ids(engine, reached, sequence)
        self._letters = Letters(engine, batch, reached, sequence)
        self._tries = 0
        self._skipped: dict[str, int] = {}

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources that the batch has records of."""
        return tuple(self._isolation.records)

    # -- fold -------------------------------------------------------------------------------------------------------

    def fold(self) -> None:
        """Route and fold all sources.

        A poison record or an unreadable file is isolated, and the rest computed again.
        """
        while True:
            try:
                self._fold_once()
            except Exception as error:
                self._discard()
                if not self._isolation.blame(error):
                    raise
            else:
                return

    def _fold_once(self) -> None:
        self._tries += 1
        for name, records in self._isolation.records.items():
            operations = self.engine.fed_by(name)
            if not operations:
                continue
            work = self.engine.sources[name]
            node = work.node
            routed = work.routed(records, self.batch.clock, self._isolation.poison_of(name))
            counter = routed.counter
            simple = [operation for operation in operations if not has_transform(operation.node.of(name).steps)]
            if len(operations) > 1 or node.event_id is not None or not simple:
                routed = self._keep(routed.relation(routed.rows.relation), routed)
            if node.event_id is not None:
                marked, frames = self._ids.mark(name, routed)
                routed = self._keep(routed.relation(marked, **frames), routed)
                self._ids.remember(name, routed, self._folder(name) / f"ids{self._tries}")
            carrier = simple[0] if simple else None
            if carrier is None:
                self._source_folds[name] = self._fold_source(name, routed)
            else:
                self._carriers[name] = carrier.node.name
            for operation in operations:
                folder = self._folder(operation.node.name) / f"fold{self._tries}_{name}"
                folded = operation.fold(
                    name, routed, self._before(operation), folder, carries_source=operation is carrier
                )
                so_far = self._folded.get(operation.node.name, {})
                self._folded[operation.node.name] = {**so_far, name: folded}
            if counter is not None:
                self._prove(name, records, counter)

    def _prove(self, name: str, records: Records, counter: Counter) -> None:
        """Were these the records of the range? A stage that Spark ran twice is counted twice: then count again."""
        counted = counter.result()
        self._skipped[name] = counted["skipped"]
        if records.proof is None:
            return
        try:
            records.proof.check(counted, counter.again)
        except DataLossRisk:
            counted = counter.again()
            records.proof.check(counted, counter.again)
            self._skipped[name] = counted["skipped"]

    def _keep(self, frame: DataFrame, routed: Routed) -> Routed:
        """Rows that are read more than once are kept in memory."""
        return Routed(routed.spark, replace(routed.rows, relation="{routed}"), {"routed": self._persist(frame)})

    def _fold_source(self, name: str, routed: Routed) -> Folded:
        counter = Counter({"read": "count(1)", "passed": "count_if(_alive)"})
        rows = counter.watch(routed.relation(routed.rows.relation))
        relation = fold_source(
            self.engine.sources[name].node, replace(routed.rows, relation="{rows}"), self.engine.app.name
        )
        result = routed.relation(relation, rows=rows).select("*")
        staged = stage(result, self._folder(name) / f"source{self._tries}", "_fate", FATES, small=False)
        folded = Folded(staged, counter.result(), counter.again)
        account(folded)
        return folded

    # -- fire -------------------------------------------------------------------------------------------------------

    def newest(self, source: str) -> dict[str, int | None]:
        """The newest event time that each partition of a source has brought."""
        folded = self._carried(source)
        return dict(folded.newest) if folded else {}

    def _carried(self, source: str) -> Folded | None:
        """The fold that tells what the source refused: one of its own, or that of an operator."""
        carrier = self._folded.get(self._carriers.get(source, ""), {})
        return self._source_folds.get(source) or carrier.get(source)

    def fire(self, after: dict[str, int | None]) -> None:
        """Keep what was folded, stage the panes that are due and the dead letters, keep house."""
        self.after = after
        # Letters are Python's work and panes are Spark's: they are written at the same time.
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="tidegate-letters") as writer:
            known = [name for name in self.engine.sources if not self._judges_later(name)]
            written = {name: writer.submit(self._write_letters, name) for name in known}
            self._fire_operations()
            for name in self.engine.sources:
                self._source_line(name)
                self._keep_letters(name, written[name].result() if name in written else self._write_letters(name))
                if self._ids.keep(name, self.after, self.change):
                    self._join_crowd(name, "ids")
        for name in {feed.source.name for feed in self.engine.feeds.values()}:
            self._keep_letters(name, self._write_letters(name))
        # A file may be folded and expire in the same batch: it is then neither added nor removed.
        gone = set(self.change.removed)
        self.change.added = [f for f in self.change.added if f.path not in gone and not self._born_closed(f)]

    def _judges_later(self, source: str) -> bool:
        """Whether some events of a source turn out late only when sessions have been put together."""
        return any(isinstance(operation.node.window, Session) for operation in self.engine.fed_by(source))

    def _fire_operations(self) -> None:
        """Each in turn, and what it says is handed to those that it feeds."""
        spoken: dict[str, list[Place]] = {}
        for name, operation in self.engine.operations.items():
            before, after = self._before(operation), self.after[name]
            feed = self.engine.feeds.get(name)
            panes = spoken.get(feed.source.name, []) if feed else []
            if feed and panes:
                folder = self._folder(name) / f"fold{self._tries}"
                self._folded[name] = operation.fold_panes(feed, panes, self.batch.clock, before, folder)
            folds = self._folded.get(name, {})
            fresh = [file for folded in folds.values() for file in operation.keep(folded, self.sequence)]
            moment = Moment(self.sequence, before, after, self.reached.clock, self.batch.clock)
            fired = operation.fire(Fed(folds, fresh, panes), moment, self._folder(name) / "panes")
            self._fired[name], spoken[name] = fired, fired.panes
            self.change.added += [*fresh, *fired.change.added]
            self.change.removed += fired.change.removed
            self._operator_lines(operation)
            if fired.held is not None:
                self.ledger.panes[name] = fired.held
            if fired.panes:
                self.outbox[name] = tuple(str(path.relative_to(self.engine.state.folder)) for path in fired.panes)
                self.change.added += operation.keep_panes(fired.panes, self.sequence)
            upkeep = operation.upkeep(after, self._folder(name) / "compact", self.sequence)
            self.change.added += upkeep.added
            self.change.removed += upkeep.removed

    def _operator_lines(self, operation: Operation) -> None:
        """The ledger's lines for an operator and the paths to it; none when nothing came and nothing was said."""
        name, union = operation.node.name, operation.node.is_union
        folds, fired = self._folded.get(name, {}), self._fired[name]
        for source, folded in folds.items():
            self.ledger.paths[path_name(name, source, union=union)] = operation.path_line(source, folded)
        if folds or fired.panes:
            self.ledger.operators[name] = operation.operator_line(folds, fired)

    def _born_closed(self, file: StateFile) -> bool:
        operation = self.engine.operations.get(file.owner)
        return operation is not None and file.kind != "dead" and file.high <= operation.closed(self.after[file.owner])

    def _source_line(self, name: str) -> None:
        folded = self._carried(name)
        corrupt = len(self._isolation.corrupt_of(name))
        if folded is None:
            if corrupt:
                self.ledger.sources[name] = SourceLine(read=corrupt, dead={"CORRUPT_FILE": corrupt})
            return
        dead = {reason: n for reason, n in folded.dead.items() if reason not in ("LATE", "DUPLICATE")}
        if corrupt:
            dead["CORRUPT_FILE"] = corrupt
        skipped = self._skipped.get(name, 0)
        self.ledger.sources[name] = SourceLine(
            read=folded.counts["read"] + skipped + corrupt,
            passed=folded.passed(),
            duplicates=folded.fates.get("duplicate", 0) + folded.dead.get("DUPLICATE", 0),
            skipped=skipped,
            dead=dead,
        )
        # What the source let pass must arrive at the head of every path, counted there or here.
        for operation in self.engine.fed_by(name):
            path = path_name(operation.node.name, name, union=operation.node.is_union)
            if path in self.ledger.paths:
                self.ledger.paths[path].passed = folded.counts["passed"]

    def _write_letters(self, name: str) -> list[Place]:
        folds = [self._folded.get(operation.node.name, {}).get(name) for operation in self.engine.fed_by(name)]
        carrying = [folded for folded in (*folds, self._source_folds.get(name)) if folded is not None]
        return self._letters.write(name, carrying, self._isolation.corrupt_of(name), self._folder(name) / "dead")

    def _keep_letters(self, name: str, files: list[Place]) -> None:
        if given := self._letters.keep(name, files, self.change):
            self.outbox[name] = given
        self._join_crowd(name, "dead")

    def _join_crowd(self, owner: str, kind: str) -> None:
        target = self._folder(owner) / f"{kind}.parquet"
        join_crowd(self.engine.state, self.change, owner, kind, target, self.sequence)

    # -- balance ----------------------------------------------------------------------------------------------------

    def balance(self) -> None:
        """Both sides must agree.

        A stage that Spark ran twice is counted twice on the way in, so before giving up, count again.
        """
        if self.ledger.differences():
            for folded in self._all_folds():
                folded.counts = folded.recount()
            for operation in self.engine.operations.values():
                self._operator_lines(operation)
            for name in self.engine.sources:
                self._source_line(name)
        self.ledger.balance()

    def release(self) -> None:
        """Let go of what was kept in memory, and of staged rows that have been turned into something else."""
        for frame in self._persisted:
            frame.unpersist()
        kept = {self.engine.state.folder / file.path for file in self.change.added}
        for folded in self._all_folds():
            folded.staged.rest()
            for paths in folded.staged.files.values():
                for path in paths:
                    if path not in kept:
                        path.unlink(missing_ok=True)

    # -- small things -----------------------------------------------------------------------------------------------

    def _all_folds(self) -> list[Folded]:
        of_operators = [folded for folds in self._folded.values() for folded in folds.values()]
        return [*of_operators, *self._source_folds.values()]

    def _before(self, operation: Operation) -> int | None:
        """The watermark of an operator by which this batch is judged."""
        return self.reached.watermarks.get(operation.node.name)

    def _folder(self, owner: str) -> Place:
        return self.engine.state.folder / "data" / owner / self.identity

    def _persist(self, frame: DataFrame) -> DataFrame:
        self._persisted.append(frame.persist())
        return frame

    def _discard(self) -> None:
        """Throw away what a failed try has staged; its folder is this attempt's own."""
        for folded in self._all_folds():
            folded.staged.rest()
        self._folded.clear()
        self._source_folds.clear()
        self._ids.forget()
        for owner in (*self.engine.operations, *self.engine.sources):
            remove_tree(self._folder(owner))
