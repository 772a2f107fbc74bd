"""A pipeline whose servers go away while it runs: it waits, says so, goes on, and all sinks hold the same rows."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg
import pytest
import redis
from tests.servers import RunningServer, unique
from tests.workbench import Bench, at

import tidegate as tg
from tidegate import crash

pytestmark = [pytest.mark.servers, pytest.mark.spark]


def test_servers_that_go_away_during_a_run_are_waited_for_and_all_sinks_agree(
    bench: Bench, postgres: RunningServer, redis_server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = unique("counts")

    def build() -> tg.App:
        app = tg.App("outages")
        events = app.source(
            "events", tg.Files(str(bench.input)), contract="k STRING, v BIGINT, at TIMESTAMP", event_time="at"
        )
        counts = events.key_by("k").window("counts", tg.Tumbling("30s")).aggregate(n=tg.count(), total=tg.sum("v"))
        app.sink("sqlite", counts, tg.SQLite(bench.database, table="counts"))
        app.sink("postgres", counts, tg.Postgres(postgres.address, table=name))
        app.sink("redis", counts, tg.Redis(redis_server.address, prefix=name))
        app.sink("delta", counts, tg.Delta(bench.folder / "delta"))
        return app

    bench.build = build
    for number in range(4):
        events = [{"k": f"k{n % 3}", "v": n, "at": at(60 * number + n)} for n in range(30)]
        bench.write(f"{number}.json", events)

    places: list[str] = []
    timers: list[threading.Timer] = []

    def gone(server: RunningServer, how: Callable[[], None]) -> None:
        how()
        timers.append(threading.Timer(2, server.start))
        timers[-1].start()

    def trouble(place: str) -> None:
        """Before PostgreSQL gets its second record it is stopped; before Redis gets its third, that is killed."""
        places.append(place)
        if place == "between_sinks" and places.count(place) == 3 * 1 + 1:
            gone(postgres, postgres.stop)
        if place == "between_sinks" and places.count(place) == 3 * 2 + 2:
            gone(redis_server, redis_server.kill)

    monkeypatch.setattr(crash, "point", trouble)
    bench.run(max_batch=1)
    for timer in timers:
        timer.join()
    assert len(timers) == 2
    waits = [said for said in bench.watched.said if said.startswith("waiting: ")]
    assert any("PostgreSQL" in said for said in waits), waits
    assert any("Redis" in said for said in waits), waits
    assert sum(said.startswith("going on after") for said in bench.watched.said) >= 2

    expected = sorted((row["k"], row["window_start"], row["n"], row["total"]) for row in bench.table("counts"))
    assert len(expected) == 3 * 4
    assert _in_postgres(postgres, name) == expected
    assert _in_redis(redis_server, name) == expected
    assert _in_delta(bench) == expected


def _in_postgres(server: RunningServer, table: str) -> list[Any]:
    start = """to_char(window_start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""
    with closing(psycopg.connect(server.address)) as connection:
        return sorted(connection.execute(f"SELECT k, {start}, n, total FROM {table}".encode()).fetchall())


def _in_redis(server: RunningServer, prefix: str) -> list[Any]:
    client: Any
    with closing(redis.Redis.from_url(server.address, decode_responses=True)) as client:
        names = [name for name in client.scan_iter(f"{prefix}:*") if "%marker" not in name]
        hashes = [(*name.removeprefix(f"{prefix}:").split(":", 1), client.hgetall(name)) for name in names]
    return sorted((key, start, int(found["n"]), int(found["total"])) for key, start, found in hashes)


def _in_delta(bench: Bench) -> list[Any]:
    from pyspark.sql import SparkSession

    table = SparkSession.builder.getOrCreate().read.format("delta").load(str(bench.folder / "delta")).toArrow()
    return sorted(
        (
            row["k"],
            row["window_start"].isoformat(timespec="microseconds").replace("+00:00", "Z"),
            row["n"],
            row["total"],
        )
        for row in table.to_pylist()
    )
