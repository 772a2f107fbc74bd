"""The Spark session: settings that the engine relies on, and Java found before Spark fails without it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.errors import MachineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # Batches are small next to what adaptive execution is for; its extra planning costs more than it saves.
    "spark.sql.adaptive.enabled": "false",
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


def find_java() -> tuple[str, int] | None:
    """The Java that Spark would use, and its major version."""
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home) / "bin" / "java")] if home else []
    on_path = shutil.which("java")
    candidates += [on_path] if on_path else []
    for java in candidates:
        try:
            shown = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
        except OSError:
            continue
        match = re.search(r'version "(?:1\.)?(\d+)', shown.stderr + shown.stdout)
        if match:
            return java, int(match[1])
    return None


def need_java() -> None:
    """Raise a sentence that helps, before Spark would raise a stack trace."""
    found = find_java()
    if found is None:
        raise MachineError(
            "Java is missing; Spark needs Java 17 or newer",
            hint="install it (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME, then try again",
        )
    if found[1] < 17:
        raise MachineError(
            f"Java {found[1]} at {found[0]} is too old; Spark needs Java 17 or newer",
            hint="install openjdk-17-jre-headless or point JAVA_HOME at a newer Java",
        )


def make_session(name: str, cores: str = "*") -> SparkSession:
    """A local session, or the one that `spark-submit` has set up, with the engine's settings."""
    need_java()
    from pyspark.sql import SparkSession

    number = os.cpu_count() or 2 if cores == "*" else int(cores)
    builder = SparkSession.builder.appName(f"tidegate-{name}")
    if "SPARK_REMOTE" not in os.environ and "PYSPARK_GATEWAY_PORT" not in os.environ:
        builder = builder.master(f"local[{cores}]").config(
            "spark.driver.memory", os.environ.get("TIDEGATE_MEMORY", "2g")
        )
    settings = SETTINGS | {
        "spark.sql.shuffle.partitions": str(number),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF" if "TIDEGATE_DEBUG" not in os.environ else "WARN")
    return session
