"""The example `observability`: quantiles and error rates per endpoint, in PostgreSQL and in a topic."""

from __future__ import annotations

import json
import os
from collections import Counter

import psycopg
import pytest
from tests.examples.running import Example, new_database
from tests.servers import RunningServer, unique
from tests.workbench import Bench

pytestmark = pytest.mark.servers


@pytest.fixture
def example(bench: Bench, kafka: RunningServer, postgres: RunningServer, monkeypatch: pytest.MonkeyPatch) -> Example:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", kafka.address)
    monkeypatch.setenv("DATABASE_URL", new_database(postgres))
    monkeypatch.setenv("REQUESTS_TOPIC", unique("requests"))
    monkeypatch.setenv("HEALTH_TOPIC", unique("health"))
    return Example("observability", bench)


def test_both_sinks_tell_the_truth_about_every_minute(example: Example) -> None:
    example.script("generate.py")
    summary = example.run(max_batch=2500)
    assert summary.records >= 3, "the stragglers must meet windows that have spoken"
    example.script("compare.py")
    truth = json.loads((example.bench.folder / "truth.json").read_text())
    assert Counter(letter["reason"] for letter in example.bench.dead_letters()) == truth["dead_letters"]
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        query = "SELECT DISTINCT endpoint, window_start FROM health WHERE error_rate > 0.2 AND requests > 5"
        suffering = connection.execute(query).fetchall()
        assert {endpoint for endpoint, _ in suffering} == {"POST /pay"}
        assert len(suffering) == 3
        connection.execute("UPDATE health SET p99 = p50 WHERE endpoint = 'GET /products'")
    assert "0.99 quantile" in example.complaint("compare.py")
