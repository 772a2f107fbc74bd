"""Isolation: the records of an attempt without those that nobody can compute.

When a fold throws, the one to blame is looked for (see `poison`): a file that cannot be read is left out of the batch,
a record on which an expression throws is marked. Both become dead letters, and the attempt folds again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tidegate.operators.dedup import to_remember
from tidegate.operators.route import route
from tidegate.operators.sql import run
from tidegate.runtime.folded import Routed
from tidegate.runtime.poison import Culprit, corrupt_file, is_data_error, isolate, sentence
from tidegate.runtime.records import Reached
from tidegate.runtime.source_work import only_wanted
from tidegate.sources.base import Records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidegate.runtime.engine import Batch, Engine


class Isolation:
    """What an attempt reads, and whom it has found to blame so far."""

    def __init__(
        self, engine: Engine, batch: Batch, reached: Reached, persist: Callable[[DataFrame], DataFrame]
    ) -> None:
        self.engine, self.batch, self.reached, self._persist = engine, batch, reached, persist
        self.records: Mapping[str, Records] = batch.read(frozenset()) if batch.read else batch.records
        self._poison: dict[str, dict[int, str]] = {}
        self._corrupt: list[Culprit] = []

    def poison_of(self, source: str) -> dict[int, str]:
        """The records of a source that throw, by position, and what Spark said of them."""
        return self._poison.get(source, {})

    def corrupt_of(self, source: str) -> list[Culprit]:
        """The unreadable files of a source."""
        whose = self.batch.source_of or (lambda _: next(iter(self.engine.sources)))
        return [culprit for culprit in self._corrupt if whose(culprit.file or "") == source]

    def blame(self, error: BaseException) -> bool:
        """Find whom to blame for an error; True when the batch can be computed again without them."""
        path = corrupt_file(error)
        if path is not None and self.batch.read is not None:
            known = {culprit.file for culprit in self._corrupt if culprit.file}
            if path in known:
                return False
            self._corrupt.append(Culprit(None, path, sentence(error)))
            self.engine.watcher.say(f"file {path} cannot be read: it becomes a dead letter CORRUPT_FILE")
            self.records = self.batch.read(frozenset(known | {path}))
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
            return self.blame(other)
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
        for name, records in self.records.items():
            work = self.engine.sources[name]
            frame = only_wanted(records.frame, records)
            decoded = run(frame.sparkSession, work.decoded("{records}"), {"records": frame})
            rows = self._persist(decoded)
            known = self.poison_of(name)
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
        rows = route(node, "{decoded}", self.batch.clock, self.poison_of(name))
        routed = Routed(decoded.sparkSession, rows, {"decoded": decoded})
        if node.event_id is not None:
            ids = routed.relation(to_remember(routed.rows.relation, self.engine.closed_for(name, self.reached)))
            ids.write.format("noop").mode("overwrite").save()
        for operation in self.engine.fed_by(name):
            operation.probe(name, routed, self.reached.watermarks.get(operation.node.name))
