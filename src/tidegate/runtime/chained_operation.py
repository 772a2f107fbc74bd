"""Chained operation: an operator that is fed by the results of another.

Results that are final are events like any others: they are folded in the batch in which they are staged (`Feed.fold`),
by the same operations as a source's. Results that may be corrected are *held* instead, the current one per key and
window, and what is due is folded anew from them (`CorrectedOperation`). The held table is one set of files of kind
``held``, written anew in each batch that changes it.

Both happen in the batch that staged the upstream panes, so one record decides the whole chain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from tidegate.operators.assign import Assignment
from tidegate.operators.chain import LAST_INSTANT, current, pane_ddl, rows_of_panes
from tidegate.operators.fire import fire_due
from tidegate.operators.fold import STATE_FATES, FoldBounds, fold, mark
from tidegate.operators.open import needs_open_state
from tidegate.operators.path import walk
from tidegate.operators.sql import BEGINNING, END_OF_TIME, Relation, Thresholds, clip, run, select
from tidegate.runtime.folded import Fed, Fired, Folded, Folds, Routed
from tidegate.runtime.ledger import PaneLine
from tidegate.runtime.moment import Moment
from tidegate.runtime.open_operation import OpenOperation
from tidegate.runtime.operate import Operation, count_panes
from tidegate.runtime.records import StateFile
from tidegate.runtime.staging import stage
from tidegate.runtime.state import Change
from tidegate.storage.parquet import read_table, rows_in
from tidegate.storage.places import Place
from tidegate.stream import PaneSource, WindowNode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def kind_of(node: WindowNode) -> type[Operation]:
    """The kind of operation that a node needs."""
    return CorrectedOperation if node.is_corrected else OpenOperation if needs_open_state(node) else Operation


def output_watermark(upstream: WindowNode, watermark: int | None) -> int | None:
    """An operator's watermark minus what it may still say."""
    if watermark is None or watermark >= END_OF_TIME:
        return watermark
    return clip(watermark - upstream.allowed_lateness)


@dataclass(frozen=True)
class Feed:
    """The panes of an operator, as the rows of the next."""

    upstream: Operation
    source: PaneSource

    @property
    def ddl(self) -> str:
        return pane_ddl(self.source, self.upstream.pane_types)

    def sample(self, spark: SparkSession) -> Routed:
        """No panes: enough to see whether the expressions of what follows fit."""
        return self._routed(spark.createDataFrame([], self.ddl), 0, 0)

    def panes(self, files: list[Place]) -> DataFrame:
        return self.upstream.spark.read.schema(self.ddl).parquet(*map(str, files))

    def routed(self, files: list[Place], clock: int) -> Routed:
        """Final panes of a batch: each is there once, and none is ever taken back."""
        return self._routed(self.panes(files), sum(map(rows_in, files)), clock)

    def _routed(self, panes: DataFrame, count: int, clock: int) -> Routed:
        rows = rows_of_panes(self.source, "{records}", clock)
        return Routed(panes.sparkSession, rows, {"records": panes}, count)


