"""Delta Lake: results as a table that Spark and everything else that reads Delta can query, exactly once.

Two forms. ``changes="upsert"`` holds the current result per (key, window), applied by ``MERGE``. ``changes="log"``
holds all that was ever said, appended with the record's number as ``sequence``; ``replaced`` rows are left out of it.

The marker is Delta's own: a commit may carry a *transaction identifier* (``txnAppId``, ``txnVersion``), and Delta skips
a write whose version it has already seen from that application. The application here is pipeline, checkpoint and sink –
a new checkpoint counts its records from 1 again, and must not be taken for the old one – and the version is the
record's number. ``MERGE`` and append write rows and marker **in one commit**, so a crash leaves both or none.

The claim is a table property. A driver that takes over sets it, which is a change of metadata: a zombie whose write is
under way fails to commit, and one that comes later finds the newer claim and is refused. Should it look just before and
begin just after, then it can only write a record that was decided, and Delta's own check lets that in once: as the
successor's record n, or not at all.

Other writers – ``OPTIMIZE``, ``VACUUM``, somebody's ``DELETE`` – may be in the way of a commit; it is then tried again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from tidegate import crash
from tidegate.errors import SinkError, Unavailable
from tidegate.sinks.base import Delivery, SinkTarget
from tidegate.sinks.delta_spark import column_ddl, features_of, own_session, pairs, quote, sentence, versions
from tidegate.sinks.marker import LookFirst, refuse_if_fenced, refuse_if_gone_back
from tidegate.sinks.panes import PANE, WINDOW, read_panes, reduce_panes
from tidegate.sinks.tables import refuse_equal_names, refuse_foreign_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Delta:
    """A Delta table in the folder `path`, local or on any file system that Spark knows, created when missing.

    >>> Delta("/data/revenue").describe()
    'Delta table /data/revenue'
    """

    path: str | Path
    changes: Literal["upsert", "log"] = "upsert"
    properties: Mapping[str, str] = field(default_factory=dict)
    """Table properties when it is created, such as ``{"delta.enableDeletionVectors": "true"}``."""

    @property
    def jars(self) -> tuple[str, ...]:
        """The group of jars that the session must be started with."""
        return ("delta",)

    def describe(self) -> str:
        return f"Delta {'table' if self.changes == 'upsert' else 'change log'} {self.path}"

    def problems(self) -> list[str]:
        problems = []
        if self.changes not in ("upsert", "log"):
            problems.append(f"changes of tg.Delta is 'upsert' or 'log', but not {self.changes!r}")
        if not str(self.path):
            problems.append("tg.Delta needs the path of a folder")
        elif "://" not in str(self.path) and Path(self.path).is_file():
            problems.append(f"Delta path {self.path} is a file; name a folder")
        return problems

    def open(self, target: SinkTarget) -> DeltaWriter:
        if problems := self.problems():
            raise SinkError("; ".join(problems))
        names = [*target.key, *WINDOW, *target.values, *PANE]
        if self.changes == "log":
            names += ["sequence", "pane_change"]
        refuse_equal_names(str(self.path), names, "Delta")
        return DeltaWriter(self, target)


class DeltaWriter(LookFirst):
    """A `SinkWriter` that commits to a Delta table through the session of the engine."""

    def __init__(self, sink: Delta, target: SinkTarget) -> None:
        self._sink, self._target = sink, target
        path = str(sink.path)
        self._path = path if "://" in path else str(Path(path).resolve())
        self._table = f"delta.{quote(self._path)}"
        self._application = f"tidegate/{target.pipeline}/{target.checkpoint_id}/{target.sink}"
        self._claim_name = f"tidegate.claim.{target.checkpoint_id}.{target.sink}"
        self._view = f"tidegate_{uuid4().hex}"
        with self._explained():
            self._spark = own_session()
        self._known = self._take_claim()

    def close(self) -> None:
        """The session belongs to the engine."""

    def _write(self, delivery: Delivery) -> int:
        confirmed = self._known
        self._take_claim()  # a table that came into being after we were opened does not know us yet
        panes = read_panes(delivery.files, self._target)
        with self._explained():
            changed = self._commit(delivery.sequence, panes)
        if panes.num_rows or confirmed is not None:
            self._known = self._look()
            if self._known is None or self._known < delivery.sequence:
                raise SinkError(
                    f"Delta committed record {delivery.sequence} to {self._path} without the marker of this sink",
                    hint="this version of Delta does not keep transaction identifiers; see `tidegate doctor`",
                )
        return changed

    def _commit(self, sequence: int, panes: pa.Table) -> int:
        """Rows and marker in one commit; how many rows it changed."""
        if not panes.num_rows:
            crash.point("mid_sink")
            return self._move_marker(sequence)
        if self._sink.changes == "log":
            kept = panes.filter(pc.not_equal(panes["pane_change"], "replaced"))
            kept = kept.add_column(0, "sequence", pa.repeat(pa.scalar(sequence, pa.int64()), kept.num_rows))
            rows = self._frame(kept)
            self._prepare(rows)
            crash.point("mid_sink")
            self._append(rows, sequence)
            return int(kept.num_rows)
        changes = reduce_panes(panes, self._target.key)
        rows = self._frame(pa.concat_tables([changes.deletes, changes.upserts]))
        self._prepare(rows.drop("pane_change"))
        crash.point("mid_sink")
        return self._merge(rows, sequence)

    def _merge(self, rows: DataFrame, sequence: int) -> int:
        identity = [*self._target.key, *WINDOW]
        names = [*identity, *self._target.values, *PANE]
        same = " AND ".join(f"kept.{quote(name)} <=> new.{quote(name)}" for name in identity)
        updates = ", ".join(f"kept.{quote(name)} = new.{quote(name)}" for name in names if name not in identity)
        self._spark.conf.set("spark.databricks.delta.write.txnAppId", self._application)
        self._spark.conf.set("spark.databricks.delta.write.txnVersion", str(sequence))
        rows.createOrReplaceTempView(self._view)
        try:
            found = self._spark.sql(
                f"MERGE INTO {self._table} AS kept USING {self._view} AS new ON {same} "
                "WHEN MATCHED AND new.pane_change <> 'upsert' THEN DELETE "
                f"WHEN MATCHED THEN UPDATE SET {updates} "
                "WHEN NOT MATCHED AND new.pane_change = 'upsert' "
                f"THEN INSERT ({', '.join(map(quote, names))}) "
                f"VALUES ({', '.join(f'new.{quote(name)}' for name in names)})"
            ).collect()
        finally:
            self._spark.catalog.dropTempView(self._view)
            self._spark.conf.unset("spark.databricks.delta.write.txnAppId")
            self._spark.conf.unset("spark.databricks.delta.write.txnVersion")
        # Nothing comes back when Delta found the version committed before.
        return int(found[0]["num_affected_rows"]) if found else 0

    def _append(self, rows: DataFrame, sequence: int) -> None:
        options = {"txnAppId": self._application, "txnVersion": str(sequence)}
        rows.write.format("delta").mode("append").options(**options).save(self._path)

    def _move_marker(self, sequence: int) -> int:
        """A record without rows. While there is no table there is nothing to say it in, and nothing to miss."""
        if self._exists():
            self._append(self._spark.table(self._table).limit(0), sequence)
        return 0

    def _frame(self, table: pa.Table) -> DataFrame:
        from pyspark.sql.pandas.types import from_arrow_schema

        # Left to itself, Spark takes a time without a zone for an instant.
        return self._spark.createDataFrame(table, from_arrow_schema(table.schema, prefer_timestamp_ntz=True))

    def _prepare(self, rows: DataFrame) -> None:
        """Create the table, or grow it by new value columns. Types are known only now, from the first rows."""
        if not self._exists():
            properties = dict(self._sink.properties) | {self._claim_name: str(self._target.claim)}
            for column in rows.schema.fields:
                properties |= features_of(column)
            columns = ", ".join(map(column_ddl, rows.schema.fields))
            self._spark.sql(f"CREATE TABLE {self._table} ({columns}) USING delta TBLPROPERTIES ({pairs(properties)})")
            return
        there = {found.name: found.dataType for found in self._spark.table(self._table).schema.fields}
        for column in rows.schema.fields:
            if column.name not in there:
                if features := features_of(column):
                    self._spark.sql(f"ALTER TABLE {self._table} SET TBLPROPERTIES ({pairs(features)})")
                self._spark.sql(f"ALTER TABLE {self._table} ADD COLUMNS ({column_ddl(column)})")
            elif there[column.name] != column.dataType:
                raise SinkError(
                    f"column {column.name!r} of Delta table {self._path} is {there[column.name].simpleString()}, "
                    f"but the pipeline now brings {column.dataType.simpleString()}",
                    hint="give the value a new name, or the sink a new path",
                )

    # The marker.

    def _take_claim(self) -> int | None:
        """Put our claim on the table, if there is one; the last record applied."""
        sequence, claim = self._marker()
        with self._explained():
            if self._exists():
                columns = [name for name in self._spark.table(self._table).columns if name != "sequence"]
                refuse_foreign_table(self._path, columns, self._target.key)
                if claim != self._target.claim:
                    ours = pairs({self._claim_name: str(self._target.claim)})
                    self._spark.sql(f"ALTER TABLE {self._table} SET TBLPROPERTIES ({ours})")
        return sequence

    def _look(self) -> int | None:
        sequence, _ = self._marker()
        refuse_if_gone_back(self._target, self._known, sequence)
        return sequence

    def _marker(self) -> tuple[int | None, int | None]:
        """The last record and the claim, refused when the claim is newer than ours."""
        with self._explained():
            if not self._exists():
                return None, None
            jvm: Any = self._spark._jvm
            log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self._spark._jsparkSession, self._path)
            snapshot = log.update(*(getattr(log, f"update$default${n}")() for n in (1, 2, 3)))
            sequence = versions(snapshot).get(self._application)
            property_ = snapshot.metadata().configuration().get(self._claim_name)
            claim = int(property_.get()) if property_.isDefined() else None
        if claim is not None:
            refuse_if_fenced(self._target, claim)
        return sequence, claim

    def _exists(self) -> bool:
        jvm: Any = self._spark._jvm
        return bool(jvm.io.delta.tables.DeltaTable.isDeltaTable(self._spark._jsparkSession, self._path))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            yield
        except (Py4JError, PySparkException) as error:
            text = str(error)
            if any(word in text for word in IN_THE_WAY):
                raise Unavailable(f"another writer changed Delta table {self._path} at the same time") from error
            if any(word in text for word in AWAY):
                raise Unavailable(f"the storage of Delta table {self._path} cannot be reached") from error
            raise SinkError(
                f"Delta table {self._path} cannot be written: {sentence(text)}",
                hint="check that the path is writable and that nobody else changes the table's columns",
            ) from error


IN_THE_WAY = (
    "ConcurrentAppendException",
    "ConcurrentDeleteReadException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentTransactionException",
    "ConcurrentWriteException",
    "MetadataChangedException",
    "ProtocolChangedException",
    "DELTA_CONCURRENT",
    "DELTA_METADATA_CHANGED",
    "DELTA_PROTOCOL_CHANGED",
)
AWAY = ("ConnectException", "UnknownHostException", "SocketTimeoutException", "NoRouteToHostException")
