"""One operator over two topics and a folder, on a real broker: each source keeps its own watermark, ids and offsets."""

from __future__ import annotations

import pytest
from tests.servers import RunningServer
from tests.sources.topics import TestTopic
from tests.workbench import Bench, at

import tidegate as tg
from tidegate.runtime.ledger import SourceLine

pytestmark = [pytest.mark.spark, pytest.mark.servers]

CONTRACT = "id STRING, k STRING, v BIGINT, at TIMESTAMP"


def app_on(bench: Bench, web: TestTopic, mobile: TestTopic) -> tg.App:
    app = tg.App("shop")

    def source(name: str, connector: tg.Kafka | tg.Files) -> tg.Stream:
        return app.source(
            name,
            connector,
            contract=CONTRACT,
            event_time="at",
            event_id="id",
            watermark=tg.Watermark(delay="10s"),
        )

    at_web = source("web", tg.Kafka(web.server.address, topic=web.name))
    at_mobile = source("mobile", tg.Kafka(mobile.server.address, topic=mobile.name))
    at_store = source("store", tg.Files(str(bench.input)))
    windows = at_web.union(at_mobile, at_store).key_by("k").window("totals", tg.Tumbling("1m"))
    app.sink("table", windows.aggregate(n=tg.count(), total=tg.sum("v")), tg.SQLite(str(bench.database), "results"))
    return app


def event(number: int, seconds: float, v: int = 1) -> dict[str, object]:
    return {"id": f"e{number}", "k": "a", "v": v, "at": at(seconds)}


def totals(bench: Bench) -> dict[str, tuple[int, int]]:
    return {row["window_start"][11:16]: (row["n"], row["total"]) for row in bench.table()}


def test_the_slowest_of_two_topics_and_files_holds_the_watermark(bench: Bench, kafka: RunningServer) -> None:
    web, mobile = TestTopic.make(kafka, partitions=2), TestTopic.make(kafka)
    web.send([event(n, n, v=1) for n in range(0, 200, 2)], partition=0)
    web.send([event(n, n, v=1) for n in range(1, 200, 2)], partition=1)
    mobile.send([event(n, n, v=100) for n in range(50)])
    bench.write("a.json", [event(n, n, v=10_000) for n in range(100)])

    bench.run(app_on(bench, web, mobile), "once")
    assert totals(bench) == {}, "mobile has come to 12:00:49, so nothing is complete"

    mobile.send([event(n, n, v=100) for n in range(50, 120)])
    bench.run(app_on(bench, web, mobile), "once")
    assert totals(bench) == {"12:00": (180, 60 + 6_000 + 600_000)}, "the files have come to 12:01:39"

    # The same ids again: of web a repeat, of the files another event; and one that is late.
    web.send([event(150, 150)], partition=0)
    mobile.send([event(900, 1)])
    bench.write("b.json", [event(150, 150, v=10_000)])
    bench.run(app_on(bench, web, mobile))
    assert totals(bench) == {
        "12:00": (180, 60 + 6_000 + 600_000),
        "12:01": (160, 60 + 6_000 + 400_000),
        "12:02": (61, 60 + 10_000),
        "12:03": (20, 20),
    }
    lines = bench.records()[-1].totals.sources
    assert lines["web"] == SourceLine(read=201, passed=200, duplicates=1)
    assert lines["mobile"] == SourceLine(read=121, passed=121)
    assert lines["store"] == SourceLine(read=101, passed=101)
    (late,) = bench.dead_letters("LATE")
    assert (late["source"], late["operator"], late["origin"]) == ("mobile", "totals", f"{mobile.name}/0")
