"""Operate: the work of one operator in one batch – fold, account, fire, keep house.

Everything here reads the live state and stages new files; nothing is decided. The engine puts the pieces together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate import crash
from tidegate.errors import BalanceError
from tidegate.operators.fire import FireBounds, Merging, fire_due, fire_late, merge
from tidegate.operators.fold import COUNTS, FATES, READ_AGAIN, STATE_FATES, FoldBounds, fold, mark
from tidegate.operators.path import has_flat_map, has_transform, walk
from tidegate.operators.route import Rows
from tidegate.operators.sql import BEGINNING, END_OF_TIME, Relation, clip, quote, run, select, user
from tidegate.runtime.counting import Counter
from tidegate.runtime.folded import Fed, Fired, Folded, Folds, Routed
from tidegate.runtime.ledger import OperatorLine, PathLine
from tidegate.runtime.moment import Moment
from tidegate.runtime.records import StateFile
from tidegate.runtime.staging import SMALL, Staged, Taking, stage
from tidegate.runtime.state import Change, State
from tidegate.runtime.union import common_schema, same_columns
from tidegate.sources.files import ONE_TASK_BYTES
from tidegate.storage.parquet import read_table
from tidegate.storage.places import Place
from tidegate.stream import WindowNode
from tidegate.windows import Hopping, Rolling, Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from tidegate.runtime.chained_operation import Feed

_TAKING = Taking(needed=READ_AGAIN, noted=("_newest", "_high"), seldom="_dead")
"""Of a fold: firing reads state and candidates; how far it goes is told to the driver; few rows are letters."""


def floor(watermark: int | None) -> int:
    return BEGINNING if watermark is None else watermark


class Operation:
    """One operator across batches. It remembers only sizes and schemas; state lives in files."""

    def __init__(
        self,
        spark: SparkSession,
        node: WindowNode,
        state: State,
        pipeline: str,
        added: dict[str, int],
        samples: Mapping[str, Routed],
    ) -> None:
        """`samples` are routed rows of each source, possibly none.

        Analysing the fold on them finds wrong columns before anything runs.
        """
        self.spark = spark
        self.node = node
        self.state = state
        self.pipeline = pipeline
        self.added = added
        self._folds_small: dict[str, bool] = {}
        self._fires_small = True
        self._transformed: list[DataFrame] = []
        self._starts: dict[str, frozenset[int]] = {}
        self._parts = {branch.source.name: node.of(branch.source.name) for branch in node.branches}
        if node.is_union:
            same_columns(node.name, {name: self._arriving(name, sample) for name, sample in samples.items()})
        at_first = FoldBounds(BEGINNING, BEGINNING)
        schemas = {name: self._plan(name, rows, at_first, carries_source=True).schema for name, rows in samples.items()}
        self._schema: StructType = common_schema(schemas)
        self.letter_types = {name: schema["_dead"].dataType for name, schema in schemas.items()}
        """What a staged letter of each source looks like."""
        self._prepare(samples)

    def _prepare(self, samples: Mapping[str, Routed]) -> None:
        """What a kind of operation wants to know before the first batch."""

    def closed(self, watermark: int | None) -> int:
        """Windows that end up to here are closed; the end of the stream closes all."""
        now = floor(watermark)
        return END_OF_TIME if now >= END_OF_TIME else clip(now - self.node.allowed_lateness)

    def fold(self, source: str, routed: Routed, before: int | None, folder: Place, *, carries_source: bool) -> Folded:
        """Fold the events that a source has in a batch into staged slices; count them on the way in."""
        bounds = FoldBounds(floor(before), self.closed(before))
        counter = self._counter(source, routed)
        result = self._plan(source, routed, bounds, carries_source=carries_source, counter=counter)
        small = self._folds_small.get(source, True)
        staged = stage(result, folder, "_fate", FATES, small=small, taking=_TAKING)
        folded = Folded(staged, {}, lambda: folded.settle(counter.again()))
        account(folded)
        folded.counts = folded.settle(counter.result())
        self._folds_small[source] = staged.is_small()
        for frame in self._transformed:
            frame.unpersist()
        self._transformed.clear()
        return folded

    def fold_panes(self, feed: Feed, panes: list[Place], clock: int, before: int | None, folder: Place) -> Folds:
        """Fold what the operator before this one has said in a batch, as events like any others."""
        routed = feed.routed(panes, clock)
        return {feed.source.name: self.fold(feed.source.name, routed, before, folder, carries_source=False)}

    def probe(self, source: str, routed: Routed, before: int | None) -> None:
        """Compute the fold and throw it away: does it throw?"""
        bounds = FoldBounds(floor(before), self.closed(before))
        result = self._plan(source, routed, bounds, carries_source=True)
        result.write.format("noop").mode("overwrite").save()

    def _counter(self, source: str, routed: Routed) -> Counter:
        """What is counted on the way in, and where.

        On a plain path the rows are counted as they are read, for there they lie ready; counting further on would
        make Spark put every row together only to count it. A flat_map or a transform changes how many there are, so
        its path is counted at its end.
        """
        if self._counts_at_end(source):
            return Counter(COUNTS)
        if "records" in routed.frames:
            known = None if routed.count is None else {"read": routed.count}
            return routed.counter or Counter({"read": "count(1)"}, known)
        return Counter({"read": "count(1)", "passed": "count_if(_alive)"})

    def _counts_at_end(self, source: str) -> bool:
        steps = self._parts[source].steps
        return has_flat_map(steps) or has_transform(steps)

    def _plan(
        self, source: str, routed: Routed, bounds: FoldBounds, *, carries_source: bool, counter: Counter | None = None
    ) -> DataFrame:
        """The fold of the routed rows of a source, with the counter on the way."""
        node, frames = self._parts[source], dict(routed.frames)
        if counter and not self._counts_at_end(source):
            frames = {name: counter.watch(frame) for name, frame in frames.items()}
        rows = self._walk(node, routed, frames, keep=counter is not None)
        marked = mark(node, rows, bounds, carries_source=carries_source)
        if counter and self._counts_at_end(source):
            frames, marked = {"marked": counter.watch(run(routed.spark, marked, frames))}, "{marked}"
        folded = run(routed.spark, fold(node, replace(rows, relation=marked), bounds, self.pipeline), frames)
        # Spark looks for its observations in the plan as written, where a view is only a name; a select resolves it.
        return folded.select("*") if counter and not counter.known else folded

    def _walk(self, node: WindowNode, routed: Routed, frames: dict[str, DataFrame], *, keep: bool) -> Rows:
        """The routed rows at the end of their path; what a transform has made of them is put into `frames`."""

        def bridge(relation: Relation, function: Callable[[DataFrame], DataFrame]) -> tuple[Relation, tuple[str, ...]]:
            name = f"transformed{len(frames)}"
            frames[name] = function(run(routed.spark, relation, frames))
            if keep:
                self._transformed.append(_each_once(frames[name].persist(), self.node))
            return f"{{{name}}}", tuple(frames[name].columns)

        return walk(node.steps, routed.rows, bridge)

    def _arriving(self, source: str, sample: Routed) -> dict[str, str]:
        """The user's columns as they arrive from a source: name and type."""
        frames = dict(sample.frames)
        rows = self._walk(self._parts[source], sample, frames, keep=False)
        schema = run(sample.spark, select(map(quote, rows.columns), rows.relation), frames).schema
        return {field.name: field.dataType.simpleString() for field in schema.fields}

    def held_ids(self, source: str, spark: SparkSession) -> DataFrame | None:
        """Ids of a source that open windows themselves remember, where the event time does not tell for how long."""
        return None

    @cached_property
    def pane_types(self) -> dict[str, str]:
        """The types of keys and values in pane files, as Spark sees them."""
        types = self._merging().types
        partials = ", ".join(
            f"CAST(NULL AS {types[column]}) AS {quote(column)}"
            for alias, aggregate in self.node.aggregates
            for column in aggregate.partial_sql(alias)
        )
        finished = [f"{user(a.finish_sql(alias))} AS {quote(alias)}" for alias, a in self.node.aggregates]
        frame = run(self.spark, select(finished, f"SELECT {partials}"), {})
        values = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
        return {name: types[f"_key_{name}"] for name in self.node.key_names} | values

    def open_windows(self, watermark: int | None) -> int:
        """How many windows have events and are not closed, over all keys together, as far as whole slices tell."""
        closed = self.closed(watermark)
        if isinstance(self.node.window, Rolling):  # each instant is a slice: too many to look at
            files = self.state.of(self.node.name, *STATE_FATES)
            return sum(file.rows for file in files if file.high - self.node.window.size > closed)
        live = {file.path: file for file in self.state.of(self.node.name, *STATE_FATES)}
        self._starts = {path: starts for path, starts in self._starts.items() if path in live}
        for path in live:
            if path not in self._starts:
                column = read_table(self.state.folder / path, ["_slice"])["_slice"]
                self._starts[path] = frozenset(pc.unique(column).to_pylist())
        return count_windows(self.node.window, frozenset().union(*self._starts.values()), closed)

    def path_line(self, source: str, folded: Folded) -> PathLine:
        """The way from a source: input side as counted on the way in, output side as found in the staged files."""
        counts, fates = folded.counts, folded.fates
        return PathLine(
            passed=counts["passed"],
            filtered=fates.get("filtered", 0),
            unnested=counts["unnested"],
            elements=counts["elements"],
            dropped=fates.get("dropped", 0),
            arrived=counts["arrived"],
            has_flat_map=has_flat_map(self._parts[source].steps),
        )

    def operator_line(self, folds: Folds, fired: Fired) -> OperatorLine:
        """The same for the operator, over all its sources."""
        every, judged = folds.values(), fired.judged
        accepted = sum(folded.fates.get(fate, 0) for folded in every for fate in STATE_FATES)
        return OperatorLine(
            arrived=sum(folded.counts["arrived"] for folded in every),
            accepted=judged.accepted if judged else accepted,
            late=sum(folded.dead.get("LATE", 0) for folded in every) + (judged.late if judged else 0),
            partially_late=sum(folded.partially_late for folded in every),
            duplicates=judged.repeated if judged else 0,
            panes=fired.counts,
        )

    def keep(self, folded: Folded, sequence: int) -> list[StateFile]:
        """The staged slices as state files, with the range of event time they cover."""
        files = []
        for fate in STATE_FATES:
            for path in folded.staged.of(fate):
                table = folded.staged.read(path, ["_slice", "_high"])
                low, high = pc.min(table["_slice"]).as_py(), pc.max(table["_high"]).as_py()
                files.append(self.state.entry(path, self.node.name, fate, low=low, high=high, sequence=sequence))
        return files

    def fire(self, fed: Fed, moment: Moment, folder: Place) -> Fired:
        """Stage the panes that are due."""
        node, bounds = self.node, self.bounds(moment.before, moment.after)
        live = [*self.state.of(node.name, *STATE_FATES), *fed.fresh]
        lower, upper = bounds.due(node)
        due = [file for file in live if file.low <= upper and file.high > lower] if upper > lower else []
        stragglers = [file for file in fed.fresh if file.kind == "straggler"] if bounds.speaks_late(node) else []
        panes, frames, merging = [], {}, self._merging()
        if due:
            frames["due"] = self.slices(due)
            panes.append(fire_due(node, "{due}", bounds, merging))
        if stragglers:
            reach = [f for f in live if f.low < bounds.complete_before and f.high > bounds.closed_before]
            frames["reach"], frames["stragglers"] = self.slices(reach), self.slices(stragglers)
            said = self.state.of(node.name, "panes")
            if said:
                frames["said"] = self._said(said)
            touched = sum(file.rows for file in stragglers)
            earlier = "{said}" if said else None
            panes.append(fire_late(node, "{reach}", "{stragglers}", earlier, bounds, touched, merging))
        if not panes:
            return Fired()
        result = run(self.spark, " UNION ALL ".join(panes), frames)
        staged = stage(result, folder, small=self._fires_small)
        self._fires_small = staged.is_small()
        return Fired(staged.of(""), count_panes(staged, ""))

    def keep_panes(self, paths: list[Place], sequence: int) -> list[StateFile]:
        """Pane files stay live while their windows may speak again: they know the index and what was said."""
        if self.node.allowed_lateness == 0:
            return []
        files = []
        for path in paths:
            table = read_table(path, ["window_start", "window_end"])
            if table["window_end"].null_count:
                continue
            low = pc.min(table["window_start"]).cast(pa.int64()).as_py()
            high = pc.max(table["window_end"]).cast(pa.int64()).as_py()
            files.append(self.state.entry(path, self.node.name, "panes", low=low, high=high, sequence=sequence))
        return files

    def upkeep(self, after: int | None, folder: Place, sequence: int) -> Change:
        """Drop files whose windows have closed; compact what has become crowded."""
        change = Change()
        name, closed = self.node.name, self.closed(after)
        change.removed = self.state.expired(name, (*STATE_FATES, "panes"), closed)
        for kind in STATE_FATES:
            crowd = [file for file in self.state.crowded(name, (kind,)) if file.path not in change.removed]
            for members in self._generations(crowd):
                if len(members) < 2:
                    continue
                relation = merge(self.node, "{crowd}", "_slice", self._merging())
                rows = run(self.spark, relation, {"crowd": self.slices(members)})
                newest = max(file.sequence for file in members)
                small = sum(file.bytes for file in members) <= SMALL
                merged = stage(rows, folder / f"{kind}{newest}", small=small)
                crash.point("mid_compaction")
                change.added += [
                    self.state.entry(
                        path,
                        name,
                        kind,
                        low=min(file.low for file in members),
                        high=max(file.high for file in members),
                        sequence=newest if self.added else sequence,
                        tier=members[0].tier + 1,
                    )
                    for path in merged.of("")
                ]
                change.removed += [file.path for file in members]
        return change

    def bounds(self, before: int | None, after: int | None) -> FireBounds:
        return FireBounds(floor(before), floor(after), self.closed(before), self.closed(after))

    def slices(self, files: list[StateFile]) -> DataFrame:
        """State files as one DataFrame; files from before an aggregate was added say so."""
        if not self.added:
            return self.read(files, self._state_schema())
        parts, frames = [], {}
        for number, members in enumerate(self._generations(files)):
            frames[f"part{number}"] = self.read(members, self._state_schema())
            older = [
                f"{str(members[0].sequence < since).lower()} AS {quote(f'_before_{alias}')}"
                for alias, since in self.added.items()
            ]
            parts.append(select(["*", *older], f"{{part{number}}}"))
        return run(self.spark, " UNION ALL ".join(parts), frames)

    def _generations(self, files: list[StateFile]) -> list[list[StateFile]]:
        """Files that have the same aggregates; those from before one was added are never merged with later ones."""
        groups: dict[int, list[StateFile]] = {}
        for file in files:
            groups.setdefault(sum(file.sequence >= since for since in set(self.added.values())), []).append(file)
        return list(groups.values())

    def _said(self, files: list[StateFile]) -> DataFrame:
        """The panes of earlier records; what they did not say yet, an aggregate that was added later, is NULL."""
        from pyspark.sql import functions as F

        if not self.added:
            return self.read(files, None)
        panes = self.spark.read.option("mergeSchema", "true").parquet(*self.state.paths(files))
        missing = [name for name in self.node.value_names if name not in panes.columns]
        return panes.withColumns({name: F.lit(None) for name in missing})

    def _merging(self) -> Merging:
        return Merging({f.name: f.dataType.simpleString() for f in self._schema.fields}, tuple(self.added))

    def read(self, files: list[StateFile], schema: Any, spark: SparkSession | None = None) -> DataFrame:
        """State files as a DataFrame, of the session in which it will be used: a micro-batch has one of its own."""
        reader = (spark or self.spark).read.option("recursiveFileLookup", "true")
        if schema is not None:
            reader = reader.schema(schema)
        rows = reader.parquet(*self.state.paths(files))
        return rows.coalesce(1) if sum(file.bytes for file in files) <= ONE_TASK_BYTES else rows

    def _state_schema(self) -> StructType:
        """Keys, slice, partials and count."""
        from pyspark.sql.types import StructType

        ours = {f"_key_{name}" for name in self.node.key_names} | {"_slice", "_n"}
        ours |= {column for alias, aggregate in self.node.aggregates for column in aggregate.partial_sql(alias)}
        return StructType([field for field in self._schema.fields if field.name in ours])


