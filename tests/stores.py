"""Real stores that are not local, for checkpoints: HDFS and S3, as a user's Spark would be told of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from tests.servers import RunningServer

from tidegate import dev

STORES = [pytest.param("hdfs", marks=pytest.mark.servers), pytest.param("s3", marks=pytest.mark.servers)]


@dataclass(frozen=True)
class Store:
    """Where checkpoints can be put: `root` is a folder of it."""

    server: RunningServer
    root: str

    def location(self, name: str) -> str:
        return f"{self.root}/{name}"


@pytest.fixture(scope="session")
def store_of(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Store]]:
    """A store by its kind. What Spark must be told of it stands in a spark-defaults.conf, for all processes."""
    before = {name: os.environ.get(name) for name in ("SPARK_CONF_DIR", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    settings = tmp_path_factory.mktemp("spark-conf")

    def find(kind: str) -> Store:
        server: RunningServer = request.getfixturevalue(kind)
        if kind == "hdfs":
            return Store(server, f"{server.address}/tidegate")
        (settings / "spark-defaults.conf").write_text(
            f"spark.hadoop.fs.s3a.endpoint {server.address}\n"
            "spark.hadoop.fs.s3a.endpoint.region us-east-1\n"
            "spark.hadoop.fs.s3a.path.style.access true\n"
            "spark.hadoop.fs.s3a.connection.ssl.enabled false\n"
        )
        os.environ.update(dev.status(server.folder, [kind])[0].environment, SPARK_CONF_DIR=str(settings))
        return Store(server, "s3a://tidegate/checkpoints")

    yield find
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@pytest.fixture
def store(request: pytest.FixtureRequest, store_of: Callable[[str], Store]) -> Store:
    """The store that the test is about (`indirect`)."""
    return store_of(request.param)


@pytest.fixture
def jvm_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a command that only reads: no session, though other tests of this process may have left one."""
    from pyspark import SparkContext

    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
