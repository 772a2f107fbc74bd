"""An attempt at a batch: everything that is computed and staged before it is decided, and thrown away if it is not."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.contracts.writers import Writers
from tidegate.deadletter.write import Circumstances, corrupt_file_letters, write_letters
from tidegate.errors import DataLossRisk
from tidegate.operators.decode import decode, raw_ddl
from tidegate.operators.dedup import REMEMBERED, dedup, remembered, to_remember
from tidegate.operators.fold import FATES, fold_source
from tidegate.operators.path import has_transform
from tidegate.operators.route import route
from tidegate.operators.sql import BEGINNING, Relation, run
from tidegate.runtime.chained_operation import CorrectedOperation
from tidegate.runtime.counting import Counter
from tidegate.runtime.ledger import Ledger, SourceLine, path_name
from tidegate.runtime.merge import concatenate
from tidegate.runtime.moment import Moment
from tidegate.runtime.operate import Fired, Folded, Operation, Routed, account
from tidegate.runtime.poison import Culprit, corrupt_file, is_data_error, isolate, sentence
from tidegate.runtime.records import StateFile
from tidegate.runtime.staging import stage
from tidegate.runtime.state import LARGEST_CONCATENATED, Change
from tidegate.sources.base import Records
from tidegate.stream import SourceNode, WindowNode
from tidegate.windows import Calendar, Hopping, Rolling, Session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidegate.runtime.engine import Batch, Engine

_LONGEST = {"hour": 1, "day": 25, "week": 169, "month": 745, "quarter": 2209, "year": 8785}


class SourceWork:
    """A source across batches."""

    def __init__(self, node: SourceNode) -> None:
        self.node = node
        self._writers = Writers(node.contract.wire)

    def resolve(self) -> None:
        """Ask the registry of the contract, if it has one, for schemas that records may have been written with."""
        self._writers.refresh()

    def decoded(self, records: Relation) -> Relation:
        return decode(self.node, records, self._writers.known)

    def routed(self, records: Records, clock: int, poison: dict[int, str]) -> Routed:
        """The source's records, decoded and routed."""
        rows = route(self.node, self.decoded("{records}"), clock, poison)
        frame, counter = records.frame, None
        if records.proof is not None or records.wanted is not None:
            wanted = f"coalesce({records.wanted or 'true'}, false)"
            counts = {"read": f"count_if({wanted})", "skipped": f"count_if(NOT {wanted})"}
            counter = Counter(counts | dict(records.proof.counts if records.proof else {}))
            frame = counter.watch(frame)
        frame = _wanted(frame, records)
        return Routed(records.frame.sparkSession, rows, {"records": frame}, records.count, counter)

    def sample(self, spark: SparkSession) -> Routed:
        """No records, routed: enough to see whether the app's expressions fit."""
        return self.routed(Records(spark.createDataFrame([], raw_ddl(self.node))), 0, {})


