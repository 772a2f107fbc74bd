"""What the Delta sink needs of Spark: a session of its own, the marker in a snapshot, and names as SQL takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tidegate.errors import SinkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructField

EXTENSION = "DeltaSparkSessionExtension"
NEEDS_MAPPING = set(" ,;{}()\n\t=")
"""Characters that Delta takes in the name of a column only with column mapping."""

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # A table of results has a short log; fifty partitions for its state, the default, are fifty tasks for nothing.
    "spark.databricks.delta.snapshotPartitions": "2",
    # The rows of a record lie in the driver's memory and are the same however often they are read.
    "spark.databricks.delta.merge.materializeSource": "none",
}


def versions(snapshot: Any) -> dict[str, int]:
    """The last version of each application. The checksum file of a commit says it; without one, Spark reads the log."""
    checksum = snapshot.checksumOpt()
    known = checksum.get().setTransactions() if checksum.isDefined() else checksum
    transactions = (known.get() if known.isDefined() else snapshot.setTransactions()).iterator()
    versions = {}
    while transactions.hasNext():
        transaction = transactions.next()
        versions[str(transaction.appId())] = int(transaction.version())
    return versions


def own_session() -> SparkSession:
    """A session of our own in the engine's Spark: the settings of a write must not be seen by the batch beside it."""
    from pyspark.sql import SparkSession

    running = SparkSession.builder.getOrCreate()
    if EXTENSION not in running.sparkContext.getConf().get("spark.sql.extensions", ""):
        raise SinkError(
            "this Spark session was started without Delta",
            hint="start it with make_session(…, jars=('delta',)); under spark-submit give --packages io.delta:… and "
            "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension",
        )
    own = running.newSession()
    for name, value in SETTINGS.items():
        own.conf.set(name, value)
    return own


def features_of(column: StructField) -> dict[str, str]:
    """What a table must be told before it takes a column of this name and type; older readers know neither."""
    features = {}
    if NEEDS_MAPPING.intersection(column.name):
        features["delta.columnMapping.mode"] = "name"
    if "timestamp_ntz" in column.dataType.json():
        features["delta.feature.timestampNtz"] = "supported"
    return features


def column_ddl(column: StructField) -> str:
    from pyspark.sql.types import StructType

    return StructType([column]).toDDL()


def quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def pairs(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{_literal(name)} = {_literal(value)}" for name, value in properties.items())


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def sentence(text: str) -> str:
    """What a JVM error says first, without its stack."""
    lines = [line.removeprefix(": ") for line in text.splitlines() if not line.startswith("An error occurred while")]
    return lines[0] if lines else text
