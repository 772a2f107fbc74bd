"""The Spark session: settings that the engine relies on, and Java found before Spark fails without it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate import jars as locked
from tidegate.errors import MachineError
from tidegate.java import need_java, quiet_launch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # Batches are small next to what adaptive execution is for; its extra planning costs more than it saves.
    "spark.sql.adaptive.enabled": "false",
    # A batch runs the same generated code as the one before; the default of 100 classes is less than one batch needs,
    # and then every batch compiles everything anew (measured: 61 compilations per batch, instead of none).
    "spark.sql.codegen.cache.maxEntries": "2000",
    # Memory for groups is taken in pages, and Java clears each before it is used. By default a page is 64 MB here, and
    # each of eight tasks a batch has one, however little is in it (decision 014 has the figures).
    "spark.buffer.pageSize": "4m",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    # One task writes all fates of its rows at once, instead of sorting by fate first.
    "spark.sql.maxConcurrentOutputFileWriters": "16",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    "spark.hadoop.parquet.summary.metadata.level": "NONE",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}


MOST_AVRO = 1 << 24
AVRO_LIMITS = " ".join(
    f"-Dorg.apache.avro.limits.{what}.maxLength={MOST_AVRO}" for what in ("string", "bytes", "collectionItems")
)
"""One flipped bit can make an Avro record claim a text of two gigabytes. Avro makes room for it before it reads, and
the JVM ends for want of memory – at the same record, each time it is started. So text, bytes and lists of more than
this many bytes or items are refused, and the record is a dead letter."""

STEADY_GC = "-XX:+UseParallelGC"
"""A batch makes much garbage and keeps little: a collector that only stops takes less of its CPU time than one that
works beside it (tumbling, 2 M events a batch, 2 cores: 0.05 s a batch against 0.3)."""
BRIEF_GC = "-XX:+UseSerialGC"

STEADY_JIT = "-XX:Tier4InvocationThreshold=30000 -XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=60000"
"""Four to six times as many calls before a method is compiled anew, with care. What runs for each row is past that in
the first batch. What plans a batch, thousands of methods of Spark's, is called some hundred times in each: compiling
all of that took a fifth of the CPU time of the 15th to the 30th batch (0.69 s a batch; with this 0.42). Now it comes
later, and only for what is called often."""

IN_HAND = "64m"
"""Results of a task up to this size are handed to the driver as they are. Spark's default is 1m, and what is larger it
fetches over a socket, also from itself: 0.06 s of CPU time a batch of 2 M events, whose fold is 29 MB."""

JAVA_READS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")

OUR_QUERY = {
    # Without names Spark knows a source by its place: in another order, each would be read from the other's offsets.
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    "spark.sql.streaming.offsetLog.formatVersion": "2",
    # A driver killed while Spark wrote its first entry leaves a draft of it; whose log it is, our records know.
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
    # The check compares shuffle partitions, which Spark 4.2 logs for only some batches of a query without state, and
    # fails with `None.get` where one is missing: a driver killed before a commit could never be started again.
    "spark.sql.streaming.checkUnfinishedRepartitionOnRestart": "false",
    # Spark's default asks the operating system about links, and for that starts ten processes for each file of its log
    # (measured: 30 processes and 0.1 s per micro-batch). Who may write is decided by our claims, not by its rename.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""For our own query only: every other stream of the session would have to name its sources too."""


JAR_SETTINGS = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
}
"""What a group of jars wants said when the session starts; later is too late."""


def make_session(name: str, cores: str = "*", *, brief: bool = False, jars: Iterable[str] = ()) -> SparkSession:
    """A local session, or the one that `spark-submit` has set up, with the engine's settings.

    `brief` is for tests and other short work: the JVM then compiles quickly rather than well. `jars` are the groups of
    `tidegate.jars` that the session needs; under `spark-submit`, whoever submits brings them.
    """
    need_java()
    from pyspark.sql import SparkSession

    jars = tuple(jars)
    files = [] if "PYSPARK_GATEWAY_PORT" in os.environ else [str(path) for path in locked.fetch(jars)]
    if files and (running := SparkSession.getActiveSession()):
        _refuse_without_jars(running, files)

    number = os.cpu_count() or 2 if cores == "*" else int(cores)
    builder = SparkSession.builder.appName(f"tidegate-{name}")
    if "SPARK_REMOTE" not in os.environ and "PYSPARK_GATEWAY_PORT" not in os.environ:
        builder = builder.master(f"local[{cores}]").config(
            "spark.driver.memory", os.environ.get("TIDEGATE_MEMORY", "2g")
        )
        builder = builder.config("spark.task.maxDirectResultSize", IN_HAND)
    if files:
        builder = builder.config("spark.jars", ",".join(files))
    is_brief = brief or "TIDEGATE_BRIEF" in os.environ
    builder = builder.config("spark.driver.extraJavaOptions", driver_options(os.environ, brief=is_brief))
    builder = builder.config("spark.executor.extraJavaOptions", AVRO_LIMITS)
    settings = SETTINGS | {
        "spark.sql.shuffle.partitions": str(number),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    for group in jars:
        settings |= JAR_SETTINGS.get(group, {})
    for key, value in settings.items():
        builder = builder.config(key, value)
    with quiet_launch():
        session = builder.getOrCreate()
    _write_no_checksums(session)
    session.sparkContext.setLogLevel("OFF" if "TIDEGATE_DEBUG" not in os.environ else "WARN")
    _quiet_python()
    return session


def driver_options(environment: Mapping[str, str], *, brief: bool) -> str:
    """What the driver's JVM is started with. Java takes one collector only: one that the environment names stays."""
    chosen = any(re.search(r"-XX:\+Use\w+GC\b", environment.get(name, "")) for name in JAVA_READS)
    collector = [] if chosen else [BRIEF_GC if brief else STEADY_GC]
    return " ".join([AVRO_LIMITS, "-XX:TieredStopAtLevel=1" if brief else STEADY_JIT, *collector])


def _write_no_checksums(session: SparkSession) -> None:
    """Hadoop's local file system keeps a hidden checksum file beside each file, and starts a process to set the rights
    of each of the two. Parquet and our records can tell by themselves that they are not whole."""
    java = session._jvm
    assert java is not None
    local = java.org.apache.hadoop.fs.FileSystem.get(
        java.java.net.URI("file:///"), session.sparkContext._jsc.hadoopConfiguration()
    )
    local.setWriteChecksum(False)


def _refuse_without_jars(running: SparkSession, files: list[str]) -> None:
    """Jars given to a session that runs would be ignored, and Spark would fail later, in words nobody can act on."""
    there = {Path(path).name for path in running.sparkContext.getConf().get("spark.jars", "").split(",")}
    if absent := [name for path in files if (name := Path(path).name) not in there]:
        raise MachineError(
            f"the Spark session that runs in this process was started without {', '.join(absent)}",
            hint="stop it first, or start it with them: make_session(…, jars=…) before anything else makes a session",
        )


def _quiet_python() -> None:
    """PySpark logs every error it raises, with the JVM's stack, to stderr; whoever catches it says what it means."""
    if "TIDEGATE_DEBUG" not in os.environ:
        from pyspark.logger import PySparkLogger

        PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