def count_windows(window: Window, slices: frozenset[int], closed: int) -> int:
    """The windows that contain one of `slices` and end after `closed`."""
    if not isinstance(window, Hopping):
        return len(slices)
    ends = {
        start + window.size
        for slice_ in slices
        for start in range(
            slice_ - (slice_ - window.offset) % window.slide, slice_ + window.slice - window.size - 1, -window.slide
        )
    }
    return sum(end > closed for end in ends)


def _each_once(transformed: DataFrame, node: WindowNode) -> DataFrame:
    """Refuse what a transform has made twice of one event; what it has dropped is found, and counted as filtered."""
    times = transformed.groupBy("_tg.row", "_tg.element").count()
    doubled = times.where("count > 1").limit(1).toArrow()
    if doubled.num_rows:
        raise BalanceError(
            f"a transform() on the way to operator {node.name!r} returned an event {doubled['count'][0]} times; "
            "nothing was decided",
            hint="each row of `_tg` may come out at most once; use flat_map() to make several rows of an event",
        )
    return transformed


def count_panes(staged: Staged, kind: str) -> dict[str, int]:
    """How many panes of each timing, and how many were taken back."""
    table = staged.table(kind, columns=["pane_timing", "pane_change"])
    if table is None:
        return {}
    spoken = table.filter(pc.equal(table["pane_change"], "upsert"))
    counts = {row["values"]: row["counts"] for row in pc.value_counts(spoken["pane_timing"]).to_pylist()}
    retracted = pc.sum(pc.equal(table["pane_change"], "retract")).as_py()
    return counts | ({"retract": retracted} if retracted else {})


def account(folded: Folded) -> None:
    """Read off the staged files: events by fate, dead letters by reason, the newest event time per source partition."""
    for fate, paths in folded.staged.files.items():
        for path in paths:
            table = folded.staged.read(path, ["_n", "_partition", "_newest", "_partially"])
            folded.fates[fate] = folded.fates.get(fate, 0) + (pc.sum(table["_n"]).as_py() or 0)
            if fate in STATE_FATES and "_partially" in table.column_names:
                folded.partially_late += pc.sum(table["_partially"]).as_py() or 0
            if fate == "dead":
                reasons = pc.value_counts(pc.struct_field(folded.staged.read(path, ["_dead"])["_dead"], "reason"))
                for row in reasons.to_pylist():
                    folded.dead[row["values"]] = folded.dead.get(row["values"], 0) + row["counts"]
            by_partition = table.group_by("_partition").aggregate([("_newest", "max")])
            for row in by_partition.to_pylist():
                known, new = folded.newest.get(row["_partition"]), row["_newest_max"]
                if new is not None:
                    said = [time for time in (known, new) if time is not None and time > BEGINNING]
                    folded.newest[row["_partition"]] = max(said, default=None)
