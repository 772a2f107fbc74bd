"""Hadoop: its file systems, asked through the JVM of Spark, and its errors as those of Python.

A driver asks the JVM of its session, with the session's settings. A command that only reads has no session; it starts
a JVM without Spark's engine, which takes a second, and reads ``spark.hadoop.*`` from ``spark-defaults.conf`` as Spark
does.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from tidegate.java import need_java, quiet_launch

JARS = {"s3a": ("s3a",)}
"""Groups of jars that a scheme needs; what HDFS needs, Spark has."""


def hadoop_path(uri: str, beside: str = "") -> Any:
    """A location as Hadoop has it, in the JVM that is asked for a location `beside` it."""
    java, _ = _java(beside or uri)
    return java.org.apache.hadoop.fs.Path(uri)


def file_system(uri: str) -> Any:
    """Hadoop's file system behind a location; Hadoop keeps one for each."""
    _, configuration = _java(uri)
    return hadoop_path(uri).getFileSystem(configuration)


@contextmanager
def told(uri: str) -> Iterator[None]:
    """Let Java's errors leave as those that `pathlib` would raise."""
    from py4j.protocol import Py4JError, Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        name, said = class_of(error), _said(error)
        for known, number in _NUMBERS.items():
            if name.endswith(known):
                raise OSError(number, said, uri) from error
        raise OSError(errno.EIO, said, uri) from error
    except Py4JError as error:
        raise OSError(errno.EIO, f"the JVM does not answer: {error}", uri) from error


def class_of(error: Any) -> str:
    """The name of a Java exception's class."""
    return str(error.java_exception.getClass().getName())


_NUMBERS = {
    "FileNotFoundException": errno.ENOENT,
    "FileAlreadyExistsException": errno.EEXIST,
    "AccessControlException": errno.EACCES,
    "AccessDeniedException": errno.EACCES,
}
"""With these numbers an OSError becomes a FileNotFoundError, a FileExistsError or a PermissionError."""


def _said(error: Any) -> str:
    """What a Java exception says, in one line."""
    message = str(error.java_exception.getMessage() or "").strip()
    first = message.splitlines()[0].partition("; For more details see")[0] if message else ""
    return f"{class_of(error).rpartition('.')[2]}: {first}" if first else class_of(error)


def _java(uri: str) -> tuple[Any, Any]:
    """The JVM, and Hadoop's configuration in it."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is not None:
        return context._jvm, context._jsc.hadoopConfiguration()
    gateway, configuration = _alone(uri.split("://", 1)[0])
    return gateway.jvm, configuration


@cache
def _alone(scheme: str) -> tuple[Any, Any]:
    """The way to a JVM of our own, which ends when nobody holds it, and the settings that Spark would use."""
    need_java()
    from pyspark.java_gateway import launch_gateway

    from tidegate import jars

    before = os.environ.get("PYSPARK_SUBMIT_ARGS")
    files = ",".join(str(path) for path in jars.fetch(JARS.get(scheme, ())))
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {files} pyspark-shell" if files else "pyspark-shell"
    try:
        with quiet_launch():
            gateway = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        if before is None:
            del os.environ["PYSPARK_SUBMIT_ARGS"]
        else:
            os.environ["PYSPARK_SUBMIT_ARGS"] = before
    spark = gateway.jvm.org.apache.spark
    return gateway, spark.deploy.SparkHadoopUtil.get().newConfiguration(spark.SparkConf())