class Attempt:
    """One try at record `sequence`, in a folder of its own under each owner's data folder."""

    def __init__(self, engine: Engine, batch: Batch, sequence: int, identity: str) -> None:
        self.engine, self.batch, self.sequence, self.identity = engine, batch, sequence, identity
        self.ledger = Ledger()
        self.change = Change()
        self.outbox: dict[str, tuple[str, ...]] = {}
        self.after: dict[str, int | None] = {}
        self._folded: dict[str, dict[str, Folded]] = {}
        """What was folded, by operator and source."""
        self._fired: dict[str, Fired] = {}
        self._source_folds: dict[str, Folded] = {}
        self._carriers: dict[str, str] = {}
        self._persisted: list[DataFrame] = []
        self._corrupt: list[Culprit] = []
        self._poison: dict[str, dict[int, str]] = {}
        self._records = batch.read(frozenset()) if batch.read else batch.records
        self._tries = 0
        self._fresh: dict[str, list[StateFile]] = {}
        self._skipped: dict[str, int] = {}

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources that the batch has records of."""
        return tuple(self._records)

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
                if not self._isolate(error):
                    raise
            else:
                return

    def _fold_once(self) -> None:
        self._tries += 1
        for name, records in self._records.items():
            operations = self._operations(name)
            if not operations:
                continue
            work = self.engine.sources[name]
            node = work.node
            routed = work.routed(records, self.batch.clock, self._poison.get(name, {}))
            counter = routed.counter
            simple = [operation for operation in operations if not has_transform(operation.node.of(name).steps)]
            if len(operations) > 1 or node.event_id is not None or not simple:
                routed = self._keep(routed.relation(routed.rows.relation), routed)
            if node.event_id is not None:
                routed = self._dedup(node, operations, routed, self._closed(name))
            carrier = simple[0] if simple else None
            if carrier is None:
                self._source_folds[name] = self._fold_source(name, routed)
            else:
                self._carriers[name] = carrier.node.name
            for operation in operations:
                folder = self._folder(operation.node.name) / f"fold{self._tries}_{name}"
                self._folded.setdefault(operation.node.name, {})[name] = operation.fold(
                    name, routed, self._before(operation), folder, carries_source=operation is carrier
                )
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

    def _dedup(
        self, node: SourceNode, operations: list[Operation], routed: Routed, closed: list[tuple[WindowNode, int]]
    ) -> Routed:
        """Mark repeats of what this batch or an earlier one has brought, and remember what is new."""
        frames: dict[str, DataFrame] = {}
        files = self.engine.state.of(node.name, "ids")
        if files:
            frames["ids"] = operations[0].read(files, REMEMBERED, routed.spark)
        for operation in operations:
            if (held := operation.held_ids(node.name, routed.spark)) is not None:
                frames[f"held{len(frames)}"] = held
        known = remembered("{ids}" if files else None, [f"{{{name}}}" for name in frames if name != "ids"])
        marked = dedup(routed.rows, known, closed)
        routed = self._keep(routed.relation(marked, **frames), routed)
        by_time = [(operator, bound) for operator, bound in closed if not isinstance(operator.window, Session)]
        if by_time:
            self._remember(node.name, routed.relation(to_remember(routed.rows.relation, by_time)))
        return routed

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

    def _remember(self, source: str, ids: DataFrame) -> None:
        staged = stage(ids, self._folder(source) / f"ids{self._tries}", small=False)
        for path in staged.of(""):
            times = pq.read_table(path, columns=["_time"])["_time"]
            low, high = pc.min(times).as_py(), pc.max(times).as_py()
            entry = self.engine.state.entry(path, source, "ids", low=low, high=high, sequence=self.sequence)
            self._fresh.setdefault(source, []).append(entry)

    # -- poison -----------------------------------------------------------------------------------------------------

    def _isolate(self, error: BaseException) -> bool:
        """Find whom to blame; True when the batch can be computed again without them."""
        path = corrupt_file(error)
        if path is not None and self.batch.read is not None:
            known = {culprit.file for culprit in self._corrupt if culprit.file}
            if path in known:
                return False
            self._corrupt.append(Culprit(None, path, sentence(error)))
            self.engine.watcher.say(f"file {path} cannot be read: it becomes a dead letter CORRUPT_FILE")
            self._records = self.batch.read(frozenset(known | {path}))
            self._poison.clear()  # the rows have new numbers
            return True
        if not is_data_error(error):
            return False
        self.engine.watcher.say(f"an expression failed on a record ({sentence(error)}); isolating it")
        try:
            culprits = self._bisect()
        except Exception as other:
            if corrupt_file(other) is None:
                raise
            return self._isolate(other)
        if not culprits:
            return False
        for name, culprit in culprits:
            assert culprit.position is not None
            self._poison.setdefault(name, {})[culprit.position] = culprit.error
        self.engine.watcher.say(f"isolated {len(culprits)} record(s): dead letter EXPRESSION_ERROR")
        return True

    def _bisect(self) -> list[tuple[str, Culprit]]:
        """The records to blame, source by source."""
        found: list[tuple[str, Culprit]] = []
        for name, records in self._records.items():
            work = self.engine.sources[name]
            frame = _wanted(records.frame, records)
            decoded = run(frame.sparkSession, work.decoded("{records}"), {"records": frame})
            rows = self._persist(decoded)
            known = self._poison.get(name, {})
            table = rows.select("_row").toArrow()
            positions = sorted(position for position in table["_row"].to_pylist() if position not in known)

            def probe(low: int, high: int, name: str = name, rows: DataFrame = rows) -> BaseException | None:
                try:
                    self._probe(name, rows.where(f"_row BETWEEN {low}L AND {high}L"))
                except Exception as error:
                    return error
                return None

            found += [(name, culprit) for culprit in isolate(probe, positions)]
        return found

    def _probe(self, name: str, decoded: DataFrame) -> None:
        """Compute everything that the user's expressions have a part in, and throw it away."""
        node = self.engine.sources[name].node
        rows = route(node, "{decoded}", self.batch.clock, self._poison.get(name, {}))
        routed = Routed(decoded.sparkSession, rows, {"decoded": decoded})
        if node.event_id is not None:
            ids = routed.relation(to_remember(routed.rows.relation, self._closed(name)))
            ids.write.format("noop").mode("overwrite").save()
        for operation in self._operations(name):
            operation.probe(name, routed, self._before(operation))

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
            self._fire_operations(after)
            for name in self.engine.sources:
                self._source_line(name)
                self._keep_letters(name, written[name].result() if name in written else self._write_letters(name))
                self._keep_ids(name)
        for name in {feed.source.name for feed in self.engine.feeds.values()}:
            self._keep_letters(name, self._write_letters(name))
        # A file may be folded and expire in the same batch: it is then neither added nor removed.
        gone = set(self.change.removed)
        self.change.added = [f for f in self.change.added if f.path not in gone and not self._born_closed(f)]

    def _judges_later(self, source: str) -> bool:
        """Whether some events of a source turn out late only when sessions have been put together."""
        return any(isinstance(operation.node.window, Session) for operation in self._operations(source))

    def _fire_operations(self, after: dict[str, int | None]) -> None:
        spoken: dict[str, list[Path]] = {}
        for name, operation in self.engine.operations.items():
            before = self._before(operation)
            if name in self.engine.feeds:
                self._feed(operation, spoken.get(self.engine.feeds[name].source.name, []))
            folds = self._folded.get(name, {})
            fresh = [file for folded in folds.values() for file in operation.keep(folded, self.sequence)]
            self.change.added += fresh
            moment = Moment(self.sequence, before, after[name], self.engine.last.clock, self.batch.clock)
            fired = self._fired[name] = operation.fire(folds, fresh, moment, self._folder(name) / "panes")
            spoken[name] = fired.panes
            self.change.added += fired.change.added
            self.change.removed += fired.change.removed
            self._operator_lines(operation)
            if isinstance(operation, CorrectedOperation):
                self.ledger.panes[name] = operation.line
            if fired.panes:
                self.outbox[name] = tuple(str(path.relative_to(self.engine.state.folder)) for path in fired.panes)
                self.change.added += operation.keep_panes(fired.panes, self.sequence)
            upkeep = operation.upkeep(after[name], self._folder(name) / "compact", self.sequence)
            self.change.added += upkeep.added
            self.change.removed += upkeep.removed

    def _feed(self, operation: Operation, panes: list[Path]) -> None:
        """Hand over what the operator before it has said in this batch."""
        if isinstance(operation, CorrectedOperation):
            operation.changes = panes
        elif panes:
            name = operation.node.name
            feed = self.engine.feeds[name]
            routed = feed.routed(panes, self.batch.clock)
            folder, source = self._folder(name) / f"fold{self._tries}", feed.source.name
            folded = operation.fold(source, routed, self._before(operation), folder, carries_source=False)
            self._folded[name] = {source: folded}

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
        corrupt = len(self._corrupt_of(name))
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
        for operation in self._operations(name):
            path = path_name(operation.node.name, name, union=operation.node.is_union)
            if path in self.ledger.paths:
                self.ledger.paths[path].passed = folded.counts["passed"]

    def _corrupt_of(self, name: str) -> list[Culprit]:
        """The unreadable files of a source."""
        whose = self.batch.source_of or (lambda _: next(iter(self.engine.sources)))
        return [culprit for culprit in self._corrupt if whose(culprit.file or "") == name]

    def _write_letters(self, name: str) -> list[Path]:
        """The refused rows of a source, from all folds that carry some, as one file of dead letters."""
        operations = self._operations(name)
        folds = [self._folded[op.node.name][name] for op in operations if name in self._folded.get(op.node.name, {})]
        folds += [self._source_folds[name]] if name in self._source_folds else []
        staged = [path for folded in folds for path in folded.staged.of("dead", "copy")]
        lateness = {op.node.name: op.node.allowed_lateness for op in operations}
        before = self.engine.last.sources.get(name)
        about = Circumstances(
            self.engine.app.name,
            name,
            self.sequence,
            self.batch.clock,
            before.watermark if before else None,
            lateness,
            {op.node.name: self._before(op) for op in operations},
        )
        folder = self._folder(name) / "dead"
        files = []
        if staged:
            write_letters(staged, folder / "letters.parquet", about)
            files.append(folder / "letters.parquet")
        if corrupt := self._corrupt_of(name):
            folder.mkdir(parents=True, exist_ok=True)
            paths = [culprit.file or "" for culprit in corrupt]
            letters = corrupt_file_letters(paths, [culprit.error for culprit in corrupt], about)
            pq.write_table(letters, folder / "files.parquet", compression="zstd")
            files.append(folder / "files.parquet")
        return files

    def _keep_letters(self, name: str, files: list[Path]) -> None:
        for path in files:
            clock = self.batch.clock
            self.change.added.append(
                self.engine.state.entry(path, name, "dead", low=clock, high=clock, sequence=self.sequence)
            )
        if files and self.engine.app.letters is not None and name in self.engine.sources:
            self.outbox[name] = tuple(str(path.relative_to(self.engine.state.folder)) for path in files)
        self._concatenate(name, "dead")

    def _keep_ids(self, name: str) -> None:
        """Remember this batch's ids; forget those whose windows have all closed."""
        operations = [op for op in self._operations(name) if not isinstance(op.node.window, Session)]
        if not operations or self.engine.sources[name].node.event_id is None:
            return
        self.change.added += self._fresh.get(name, [])
        horizon = min(_horizon(operation, self.after[operation.node.name]) for operation in operations)
        self.change.removed += self.engine.state.expired(name, ("ids",), horizon)
        self._concatenate(name, "ids")

    def _concatenate(self, owner: str, kind: str) -> None:
        crowd = self.engine.state.crowded(owner, (kind,), LARGEST_CONCATENATED)
        crowd = [file for file in crowd if file.path not in self.change.removed]
        if len(crowd) < 2:
            return
        target = self._folder(owner) / f"{kind}.parquet"
        concatenate([self.engine.state.folder / file.path for file in crowd], target)
        self.change.removed += [file.path for file in crowd]
        self.change.added.append(
            self.engine.state.entry(
                target,
                owner,
                kind,
                low=min(file.low for file in crowd),
                high=max(file.high for file in crowd),
                sequence=self.sequence,
                tier=crowd[0].tier + 1,
            )
        )

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
            for paths in folded.staged.files.values():
                for path in paths:
                    if path not in kept:
                        path.unlink(missing_ok=True)

    # -- small things -----------------------------------------------------------------------------------------------

    def _operations(self, source: str) -> list[Operation]:
        """The operators that a source feeds, alone or with others."""
        operations = self.engine.operations.values()
        return [op for op in operations if any(branch.source.name == source for branch in op.node.branches)]

    def _all_folds(self) -> list[Folded]:
        of_operators = [folded for folds in self._folded.values() for folded in folds.values()]
        return [*of_operators, *self._source_folds.values()]

    def _closed(self, source: str) -> list[tuple[WindowNode, int]]:
        """The operators of a source, each with its watermark minus allowed lateness before the batch."""
        return [(operation.node, operation.closed(self._before(operation))) for operation in self._operations(source)]

    def _before(self, operation: Operation) -> int | None:
        return self.engine.last.watermarks.get(operation.node.name)

    def _folder(self, owner: str) -> Path:
        return self.engine.state.folder / "data" / owner / self.identity

    def _persist(self, frame: DataFrame) -> DataFrame:
        self._persisted.append(frame.persist())
        return frame

    def _discard(self) -> None:
        """Throw away what a failed try has staged; its folder is this attempt's own."""
        self._folded.clear()
        self._source_folds.clear()
        self._fresh.clear()
        for owner in (*self.engine.operations, *self.engine.sources):
            shutil.rmtree(self._folder(owner), ignore_errors=True)


def _wanted(frame: DataFrame, records: Records) -> DataFrame:
    return frame if records.wanted is None else frame.where(records.wanted)


def _horizon(operation: Operation, after: int | None) -> int:
    """Event times up to here belong to windows that have all closed."""
    window: Any = operation.node.window
    if isinstance(window, Hopping):
        return operation.closed(after) - window.size
    if isinstance(window, Rolling):
        return operation.closed(after)
    if isinstance(window, Calendar):
        return operation.closed(after) - _LONGEST[window.unit] * 3_600_000_000
    return BEGINNING
