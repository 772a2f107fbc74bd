"""Kafka as a source, on a real broker: totals, restarts, partitions, transactions, and what must be refused aloud."""

from __future__ import annotations

from typing import Any

import pytest
from tests.servers import RunningServer
from tests.sources.topics import TestTopic
from tests.workbench import Bench, at

import tidegate as tg
from tidegate.runtime.ledger import SourceLine

pytestmark = [pytest.mark.spark, pytest.mark.servers]

CONTRACT = "id STRING, k STRING, v BIGINT, at TIMESTAMP"


def event(number: int, seconds: float, k: str = "a", v: int = 1) -> dict[str, Any]:
    return {"id": f"e{number}", "k": k, "v": v, "at": at(seconds)}


def app_on(bench: Bench, topic: TestTopic, *, where: str | None = None, **options: Any) -> tg.App:
    watermark = options.pop("watermark", tg.Watermark(delay="10s"))
    event_id = options.pop("event_id", None)
    app = tg.App("payments")
    source: Any = app.source(
        "payments",
        tg.Kafka(topic.server.address, topic=topic.name, **options),
        contract=CONTRACT,
        event_time="at",
        event_id=event_id,
        watermark=watermark,
    )
    source = source.where(where) if where else source
    result = source.key_by("k").window("totals", tg.Tumbling("1m"))
    app.sink("table", result.aggregate(n=tg.count(), total=tg.sum("v")), tg.SQLite(str(bench.database), "results"))
    return app


def totals(bench: Bench) -> dict[tuple[str, str], tuple[int, int]]:
    return {(row["k"], row["window_start"][11:16]): (row["n"], row["total"]) for row in bench.table()}


def source_line(bench: Bench) -> SourceLine:
    return bench.records()[-1].totals.sources["payments"]


def test_records_of_all_partitions_come_to_their_windows(bench: Bench, kafka: RunningServer) -> None:
    topic = TestTopic.make(kafka, partitions=3)
    for partition in range(3):
        rows = [event(n, n % 120, k=f"k{n % 2}", v=n) for n in range(partition, 600, 3)]
        topic.send(rows, partition=partition)
    bench.run(app_on(bench, topic))
    expected: dict[tuple[str, str], tuple[int, int]] = {}
    for n in range(600):
        place = (f"k{n % 2}", f"12:0{n % 120 // 60}")
        count, total = expected.get(place, (0, 0))
        expected[place] = (count + 1, total + n)
    assert totals(bench) == expected
    assert source_line(bench) == SourceLine(read=600, passed=600)
