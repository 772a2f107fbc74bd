"""Dev servers: a real Kafka broker, PostgreSQL, Redis and schema registry on this machine, for examples and tests.

HDFS and an S3 store are there too, for whoever names them.

They listen on loopback, on free ports, and live in a folder: one subfolder per server with its data, its log, and a
`state.json` that says which process it is and where it listens. They run in a session of their own, so they outlive
the command that started them; `stop` ends them. A server that is started again listens on the port it had.

    >>> from tidegate import dev
    >>> dev.start(folder, ["redis"])                # doctest: +SKIP
    {'redis': 'redis://127.0.0.1:41001/0'}
    >>> dev.stop(folder)                            # doctest: +SKIP

For tests of what happens when a server fails there are `kill` (as a power cut would), `pause` and `resume` (it holds
its connections and says nothing), and `restart`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tidegate.dev.hdfs import Hdfs
from tidegate.dev.kafka import Kafka
from tidegate.dev.postgres import Postgres
from tidegate.dev.redis import Redis
from tidegate.dev.registry import Registry
from tidegate.dev.s3 import S3
from tidegate.dev.server import Server, Status
from tidegate.errors import MachineError

__all__ = ["DEFAULT_KINDS", "KINDS", "Status", "kill", "pause", "restart", "resume", "start", "status", "stop"]

_SERVERS: dict[str, type[Server]] = {server.kind: server for server in (Kafka, Postgres, Redis, Registry, Hdfs, S3)}
KINDS = tuple(_SERVERS)
DEFAULT_KINDS = ("kafka", "postgres", "redis", "registry")
"""What is started when nothing is named: what most pipelines stand between."""


def start(
    folder: str | Path, kinds: Iterable[str] = DEFAULT_KINDS, say: Callable[[str], None] = print
) -> dict[str, str]:
    """Start servers side by side, and wait until each answers; their addresses. Those that run are left as they are."""
    servers = _servers(folder, kinds)
    with ThreadPoolExecutor(max(len(servers), 1), thread_name_prefix="tidegate-dev") as pool:
        started = {server.kind: pool.submit(server.start, say) for server in servers}
    troubles = [str(trouble) for future in started.values() if (trouble := future.exception())]
    for future in started.values():
        if (error := future.exception()) and not isinstance(error, MachineError):
            raise error
    if troubles:
        raise MachineError("\n".join(troubles))
    return {kind: future.result() for kind, future in started.items()}


def stop(folder: str | Path, kinds: Iterable[str] = KINDS, *, delete: bool = False) -> list[str]:
    """Stop servers in good order, and with `delete` forget all they held; which of them were running."""
    return [server.kind for server in _servers(folder, kinds) if server.stop(delete=delete)]


def status(folder: str | Path, kinds: Iterable[str] = KINDS) -> list[Status]:
    """What runs, and where."""
    return [server.status() for server in _servers(folder, kinds)]


def restart(folder: str | Path, kind: str) -> str:
    """Stop and start a server on the same port, with the data it had."""
    stop(folder, [kind])
    return start(folder, [kind])[kind]


def kill(folder: str | Path, kind: str) -> None:
    """End a server at once, as a power cut would."""
    _servers(folder, [kind])[0].kill()


def pause(folder: str | Path, kind: str) -> None:
    """Make a server hang: its connections stay, and nothing answers."""
    _servers(folder, [kind])[0].pause()


def resume(folder: str | Path, kind: str) -> None:
    _servers(folder, [kind])[0].resume()


def _servers(folder: str | Path, kinds: Iterable[str]) -> list[Server]:
    kinds = tuple(kinds)
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise MachineError(f"there is no dev server called {unknown[0]!r}", hint=f"choose of {', '.join(KINDS)}")
    return [_SERVERS[kind](Path(folder).resolve() / kind) for kind in dict.fromkeys(kinds)]
