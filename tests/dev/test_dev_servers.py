"""`tidegate dev`: real servers that start, answer, come back on the same port with their data, and stop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from urllib.request import urlopen

import psycopg
import pytest
import redis
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from tests.servers import RunningServer, unique

from tidegate import dev
from tidegate.cli import main
from tidegate.errors import MachineError

pytestmark = pytest.mark.servers


def cli(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["dev", *map(str, arguments)])


def create_topic(server: RunningServer, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": server.address})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)


def send(server: RunningServer, topic: str, value: bytes, timestamp: int = 0) -> None:
    producer = Producer({"bootstrap.servers": server.address})
    producer.produce(topic, value, timestamp=timestamp)
    assert producer.flush(30) == 0


def read(server: RunningServer, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer(
        {"bootstrap.servers": server.address, "group.id": unique("test"), "auto.offset.reset": "earliest"}
    )
    with closing(consumer):
        consumer.subscribe([topic])
        return [message.value() for message in consumer.consume(count, 30)]


def test_kafka_keeps_records_dated_in_the_past_over_a_kill(kafka: RunningServer) -> None:
    topic = unique("old")
    create_topic(kafka, topic)
    send(kafka, topic, b"from 1970", timestamp=1)
    kafka.kill()
    kafka.start()
    send(kafka, topic, b"again")
    assert read(kafka, topic, 2) == [b"from 1970", b"again"]


def test_kafka_creates_no_topic_by_itself(kafka: RunningServer) -> None:
    topic = unique("misspelt")
    producer = Producer({"bootstrap.servers": kafka.address, "message.timeout.ms": 2_000})
    producer.produce(topic, b"")
    producer.flush(30)
    assert topic not in AdminClient({"bootstrap.servers": kafka.address}).list_topics(timeout=30).topics


def test_postgres_keeps_committed_rows_over_a_kill(postgres: RunningServer) -> None:
    table = unique("t")
    with psycopg.connect(postgres.address) as connection:
        connection.execute(f"CREATE TABLE {table} AS SELECT 'kept' AS what")
    postgres.kill()
    postgres.start()
    with psycopg.connect(postgres.address) as connection:
        assert connection.execute(f"SELECT what FROM {table}").fetchall() == [("kept",)]
        assert connection.execute("SHOW fsync").fetchall() == [("on",)]
        assert connection.execute("SHOW wal_level").fetchall() == [("logical",)]


def test_postgres_stops_although_a_client_is_connected(postgres: RunningServer) -> None:
    with psycopg.connect(postgres.address) as connection:
        connection.execute("SELECT 1")
        began = time.monotonic()
        postgres.restart()
        assert time.monotonic() - began < 25
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")


def test_redis_keeps_what_it_answered_over_a_kill(redis_server: RunningServer) -> None:
    key = unique("key")
    with closing(redis.Redis.from_url(redis_server.address)) as client:
        client.set(key, "kept")
    redis_server.kill()
    redis_server.start()
    with closing(redis.Redis.from_url(redis_server.address)) as client:
        assert client.get(key) == b"kept"


def test_a_paused_server_stands_still_once_pause_returns(redis_server: RunningServer) -> None:
    """All its threads: one that still runs may answer, and what a test meant to break goes well."""
    status = dev.status(redis_server.folder, ["redis"])[0]
    for _ in range(50):
        redis_server.pause()
        threads = list(Path(f"/proc/{status.pid}/task").iterdir())
        states = {(thread / "stat").read_text().rpartition(")")[2].split()[0] for thread in threads}
        redis_server.resume()
        assert len(threads) > 1
        assert states == {"T"}


def test_a_paused_server_holds_its_connection_and_goes_on_when_resumed(redis_server: RunningServer) -> None:
    with closing(redis.Redis.from_url(redis_server.address, socket_timeout=0.5)) as client:
        client.ping()
        redis_server.pause()
        with pytest.raises(redis.TimeoutError):
            client.ping()
        redis_server.resume()
        assert client.ping()


def test_the_registry_speaks_the_confluent_api(registry: RunningServer) -> None:
    with urlopen(f"{registry.address}/subjects", timeout=10) as answer:
        assert isinstance(json.load(answer), list)


def test_up_status_and_down_on_the_command_line(tmp_path: Path) -> None:
    folder = ("--folder", tmp_path / "servers")
    try:
        first = cli("up", "redis", *folder)
        assert first.exit_code == 0, first.output
        again = cli("up", "redis", *folder)
        assert "started" in first.output
        assert "was running" in again.output
        found = json.loads(cli("status", "--json", *folder).output)
        address = found["redis"]["address"]
        assert found["redis"]["running"]
        assert not found["kafka"]["running"]
        assert cli("status", "--export", *folder).output == f"export REDIS_URL={address}\n"
        assert cli("down", *folder).output == "stopped redis\n"
        with suppress(redis.ConnectionError), closing(redis.Redis.from_url(address)) as client:
            client.ping()
            pytest.fail("it still answers")
        assert json.loads(cli("up", "redis", "--json", *folder).output)["redis"]["address"] == address
    finally:
        done = cli("down", "--delete", *folder)
    assert done.output == "stopped redis; data deleted\n"
    assert not (tmp_path / "servers" / "redis").exists()
    assert cli("down", *folder).output == "nothing was running\n"


def test_another_process_with_the_id_of_a_server_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "redis"
    folder.mkdir()
    (folder / "state.json").write_text(json.dumps({"pid": os.getpid(), "born": "long ago", "ports": [1]}))
    assert [status.running for status in dev.status(tmp_path, ["redis"])] == [False]
    assert dev.stop(tmp_path, ["redis"]) == []
    with pytest.raises(MachineError, match="not running"):
        dev.kill(tmp_path, "redis")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes as Linux shows them")
def test_a_killed_server_is_there_until_its_last_thread_has_let_go_of_the_port(tmp_path: Path) -> None:
    first_thread_ends = "import ctypes, os, threading, time; threading.Thread(target=time.sleep, args=[60]).start(); "
    first_thread_ends += "ctypes.CDLL(None).syscall({'x86_64': 60, 'aarch64': 93}[os.uname().machine], 0)"
    process = subprocess.Popen([sys.executable, "-c", first_thread_ends])
    try:
        while (stat := Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split())[0] != "Z":
            time.sleep(0.05)
        (tmp_path / "redis").mkdir()
        known = {"pid": process.pid, "born": stat[19], "ports": [1]}
        (tmp_path / "redis" / "state.json").write_text(json.dumps(known))
        assert [status.running for status in dev.status(tmp_path, ["redis"])] == [True]
    finally:
        process.kill()
    process.wait()
    assert [status.running for status in dev.status(tmp_path, ["redis"])] == [False]


def test_a_server_that_cannot_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    data = tmp_path / "redis" / "data" / "appendonlydir"
    data.mkdir(parents=True)
    (data / "appendonly.aof.manifest").write_text("not a manifest\n")
    done = cli("up", "redis", "--folder", tmp_path)
    assert done.exit_code == 1
    assert "redis ended while it was starting; the end of" in done.stderr
    assert "manifest" in done.stderr


def test_an_unknown_server_is_refused(tmp_path: Path) -> None:
    assert cli("up", "kafak", "--folder", tmp_path).exit_code == 2
    with pytest.raises(MachineError, match="'kafak'"):
        dev.start(tmp_path, ["kafak"])


def test_servers_outlive_the_command_that_started_them(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tidegate.cli", "dev", "up", "redis", "--json", "--folder", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, start_new_session=True)
    pid = json.loads(done.stdout)["redis"]["pid"]
    try:
        assert os.getsid(pid) == pid
        assert [status.running for status in dev.status(tmp_path, ["redis"])] == [True]
    finally:
        assert dev.stop(tmp_path, ["redis"]) == ["redis"]
    assert [status.running for status in dev.status(tmp_path, ["redis"])] == [False]


def test_a_server_does_not_keep_a_lock_of_whoever_started_it(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    command = [sys.executable, "-m", "tidegate.cli", "dev", "up", "redis", "--folder", str(tmp_path / "dev")]
    try:
        subprocess.run(["flock", str(lock), *command], check=True, capture_output=True)
        subprocess.run(["flock", "--nonblock", str(lock), "true"], check=True)
    finally:
        dev.stop(tmp_path / "dev", delete=True)
