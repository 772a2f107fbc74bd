"""Renew src/tidegate/jars.lock: resolve the dependencies of the broker with Ivy, and hash every file anew.

Run it after a change of the coordinates below; it needs Java and a Maven repository, and writes the lock only when
every file could be had. Ivy lies inside PySpark. What was locked for connectors is exactly what is listed here: no
resolver may bring a second version of anything onto Spark's class path.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tidegate.jars import Jar, sha256
from tidegate.maven import retrieve

LOCK = Path(__file__).resolve().parents[1] / "src" / "tidegate" / "jars.lock"

AWS = "2.35.4"
# The modules of Amazon's SDK that Hadoop's S3A loads, instead of the bundle of all 600 MB. What they need besides (HTTP
# client, Netty, codecs, logging) is what Spark ships.
AWS_MODULES = (
    "annotations",
    "apache-client",
    "arns",
    "auth",
    "aws-core",
    "aws-query-protocol",
    "aws-xml-protocol",
    "checksums",
    "checksums-spi",
    "crt-core",
    "endpoints-spi",
    "http-auth",
    "http-auth-aws",
    "http-auth-aws-eventstream",
    "http-auth-spi",
    "http-client-spi",
    "identity-spi",
    "json-utils",
    "metrics-spi",
    "netty-nio-client",
    "profiles",
    "protocol-core",
    "regions",
    "retries",
    "retries-spi",
    "s3",
    "s3-transfer-manager",
    "sdk-core",
    "sts",
    "third-party-jackson-core",
    "utils",
    "utils-lite",
)

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
    "s3a": (
        "org.apache.hadoop:hadoop-aws:3.5.0",
        "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
        *(f"software.amazon.awssdk:{module}:{AWS}" for module in AWS_MODULES),
        "software.amazon.eventstream:eventstream:1.0.1",
        "org.reactivestreams:reactive-streams:1.0.4",
    ),
}
BROKER = ("org.apache.kafka:kafka_2.13:4.1.1", "org.slf4j:slf4j-simple:1.7.36")
REGISTRY = ("io.apicurio:apicurio-registry-app:2.6.13.Final:zip:all",)
# Of the version of the Hadoop that lies inside PySpark, and has the rest.
HDFS = ("org.apache.hadoop:hadoop-client-minicluster:3.5.0",)
# S3Proxy needs these to keep objects in a folder; all it could need for other stores would be 60 MB.
S3 = (
    "org.gaul:s3proxy:4.1.0",
    "software.amazon.awssdk:aws-core:2.54.2",
    "software.amazon.awssdk:checksums:2.54.2",
    "software.amazon.awssdk:checksums-spi:2.54.2",
    "software.amazon.awssdk:http-client-spi:2.54.2",
    "software.amazon.awssdk:s3:2.54.2",
    "software.amazon.awssdk:sdk-core:2.54.2",
    "software.amazon.awssdk:utils:2.54.2",
    "args4j:args4j:2.37",
    "com.fasterxml.jackson.core:jackson-annotations:2.22",
    "com.fasterxml.woodstox:woodstox-core:7.2.1",
    "com.google.guava:failureaccess:1.0.3",
    "com.google.guava:guava:33.7.1-jre",
    "jakarta.servlet:jakarta.servlet-api:6.0.0",
    "org.codehaus.woodstox:stax2-api:4.3.0",
    "org.slf4j:slf4j-api:2.0.18",
    "org.slf4j:slf4j-simple:2.0.18",
    "tools.jackson.core:jackson-core:3.2.2",
    "tools.jackson.core:jackson-databind:3.2.2",
    "tools.jackson.dataformat:jackson-dataformat-xml:3.2.2",
)

HEADER = """\
# The jars of connectors and dev servers: group, Maven coordinate, SHA-256.
# Made by scripts/lock_jars.py; do not edit.
"""


def main() -> None:
    wanted = {**CONNECTORS, "broker": resolve(BROKER), "registry": REGISTRY, "hdfs": HDFS, "s3": S3}
    jars = [Jar(group, coordinate, "") for group, coordinates in wanted.items() for coordinate in coordinates]
    with tempfile.TemporaryDirectory() as scratch:
        found = retrieve([jar.coordinate for jar in jars], Path(scratch))
        lines = [f"{jar.group} {jar.coordinate} {sha256(found / jar.file)}\n" for jar in jars]
    LOCK.write_text(HEADER + "".join(lines), "utf-8")
    print(f"{len(lines)} jars locked")


def resolve(coordinates: tuple[str, ...]) -> list[str]:
    """These and all that they need at run time."""
    with tempfile.TemporaryDirectory() as scratch:
        found = retrieve(coordinates, Path(scratch), transitive=True)
        return sorted(path.stem.replace("=", ":") for path in found.glob("*.jar"))


if __name__ == "__main__":
    main()
