"""A broker that goes away while a pipeline runs: it is waited for, aloud; nothing is lost and nothing doubled."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession
from tests.servers import RunningServer
from tests.sources.test_kafka import app_on, event, source_line, totals
from tests.sources.topics import TestTopic
from tests.workbench import Bench, Watched

import tidegate as tg
from tidegate.contracts import Contract
from tidegate.errors import Unavailable
from tidegate.runtime import drivers
from tidegate.runtime.ledger import SourceLine
from tidegate.runtime.reports import RunOptions

pytestmark = [pytest.mark.spark, pytest.mark.servers]


class Running:
    """A continuous run in a thread of its own, which a test can stop as a signal would."""

    def __init__(self, bench: Bench, topic: TestTopic, monkeypatch: pytest.MonkeyPatch) -> None:
        self.watched, self.stop = Watched(), threading.Event()
        self.failure: BaseException | None = None
        monkeypatch.setattr(drivers, "_stop_signals", lambda: _Given(self.stop))
        options = RunOptions(str(bench.checkpoint), interval=0.2, cores="2")
        self.app, self.options = app_on(bench, topic), options
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            drivers.run(self.app, self.options, self.watched)
        except BaseException as error:
            self.failure = error

    def until(self, reached: Callable[[], bool], seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while not reached():
            assert self.thread.is_alive(), f"the run ended: {self.failure!r}"
            assert time.monotonic() < deadline, f"not within {seconds} s; it said {self.watched.said}"
            time.sleep(0.1)

    def read(self) -> int:
        reports = self.watched.reports
        return reports[-1].totals.sources["payments"].read if reports and reports[-1].totals.sources else 0

    def end(self) -> None:
        self.stop.set()
        self.thread.join(120)
        assert not self.thread.is_alive()
        assert self.failure is None


class _Given:
    def __init__(self, stop: threading.Event) -> None:
        self.stop = stop

    def __enter__(self) -> threading.Event:
        return self.stop

    def __exit__(self, *_: object) -> None: ...


def test_a_bounced_broker_is_waited_for(bench: Bench, kafka: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = TestTopic.make(kafka, partitions=2)
    topic.send([event(n, n % 60) for n in range(100)], partition=0)
    run = Running(bench, topic, monkeypatch)
    try:
        run.until(lambda: run.read() == 100)
        kafka.stop()
        run.until(lambda: any(said.startswith("waiting: Kafka at") for said in run.watched.said))
        kafka.start()
        topic.send([event(n, n % 60) for n in range(100, 160)], partition=1)
        run.until(lambda: run.read() == 160)
        assert any(said.startswith("going on after") for said in run.watched.said)
    finally:
        run.stop.set()
        run.thread.join(120)
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
        run = Running(bench, topic, monkeypatch)
        run.until(lambda: any(said.startswith("waiting: Kafka at") for said in run.watched.said))
        run.end()
    finally:
        kafka.start()
