"""What passes between the parts of an attempt: routed rows, what was folded of them, what was fired. Plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidegate.operators.route import Rows
from tidegate.operators.sql import Relation, run
from tidegate.runtime.counting import Counter
from tidegate.runtime.ledger import PaneLine
from tidegate.runtime.records import StateFile
from tidegate.runtime.staging import Staged
from tidegate.runtime.state import Change
from tidegate.storage.places import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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

    def settle(self, counted: dict[str, int]) -> dict[str, int]:
        """The ledger's input side in full: what was not counted follows from what was read and what left on the way."""
        if "arrived" in counted:
            return counted
        refused = self.fates.get("duplicate", 0) + sum(n for reason, n in self.dead.items() if reason != "LATE")
        passed = counted.get("passed", counted["read"] - refused)
        arrived = passed - self.fates.get("filtered", 0)
        return counted | {"passed": passed, "arrived": arrived, "unnested": 0, "elements": 0}

    def passed(self) -> int:
        """How many events the source let pass, as found in the staged files – where an event is one row."""
        if self.counts.get("elements"):
            return self.counts["passed"]
        whole = ("slice", "straggler", "candidate", "filtered", "empty", "dropped", "passed")
        return sum(self.fates.get(fate, 0) for fate in whole) + self.dead.get("LATE", 0)


Folds = Mapping[str, Folded]
"""What has been folded for an operator in a batch, by source."""


@dataclass(frozen=True)
class Fed:
    """What feeds an operator in a batch: its events, as they were folded, with the state files that are kept of them.

    `panes` are the results of the operator before it, where there is one.
    """

    folds: Folds = field(default_factory=dict)
    fresh: list[StateFile] = field(default_factory=list)
    panes: list[Place] = field(default_factory=list)


@dataclass(frozen=True)
class Judged:
    """What became of events that only firing could judge: those of sessions, of all sources together.

    `repeated` are duplicates that nobody else could tell: repeats in one batch of an event that might have been late.
    """

    accepted: int
    late: int
    repeated: int


@dataclass
class Fired:
    """What firing has staged: pane files, how many panes of each timing, and what it does to the live files."""

    panes: list[Place] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    change: Change = field(default_factory=Change)
    judged: Judged | None = None
    held: PaneLine | None = None
    """The ledger line of an operator that holds the results of another."""


@dataclass(frozen=True)
class Routed:
    """The routed rows of a source: a relation, the DataFrames in it, and the session they live in."""

    spark: SparkSession
    rows: Rows
    frames: dict[str, DataFrame]
    count: int | None = None
    """How many records there are by the source's own account, while each is still one row."""
    counter: Counter | None = None
    """What already counts the records as they are read, while each is still one row."""

    def relation(self, relation: Relation, **frames: DataFrame) -> DataFrame:
        return run(self.spark, relation, self.frames | frames)
