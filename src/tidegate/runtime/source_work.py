"""The work of one source in a batch: its raw records, decoded and routed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.contracts.writers import Writers
from tidegate.operators.decode import decode, raw_ddl
from tidegate.operators.route import route
from tidegate.operators.sql import Relation
from tidegate.runtime.counting import Counter
from tidegate.runtime.folded import Routed
from tidegate.sources.base import Records
from tidegate.stream import SourceNode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
        frame = only_wanted(frame, records)
        return Routed(records.frame.sparkSession, rows, {"records": frame}, records.count, counter)

    def sample(self, spark: SparkSession) -> Routed:
        """No records, routed: enough to see whether the app's expressions fit."""
        return self.routed(Records(spark.createDataFrame([], raw_ddl(self.node))), 0, {})


def only_wanted(frame: DataFrame, records: Records) -> DataFrame:
    """Without what the source was told to leave out."""
    return frame if records.wanted is None else frame.where(records.wanted)
