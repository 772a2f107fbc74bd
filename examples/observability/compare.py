"""Compare what the pipeline wrote with truth.json: requests and error rates exactly, quantiles by their rank.

Both sinks must say it: the table in PostgreSQL, and the topic, of which the last message of each key counts.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

TOPIC = os.environ.get("HEALTH_TOPIC", "health")
PARTITIONS = 2
QUANTILES = (0.50, 0.95, 0.99)
RANK_ERROR = 0.02  # the sketch promises about 1.3 %

Key = tuple[str, str, str]
Values = tuple[float, ...]


def table() -> dict[Key, Values]:
    query = "SELECT service, endpoint, window_start, requests, p50, p95, p99, error_rate FROM health"
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        rows = connection.execute(query).fetchall()
    return {(row[0], row[1], row[2].astimezone(UTC).isoformat()): row[3:] for row in rows}


def topic() -> dict[Key, Values]:
    """The last message of each key: committed ones, up to the end of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
            "group.id": "compare",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(TOPIC, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
    found: dict[Key, Values] = {}
    ended = 0
    while ended < PARTITIONS:
        message = consumer.poll(30)
        if message is None:
            sys.exit(f"{TOPIC} does not answer")
        if (error := message.error()) is None:
            told = json.loads(message.value() or b"")
            start = datetime.fromisoformat(told["window_start"]).isoformat()
            values = tuple(told[name] for name in ("requests", "p50", "p95", "p99", "error_rate"))
            found[told["service"], told["endpoint"], start] = values
        elif error.code() == KafkaError._PARTITION_EOF:
            ended += 1
        else:
            sys.exit(f"{TOPIC}: {error}")
    consumer.close()
    return found


def is_quantile(value: float, q: float, latencies: list[float]) -> bool:
    """Whether the rank of `value` is q, give or take the sketch's error and one request."""
    below = sum(one < value for one in latencies)
    upto = sum(one <= value for one in latencies)
    slack = RANK_ERROR * len(latencies) + 1
    return value in latencies and below - slack <= q * len(latencies) <= upto + slack


def mistakes(found: dict[Key, Values], truth: list[Any]) -> list[str]:
    wrong = []
    for service, endpoint, minute, latencies, errors in truth:
        row = found.pop((service, endpoint, minute), None)
        name = f"{service} {endpoint} at {minute}"
        if row is None:
            wrong.append(f"{name} is missing")
            continue
        requests, *quantiles, error_rate = row
        if (requests, error_rate) != (len(latencies), errors / len(latencies)):
            wrong.append(f"{name}: {requests} requests and error rate {error_rate}, not {len(latencies)} and {errors}")
        for q, value in zip(QUANTILES, quantiles, strict=True):
            if not is_quantile(value, q, latencies):
                wrong.append(f"{name}: {value} is not the {q} quantile of {latencies}")
    return wrong + [f"{key} should not be there" for key in found]


def main() -> None:
    truth = json.loads(Path("truth.json").read_text())["health"]
    for name, found in (("table health", table()), (f"topic {TOPIC}", topic())):
        if wrong := mistakes(found, truth):
            sys.exit(f"{name}: {len(wrong)} mistakes, the first: {wrong[0]}")
        print(f"{name}: {len(truth)} rows, all as the truth says")


if __name__ == "__main__":
    main()
