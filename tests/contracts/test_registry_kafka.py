"""The whole way: Avro in a Kafka topic, its schemas in a registry, real servers for both."""

from __future__ import annotations

import pytest
from tests.contracts.avro_cases import encode
from tests.contracts.test_avro_decode import prefixed
from tests.contracts.test_registry_pipeline import V1, V2, Topic, row
from tests.servers import RunningServer
from tests.sources.topics import Headers, TestTopic
from tests.workbench import Bench

import tidegate as tg
from tidegate.contracts.wire import HEADER

pytestmark = pytest.mark.servers


def app_on(subject: Topic, topic: TestTopic, contract: tg.Registry) -> tg.App:
    app = tg.App("shop")
    payments = app.source(
        "payments",
        tg.Kafka(topic.server.address, topic=topic.name),
        contract=contract,
        event_time="at",
        watermark=tg.Watermark(delay="1h"),
    )
    totals = (
        payments.key_by("merchant", "currency")
        .window("totals", tg.Tumbling("1h"))
        .aggregate(orders=tg.count(), cents=tg.sum("cents"))
    )
    app.sink("out", totals, tg.SQLite(str(subject.bench.database), table="results"))
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
