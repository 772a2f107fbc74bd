"""The example `iot`: capped sessions and an alarm on rolling windows, in Redis."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import redis
from tests.examples.running import Example
from tests.servers import RunningServer, unique
from tests.workbench import Bench

pytestmark = [pytest.mark.servers, pytest.mark.slow]


@pytest.fixture
def database(redis_server: RunningServer) -> Iterator[str]:
    """A database of the server that is empty: the examples have fixed prefixes."""
    url = redis_server.address.removesuffix("/0") + "/9"
    with redis.Redis.from_url(url) as client:
        client.flushdb()
        yield url
        client.flushdb()


@pytest.fixture
def example(bench: Bench, kafka: RunningServer, database: str, monkeypatch: pytest.MonkeyPatch) -> Example:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", kafka.address)
    monkeypatch.setenv("REDIS_URL", database)
    monkeypatch.setenv("READINGS_TOPIC", unique("readings"))
    return Example("iot", bench)


def test_every_session_and_every_alarm_is_in_redis(example: Example, database: str) -> None:
    example.script("generate.py")
    truth = json.loads((example.bench.folder / "truth.json").read_text())
    assert len(truth["alarms"]) > 10
    assert len(truth["sessions"]) > 20
    example.run(max_batch=2000)
    assert example.bench.dead_letters() == []
    example.script("compare.py")
    device, minute, *_ = truth["alarms"][0]
    with redis.Redis.from_url(database) as client:
        client.delete(f"alarm:{device}:{minute}")
    assert f"and these should: [['{device}'" in example.complaint("compare.py")
