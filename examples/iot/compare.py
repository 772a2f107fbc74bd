"""Compare what the pipeline wrote to Redis with truth.json: every session and every alarm, value for value."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import redis


def hashes(prefix: str) -> list[list[Any]]:
    """The results under a prefix: device, start of the window, and the values in the order of the truth."""
    client = redis.Redis.from_url(os.environ["REDIS_URL"], decode_responses=True)
    rows = []
    for name in client.scan_iter(f"{prefix}:*"):
        _, device, start = name.split(":", 2)
        if device.startswith("%"):
            continue  # the sink's marker
        values = client.hgetall(name)
        rows.append([device, start, *(number(str(values[field])) for field in fields(prefix))])
    client.close()
    return sorted(rows)


def fields(prefix: str) -> tuple[str, ...]:
    if prefix == "session":
        return ("window_end", "readings", "coldest", "warmest", "mean")
    return ("readings", "at", "celsius", "usual")


def number(text: str) -> str | float:
    try:
        return round(float(text), 6)
    except ValueError:
        return text


def compare(what: str, found: list[list[Any]], truth: list[list[Any]]) -> None:
    if found != sorted(truth):
        wrong = [row for row in found if row not in truth]
        missing = [row for row in truth if row not in found]
        sys.exit(f"{what}: these should not be there: {wrong}\nand these should: {missing}")
    print(f"{what}: {len(found)}, all as the truth says")


def main() -> None:
    truth = json.loads(Path("truth.json").read_text())
    compare("sessions", hashes("session"), truth["sessions"])
    compare("alarms", hashes("alarm"), truth["alarms"])


if __name__ == "__main__":
    main()
