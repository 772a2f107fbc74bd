"""Two hours of payments, written to Kafka as a real topic looks – and the truth about them, in truth.json.

- Three versions of the schema are in use at the same time, each message naming its own.
- Messages come out of order by up to 50 seconds; 3 % are stragglers, up to 10 minutes behind.
- 1 % are sent twice, as a producer does that missed the answer to its first attempt.
- 5 % are damaged on the way: cut short, bytes left over, no magic byte, a schema that nobody knows.
- Seven payments come when their windows have long been closed.

The same seed makes the same messages. The truth is computed from the payments, in plain Python, not from what was sent.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
from collections import defaultdict
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import fastavro
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

KAFKA: dict[str, Any] = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]}
TOPIC = os.environ.get("PAYMENTS_TOPIC", "payments")
BEGIN = int(datetime(2024, 5, 1, 9, tzinfo=UTC).timestamp() * 1000)
SECOND, MINUTE = 1000, 60_000
LENGTH, WINDOW = 120 * MINUTE, 5 * MINUTE
MERCHANTS = ("books", "coffee", "flowers", "garden", "shoes", "toys")
UNKNOWN_SCHEMA = 2_000_000_000


@dataclass(frozen=True)
class Payment:
    """What was paid; a version of the schema says which of it is told."""

    id: str
    merchant: str
    cents: int
    currency: str
    method: str
    at: int


@dataclass(frozen=True)
class Writer:
    """A version of the schema, with the id that the registry gave it."""

    id: int
    schema: Any

    def encode(self, payment: Payment) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, self.schema, asdict(payment))
        return b"\0" + self.id.to_bytes(4, "big") + out.getvalue()


@dataclass(frozen=True)
class Message:
    """What is sent, and when."""

    sent: float
    merchant: str
    value: bytes


def registered(version: int) -> Writer:
    """A version of the subject, as any producer gets it from the registry."""
    url = f"{os.environ['SCHEMA_REGISTRY_URL']}/subjects/{TOPIC}-value/versions/{version}"
    with urlopen(url) as answer:
        told = json.load(answer)
    return Writer(told["id"], fastavro.parse_schema(json.loads(told["schema"])))


class Shop:
    """Makes payments and messages, and keeps the truth about them."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._writers = [registered(version) for version in (1, 2, 3)]
        self.messages: list[Message] = []
        self.revenue: dict[tuple[str, str, int], list[int]] = defaultdict(lambda: [0, 0, 0])
        self.letters: list[tuple[str, bytes]] = []

    def sell(self, number: int, at: float) -> None:
        """One payment: most are counted, some are damaged."""
        dice = self._dice
        payment, value = self._payment(number, int(at))
        straggles = dice.random() < 0.03
        sent = at + (dice.uniform(2 * MINUTE, 10 * MINUTE) if straggles else dice.uniform(0, 50 * SECOND))
        if dice.random() < 0.05:
            reason, value = self._damaged(value)
            self.letters.append((reason, value))
        else:
            window = payment.at - payment.at % WINDOW
            row = self.revenue[payment.merchant, payment.currency, window]
            for place, more in enumerate((1, payment.cents, payment.method == "card")):
                row[place] += more
            if dice.random() < 0.01:
                self.messages.append(Message(sent + dice.uniform(SECOND, 20 * SECOND), payment.merchant, value))
        self.messages.append(Message(sent, payment.merchant, value))

    def sell_much_too_late(self, number: int) -> None:
        """A payment of the first minutes that comes after all others."""
        payment, value = self._payment(number, BEGIN + self._dice.randrange(10 * MINUTE))
        self.messages.append(Message(BEGIN + LENGTH + 15 * MINUTE + number, payment.merchant, value))
        self.letters.append(("LATE", value))

    def _payment(self, number: int, at: int) -> tuple[Payment, bytes]:
        dice = self._dice
        version = dice.choice((1, 2, 3))  # what an older one does not tell is read as the default
        payment = Payment(
            id=f"p{number}",
            merchant=dice.choice(MERCHANTS),
            cents=dice.randrange(100, 20_000),
            currency=dice.choice(("EUR", "USD")) if version > 1 else "EUR",
            method=dice.choice(("card", "cash")) if version > 2 else "card",
            at=at,
        )
        return payment, self._writers[version - 1].encode(payment)

    def _damaged(self, value: bytes) -> tuple[str, bytes]:
        dice = self._dice
        kind = dice.randrange(4)
        if kind == 0:
            return "SCHEMA_UNKNOWN", b"\0" + UNKNOWN_SCHEMA.to_bytes(4, "big") + value[5:]
        return "MALFORMED", (value[: dice.randrange(len(value))], value + b"\0", b"\7" + value[1:])[kind - 1]

    def truth(self) -> dict[str, Any]:
        rows = [
            [merchant, currency, datetime.fromtimestamp(window / 1000, UTC).isoformat(), *values]
            for (merchant, currency, window), values in sorted(self.revenue.items())
        ]
        return {"revenue": rows, "dead_letters": sorted([reason, value.hex()] for reason, value in self.letters)}


def send(messages: list[Message]) -> None:
    """In the order in which they were sent, each merchant's to one partition."""
    admin, producer = AdminClient(KAFKA), Producer(KAFKA)
    admin.create_topics([NewTopic(TOPIC, 3, 1)])[TOPIC].result()
    for message in sorted(messages, key=lambda message: message.sent):
        producer.produce(TOPIC, message.value, key=message.merchant)
        producer.poll(0)
    producer.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description="Write payments to Kafka, and the truth about them to truth.json.")
    parser.add_argument("--events", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    shop = Shop(arguments.seed)
    for number in range(arguments.events):
        shop.sell(number, BEGIN + LENGTH * number / arguments.events)
    for number in range(arguments.events, arguments.events + 7):
        shop.sell_much_too_late(number)
    Path("truth.json").write_text(json.dumps(shop.truth()))
    send(shop.messages)
    print(f"sent {len(shop.messages)} messages to {TOPIC}; {len(shop.letters)} of them must be refused")


if __name__ == "__main__":
    main()
