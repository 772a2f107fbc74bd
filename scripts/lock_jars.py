"""Renew src/tidegate/jars.lock: resolve the dependencies of the broker with Ivy, and hash every file anew.

Run it after a change of the coordinates below; it needs Java and a Maven repository, and writes the lock only when
every file could be had. Ivy lies inside PySpark. What was locked for connectors is exactly what is listed here: no
resolver may bring a second version of anything onto Spark's class path.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tidegate.jars import Jar, sha256
from tidegate.maven import retrieve, where

LOCK = Path(__file__).resolve().parents[1] / "src" / "tidegate" / "jars.lock"

# These work together on Spark 4.2.0. The token provider and spark-avro are not published for it yet.
CONNECTORS = {
    "kafka": (
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1",
        "org.apache.kafka:kafka-clients:3.9.1",
        "org.apache.commons:commons-pool2:2.12.1",
    ),
    "avro": ("org.apache.spark:spark-avro_2.13:4.1.1",),
    "delta": (
        "io.delta:delta-spark_4.2_2.13:4.4.0",
        "io.delta:delta-storage:4.4.0",
        "io.delta:delta-kernel-api:4.4.0",
        "io.delta:delta-kernel-defaults:4.4.0",
        "io.delta:delta-kernel-unitycatalog:4.4.0",
        "io.unitycatalog:unitycatalog-client:0.6.0",
    ),
}
BROKER = ("org.apache.kafka:kafka_2.13:4.1.1", "org.slf4j:slf4j-simple:1.7.36")
REGISTRY = ("io.apicurio:apicurio-registry-app:2.6.13.Final:zip:all",)

HEADER = """\
# The jars of connectors and dev servers: group, Maven coordinate, SHA-256.
# Made by scripts/lock_jars.py; do not edit.
"""


def main() -> None:
    wanted = {**CONNECTORS, "broker": resolve(BROKER), "registry": REGISTRY}
    jars = [Jar(group, coordinate, "") for group, coordinates in wanted.items() for coordinate in coordinates]
    with tempfile.TemporaryDirectory() as scratch:
        found = retrieve([jar.coordinate for jar in jars], Path(scratch))
        if absent := [jar.coordinate for jar in jars if not (found / jar.file).is_file()]:
            sys.exit(f"not to be had from {where()}: {', '.join(absent)}")
        lines = [f"{jar.group} {jar.coordinate} {sha256(found / jar.file)}\n" for jar in jars]
    LOCK.write_text(HEADER + "".join(lines), "utf-8")
    print(f"{len(lines)} jars locked")


def resolve(coordinates: tuple[str, ...]) -> list[str]:
    """These and all that they need at run time."""
    with tempfile.TemporaryDirectory() as scratch:
        found = retrieve(coordinates, Path(scratch), transitive=True)
        resolved = sorted(path.stem.replace("=", ":") for path in found.glob("*.jar"))
    if absent := set(coordinates) - set(resolved):
        sys.exit(f"could not be resolved: {', '.join(absent)}")
    return resolved


if __name__ == "__main__":
    main()
