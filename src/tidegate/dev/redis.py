"""Redis, of the system's packages. Every write is in its append-only file before it is answered."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable

from tidegate.dev.server import HOST, Server, install


class Redis(Server):
    kind = "redis"

    def prepare(self, say: Callable[[str], None]) -> None:
        if not shutil.which("redis-server"):
            install("redis-server", "redis", say)
        (self.folder / "data").mkdir(exist_ok=True)

    def command(self, ports: list[int]) -> list[str]:
        settings = {
            "port": str(ports[0]),
            "bind": HOST,
            "dir": str(self.folder / "data"),
            "appendonly": "yes",
            "save": "",
            "daemonize": "no",
        }
        return ["redis-server", *(part for name, value in settings.items() for part in (f"--{name}", value))]

    def answers(self, port: int) -> bool:
        with socket.create_connection((HOST, port), timeout=5) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(7).startswith(b"+PONG")  # while it loads its file it says -LOADING

    def address(self, port: int) -> str:
        return f"redis://{HOST}:{port}/0"

    def environment(self, port: int) -> dict[str, str]:
        return {"REDIS_URL": self.address(port)}
