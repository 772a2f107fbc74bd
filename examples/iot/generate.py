"""Two hours of readings of six devices, written to Kafka as JSON – and the truth about them, in truth.json.

- A device sends its temperature about every ten seconds: a slow wave, and noise.
- Each is switched off now and then for three to eight minutes, so that there are sessions.
- Now and then a reading is wrong: ten degrees off. That is what the alarm is for.
- Gateways deliver out of order by up to 40 seconds.

The same seed makes the same messages. The truth is what the definitions say, computed over each device's sorted
readings in plain Python: no state, no batches, no watermark.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

KAFKA: dict[str, Any] = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]}
TOPIC = os.environ.get("READINGS_TOPIC", "readings")
BEGIN = datetime(2024, 5, 1, 9, tzinfo=UTC)
GAP, CAP, REACH, MINUTE = 120.0, 1800.0, 600.0, 60.0

Reading = tuple[float, float]
"""Seconds after the beginning, to the millisecond, and degrees."""


def instant(second: float) -> str:
    """As the hashes in Redis have it."""
    at = BEGIN + timedelta(milliseconds=round(second * 1000))
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


def readings_of(dice: random.Random, length: float) -> list[Reading]:
    """One device: on for a while, off for a while."""
    base, phase = dice.uniform(15, 60), dice.uniform(0, math.tau)
    found: list[Reading] = []
    now, off_at, next_fault = dice.uniform(0, 10), dice.uniform(1200, 3600), dice.uniform(900, 1800)
    while now < length:
        celsius = base + 2 * math.sin(phase + now / 3600) + dice.uniform(-1, 1)
        if now >= next_fault:
            celsius += dice.choice((-10, 10))
            next_fault = now + dice.uniform(900, 2400)
        found.append((round(now, 3), round(celsius, 2)))
        now += dice.uniform(8, 12)
        if now >= off_at:
            now += dice.uniform(180, 480)
            off_at = now + dice.uniform(600, 3600)
    return found


def sessions_of(device: str, readings: list[Reading]) -> list[Any]:
    """Cut where a reading comes more than the gap after the last, or more than the cap after the first.

    Readings in the same two minutes of the clock, which always share a session, are not cut apart: they go together.
    """
    cut: list[list[Reading]] = []
    for _, together in groupby(readings, lambda reading: reading[0] // GAP):
        piece = list(together)
        if cut and piece[0][0] - cut[-1][-1][0] <= GAP and piece[-1][0] - cut[-1][0][0] <= CAP:
            cut[-1] += piece
        else:
            cut.append(piece)
    rows = []
    for number, session in enumerate(cut):
        end = session[-1][0] + GAP
        if number + 1 < len(cut):
            end = min(end, cut[number + 1][0][0])
        values = [celsius for _, celsius in session]
        row = [len(values), min(values), max(values), round(statistics.fmean(values), 6)]
        rows.append([device, instant(session[0][0]), instant(end), *row])
    return rows


def alarms_of(device: str, readings: list[Reading]) -> list[Any]:
    """The readings more than three standard deviations off those of the ten minutes before, by minute."""
    minutes: dict[float, list[tuple[Reading, float]]] = defaultdict(list)
    for second, celsius in readings:
        earlier = [value for other, value in readings if second - REACH < other < second]
        if len(earlier) < 30:
            continue
        usual, sigma = statistics.fmean(earlier), statistics.stdev(earlier)
        if abs(celsius - usual) > 3 * sigma:
            # A result belongs to the instant just before the end of its window.
            minutes[(second - 1e-6) // MINUTE * MINUTE].append(((second, celsius), usual))
    return [
        [device, instant(minute), len(found), instant(found[0][0][0]), found[0][0][1], round(found[0][1], 6)]
        for minute, found in sorted(minutes.items())
    ]


def send(messages: list[tuple[float, str, bytes]]) -> None:
    """In the order in which they were sent, each device's to one partition."""
    admin, producer = AdminClient(KAFKA), Producer(KAFKA)
    admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result()
    for _, device, value in sorted(messages):
        producer.produce(TOPIC, value, key=device)
        producer.poll(0)
    producer.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description="Write readings to Kafka, and the truth about them to truth.json.")
    parser.add_argument("--hours", type=float, default=2)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    dice = random.Random(arguments.seed)
    messages: list[tuple[float, str, bytes]] = []
    truth: dict[str, list[Any]] = {"sessions": [], "alarms": []}
    for number in range(1, 7):
        device, readings = f"pump-{number}", readings_of(dice, arguments.hours * 3600)
        truth["sessions"] += sessions_of(device, readings)
        truth["alarms"] += alarms_of(device, readings)
        for second, celsius in readings:
            event = {"device": device, "celsius": celsius, "at": instant(second)}
            messages.append((second + dice.uniform(0, 40), device, json.dumps(event).encode()))
    Path("truth.json").write_text(json.dumps(truth))
    send(messages)
    print(f"sent {len(messages)} readings to {TOPIC}")


if __name__ == "__main__":
    main()
