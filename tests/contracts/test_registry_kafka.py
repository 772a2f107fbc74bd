"""The whole way: Avro in a Kafka topic, its schemas in a registry, real servers for both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.contracts.avro_cases import encode
from tests.contracts.test_avro_decode import prefixed
from tests.contracts.test_registry_pipeline import V1, V2, V3, Topic, row
from tests.servers import RunningServer
from tests.sources.topics import Headers, TestTopic
from tests.workbench import Bench

import tidegate as tg
from tidegate.contracts.wire import HEADER
from tidegate.runtime import attempt, operate
from tidegate.runtime.counting import Counter
from tidegate.runtime.staging import Staged, stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = pytest.mark.servers


def app_on(subject: Topic, topic: TestTopic, contract: tg.Registry, event_id: str | None = None) -> tg.App:
    app = tg.App("shop")
    payments = app.source(
        "payments",
        tg.Kafka(topic.server.address, topic=topic.name),
        contract=contract,
        event_time="at",
        event_id=event_id,
        watermark=tg.Watermark(delay="1h"),
    )
    totals = (
        payments.key_by("merchant", "currency")
        .window("totals", tg.Tumbling("1h"))
        .aggregate(orders=tg.count(), cents=tg.sum("cents"))
    )
    app.sink("out", totals, tg.SQLite(str(subject.bench.database), table="results"))
    if event_id is not None:
        daily = payments.key_by("merchant").window("daily", tg.Tumbling("24h")).aggregate(orders=tg.count())
        app.sink("by_day", daily, tg.SQLite(str(subject.bench.database), table="daily"))
    return app


@pytest.mark.parametrize("wire", ["prefix", "header"])
def test_several_versions_and_corrupt_bytes_in_a_topic(
    wire: str, registry: RunningServer, kafka: RunningServer, bench: Bench
) -> None:
    subject, topic = Topic(registry, bench), TestTopic.make(kafka, partitions=2)
    first, second = subject.register(V1), subject.register(V2)
    for id_, schema in ((first, V1), (second, V2)):
        payload = encode(schema, row(1, note="x"))
        if wire == "prefix":
            topic.send([prefixed(id_, payload), prefixed(id_, payload[:-1])], partition=0)
        else:
            name: Headers = [(HEADER, b"\x00" + id_.to_bytes(4, "big"))]
            topic.send([payload, payload[:-1]], partition=1, headers=name)
    topic.send([prefixed(99_999, b"x")], partition=1, key=b"k")
    bench.run(app_on(subject, topic, subject.contract(wire=wire)))
    assert subject.totals() == {("m1", "EUR"): (2, 2)}
    letters = bench.dead_letters()
    assert sorted((letter["reason"], letter["schema_id"]) for letter in letters) == sorted(
        [("MALFORMED", first), ("MALFORMED", second), ("SCHEMA_UNKNOWN", 99_999)]
    )
    assert {letter["subject"] for letter in letters} == {subject.subject}
    (unknown,) = bench.dead_letters("SCHEMA_UNKNOWN")
    assert (unknown["raw"], unknown["key"]) == (prefixed(99_999, b"x"), b"k")


def test_what_is_read_more_than_once_is_decoded_once(
    registry: RunningServer, kafka: RunningServer, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an event id and two operators the rows are read many times, and each time by a filter.

    A filter that Spark pushes down into the decoding takes a copy of it along: it took Spark half a minute to plan a
    batch of some records, with `from_avro` 1,890 times in one plan.
    """
    subject, topic = Topic(registry, bench), TestTopic.make(kafka, partitions=2)
    ids = [subject.register(schema) for schema in (V1, V2, V3)]
    plans: list[str] = []
    waited: list[Counter] = []

    def planned(result: DataFrame, *args: Any, **more: Any) -> Staged:
        plans.append(result._jdf.queryExecution().optimizedPlan().toString())
        return stage(result, *args, **more)

    def counted(counter: Counter) -> dict[str, int]:
        waited.append(counter)
        return again(counter)

    again = Counter.again
    monkeypatch.setattr(attempt, "stage", planned)
    monkeypatch.setattr(operate, "stage", planned)
    monkeypatch.setattr(Counter, "again", counted)
    events = [row(n, note="x", shop=f"m{n % 3}", currency="EUR") for n in range(6)]
    for batch in (events[:4], events[2:]):
        for id_, schema in zip(ids, (V1, V2, V3), strict=True):
            topic.send([prefixed(id_, encode(schema, event)) for event in batch[id_ % 2 :: 2]], partition=id_ % 2)
        bench.run(app_on(subject, topic, subject.contract(), event_id="cents"), mode="once")
    bench.run(app_on(subject, topic, subject.contract(), event_id="cents"))
    assert sum(row["orders"] for row in bench.table("daily")) == len(events)
    assert sum(orders for orders, _ in subject.totals().values()) == len(events)
    most = max(plan.count("from_avro(") for plan in plans)
    assert 0 < most <= 12 * len(ids), "each place that reads the kept rows shows them once"
    assert waited == [], "the counts ride on the job that decodes"
