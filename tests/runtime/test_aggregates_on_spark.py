"""Every aggregate against plain Python, in several batches, so that partials are merged and not only made."""

from __future__ import annotations

import json
import math
import random
import statistics
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.workbench import Bench, at

import tidegate as tg

pytestmark = pytest.mark.spark

CONTRACT = "k STRING, i BIGINT, small INT, d DECIMAL(12,2), wide DECIMAL(38,0), x DOUBLE, s STRING, at TIMESTAMP"
BIG = 2**62


def events() -> list[dict[str, Any]]:
    rng = random.Random(7)
    rows = []
    for number in range(400):
        rows.append(
            {
                "k": "ab"[number % 2],
                "i": None if number % 7 == 0 else rng.randrange(-1000, 1000),
                "small": rng.randrange(-5, 5),
                "d": str(Decimal(rng.randrange(100_000)) / 100),
                "wide": 1,
                "x": rng.gauss(1e6, 1.0),
                "s": f"s{min(rng.randrange(12), rng.randrange(12))}",
                # out of order, and some at the same instant
                "at": at(rng.randrange(590)),
            }
        )
    # what overflows, in keys of its own
    rows += [{"k": "overflow", "i": BIG, "wide": "9" * 38, "x": 1.0, "at": at(second)} for second in range(4)]
    # and what has nothing but NULL
    rows += [{"k": "nothing", "at": at(second)} for second in range(3)]
    return rows


def aggregates() -> dict[str, tg.Aggregate]:
    return {
        "n": tg.count(),
        "n_i": tg.count("i"),
        "total": tg.sum("i"),
        "total_small": tg.sum("small"),
        "total_d": tg.sum("d"),
        "total_wide": tg.sum("wide"),
        "total_x": tg.sum("x"),
        "least": tg.min("i"),
        "most": tg.max("s"),
        "mean": tg.avg("d"),
        "spread": tg.stddev("x"),
        "first_s": tg.first("s"),
        "last_s": tg.last("s"),
        "all_s": tg.collect("s"),
        "some_s": tg.collect("s", 5),
        "kinds": tg.approx_distinct("s"),
        "middle": tg.quantile("x", 0.5),
        "median": tg.median("x"),
        "median_of_many": tg.median("x", exact_up_to=20),
        "top": tg.top_k("s", 3),
        "product": tg.custom(
            partial={"p": "sum(ln(abs(x)))"}, merge={"p": "sum({p})"}, finish="exp({p} / 400)", label="geometric"
        ),
    }


