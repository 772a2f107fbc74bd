"""The Kafka broker: one node in KRaft mode, broker and controller in one process.

Records dated in the past stay (`log.retention.ms=-1`): event-time tests write such records all the time. Topics are
created by whoever needs them, never by a misspelt name.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable

from tidegate import jars
from tidegate.dev.server import HOST, Server
from tidegate.java import need_java

_CLUSTER = "tidegateDevClusterAAAA"  # 22 characters of base 64 are 16 bytes, which is what Kafka wants
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
num.partitions=1
log.retention.ms=-1
offsets.retention.minutes=525600
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
default.replication.factor=1
group.initial.rebalance.delay.ms=0
"""


class Kafka(Server):
    kind = "kafka"
    ports = 2  # its own, and the controller's

    def prepare(self, say: Callable[[str], None]) -> None:
        need_java("The Kafka broker")
        if absent := jars.missing(["broker"]):
            say(f"fetching {len(absent)} jars of the Kafka broker")
        jars.fetch(["broker"])

    def command(self, ports: list[int]) -> list[str]:
        settings, data = self.folder / "server.properties", self.folder / "data"
        port, controller = ports
        settings.write_text(_PROPERTIES.format(host=HOST, port=port, controller=controller, data=data))
        if not (data / "meta.properties").exists():
            format_ = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(settings)]
            self.run([*self._java("-Xmx128m"), *format_], "format its data folder")
        return [*self._java("-Xmx512m"), "kafka.Kafka", str(settings)]

    def _java(self, *options: str) -> list[str]:
        path = os.pathsep.join(map(str, jars.fetch(["broker"])))
        return [
            str(need_java("The Kafka broker")),
            *options,
            # Compiles quickly rather than well: it starts in half the time, and two cores have other work.
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS",
            "-Dorg.slf4j.simpleLogger.showThreadName=false",
            "-cp",
            path,
        ]

    def answers(self, port: int) -> bool:
        """Ask which API versions it knows: the broker takes requests only when it has joined its cluster."""
        client = b"tidegate"
        request = struct.pack(">hhih", 18, 0, 1, len(client)) + client
        with socket.create_connection((HOST, port), timeout=5) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            return len(connection.recv(8)) == 8

    def address(self, port: int) -> str:
        return f"{HOST}:{port}"

    def environment(self, port: int) -> dict[str, str]:
        return {"KAFKA_BOOTSTRAP_SERVERS": self.address(port)}
