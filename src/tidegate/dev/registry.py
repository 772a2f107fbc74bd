"""The schema registry: Apicurio, which speaks Confluent's API. It keeps schemas in memory: a restart empties it."""

from __future__ import annotations

from collections.abc import Callable
from urllib.request import urlopen

from tidegate import jars
from tidegate.dev.server import HOST, Server
from tidegate.errors import MachineError
from tidegate.java import need_java


class Registry(Server):
    kind = "registry"

    def prepare(self, say: Callable[[str], None]) -> None:
        need_java("The schema registry")
        if jars.missing(["registry"]):
            say("fetching the schema registry (140 MB)")
        jars.fetch(["registry"])

    def command(self, ports: list[int]) -> list[str]:
        (archive,) = jars.fetch(["registry"])
        runner = next(jars.unpacked(archive).rglob("*-runner.jar"), None)
        if runner is None:
            raise MachineError(f"{archive} holds no -runner.jar")
        return [
            str(need_java("The schema registry")),
            "-Xmx384m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Dquarkus.http.host={HOST}",
            f"-Dquarkus.http.port={ports[0]}",
            "-jar",
            str(runner),
        ]

    def answers(self, port: int) -> bool:
        with urlopen(f"{self.address(port)}/subjects", timeout=5) as answer:
            return bool(answer.status == 200)

    def address(self, port: int) -> str:
        return f"http://{HOST}:{port}/apis/ccompat/v7"

    def environment(self, port: int) -> dict[str, str]:
        return {"SCHEMA_REGISTRY_URL": self.address(port)}
