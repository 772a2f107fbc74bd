"""The dev servers that store files: HDFS, and an object store that speaks S3."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from http.client import HTTPConnection
from pathlib import Path
from threading import Barrier
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner
from tests.servers import RunningServer, unique

from tidegate import dev
from tidegate.cli import main
from tidegate.dev.s3 import ACCESS_KEY, BUCKET, SECRET_KEY, sweep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UUID = "3b68fcb1-54f7-4859-a9e1-83bb1be30ef3"


class Files:
    """HDFS through Hadoop's client, as Spark uses it."""

    def __init__(self, spark: SparkSession, server: RunningServer) -> None:
        java: Any = spark._jvm
        settings = java.org.apache.hadoop.conf.Configuration(spark.sparkContext._jsc.hadoopConfiguration())
        # The client keeps its connection to a server that was killed: without this, its next call fails.
        settings.set("dfs.client.retry.policy.enabled", "true")
        settings.set("dfs.client.retry.policy.spec", "200,100")
        self._path = java.org.apache.hadoop.fs.Path
        self._system = java.org.apache.hadoop.fs.FileSystem.newInstance(java.java.net.URI(server.address), settings)

    def write(self, path: str, content: bytes) -> None:
        file = self._system.create(self._path(path), False)
        file.write(bytearray(content))
        file.close()

    def read(self, path: str) -> bytes:
        file = self._system.open(self._path(path))
        try:
            return bytes(file.readAllBytes())
        finally:
            file.close()


@pytest.mark.servers
@pytest.mark.spark
def test_hdfs_keeps_what_was_written_over_a_kill_and_takes_writes_again(
    spark: SparkSession, hdfs: RunningServer
) -> None:
    folder = f"/{unique('kept')}"
    Files(spark, hdfs).write(f"{folder}/before", b"kept")
    hdfs.kill()
    hdfs.start()
    files = Files(spark, hdfs)
    assert files.read(f"{folder}/before") == b"kept"
    files.write(f"{folder}/after", b"new")
    assert files.read(f"{folder}/after") == b"new"


@pytest.mark.servers
@pytest.mark.spark
def test_hdfs_keeps_a_table_over_a_restart(spark: SparkSession, hdfs: RunningServer) -> None:
    place = f"{hdfs.address}/{unique('table')}"
    spark.range(1000).write.parquet(place)
    hdfs.restart()
    assert spark.read.parquet(place).agg({"id": "sum"}).collect()[0][0] == 499_500


@pytest.mark.servers
def test_both_daemons_of_hdfs_end_when_it_is_stopped_also_when_it_was_paused(hdfs: RunningServer) -> None:
    def daemons() -> set[str]:
        shown = subprocess.run(["ps", "-A", "-ww", "-o", "args="], capture_output=True, text=True, check=True).stdout
        ours = [line for line in shown.splitlines() if str(hdfs.folder) in line]
        return {line.rpartition(".")[2] for line in ours if "hdfs.server" in line}

    assert daemons() == {"DataNode", "NameNode"}
    hdfs.pause()
    began = time.monotonic()
    hdfs.stop()
    assert time.monotonic() - began < 25
    assert daemons() == set()
    hdfs.start()


def signed(method: str, path: str, extra: Iterable[tuple[str, str]] = (), secret: str = SECRET_KEY) -> dict[str, str]:
    """The headers of a request with Amazon's second signature, which leaves the content out."""
    date = formatdate(usegmt=True)
    digest = hmac.new(secret.encode(), f"{method}\n\n\n{date}\n{path}".encode(), hashlib.sha1).digest()
    return {"Date": date, "Authorization": f"AWS {ACCESS_KEY}:{base64.b64encode(digest).decode()}", **dict(extra)}


def ask(
    server: RunningServer, method: str, key: str = "", content: bytes = b"", query: str = "", **options: Any
) -> tuple[int, bytes]:
    path = f"/{BUCKET}/{key}" if key else f"/{BUCKET}"
    connection = HTTPConnection(urlsplit(server.address).netloc, timeout=30)
    try:
        connection.request(method, path + query, content, signed(method, path, **options))
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def keys(server: RunningServer, prefix: str) -> list[str]:
    status, listed = ask(server, "GET", query=f"?list-type=2&prefix={prefix}")
    assert status == 200
    return re.findall(r"<Key>(.*?)</Key>", listed.decode())


@pytest.mark.servers
def test_s3_keeps_what_it_answered_over_a_kill(s3: RunningServer) -> None:
    key = unique("kept")
    assert ask(s3, "PUT", key, b"content")[0] == 200
    s3.kill()
    s3.start()
    assert ask(s3, "GET", key) == (200, b"content")
    assert keys(s3, key) == [key]


