"""Rolling windows end to end: velocity features per card, against what plain Python says."""

from __future__ import annotations

import random
import statistics
from typing import Any

import pytest
from tests.workbench import Bench, at

import tidegate as tg

pytestmark = pytest.mark.spark

SIZES = {"minute": 60, "five": 300, "hour": 3600}


@pytest.fixture(scope="module")
def payments() -> list[dict[str, Any]]:
    """Two hours of payments of a few cards, out of order by less than the delay."""
    dice = random.Random(7)
    rows: list[dict[str, Any]] = [
        {"card": f"c{dice.randrange(4)}", "amount": dice.randrange(1, 500), "second": dice.randrange(0, 7_200)}
        for _ in range(400)
    ]
    rows.sort(key=lambda row: row["second"] + dice.uniform(0, 500))
    return rows


def velocity(bench: Bench) -> tg.App:
    app = tg.App("velocity")
    payments = app.source(
        "payments",
        tg.Files(str(bench.input)),
        contract="card STRING, amount BIGINT, at TIMESTAMP",
        event_time="at",
        watermark=tg.Watermark(delay="10m"),
    )
    for name, size in SIZES.items():
        features = (
            payments.key_by("card")
            .window(f"last_{name}", tg.Rolling(f"{size}s"))
            .aggregate(n=tg.count(), total=tg.sum("amount"), middle=tg.median("amount"))
        )
        app.sink(f"{name}_table", features, tg.SQLite(str(bench.database), table=name))
    return app


def test_every_payment_has_the_velocity_of_its_card(bench: Bench, payments: list[dict[str, Any]]) -> None:
    for number in range(5):
        chunk = payments[number * 80 : (number + 1) * 80]
        rows = [{"card": p["card"], "amount": p["amount"], "at": at(p["second"])} for p in chunk]
        bench.write(f"{number}.jsonl", rows)
    bench.build = lambda: velocity(bench)
    bench.run(mode="once", max_batch=1)
    bench.run(mode="drain", max_batch=1)
    assert bench.dead_letters() == []
    for name, size in SIZES.items():
        found = {(row["card"], row["window_end"]): (row["n"], row["total"], row["middle"]) for row in bench.table(name)}
        expected = {}
        for one in payments:
            reach = [
                other["amount"]
                for other in payments
                if other["card"] == one["card"] and one["second"] - size < other["second"] <= one["second"]
            ]
            key = (one["card"], at(one["second"]))
            expected[key] = (len(reach), sum(reach), statistics.median(reach))
        assert found == expected