@pytest.fixture(scope="module")
def results(module_bench: Bench) -> dict[str, tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Per key: the row of one window, and its events in event-time order (as they were read within an instant)."""
    bench = module_bench
    rows = events()
    for number in range(4):
        bench.write(f"{number}.jsonl", rows[number::4])
    app = tg.App("aggregates")
    source = app.source(
        "events",
        tg.Files(str(bench.input)),
        contract=CONTRACT,
        event_time="at",
        watermark=tg.Watermark(delay="10m"),
    )
    result = source.key_by("k").window("all", tg.Hopping("20m", "10m")).aggregate(**aggregates())
    app.sink("table", result, tg.SQLite(str(bench.database), table="results"))
    bench.run(app, "drain", max_batch=1)
    shown = {row["k"]: row for row in bench.table() if row["window_start"] == at(0)}
    ordered = [row for number in range(4) for row in rows[number::4]]
    ordered.sort(key=lambda row: row["at"])
    return {key: (row, [event for event in ordered if event["k"] == key]) for key, row in shown.items()}


Results = dict[str, tuple[dict[str, Any], list[dict[str, Any]]]]


def present(rows: list[dict[str, Any]], name: str) -> list[Any]:
    return [row[name] for row in rows if row.get(name) is not None]


@pytest.mark.parametrize("key", ["a", "b"])
def test_exact_aggregates_are_exact(results: Results, key: str) -> None:
    row, events = results[key]
    assert row["n"] == len(events)
    assert row["n_i"] == len(present(events, "i")) < len(events)
    assert row["total"] == sum(present(events, "i"))
    assert row["total_small"] == sum(present(events, "small"))
    assert Decimal(row["total_d"]) == sum(map(Decimal, present(events, "d")))
    assert Decimal(row["total_wide"]) == len(events)
    assert row["least"] == min(present(events, "i"))
    assert row["most"] == max(present(events, "s"))
    assert row["median"] == statistics.median(present(events, "x"))


@pytest.mark.parametrize("key", ["a", "b"])
def test_floating_aggregates_are_right_to_the_last_digits(results: Results, key: str) -> None:
    row, events = results[key]
    assert math.isclose(row["total_x"], math.fsum(present(events, "x")), rel_tol=1e-12)
    assert math.isclose(row["mean"], statistics.mean(map(float, present(events, "d"))), rel_tol=1e-12)
    # values of a million with a spread of one: the textbook formula would have lost it
    assert math.isclose(row["spread"], statistics.stdev(present(events, "x")), rel_tol=1e-6)
    expected = math.exp(math.fsum(math.log(abs(x)) for x in present(events, "x")) / 400)
    assert math.isclose(row["product"], expected, rel_tol=1e-9)


@pytest.mark.parametrize("key", ["a", "b"])
def test_first_last_and_collect_follow_event_time_and_not_arrival(results: Results, key: str) -> None:
    row, events = results[key]
    assert row["first_s"] == events[0]["s"]
    assert row["last_s"] == events[-1]["s"]
    assert json.loads(row["all_s"]) == [event["s"] for event in events]
    assert json.loads(row["some_s"]) == [event["s"] for event in events[:5]]


@pytest.mark.parametrize("key", ["a", "b"])
def test_sketches_are_near(results: Results, key: str) -> None:
    row, events = results[key]
    assert row["kinds"] == len(set(present(events, "s")))
    values = sorted(present(events, "x"))
    assert len(values) > 20
    for middle in (row["middle"], row["median_of_many"]):
        assert abs(sum(value <= middle for value in values) / len(values) - 0.5) < 0.03
    counts = Counter(present(events, "s"))
    top = json.loads(row["top"])
    assert [entry["count"] for entry in top] == [count for _, count in counts.most_common(3)]
    assert all(counts[entry["item"]] == entry["count"] for entry in top)


def test_a_sum_that_overflows_is_null_and_stops_nothing(results: Results) -> None:
    row, events = results["overflow"]
    assert (row["total"], row["total_wide"]) == (None, None)
    assert row["n"] == len(events)
    assert row["total_x"] == 4.0


def test_aggregates_of_nothing_but_null_are_null_or_zero(results: Results) -> None:
    row, events = results["nothing"]
    assert (row["n"], row["n_i"], row["kinds"]) == (len(events), 0, 0)
    names = ("total", "total_d", "total_x", "least", "most", "mean", "spread", "first_s", "middle", "product")
    assert {name: row[name] for name in names} == dict.fromkeys(names)
    assert json.loads(row["all_s"]) == [None] * 3


def overflow_app(folder: Path) -> tg.App:
    app = tg.App("overflow")
    source = app.source(
        "events",
        tg.Files(str(folder / "input")),
        contract="k STRING, i BIGINT, at TIMESTAMP",
        event_time="at",
    )
    result = (
        source.key_by("k")
        .window("sums", tg.Tumbling("1m"), allowed_lateness="10m")
        .aggregate(total=tg.sum("i"), n=tg.count())
    )
    app.sink("table", result, tg.SQLite(str(folder / "out.db"), table="results"))
    return app


def test_a_sum_that_overflows_in_one_batch_stays_null_whatever_comes_later(bench: Bench) -> None:
    """2⁶³−1 + 1 − 1 would fit again; but what was said to be unknown must not come back as a number."""
    bench.build = lambda: overflow_app(bench.folder)
    bench.write("1.jsonl", [{"k": "a", "i": 2**63 - 1, "at": at(0)}, {"k": "a", "i": 1, "at": at(1)}])
    bench.write("2.jsonl", [{"k": "a", "i": -5, "at": at(2)}, {"k": "b", "i": 1, "at": at(70)}])
    bench.write("3.jsonl", [{"k": "a", "i": -5, "at": at(3)}])
    bench.run(mode="drain", max_batch=1)
    assert [(row["k"], row["total"], row["n"]) for row in bench.table()] == [("a", None, 4), ("b", 1, 1)]


def test_sums_that_overflow_only_together_are_null(bench: Bench) -> None:
    """Each batch is fine alone; merging must notice, and not throw."""
    bench.build = lambda: overflow_app(bench.folder)
    for number in range(3):
        bench.write(f"{number}.jsonl", [{"k": "a", "i": BIG, "at": at(number)}])
    bench.run(mode="drain", max_batch=1)
    assert [(row["k"], row["total"], row["n"]) for row in bench.table()] == [("a", None, 3)]
