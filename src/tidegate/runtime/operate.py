"""Operate: the work of one operator in one batch – fold, account, fire, keep house.

Everything here reads the live state and stages new files; nothing is decided. The engine puts the pieces together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate import crash
from tidegate.operators.fire import FireBounds, compact, fire_due, fire_late
from tidegate.operators.fold import COUNTS, STATE_FATES, FoldBounds, fold, mark
from tidegate.operators.path import has_flat_map, walk
from tidegate.operators.sql import BEGINNING, clip
from tidegate.runtime.ledger import OperatorLine, PathLine
from tidegate.runtime.records import StateFile
from tidegate.runtime.staging import SMALL, Staged, stage
from tidegate.runtime.state import Change, State
from tidegate.stream import WindowNode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def floor(watermark: int | None) -> int:
    return BEGINNING if watermark is None else watermark


@dataclass
class Folded:
    """What a fold has staged, and what it says about the batch."""

    staged: Staged
    counts: dict[str, int]
    recount: Callable[[], dict[str, int]]
    newest: dict[str, int | None] = field(default_factory=dict)
    dead: dict[str, int] = field(default_factory=dict)
    fates: dict[str, int] = field(default_factory=dict)
    partially_late: int = 0


class Operation:
    """One operator across batches. It remembers only sizes and schemas; state lives in files."""

    def __init__(
        self,
        spark: SparkSession,
        node: WindowNode,
        state: State,
        pipeline: str,
        added: dict[str, int],
        sample: DataFrame,
    ) -> None:
        """`sample` are routed rows, possibly none: analysing the fold on them finds wrong columns before anything runs."""
        self.spark = spark
        self.node = node
        self.state = state
        self.pipeline = pipeline
        self.added = added
        self._folded_rows = 0
        self._fired_rows = 0
        bounds = FoldBounds(BEGINNING, BEGINNING)
        marked = mark(node, walk(node.steps, sample), bounds, carries_source=True)
        self._schema: StructType = fold(node, marked, bounds, pipeline).schema

    def closed(self, watermark: int | None) -> int:
        return clip(floor(watermark) - self.node.allowed_lateness)

    def fold(self, routed: DataFrame, before: int | None, folder: Path, *, carries_source: bool) -> Folded:
        """Fold the events of a batch into staged slices; count them on the way in."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        bounds = FoldBounds(floor(before), self.closed(before))
        marked = mark(self.node, walk(self.node.steps, routed), bounds, carries_source=carries_source)
        metrics = [F.expr(sql).alias(name) for name, sql in COUNTS.items()]
        observation = Observation()
        result = fold(self.node, marked.observe(observation, *metrics), bounds, self.pipeline)
        staged = stage(result, folder, "_fate", small=self._folded_rows <= SMALL)

        def recount() -> dict[str, int]:
            return marked.agg(*metrics).collect()[0].asDict()  # type: ignore[return-value]

        try:
            counts = dict(observation.get)
        except (AssertionError, ValueError):  # the optimiser has removed what was observed
            counts = recount()
        folded = Folded(staged, counts, recount)
        account(folded)
        self._folded_rows = staged.rows("slice", "straggler", "dead", "copy")
        return folded

    def probe(self, routed: DataFrame, before: int | None) -> None:
        """Compute the fold and throw it away: does it throw?"""
        bounds = FoldBounds(floor(before), self.closed(before))
        marked = mark(self.node, walk(self.node.steps, routed), bounds, carries_source=True)
        fold(self.node, marked, bounds, self.pipeline).write.format("noop").mode("overwrite").save()

    def silent_line(self) -> OperatorLine:
        """The line of an operator that got no events in this batch, and yet may speak."""
        return OperatorLine()

    def lines(self, folded: Folded) -> tuple[PathLine, OperatorLine]:
        """The ledger lines: input side as counted on the way in, output side as found in the staged files."""
        counts, fates = folded.counts, folded.fates
        path = PathLine(
            passed=counts["passed"],
            filtered=fates.get("filtered", 0),
            unnested=counts["unnested"],
            elements=counts["elements"],
            dropped=fates.get("dropped", 0),
            arrived=counts["arrived"],
            has_flat_map=has_flat_map(self.node.steps),
        )
        operator = OperatorLine(
            arrived=counts["arrived"],
            accepted=fates.get("slice", 0) + fates.get("straggler", 0),
            late=folded.dead.get("LATE", 0),
            partially_late=folded.partially_late,
        )
        return path, operator

    def keep(self, folded: Folded, sequence: int) -> list[StateFile]:
        """The staged slices as state files, with the range of event time they cover."""
        files = []
        for fate in STATE_FATES:
            for path in folded.staged.of(fate):
                table = pq.read_table(path, columns=["_slice", "_high"])
                low, high = pc.min(table["_slice"]).as_py(), pc.max(table["_high"]).as_py()
                files.append(self.state.entry(path, self.node.name, fate, low=low, high=high, sequence=sequence))
        return files

    def fire(
        self, fresh: list[StateFile], before: int | None, after: int | None, folder: Path
    ) -> tuple[list[Path], dict[str, int]]:
        """Stage the panes that are due; the files, and how many panes of each timing."""
        node, bounds = self.node, self.bounds(before, after)
        live = [*self.state.of(node.name, *STATE_FATES), *fresh]
        lower, upper = bounds.due(node)
        due = [file for file in live if file.low < upper and file.high > lower] if upper > lower else []
        stragglers = [file for file in fresh if file.kind == "straggler"] if bounds.speaks_late(node) else []
        panes = []
        if due:
            panes.append(fire_due(node, self.slices(due), bounds, tuple(self.added)))
        if stragglers:
            reach = [f for f in live if f.low < bounds.complete_before and f.high > bounds.closed_before]
            said = self.state.of(node.name, "panes")
            touched = sum(file.rows for file in stragglers)
            panes.append(
                fire_late(
                    node,
                    self.slices(reach),
                    self.slices(stragglers),
                    self.read(said, None) if said else None,
                    bounds,
                    touched,
                    tuple(self.added),
                )
            )
        if not panes:
            return [], {}
        result = panes[0] if len(panes) == 1 else panes[0].unionByName(panes[1])
        staged = stage(result, folder, None, small=self._fired_rows <= SMALL)
        table = staged.table("", columns=["pane_timing", "pane_change"])
        if table is None:
            return [], {}
        self._fired_rows = table.num_rows
        spoken = table.filter(pc.equal(table["pane_change"], "upsert"))
        counts = {row["values"]: row["counts"] for row in pc.value_counts(spoken["pane_timing"]).to_pylist()}
        retracted = table.num_rows - spoken.num_rows
        return staged.of(""), counts | ({"retract": retracted} if retracted else {})

    def keep_panes(self, paths: list[Path], sequence: int) -> list[StateFile]:
        """Pane files stay live while their windows may speak again: they know the index and what was said."""
        if self.node.allowed_lateness == 0:
            return []
        files = []
        for path in paths:
            table = pq.read_table(path, columns=["window_start", "window_end"])
            if table["window_end"].null_count:
                continue
            low = pc.min(table["window_start"]).cast(pa.int64()).as_py()
            high = pc.max(table["window_end"]).cast(pa.int64()).as_py()
            files.append(self.state.entry(path, self.node.name, "panes", low=low, high=high, sequence=sequence))
        return files

    def upkeep(self, after: int | None, folder: Path, sequence: int) -> Change:
        """Drop files whose windows have closed; compact what has become crowded."""
        change = Change()
        name, closed = self.node.name, self.closed(after)
        change.removed = self.state.expired(name, (*STATE_FATES, "panes"), closed)
        for kind in STATE_FATES:
            crowd = [file for file in self.state.crowded(name, (kind,)) if file.path not in change.removed]
            if len(crowd) > 1 and not self.added:
                merged = stage(
                    compact(self.node, self.slices(crowd)), folder / kind, None, small=self._folded_rows <= SMALL
                )
                crash.point("mid_compaction")
                change.added += [
                    self.state.entry(
                        path,
                        name,
                        kind,
                        low=min(file.low for file in crowd),
                        high=max(file.high for file in crowd),
                        sequence=sequence,
                        tier=crowd[0].tier + 1,
                    )
                    for path in merged.of("")
                ]
                change.removed += [file.path for file in crowd]
        return change

    def bounds(self, before: int | None, after: int | None) -> FireBounds:
        return FireBounds(floor(before), floor(after), self.closed(before), self.closed(after))

    def slices(self, files: list[StateFile]) -> DataFrame:
        """State files as one DataFrame; files from before an aggregate was added say so."""
        from pyspark.sql import functions as F

        rows = None
        boundaries = sorted(set(self.added.values()))
        groups: dict[int, list[StateFile]] = {}
        for file in files:
            groups.setdefault(sum(file.sequence >= since for since in boundaries), []).append(file)
        for members in groups.values():
            part = self.read(members, self._state_schema())
            for alias, since in self.added.items():
                part = part.withColumn(f"_before_{alias}", F.lit(members[0].sequence < since))
            rows = part if rows is None else rows.unionByName(part)
        assert rows is not None
        return rows

    def read(self, files: list[StateFile], schema: Any) -> DataFrame:
        reader = self.spark.read.option("recursiveFileLookup", "true")
        if schema is not None:
            reader = reader.schema(schema)
        return reader.parquet(*self.state.paths(files))

    def _state_schema(self) -> StructType:
        """Keys, slice, partials and count."""
        from pyspark.sql.types import StructType

        ours = {f"_key_{name}" for name in self.node.key_names} | {"_slice", "_n"}
        ours |= {column for alias, aggregate in self.node.aggregates for column in aggregate.partial_sql(alias)}
        return StructType([field for field in self._schema.fields if field.name in ours])


def account(folded: Folded) -> None:
    """Read off the staged files: events by fate, dead letters by reason, the newest event time per source partition."""
    for fate, paths in folded.staged.files.items():
        for path in paths:
            available = pq.read_schema(path).names
            columns = [c for c in ("_n", "_partition", "_newest", "_partially") if c in available]
            table = pq.read_table(path, columns=columns)
            folded.fates[fate] = folded.fates.get(fate, 0) + (pc.sum(table["_n"]).as_py() or 0)
            if fate in STATE_FATES and "_partially" in columns:
                folded.partially_late += pc.sum(table["_partially"]).as_py() or 0
            if fate == "dead":
                reasons = pc.value_counts(pc.struct_field(pq.read_table(path, columns=["_dead"])["_dead"], "reason"))
                for row in reasons.to_pylist():
                    folded.dead[row["values"]] = folded.dead.get(row["values"], 0) + row["counts"]
            by_partition = table.group_by("_partition").aggregate([("_newest", "max")])
            for row in by_partition.to_pylist():
                known, new = folded.newest.get(row["_partition"]), row["_newest_max"]
                if new is not None:
                    folded.newest[row["_partition"]] = new if known is None else max(known, new)
