"""Ids: what an attempt remembers of the event ids of a source, and for how long (see `operators.dedup`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from tidegate.operators.dedup import REMEMBERED, dedup, remembered, to_remember
from tidegate.operators.sql import BEGINNING, Relation
from tidegate.runtime.folded import Routed
from tidegate.runtime.operate import Operation
from tidegate.runtime.records import Reached, StateFile
from tidegate.runtime.staging import stage
from tidegate.runtime.state import Change
from tidegate.storage.parquet import read_table
from tidegate.storage.places import Place
from tidegate.windows import Calendar, Hopping, Rolling, Session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidegate.runtime.engine import Engine

_LONGEST = {"hour": 1, "day": 25, "week": 169, "month": 745, "quarter": 2209, "year": 8785}


class Ids:
    """The memory for duplicates of one attempt."""

    def __init__(self, engine: Engine, reached: Reached, sequence: int) -> None:
        self.engine, self.reached, self.sequence = engine, reached, sequence
        self._fresh: dict[str, list[StateFile]] = {}

    def mark(self, source: str, routed: Routed) -> tuple[Relation, dict[str, DataFrame]]:
        """The rows of a source with repeats of what this batch or an earlier one has brought marked; what it reads."""
        operations = self.engine.fed_by(source)
        frames: dict[str, DataFrame] = {}
        files = self.engine.state.of(source, "ids")
        if files:
            frames["ids"] = operations[0].read(files, REMEMBERED, routed.spark)
        for operation in operations:
            if (held := operation.held_ids(source, routed.spark)) is not None:
                frames[f"held{len(frames)}"] = held
        known = remembered("{ids}" if files else None, [f"{{{name}}}" for name in frames if name != "ids"])
        return dedup(routed.rows, known, self.engine.closed_for(source, self.reached)), frames

    def remember(self, source: str, routed: Routed, folder: Place) -> None:
        """Stage the ids of marked rows that are new, where the event time tells how long they matter."""
        closed = self.engine.closed_for(source, self.reached)
        by_time = [(operator, bound) for operator, bound in closed if not isinstance(operator.window, Session)]
        if not by_time:
            return
        staged = stage(routed.relation(to_remember(routed.rows.relation, by_time)), folder, small=False)
        for path in staged.of(""):
            times = read_table(path, ["_time"])["_time"]
            low, high = pc.min(times).as_py(), pc.max(times).as_py()
            entry = self.engine.state.entry(path, source, "ids", low=low, high=high, sequence=self.sequence)
            self._fresh.setdefault(source, []).append(entry)

    def forget(self) -> None:
        """A try has failed: what it staged is gone."""
        self._fresh.clear()

    def keep(self, source: str, after: dict[str, int | None], change: Change) -> bool:
        """Keep this batch's ids, let go of those whose windows have all closed; False when there is no such memory."""
        operations = [op for op in self.engine.fed_by(source) if not isinstance(op.node.window, Session)]
        if not operations or self.engine.sources[source].node.event_id is None:
            return False
        change.added += self._fresh.get(source, [])
        horizon = min(_horizon(operation, after[operation.node.name]) for operation in operations)
        change.removed += self.engine.state.expired(source, ("ids",), horizon)
        return True


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
