"""The kill matrix with every sink: one pipeline from a topic into all of them, its drivers killed inside each.

`postgres/mid_sink:2` is the second time that a process writes a record to PostgreSQL, between the rows and the commit;
`postgres/between_sinks` is the gap before PostgreSQL, when the sinks before it have committed. A sink that has a record
does not come to its `mid_sink` when the record is delivered again, so the numbers count what is really written.

Input is that of `test_kill_matrix`, but only four batches and the end of input: each brings panes, and each batch
dead letters.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from tests.chaos.drivers import Pipeline
from tests.chaos.targets import SINKS, Everywhere, Servers
from tests.servers import RunningServer

pytestmark = [pytest.mark.chaos, pytest.mark.servers]

FILES = 8

ONE_KILL_IN_EACH_SERVER = [
    "dead_letters/mid_sink",  # the first batch
    "postgres/mid_sink",  # the second
    "redis/mid_sink",  # the second again, after one of its steps
    "kafka/mid_sink:2",  # the second is delivered, then the third
    "delta/mid_sink:3",  # the third, the fourth, and the end of input: nothing is left but to deliver it
]
EVERY_SINK_AND_EVERY_GAP = [
    "mid_dead_letters",  # nothing is decided yet
    "after_record:2",  # the first batch is decided, and no sink has seen it
    "table/mid_sink:2",  # the first is delivered everywhere, then the second
    "log/mid_sink",
    "postgres/mid_sink",
    "redis/mid_sink:1",
    "redis/mid_sink:3",  # two steps further
    "kafka/mid_sink",
    "delta/mid_sink",
    "dead_letters/mid_sink",
    "log/between_sinks:2",  # the second is delivered at last, then the third: SQLite alone has it
    "postgres/between_sinks",
    "redis/between_sinks",
    "kafka/between_sinks",
    "delta/between_sinks",
    "dead_letters/between_sinks",
    "after_sinks:2",  # the third, then the fourth
    "postgres/mid_sink",  # the end of input
    "redis/mid_sink:2",
    "delta/mid_sink",
    "dead_letters/between_sinks",
]


@pytest.fixture(scope="module")
def servers(kafka: RunningServer, postgres: RunningServer, redis_server: RunningServer) -> Servers:
    return Servers(kafka, postgres, redis_server)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, servers: Servers) -> Everywhere:
    """The run that others are compared with. It also leaves an archive of Java classes, which halves a JVM's start."""
    folder = tmp_path_factory.mktemp("undisturbed")
    archive = folder / "classes.jsa"
    made = Everywhere.make(folder / "pipeline", servers, f"-XX:ArchiveClassesAtExit={archive}", files=FILES)
    made.pipeline.finish(*made.pipeline.bounded(2))
    made.pipeline.java = f"-XX:SharedArchiveFile={archive}" if archive.exists() else ""
    return made


@pytest.fixture
def disturbed(tmp_path: Path, undisturbed: Everywhere) -> Iterator[Everywhere]:
    made = Everywhere.make(tmp_path / "pipeline", undisturbed.servers, undisturbed.pipeline.java, files=FILES)
    yield made
    made.pipeline.close()


def test_the_undisturbed_run_shows_the_same_in_every_sink_and_what_the_chains_are_about(
    undisturbed: Everywhere,
) -> None:
    pipeline = undisturbed.pipeline
    assert pipeline.troubles() + undisturbed.disagreements() == []
    panes = Counter(row["sequence"] for row in pipeline.log())
    assert set(panes) == {2, 3, 4, 5, 6}, "a claim, four batches, the end of input"
    assert min(panes[3], panes[6]) > 4, f"where Redis is killed between steps, it takes some: {panes}"
    assert {2, 3, 4, 5} <= {letter["sequence"] for letter in pipeline.letters()}


def test_a_bit_that_differs_in_one_sink_is_noticed(undisturbed: Everywhere) -> None:
    """Else the chains below could not fail."""
    client: Any
    with closing(redis.Redis.from_url(undisturbed.servers.redis.address)) as client:
        name = next(client.scan_iter(f"{undisturbed.name}:k*"))
        kept = client.hget(name, "doubles")
        client.hset(name, "doubles", repr(math.nextafter(float(kept), math.inf)))
        found = undisturbed.disagreements()
        client.hset(name, "doubles", kept)
    assert [text.partition(" 1×")[0] for text in found] == ["redis: missing", "redis: too many"]
    with closing(psycopg.connect(undisturbed.servers.postgres.address)) as connection:
        table = undisturbed.name
        connection.execute(f"CREATE TABLE {table}_kept AS SELECT * FROM {table}".encode())
        connection.execute(f"DELETE FROM {table} WHERE k = 'k0'".encode())
        connection.commit()
        found = undisturbed.disagreements()
        connection.execute(f"INSERT INTO {table} SELECT * FROM {table}_kept WHERE k = 'k0'".encode())
        connection.commit()
    assert {text.partition(" 1×")[0] for text in found} == {"postgres: missing"}
    assert undisturbed.disagreements() == []


def test_every_sink_and_every_gap_between_two_has_a_case() -> None:
    assert {f"{sink}/mid_sink" for sink in SINKS} <= {case.partition(":")[0] for case in EVERY_SINK_AND_EVERY_GAP}
    assert {f"{sink}/between_sinks" for sink in SINKS[1:]} <= {c.partition(":")[0] for c in EVERY_SINK_AND_EVERY_GAP}


def test_drivers_killed_inside_each_server_leave_the_same_rows_in_all_sinks(
    disturbed: Everywhere, undisturbed: Everywhere
) -> None:
    kill_and_compare(disturbed, undisturbed, ONE_KILL_IN_EACH_SERVER)


@pytest.mark.slow
def test_drivers_killed_in_every_sink_and_every_gap_leave_the_same_rows_in_all_sinks(
    disturbed: Everywhere, undisturbed: Everywhere
) -> None:
    kill_and_compare(disturbed, undisturbed, EVERY_SINK_AND_EVERY_GAP)


def kill_and_compare(disturbed: Everywhere, undisturbed: Everywhere, chain: list[str]) -> None:
    pipeline = disturbed.pipeline
    pipeline.kill_at_each(chain, *pipeline.bounded(2))
    assert pipeline.troubles() + disturbed.disagreements() == []
    assert pipeline.differences_from(undisturbed.pipeline) == []
    assert far_from(pipeline, undisturbed.pipeline) == []


def far_from(one: Pipeline, other: Pipeline) -> list[str]:
    """Two runs add doubles in different orders: their sums may differ in the last digits, but in no others."""
    expected = {(row["k"], row["window_start"]): row for row in other.table()}
    return [
        f"{row['k']} {row['window_start']}: {name} is {row[name]} instead of {there[name]}"
        for row in one.table()
        for there in [expected[row["k"], row["window_start"]]]
        for name in ("doubles", "middle")
        if not math.isclose(row[name], there[name], rel_tol=1e-9, abs_tol=1e-3)
    ]
