"""Real servers for tests: each is started when a test first asks for it, and stopped when all tests are done.

A test may bounce a server; it must leave it running. Tests share servers, so they give topics, tables and keys names
that nobody else has (`unique`). Tests that use these fixtures carry the marker `servers`.

When TIDEGATE_TEST_SERVERS names a folder, the servers live there and are left running: for whoever runs a few tests
again and again, and stops them with `tidegate dev down --folder` in the end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from tidegate import dev


def unique(name: str) -> str:
    """A name that no other test uses."""
    return f"{name}_{uuid4().hex[:12]}"


@dataclass(frozen=True)
class RunningServer:
    """A server, and the ways to trouble it. It always comes back on the same address, with the data it had."""

    folder: Path
    kind: str
    address: str

    def stop(self) -> None:
        dev.stop(self.folder, [self.kind])

    def start(self) -> None:
        assert dev.start(self.folder, [self.kind]) == {self.kind: self.address}

    def restart(self) -> None:
        self.stop()
        self.start()

    def kill(self) -> None:
        """End it as a power cut would; `start` brings it back."""
        dev.kill(self.folder, self.kind)

    def pause(self) -> None:
        dev.pause(self.folder, self.kind)

    def resume(self) -> None:
        dev.resume(self.folder, self.kind)


def _serve(kind: str, scratch: pytest.TempPathFactory) -> Iterator[RunningServer]:
    if kept := os.environ.get("TIDEGATE_TEST_SERVERS"):
        yield RunningServer(Path(kept), kind, dev.start(kept, [kind])[kind])
        return
    folder = scratch.mktemp(f"dev-{kind}")
    try:
        yield RunningServer(folder, kind, dev.start(folder, [kind])[kind])
    finally:
        dev.stop(folder, [kind], delete=True)


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    yield from _serve("kafka", tmp_path_factory)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    yield from _serve("postgres", tmp_path_factory)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    yield from _serve("redis", tmp_path_factory)


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    yield from _serve("registry", tmp_path_factory)


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    yield from _serve("hdfs", tmp_path_factory)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    yield from _serve("s3", tmp_path_factory)
