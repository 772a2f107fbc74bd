"""With no late events the result is a matter of the events alone: not of batches, order, partitions or restarts.

Invariant 2 of the semantics, as a property: hypothesis chooses how the same events are cut into batches, shuffled
within the delay, spread over partitions, and where the driver is started anew; plain Python knows the result.
"""

from __future__ import annotations

import json
import math
import random
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.workbench import Bench

import tidegate as tg
from tidegate.model.windows import cut_sessions, hopping_windows
from tidegate.testing.feed import Feed
from tidegate.testing.harness import Harness, seconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.runtime.reports import Mode

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DELAY = 30
EPOCH = datetime(2024, 3, 1, 12, tzinfo=UTC)
HOP = tg.Hopping("90s", "60s", offset="10s")
SESSION = tg.Session("20s")
CONTRACT = "id STRING, k STRING, i BIGINT, d DECIMAL(12,2), x DOUBLE, at TIMESTAMP"


def events() -> list[dict[str, Any]]:
    """Two dozen events of five minutes; every instant is a different one, so that first and last are certain."""
    rng = random.Random(5)
    rows = []
    for number, moment in enumerate(sorted(rng.sample(range(300_000), 24))):
        rows.append(
            {
                "id": f"e{number}",
                "k": "ab"[rng.randrange(2)],
                "i": rng.randrange(-100, 100),
                "d": f"{rng.randrange(10_000) / 100:.2f}",
                "x": rng.gauss(0, 1000),
                "at": (EPOCH + timedelta(milliseconds=moment)).isoformat(timespec="milliseconds"),
            }
        )
    return rows


EVENTS = events()
MOMENTS = [(datetime.fromisoformat(row["at"]) - EPOCH).total_seconds() for row in EVENTS]


def us(row: dict[str, Any]) -> int:
    return (datetime.fromisoformat(row["at"]) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


Result = dict[tuple[str, int], tuple[Any, ...]]


def summary(rows: list[dict[str, Any]]) -> tuple[Any, ...]:
    numbers = [row["i"] for row in rows]
    exact = (len(rows), sum(numbers), min(numbers), max(numbers), rows[0]["id"], rows[-1]["id"])
    return (*exact, sum(Decimal(row["d"]) for row in rows), [row["id"] for row in rows], sum(row["x"] for row in rows))


def truth() -> dict[str, Result]:
    """What each operator must show, in plain Python and by the model's windows."""
    hops: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for row in EVENTS:
        for start, _ in hopping_windows(HOP, us(row)):
            hops[row["k"], start].append(row)
    sessions: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for k in "ab":
        for (start, _), rows in cut_sessions(SESSION, [row for row in EVENTS if row["k"] == k], us):
            sessions[k, start] = rows
    return {
        name: {place: summary(rows) for place, rows in windows.items()}
        for name, windows in (("hops", hops), ("sessions", sessions))
    }


TRUTH = truth()


def build(connector: Any, sinks: dict[str, Any]) -> tg.App:
    app = tg.App("independence")
    source = app.source(
        "events", connector, contract=CONTRACT, event_time="at", event_id="id", watermark=tg.Watermark(f"{DELAY}s")
    )
    for name, window in (("hops", HOP), ("sessions", SESSION)):
        result = source.key_by("k").window(name, window)
        values = {
            "n": tg.count(),
            "total": tg.sum("i"),
            "least": tg.min("i"),
            "most": tg.max("i"),
            "first_id": tg.first("id"),
            "last_id": tg.last("id"),
            "money": tg.sum("d"),
            "ids": tg.collect("id"),
            "doubles": tg.sum("x"),
        }
        app.sink(f"{name}_sink", result.aggregate(**values), sinks[name])
    return app


def check(name: str, rows: list[dict[str, Any]]) -> None:
    """Exactly for all but the floating sum, and that within a few units in the last place."""
    shown: Result = {}
    for row in rows:
        start = row["window_start"]
        moment = datetime.fromisoformat(start) if isinstance(start, str) else start
        ids = json.loads(row["ids"]) if isinstance(row["ids"], str) else row["ids"]
        values = (row["n"], row["total"], row["least"], row["most"], row["first_id"], row["last_id"])
        shown[row["k"], us({"at": moment.isoformat()})] = (*values, Decimal(row["money"]), ids, row["doubles"])
    assert {place: values[:-1] for place, values in shown.items()} == {p: v[:-1] for p, v in TRUTH[name].items()}
    for place, values in shown.items():
        assert math.isclose(values[-1], TRUTH[name][place][-1], rel_tol=1e-9, abs_tol=1e-6)


@dataclass(frozen=True)
class Way:
    """One way in which the same events may come."""

    jitter: tuple[int, ...]
    partitions: tuple[int, ...]
    cuts: frozenset[int]
    restarts: frozenset[int]

    def batches(self) -> list[list[dict[str, Any]]]:
        order = sorted(range(len(EVENTS)), key=lambda number: MOMENTS[number] + self.jitter[number])
        rows = [EVENTS[number] | {"_partition": str(self.partitions[number])} for number in order]
        places = [0, *sorted(self.cuts), len(rows)]
        return [rows[start:end] for start, end in pairwise(places)]


WAYS = st.builds(
    Way,
    jitter=st.tuples(*[st.integers(0, DELAY - 1)] * len(EVENTS)),
    partitions=st.integers(1, 3).flatmap(lambda n: st.tuples(*[st.integers(1, n)] * len(EVENTS))),
    cuts=st.frozensets(st.integers(1, len(EVENTS) - 1), max_size=3),
    restarts=st.frozensets(st.integers(0, 2), max_size=1),
)


@settings(
    max_examples=3,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)
@given(way=WAYS)
def test_batches_order_partitions_and_restarts_make_no_difference(spark: SparkSession, way: Way) -> None:
    sinks = {"hops": tg.Memory(), "sessions": tg.Memory()}
    with tempfile.TemporaryDirectory() as folder:
        # The clock stands still long after the events: nothing is in the future, nobody is idle.
        now = us({"at": EPOCH.isoformat()}) + seconds(86_400)
        harness = Harness(spark, build(Feed(), sinks), Path(folder) / "checkpoint", clock=now)
        for number, batch in enumerate(way.batches()):
            outcome = harness.feed({"events": batch})
            assert outcome.letters == [], "no event is late, whatever the order within the delay"
            if number in way.restarts:
                harness.restart()
        harness.drain()
        harness.close()
        assert harness.engine.last.totals.unaccounted() == 0
    for name, memory in sinks.items():
        check(name, memory.rows())


@pytest.mark.parametrize(("mode", "max_batch"), [("batch", None), ("drain", 1), ("drain", 100)])
def test_a_batch_run_a_run_of_many_batches_and_one_of_one_batch_make_no_difference(
    bench: Bench, mode: Mode, max_batch: int | None
) -> None:
    for number in range(3):
        bench.write(f"{number}.jsonl", EVENTS[number * 8 : number * 8 + 8])
    sinks = {name: tg.SQLite(str(bench.database), name) for name in ("hops", "sessions")}
    bench.run(build(tg.Files(str(bench.input)), sinks), mode, max_batch)
    for name in sinks:
        check(name, bench.table(name))
