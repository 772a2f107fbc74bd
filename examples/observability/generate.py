"""Twenty minutes of request logs, written to Kafka as JSON – and the truth about them, in truth.json.

- Three services with seven endpoints, each with its own latency, all with a long tail.
- From 09:10 to 09:13 the payment provider is slow: `checkout POST /pay` takes ten times as long, a third of it fails.
- Log shippers deliver out of order by up to 15 seconds; 2 % come one to four minutes later.
- 1 % are not what they should be: lines cut off, negative times, a status that is none.

The same seed makes the same messages. The truth holds all latencies of a minute, so that quantiles, which the pipeline
estimates with a sketch, can be judged by the rank that they really have.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

KAFKA: dict[str, Any] = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]}
TOPIC = os.environ.get("REQUESTS_TOPIC", "requests")
BEGIN = datetime(2024, 5, 1, 9, tzinfo=UTC)
LENGTH = 20 * 60
INCIDENT = range(10 * 60, 13 * 60)
ENDPOINTS = (  # service, endpoint, typical milliseconds, share of the traffic
    ("catalogue", "GET /products", 20, 10),
    ("catalogue", "GET /search", 80, 4),
    ("checkout", "GET /cart", 15, 5),
    ("checkout", "POST /cart", 30, 3),
    ("checkout", "POST /pay", 120, 3),
    ("users", "GET /me", 8, 6),
    ("users", "POST /login", 200, 1),
)


class Traffic:
    """Makes requests, and keeps the truth about them."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self.messages: list[tuple[float, str, bytes]] = []
        self.latencies: dict[tuple[str, str, str], list[float]] = defaultdict(list)
        self.errors: dict[tuple[str, str, str], int] = defaultdict(int)
        self.refused: dict[str, int] = defaultdict(int)

    def request(self, second: float) -> None:
        dice = self._dice
        ((service, endpoint, typical, _),) = dice.choices(ENDPOINTS, [share for *_, share in ENDPOINTS])
        suffers = endpoint == "POST /pay" and int(second) in INCIDENT
        ms = round(dice.lognormvariate(0, 0.6) * typical * (10 if suffers else 1), 3)
        status = 503 if dice.random() < (0.35 if suffers else 0.005) else 200
        at = BEGIN + timedelta(seconds=second)
        event = {"service": service, "endpoint": endpoint, "status": status, "ms": ms, "at": at.isoformat()}
        straggles = dice.random() < 0.02
        sent = second + (dice.uniform(60, 240) if straggles else dice.uniform(0, 15))
        self.messages.append((sent, service, self._told(event)))

    def _told(self, event: dict[str, Any]) -> bytes:
        """The event as it is sent; the truth knows whether it can be counted."""
        dice = self._dice
        if dice.random() >= 0.01:
            minute = datetime.fromisoformat(event["at"]).replace(second=0, microsecond=0).isoformat()
            key = event["service"], event["endpoint"], minute
            self.latencies[key].append(event["ms"])
            self.errors[key] += event["status"] >= 500
            return json.dumps(event).encode()
        damage = dice.randrange(3)
        self.refused["MALFORMED" if damage == 0 else "CONTRACT_VIOLATION"] += 1
        if damage == 0:
            line = json.dumps(event).encode()
            return line[: dice.randrange(1, len(line))]
        return json.dumps(event | ({"ms": -1.0} if damage == 1 else {"status": 999})).encode()

    def truth(self) -> dict[str, Any]:
        rows = [[*key, sorted(found), self.errors[key]] for key, found in sorted(self.latencies.items())]
        return {"health": rows, "dead_letters": self.refused}


def send(messages: list[tuple[float, str, bytes]]) -> None:
    """In the order in which they were sent, each service's to one partition."""
    admin, producer = AdminClient(KAFKA), Producer(KAFKA)
    admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result()
    for _, service, value in sorted(messages):
        producer.produce(TOPIC, value, key=service)
        producer.poll(0)
    producer.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description="Write request logs to Kafka, and the truth to truth.json.")
    parser.add_argument("--events", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    traffic = Traffic(arguments.seed)
    for number in range(arguments.events):
        traffic.request(LENGTH * number / arguments.events)
    Path("truth.json").write_text(json.dumps(traffic.truth()))
    send(traffic.messages)
    print(f"sent {len(traffic.messages)} requests to {TOPIC}; {sum(traffic.refused.values())} of them must be refused")


if __name__ == "__main__":
    main()
