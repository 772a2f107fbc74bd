"""Compare what the pipeline wrote with truth.json: PostgreSQL row for row, the dead letters byte for byte."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from datetime import UTC
from pathlib import Path

import psycopg
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

LETTERS = f"dlq.{os.environ.get('PAYMENTS_TOPIC', 'payments')}"


def revenue() -> Counter[str]:
    query = "SELECT merchant, currency, window_start, orders, cents, by_card FROM revenue"
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        rows = connection.execute(query).fetchall()
    return Counter(json.dumps([*row[:2], row[2].astimezone(UTC).isoformat(), *map(int, row[3:])]) for row in rows)


def dead_letters() -> Counter[str]:
    """Every message of the topic: committed ones, up to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
            "group.id": "compare",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(LETTERS, 0, OFFSET_BEGINNING)])
    letters: Counter[str] = Counter()
    while True:
        message = consumer.poll(30)
        if message is None:
            sys.exit(f"{LETTERS} does not answer")
        if (error := message.error()) is None:
            letters[json.dumps([reason_of(message), (message.value() or b"").hex()])] += 1
        elif error.code() == KafkaError._PARTITION_EOF:
            consumer.close()
            return letters
        else:
            sys.exit(f"{LETTERS}: {error}")


def reason_of(message: Message) -> str:
    reason = dict(message.headers() or [])["tidegate.reason"]
    return reason.decode() if isinstance(reason, bytes) else str(reason)


def compare(what: str, found: Counter[str], expected: list[list[object]]) -> None:
    wanted = Counter(json.dumps(row) for row in expected)
    if found != wanted:
        missing, wrong = (wanted - found).total(), (found - wanted).total()
        sys.exit(f"{what}: {missing} rows of the truth are missing, {wrong} rows are there that should not be")
    print(f"{what}: {found.total()} rows, all as the truth says")


def main() -> None:
    truth = json.loads(Path("truth.json").read_text())
    compare("revenue", revenue(), truth["revenue"])
    letters = dead_letters()
    compare(LETTERS, letters, truth["dead_letters"])
    for reason, count in sorted(Counter(json.loads(letter)[0] for letter in letters.elements()).items()):
        print(f"  {reason} {count}")


if __name__ == "__main__":
    main()
