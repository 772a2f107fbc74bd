"""What is particular to Redis: names that people look up, hashes that expire, steps, a server that forgets."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis
from sink_cases import FIVE_MINUTES, NOON, pane, record, schema, target  # type: ignore[import-not-found]
from tests.servers import RunningServer, unique

import tidegate as tg
from tidegate import crash
from tidegate.errors import Fenced, SinkError, Unavailable
from tidegate.patience import patiently
from tidegate.sinks.base import Delivery

pytestmark = pytest.mark.servers


@pytest.fixture
def prefix() -> str:
    return unique("revenue")


@pytest.fixture
def sink(redis_server: RunningServer, prefix: str) -> tg.Redis:
    return tg.Redis(redis_server.address, prefix=prefix)


@pytest.fixture
def client(redis_server: RunningServer) -> Iterator[Any]:
    with closing(redis.Redis.from_url(redis_server.address, decode_responses=True)) as connection:
        yield connection


@pytest.fixture
def staged(tmp_path: Path) -> Path:
    return tmp_path / "staged"


def deliver(sink: tg.Redis, *deliveries: Delivery) -> list[int]:
    with closing(sink.open(target())) as writer:
        return [writer.deliver(delivery) for delivery in deliveries]


def totals(client: Any, prefix: str) -> dict[str, str]:
    names = [name for name in client.scan_iter(f"{prefix}:*") if "%marker" not in name]
    return {name.removeprefix(f"{prefix}:"): client.hget(name, "total") for name in names}


def test_a_result_is_found_by_its_name(sink: tg.Redis, prefix: str, client: Any, staged: Path) -> None:
    deliver(sink, record(staged, 1, pane("a", 5), pane("b", None)))
    assert client.hgetall(f"{prefix}:a:2026-03-01T12:00:00.000000Z") == {
        "window_end": "2026-03-01T12:05:00.000000Z",
        "total": "5",
        "pane_index": "0",
        "pane_timing": "on_time",
        "pane_final": "false",
    }
    assert "total" not in client.hgetall(f"{prefix}:b:2026-03-01T12:00:00.000000Z")
    assert client.hgetall(f"{prefix}:%marker:c0ffee:out") == {"sequence": "1", "claim": "1", "pipeline": "shop"}


def test_a_value_that_became_null_is_gone_from_the_hash(sink: tg.Redis, prefix: str, client: Any, staged: Path) -> None:
    deliver(sink, record(staged, 1, pane("a", 5)), record(staged, 2, pane("a", None, index=1)))
    assert totals(client, prefix) == {"a:2026-03-01T12:00:00.000000Z": None}


def test_no_two_keys_share_a_name(sink: tg.Redis, prefix: str, client: Any, staged: Path) -> None:
    keys = [None, "", "%N", "%25N", "a:b", "a%3Ab", "global", "%marker", "null", "\x00"]
    rows = [pane(key, n, start=None) for n, key in enumerate(keys)]
    deliver(sink, record(staged, 1, *rows))
    assert len(totals(client, prefix)) == len(keys)
    gone = [row | {"pane_change": "retract"} for row in rows[:-1]]
    assert deliver(sink, record(staged, 2, *gone)) == [len(keys) - 1]
    assert totals(client, prefix) == {"\x00:global": str(len(keys) - 1)}


def test_two_key_columns_do_not_run_into_each_other(sink: tg.Redis, prefix: str, client: Any, staged: Path) -> None:
    fields = list(schema())
    both = pa.schema([fields[0], pa.field("city", pa.string()), *fields[1:]])
    rows = [pane("a:", 1) | {"city": "b"}, pane("a", 2) | {"city": ":b"}]
    with closing(sink.open(target(key=("merchant", "city")))) as writer:
        writer.deliver(record(staged, 1, *rows, as_schema=both))
    at = "2026-03-01T12:00:00.000000Z"
    assert totals(client, prefix) == {f"a%3A:b:{at}": "1", f"a:%3Ab:{at}": "2"}


def test_a_session_that_grew_keeps_its_name(sink: tg.Redis, prefix: str, client: Any, staged: Path) -> None:
    grown = pane("a", 2) | {"window_end": NOON + 2 * FIVE_MINUTES}
    replaced = pane("a", 1, change="replaced")
    deliver(sink, record(staged, 1, pane("a", 1)), record(staged, 2, replaced, grown))
    assert totals(client, prefix) == {"a:2026-03-01T12:00:00.000000Z": "2"}
    # What is taken back is the window that ended at 12:05, and that is no longer there.
    assert deliver(sink, record(staged, 3, pane("a", 1, change="retract"))) == [0]
    assert totals(client, prefix) == {"a:2026-03-01T12:00:00.000000Z": "2"}


# Time to live.


def test_a_hash_lives_until_some_time_after_its_window(
    redis_server: RunningServer, prefix: str, client: Any, staged: Path
) -> None:
    sink = tg.Redis(redis_server.address, prefix=prefix, ttl="3650d")
    deliver(sink, record(staged, 1, pane("a", 1), pane("b", 1, start=None)))
    expiry = client.pexpiretime(f"{prefix}:a:2026-03-01T12:00:00.000000Z") / 1000
    assert expiry == pytest.approx((NOON + FIVE_MINUTES).timestamp() + 3650 * 86400, abs=1)
    # The global window has no end: from now on.
    assert client.ttl(f"{prefix}:b:global") == pytest.approx(3650 * 86400, abs=60)
    assert client.ttl(f"{prefix}:%marker:c0ffee:out") == -1


def test_a_window_whose_time_is_over_leaves_no_hash(
    redis_server: RunningServer, prefix: str, client: Any, staged: Path
) -> None:
    sink = tg.Redis(redis_server.address, prefix=prefix, ttl="1h")
    long_ago = NOON.replace(year=2000)
    deliver(sink, record(staged, 1, pane("a", 1, start=long_ago), pane("b", 1, start=NOON.replace(year=2400))))
    assert list(totals(client, prefix)) == ["b:2400-03-01T12:00:00.000000Z"]


def test_a_hash_may_live_from_when_it_was_written(
    redis_server: RunningServer, prefix: str, client: Any, staged: Path
) -> None:
    sink = tg.Redis(redis_server.address, prefix=prefix, ttl="2s", ttl_from="write")
    deliver(sink, record(staged, 1, pane("a", 1, start=NOON.replace(year=2000))))
    assert list(totals(client, prefix)) == ["a:2000-03-01T12:00:00.000000Z"]
    time.sleep(2.1)
    assert totals(client, prefix) == {}


# Large records come in steps.


def test_a_large_record_comes_in_steps_and_the_marker_says_so(
    redis_server: RunningServer, prefix: str, client: Any, staged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = tg.Redis(redis_server.address, prefix=prefix, atomic_rows=2)
    marker, seen = f"{prefix}:%marker:c0ffee:out", []
    monkeypatch.setattr(crash, "point", lambda _: seen.append((len(totals(client, prefix)), client.hgetall(marker))))
    assert deliver(sink, record(staged, 1, *(pane(f"{n}", n) for n in range(5)))) == [5]
    assert seen == [(rows, {"applying": "1", "claim": "1", "pipeline": "shop"}) for rows in (2, 4)]
    assert client.hgetall(marker) == {"sequence": "1", "claim": "1", "pipeline": "shop"}


def test_a_record_broken_off_between_steps_is_finished(
    redis_server: RunningServer, prefix: str, client: Any, staged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = tg.Redis(redis_server.address, prefix=prefix, atomic_rows=2)
    deliver(sink, record(staged, 1, pane("0", 1), pane("1", 1), pane("2", 1)))
    rows = [pane("0", 1, change="retract"), *(pane(f"{n}", 2, index=1) for n in range(1, 4))]
    second = record(staged, 2, *rows)

    def killed(_: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(crash, "point", killed)
        with pytest.raises(KeyboardInterrupt):
            deliver(sink, second)
    with closing(sink.open(target(claim=2))) as writer:
        assert writer.confirmed() == 1
        writer.deliver(second)
        assert writer.confirmed() == 2
    at = "2026-03-01T12:00:00.000000Z"
    assert totals(client, prefix) == {f"{n}:{at}": "2" for n in range(1, 4)}


def test_a_zombie_is_refused_at_each_step(
    redis_server: RunningServer, prefix: str, client: Any, staged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = tg.Redis(redis_server.address, prefix=prefix, atomic_rows=2)
    zombie = sink.open(target(claim=1))

    def taken_over(_: str) -> None:
        with closing(sink.open(target(claim=2))) as successor:
            monkeypatch.setattr(crash, "point", lambda _: None)
            successor.deliver(record(staged, 1, pane("successor", 1)))

    monkeypatch.setattr(crash, "point", taken_over)
    with closing(zombie), pytest.raises(Fenced, match="claim 2"):
        zombie.deliver(record(staged, 1, *(pane(f"{n}", n) for n in range(5))))
    assert "4:2026-03-01T12:00:00.000000Z" not in totals(client, prefix)
    assert client.hget(f"{prefix}:%marker:c0ffee:out", "claim") == "2"


# Servers go away.


def test_a_server_gone_for_some_seconds_is_waited_for_and_nothing_is_lost_or_doubled(
    redis_server: RunningServer, sink: tg.Redis, prefix: str, client: Any, staged: Path
) -> None:
    said: list[str] = []
    with closing(sink.open(target())) as writer:
        writer.deliver(record(staged, 1, pane("a", 1)))
        redis_server.kill()
        back = threading.Timer(3, redis_server.start)
        back.start()
        try:
            second = record(staged, 2, pane("a", 2, index=1), pane("b", 3))
            assert patiently(lambda: writer.deliver(second), said.append) == 2
        finally:
            back.join()
    assert said[0].startswith("waiting: Redis 127.0.0.1:")
    assert said[-1].startswith("going on after")
    at = "2026-03-01T12:00:00.000000Z"
    assert totals(client, prefix) == {f"a:{at}": "2", f"b:{at}": "3"}


def test_a_server_killed_between_steps_does_no_harm(
    redis_server: RunningServer, prefix: str, client: Any, staged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bounce() -> None:
        redis_server.kill()
        redis_server.start()

    sink = tg.Redis(redis_server.address, prefix=prefix, atomic_rows=2)
    troubles = iter([bounce])
    with closing(sink.open(target())) as writer, monkeypatch.context() as patch:
        patch.setattr(crash, "point", lambda _: next(troubles, lambda: None)())
        rows = [pane(f"{n}", n) for n in range(5)]
        patiently(lambda: writer.deliver(record(staged, 1, *rows)), lambda _: None)
        assert writer.confirmed() == 1
    assert len(totals(client, prefix)) == 5


def test_a_server_that_forgot_what_it_confirmed_is_refused(
    sink: tg.Redis, prefix: str, client: Any, staged: Path
) -> None:
    marker = f"{prefix}:%marker:c0ffee:out"
    with closing(sink.open(target())) as writer:
        writer.deliver(record(staged, 5, pane("a", 1)))
        client.hset(marker, "sequence", 4)
        with pytest.raises(SinkError, match="gone back to record 4, though record 5 was confirmed"):
            writer.deliver(record(staged, 6, pane("a", 2)))
        client.delete(marker)
        with pytest.raises(SinkError, match="vanished"):
            writer.deliver(record(staged, 6, pane("a", 2)))
    assert list(totals(client, prefix).values()) == ["1"]


def test_a_cache_that_throws_keys_away_is_refused(sink: tg.Redis, client: Any) -> None:
    client.config_set("maxmemory", "1gb")
    client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(SinkError, match="allkeys-lru") as error:
            sink.open(target())
        assert "noeviction" in str(error.value.hint)
    finally:
        client.config_set("maxmemory", "0")
        client.config_set("maxmemory-policy", "noeviction")


def test_a_full_memory_is_waited_for(sink: tg.Redis, client: Any, staged: Path) -> None:
    with closing(sink.open(target())) as writer:
        client.config_set("maxmemory", "1")
        try:
            with pytest.raises(Unavailable, match="memory is full"):
                writer.deliver(record(staged, 1, pane("a", 1)))
        finally:
            client.config_set("maxmemory", "0")
        assert writer.deliver(record(staged, 1, pane("a", 1))) == 1


# Secrets.


def test_the_password_is_never_shown(client: Any, redis_server: RunningServer) -> None:
    client.config_set("requirepass", "richtig")
    try:
        wrong = redis_server.address.replace("redis://", "redis://:geheim@")
        for url in (wrong, "redis://u:geheim@127.0.0.1:1/0", "redis://u:ge:heim@host:port/0", "geheim"):
            sink = tg.Redis(url, "revenue")
            with pytest.raises((SinkError, Unavailable)) as error:
                sink.open(target())
            assert "heim" not in f"{sink!r} {sink.describe()} {sink.problems()} {error.value}"
        with pytest.raises(SinkError, match="does not let us in"):
            tg.Redis(wrong, "revenue").open(target())
    finally:
        client.config_set("requirepass", "")


@pytest.mark.parametrize("options", [{"prefix": ""}, {"ttl_from": "birth"}, {"atomic_rows": 0}, {"url": "http://host"}])
def test_what_cannot_work_is_a_problem_that_check_finds(options: dict[str, Any]) -> None:
    assert len(tg.Redis(**{"url": "redis://localhost", "prefix": "p"} | options).problems()) == 1