@pytest.mark.servers
def test_of_those_who_create_one_s3_object_at_once_exactly_one_succeeds(s3: RunningServer) -> None:
    writers, prefix = 4, unique("race")
    for number in range(25):
        start = Barrier(writers)

        def create(content: bytes, key: str = f"{prefix}/{number}", start: Barrier = start) -> int:
            start.wait()
            return ask(s3, "PUT", key, content, extra=[("If-None-Match", "*")])[0]

        contents = [f"writer {writer}".encode() for writer in range(writers)]
        with ThreadPoolExecutor(writers) as pool:
            answers = list(pool.map(create, contents))
        assert Counter(answers) == {200: 1, 412: writers - 1}
        assert ask(s3, "GET", f"{prefix}/{number}") == (200, contents[answers.index(200)])


@pytest.mark.servers
def test_s3_refuses_a_wrong_secret_and_nobody(s3: RunningServer) -> None:
    assert ask(s3, "PUT", unique("refused"), b"content", secret="wrong")[0] == 403
    connection = HTTPConnection(urlsplit(s3.address).netloc, timeout=30)
    connection.request("GET", f"/{BUCKET}")
    assert connection.getresponse().status == 403
    connection.close()


@pytest.mark.servers
def test_an_upload_that_a_kill_cut_off_is_not_an_s3_object_afterwards(s3: RunningServer) -> None:
    key = unique("cut")
    path, where = f"/{BUCKET}/{key}", urlsplit(s3.address)
    headers = "".join(f"{name}: {value}\r\n" for name, value in signed("PUT", path).items())
    with socket.create_connection((where.hostname, where.port)) as connection:
        head = f"PUT {path} HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Length: 1000000\r\n{headers}\r\n"
        connection.sendall(head.encode() + bytes(500_000))
        until = time.monotonic() + 30
        while not keys(s3, key):  # S3Proxy shows it while it is written
            assert time.monotonic() < until
        s3.kill()
    s3.start()
    assert keys(s3, key) == []


def test_only_what_is_no_s3_object_is_swept(tmp_path: Path) -> None:
    def make(name: str, *, whole: bool) -> Path:
        file = tmp_path / BUCKET / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        if whole:
            try:
                os.setxattr(file, "user.user.content-md5", b"hash")
            except (OSError, AttributeError):
                pytest.skip("this file system keeps no attributes")
        return file

    make(f"folder/half-{UUID}", whole=False)
    make("folder/linked", whole=True)
    os.link(tmp_path / BUCKET / "folder/linked", tmp_path / BUCKET / f"folder/linked-{UUID}")
    make(f"folder/called-{UUID}", whole=True)
    make("folder/no-attributes", whole=False)
    sweep(tmp_path)
    left = sorted(file.name for file in (tmp_path / BUCKET / "folder").iterdir())
    assert left == [f"called-{UUID}", "linked", "no-attributes"]


TO_S3 = """
import sys
from tidegate.runtime.session import make_session
spark = make_session("s3a", "2", brief=True, jars=["s3a"])
hadoop, java = spark.sparkContext._jsc.hadoopConfiguration(), spark._jvm
hadoop.set("fs.s3a.endpoint", sys.argv[1])
place, Path = sys.argv[2], java.org.apache.hadoop.fs.Path
spark.range(1000).write.parquet(place + "/draft")
files = Path(place).getFileSystem(hadoop)
assert files.rename(Path(place + "/draft"), Path(place + "/table"))
print(spark.read.parquet(place + "/table").agg({"id": "sum"}).collect()[0][0])

only_new = "fs.option.create.conditional.overwrite"
print(files.hasPathCapability(Path(place), only_new))
for content in (b"first", b"second"):
    file = files.createFile(Path(place + "/claim")).must(only_new, True).build()
    file.write(bytearray(content))
    try:
        file.close()
        print("created")
    except Exception as error:
        print(error.java_exception.getClass().getName())
print(bytes(files.open(Path(place + "/claim")).readAllBytes()).decode())
print(files.delete(Path(place), True), files.exists(Path(place)))
"""


@pytest.mark.servers
@pytest.mark.spark
def test_spark_uses_s3_with_the_locked_jars(s3: RunningServer) -> None:
    place = f"s3a://{BUCKET}/{unique('spark')}"
    environment = os.environ | dict(dev.status(s3.folder, ["s3"])[0].environment)
    command = [sys.executable, "-c", TO_S3, s3.address, place]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    changed = "org.apache.hadoop.fs.s3a.RemoteFileChangedException"
    assert done.stdout.split() == ["499500", "True", "created", changed, "first", "True", "False"]


def test_hdfs_and_s3_are_started_only_when_they_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[str, ...]] = []
    monkeypatch.setattr(dev, "start", lambda folder, kinds, say: started.append(tuple(kinds)))
    for names in ((), ("s3", "hdfs")):
        assert CliRunner().invoke(main, ["dev", "up", *names, "--folder", str(tmp_path)]).exit_code == 0
    assert started == [("kafka", "postgres", "redis", "registry"), ("s3", "hdfs")]
