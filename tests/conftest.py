"""One Spark session for all tests.

A run in this process reuses the session that is active (`make_session` is get-or-create) and never stops it, so a
test pays for its batches only. `bench` gives each test a folder of its own for input, checkpoint and results.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# Helpers are imported as `tests.workbench`, from wherever pytest was started.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.servers import hdfs, kafka, postgres, redis_server, registry, s3
from tests.stores import jvm_alone, store, store_of
from tests.workbench import Bench

# Fixtures of other modules, for all tests.
__all__ = ["hdfs", "jvm_alone", "kafka", "postgres", "redis_server", "registry", "s3", "store", "store_of"]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """The one session of a test run: two cores, the engine's own settings.

    Jars cannot be added later, so it has those of all connectors when any test of this run needs servers.
    """
    from tidegate.runtime.session import make_session

    connectors = any(item.get_closest_marker("servers") for item in request.session.items)
    session = make_session("tests", "2", brief=True, jars=("kafka", "avro", "delta") if connectors else ())
    yield session
    session.stop()


@pytest.fixture
def bench(tmp_path: Path, spark: SparkSession) -> Bench:
    return Bench(tmp_path)


@pytest.fixture(scope="module")
def module_bench(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Bench:
    """One folder for the tests of a module that look at the same run from several sides."""
    return Bench(tmp_path_factory.mktemp("bench"))
