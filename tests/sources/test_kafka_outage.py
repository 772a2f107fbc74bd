"""A broker that goes away while a pipeline runs: it is waited for, aloud; nothing is lost and nothing doubled."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from tests.background import Background
from tests.servers import RunningServer
from tests.sources.test_kafka import app_on, event, source_line, totals
from tests.sources.topics import TestTopic
from tests.workbench import Bench

import tidegate as tg
from tidegate.contracts import Contract
from tidegate.errors import Unavailable
from tidegate.runtime.ledger import SourceLine

pytestmark = [pytest.mark.spark, pytest.mark.servers]


def test_a_bounced_broker_is_waited_for(bench: Bench, kafka: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = TestTopic.make(kafka, partitions=2)
    topic.send([event(n, n % 60) for n in range(100)], partition=0)
    run = Background(bench, app_on(bench, topic), monkeypatch)
    try:
        run.until(lambda: run.read() == 100)
        kafka.stop()
        run.until_said("waiting: Kafka at")
        kafka.start()
        topic.send([event(n, n % 60) for n in range(100, 160)], partition=1)
        run.until(lambda: run.read() == 160)
        run.until_said("going on after")
    finally:
        run.give_up()
    run.end()
    monkeypatch.undo()
    bench.run(app_on(bench, topic))
    assert totals(bench) == {("a", "12:00"): (160, 160)}
    assert source_line(bench) == SourceLine(read=160, passed=160)


def test_a_broker_that_goes_away_during_a_range_is_told_as_such(spark: SparkSession, kafka: RunningServer) -> None:
    topic = TestTopic.make(kafka)
    topic.send([event(n, n) for n in range(10)])
    source = tg.Kafka(kafka.address, topic=topic.name)
    reader = source.open(spark, Contract("id STRING"), "payments", None)
    records = reader.records(reader.whole())
    assert records.frame.count() == 10
    kafka.stop()
    try:
        with pytest.raises(Exception, match=r"(?s).+") as failed:
            records.frame.count()
        assert isinstance(reader.trouble(failed.value), Unavailable), str(failed.value)
        with pytest.raises(Unavailable, match="cannot be reached"):
            reader.check(None)
    finally:
        kafka.start()
        reader.close()


def test_a_run_that_waits_for_its_broker_can_be_stopped(
    bench: Bench, kafka: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = TestTopic.make(kafka)
    topic.send([event(1, 1)])
    kafka.stop()
    try:
        run = Background(bench, app_on(bench, topic), monkeypatch)
        run.until_said("waiting: Kafka at")
        run.end()
    finally:
        kafka.start()
