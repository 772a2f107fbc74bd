"""One pipeline between all servers – Avro in Kafka with a registry, into PostgreSQL, Redis and Kafka.

Each of them goes away in turn while it runs, Redis for a minute: it waits, says so, and goes on.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import closing
from typing import Any

import psycopg
import pytest
import redis
from tests.background import Background
from tests.contracts.avro_cases import encode
from tests.contracts.test_avro_decode import prefixed
from tests.contracts.test_registry_pipeline import NOON_MS, V1, Topic
from tests.servers import RunningServer, unique
from tests.sources.topics import TestTopic, committed
from tests.workbench import Bench

import tidegate as tg

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.spark]

A_MINUTE = 60
PER_MINUTE = 12
"""Events of each minute of event time; the next minute's events complete the windows of the one before."""


def events_of(minute: int) -> list[dict[str, Any]]:
    return [
        {"at": NOON_MS + 60_000 * minute + 1000 * n, "merchant": f"m{n % 3}", "cents": 100 * minute + n}
        for n in range(PER_MINUTE)
    ]


def test_each_server_goes_away_in_turn_and_nothing_is_lost_or_doubled(
    bench: Bench,
    kafka: RunningServer,
    registry: RunningServer,
    postgres: RunningServer,
    redis_server: RunningServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subject, topic, name = Topic(registry, bench), TestTopic.make(kafka), unique("totals")
    schema = subject.register(V1)

    def build() -> tg.App:
        app = tg.App("everywhere")
        payments = app.source(
            "payments",
            tg.Kafka(kafka.address, topic=topic.name),
            contract=subject.contract(timeout=0.5),
            event_time="at",
            event_id="cents",
            watermark=tg.Watermark(delay="1s"),
        )
        totals = payments.key_by("merchant").window("totals", tg.Tumbling("1m"))
        result = totals.aggregate(n=tg.count(), cents=tg.sum("cents"))
        app.sink("postgres", result, tg.Postgres(postgres.address, table=name))
        app.sink("redis", result, tg.Redis(redis_server.address, prefix=name))
        app.sink("kafka", result, tg.KafkaTopic(kafka.address, name, partitions=1, changes="log"))
        return app

    sent = 0

    def send() -> int:
        nonlocal sent
        topic.send([prefixed(schema, encode(V1, event)) for event in events_of(sent)])
        sent += 1
        return sent * PER_MINUTE

    run = Background(bench, build(), monkeypatch)

    def gone_on(before: int) -> None:
        run.until_said("going on after", before)
        run.until(lambda: run.read() == sent * PER_MINUTE)

    try:
        for _ in range(2):
            expected = send()
            run.until(lambda: run.read() == expected)  # noqa: B023  # within the round

        said = len(run.watched.said)
        kafka.stop()
        run.until_said("waiting: Kafka at", said)
        kafka.start()
        send()
        gone_on(said)

        said = len(run.watched.said)
        postgres.stop()
        send()
        run.until_said("waiting: PostgreSQL", said)
        postgres.start()
        gone_on(said)

        said = len(run.watched.said)
        redis_server.kill()
        since = time.monotonic()
        send()
        run.until_said("waiting: Redis", said)
        send()  # the topic goes on filling
        time.sleep(max(0.0, A_MINUTE - (time.monotonic() - since)))
        assert not any(line.startswith("going on") for line in run.watched.said[said:])
        redis_server.start()
        gone_on(said)

        said = len(run.watched.said)
        registry.pause()  # held, not ended: it keeps its schemas in memory
        try:
            send()
            run.until_said("waiting: the schema registry", said)
        finally:
            registry.resume()
        gone_on(said)
    finally:
        run.give_up()
    run.end()
    monkeypatch.undo()
    summary = bench.run(build())

    truth: dict[tuple[str, int], tuple[int, int]] = {}
    for event in (event for minute in range(sent) for event in events_of(minute)):
        key = (event["merchant"], (event["at"] - NOON_MS) // 60_000)
        n, cents = truth.get(key, (0, 0))
        truth[key] = (n + 1, cents + event["cents"])
    line = summary.totals.sources["payments"]
    assert (line.read, line.passed) == (sent * PER_MINUTE, sent * PER_MINUTE)
    assert bench.dead_letters() == []
    assert in_postgres(postgres, name) == truth
    assert in_redis(redis_server, name) == truth
    said_in_kafka = Counter(
        (told["merchant"], minute_of(told["window_start"]), told["n"], told["cents"])
        for told in (json.loads(message.value() or b"") for message in committed(kafka.address, name))
    )
    assert said_in_kafka == Counter({(*key, *values): 1 for key, values in truth.items()}), "each pane, and once"


def minute_of(start: str) -> int:
    """The minute after noon, in an instant as text."""
    return int(start[14:16])


def in_postgres(server: RunningServer, table: str) -> dict[tuple[str, int], tuple[int, int]]:
    query = f"SELECT merchant, extract(minute FROM window_start)::int, n, cents FROM {table}"
    with closing(psycopg.connect(server.address)) as connection:
        rows = connection.execute(query.encode()).fetchall()
    assert len(rows) == len({row[:2] for row in rows})
    return {(merchant, minute): (n, int(cents)) for merchant, minute, n, cents in rows}


def in_redis(server: RunningServer, prefix: str) -> dict[tuple[str, int], tuple[int, int]]:
    client: Any
    found = {}
    with closing(redis.Redis.from_url(server.address, decode_responses=True)) as client:
        for name in client.scan_iter(f"{prefix}:*"):
            if "%marker" not in name:
                merchant, start = name.removeprefix(f"{prefix}:").split(":", 1)
                fields = client.hgetall(name)
                found[merchant, minute_of(start)] = (int(fields["n"]), int(fields["cents"]))
    return found