class CorrectedOperation(Operation):
    """An operator over results that may be taken back.

    The output watermark of what feeds it promises that nothing is corrected which has a complete window here. So a
    window speaks once, when it is complete, over the results that stand then.
    """

    def _prepare(self, samples: Mapping[str, Routed]) -> None:
        assert isinstance(self.node.source, PaneSource)
        self.source = self.node.source
        panes = samples[self.source.name].frames["records"].schema
        self._ddl = ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in panes.fields)

    def fold_panes(self, feed: Feed, panes: list[Place], clock: int, before: int | None, folder: Place) -> Folds:
        return {}  # they are held, and folded when they are due

    def fire(self, fed: Fed, moment: Moment, folder: Place) -> Fired:
        """Correct what is held, say what is due from it, and let go of what nobody needs any more."""
        held, bounds = self.state.of(self.node.name, "held"), self.bounds(moment.before, moment.after)
        lower, upper = bounds.due(self.node)
        before, changes = sum(file.rows for file in held), fed.panes
        line = PaneLine(before=before, after=before)
        is_due = upper > lower and (changes or any(file.low <= upper for file in held))
        if not (held or changes) or not (changes or is_due):
            return Fired(held=line)
        frames: dict[str, DataFrame] = {}
        if held:
            frames["held"] = self.read(held, self._ddl)
        if changes:
            frames["changes"] = self.spark.read.schema(self._ddl).parquet(*map(str, changes))
        given = ("{" + name + "}" if name in frames else None for name in ("held", "changes"))
        standing = run(self.spark, current(self.source, *given), frames).persist()
        try:
            files, counts = [], {}
            if is_due:
                staged = stage(self._panes(standing, moment), folder, small=self._fires_small)
                self._fires_small = staged.is_small()
                files, counts = staged.of(""), count_panes(staged, "")
            kept, line.over = self._keep(standing, bounds.closed, moment, folder.parent / "held")
        finally:
            standing.unpersist()
        said = [read_table(path, ["pane_change"])["pane_change"] for path in changes]
        line.came = sum(pc.sum(pc.equal(column, "upsert")).as_py() or 0 for column in said)
        line.taken_back = sum(pc.sum(pc.equal(column, "retract")).as_py() or 0 for column in said)
        line.after = sum(file.rows for file in kept)
        return Fired(files, counts, Change(kept, [file.path for file in held]), held=line)

    def keep(self, folded: Folded, sequence: int) -> list[StateFile]:
        return []

    def keep_panes(self, paths: list[Place], sequence: int) -> list[StateFile]:
        return []  # a window speaks once

    def upkeep(self, after: int | None, folder: Place, sequence: int) -> Change:
        return Change()  # the table is written anew as a whole

    def open_windows(self, watermark: int | None) -> int:
        return sum(file.rows for file in self.state.of(self.node.name, "held"))

    def _panes(self, standing: DataFrame, moment: Moment) -> DataFrame:
        """The windows that are due, from the results that stand."""
        frames = {"standing": standing}
        rows = rows_of_panes(self.source, "{standing}", moment.clock)
        nothing_is_late = FoldBounds(BEGINNING, BEGINNING)

        def bridge(relation: Relation, function: Callable[[DataFrame], DataFrame]) -> tuple[Relation, tuple[str, ...]]:
            name = f"transformed{len(frames)}"
            frames[name] = function(run(self.spark, relation, frames))
            return f"{{{name}}}", tuple(frames[name].columns)

        walked = walk(self.node.steps, rows, bridge)
        marked = mark(self.node, walked, nothing_is_late, carries_source=False)
        folded = fold(self.node, replace(walked, relation=marked), nothing_is_late, self.pipeline)
        slices = select(["*"], folded, f"_fate < {len(STATE_FATES)}")
        due = fire_due(self.node, slices, self.bounds(moment.before, moment.after), self._merging())
        return run(self.spark, due, frames)

    def _keep(self, standing: DataFrame, closed: int, moment: Moment, folder: Place) -> tuple[list[StateFile], int]:
        """Stage what must still be held, and count what is let go: both for the panes' own ledger line."""
        end = Assignment(self.node.window).last_end(LAST_INSTANT)
        limit = Thresholds([closed], "unix_micros(window_end)")
        marked = run(
            self.spark,
            select(["*", f"{end} AS _needed_until", f"{end} <= {limit[0]} AS _over"], "{rows}"),
            {"rows": standing},
        )
        over = marked.where("_over").count()
        staged = stage(marked.where("NOT _over").drop("_over"), folder, small=self._fires_small)
        entries = []
        for path in staged.of(""):
            ends = read_table(path, ["_needed_until"])["_needed_until"]
            low, high = pc.min(ends).as_py(), pc.max(ends).as_py()
            entries.append(self.state.entry(path, self.node.name, "held", low=low, high=high, sequence=moment.sequence))
        return entries, over
