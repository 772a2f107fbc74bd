"""Dead letters in Kafka: the record as it came, the reason in headers, each exactly once – alone and in a pipeline."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sink_adapters import committed  # type: ignore[import-not-found]
from sink_cases import NOON, target  # type: ignore[import-not-found]
from tests.servers import RunningServer, unique
from tests.workbench import Bench, at

import tidegate as tg
from tidegate.deadletter.arrow import SCHEMA
from tidegate.errors import PipelineError, SinkError
from tidegate.sinks.base import Delivery

HEADERS = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))


def letters(folder: Path, *rows: dict[str, Any]) -> Path:
    """Staged letters, with the key and headers that those of a Kafka source have."""
    schema = SCHEMA
    for name, type_ in (("key", pa.binary()), ("headers", HEADERS)):
        if name not in schema.names:
            schema = schema.append(pa.field(name, type_))
    path = folder / f"{unique('letters')}.parquet"
    pq.write_table(pa.Table.from_pylist(list(rows), schema), path)
    return path


def letter(**changes: Any) -> dict[str, Any]:
    return {
        "dlq_id": "0e9ba7",
        "pipeline": "shop",
        "source": "orders",
        "operator": "revenue",
        "sequence": 1,
        "reason": "LATE",
        "error": "late by 5 s",
        "partition": "3",
        "origin": "orders-topic/3",
        "position": 42,
        "arrival": NOON + timedelta(milliseconds=7),
        "late_by_ms": 5000,
        "failed_at": NOON,
        "attempt": 1,
        "status": "new",
        "raw": b'\x00\xff{"id": 1}',
        "key": b"\x01key",
        "headers": [{"key": "trace", "value": b"\xfe"}, {"key": "trace", "value": None}],
    } | changes


def write(sink: tg.KafkaDeadLetters, checkpoint: str, *deliveries: Delivery) -> list[int]:
    with closing(sink.open(target("dead_letters", checkpoint_id=checkpoint, key=(), values=()))) as writer:
        return [writer.deliver(delivery) for delivery in deliveries]


@pytest.mark.servers
def test_a_letter_is_the_record_byte_for_byte_with_its_story_in_headers(kafka: RunningServer, tmp_path: Path) -> None:
    topic = unique("orders")
    delivery = Delivery(1, (letters(tmp_path, letter(origin=f"{topic}/3")),))
    sink = tg.KafkaDeadLetters(kafka.address)
    assert write(sink, topic, delivery, delivery) == [1, 0]
    assert write(sink, topic, delivery) == [0]
    (message,) = committed(kafka.address, f"dlq.{topic}")
    assert (message.key(), message.value()) == (b"\x01key", b'\x00\xff{"id": 1}')
    assert message.timestamp()[1] == int(NOON.timestamp() * 1000) + 7
    headers = message.headers()
    assert headers[:2] == [("trace", b"\xfe"), ("trace", None)]
    told = dict(headers[2:])
    for prefix in ("__dlq.errors.", "__connect.errors."):
        assert told[f"{prefix}topic"] == topic.encode()
        assert told[f"{prefix}partition"] == b"3"
        assert told[f"{prefix}offset"] == b"42"
    assert told["__dlq.errors.group"] == b"shop"
    assert told["__dlq.errors.message"] == told["__connect.errors.exception.message"] == b"late by 5 s"
    assert told["tidegate-id"] == b"0e9ba7"
    assert told["tidegate.reason"] == b"LATE"
    assert told["tidegate.late_by_ms"] == b"5000"
    assert "tidegate.watermark" not in told


@pytest.mark.servers
def test_letters_of_files_go_to_a_topic_named_after_their_source(kafka: RunningServer, tmp_path: Path) -> None:
    source = unique("orders")
    row = letter(source=source, origin="file:///data/orders/1.jsonl", key=None, headers=None, arrival=None)
    assert write(tg.KafkaDeadLetters(kafka.address), source, Delivery(1, (letters(tmp_path, row),))) == [1]
    (message,) = committed(kafka.address, f"dlq.{source}")
    told = dict(message.headers())
    assert "__dlq.errors.topic" not in told
    assert told["tidegate.origin"] == b"file:///data/orders/1.jsonl"


@pytest.mark.servers
def test_all_letters_may_go_to_one_topic(kafka: RunningServer, tmp_path: Path) -> None:
    topic = unique("graveyard")
    rows = [letter(dlq_id=f"{number}", origin=f"{topic}{number}/0", raw=None) for number in range(3)]
    sink = tg.KafkaDeadLetters(kafka.address, topic=topic)
    assert write(sink, topic, Delivery(1, (letters(tmp_path, *rows),)), Delivery(2, ())) == [3, 0]
    found = [dict(message.headers())["tidegate-id"] for message in committed(kafka.address, topic)]
    assert found == [b"0", b"1", b"2"]


APP = """
import tidegate as tg

app = tg.App("shop")
events = app.source(
    "SOURCE",
    tg.Files("INPUT"),
    contract="id STRING, k STRING, at TIMESTAMP",
    event_time="at",
    watermark=tg.Watermark(delay="0s"),
)
counts = events.key_by("k").window("counts", tg.Tumbling("10s")).aggregate(n=tg.count())
app.sink("table", counts, tg.SQLite("DATABASE", table="results"))
app.dead_letters(tg.KafkaDeadLetters("SERVERS"))
"""


@pytest.mark.servers
def test_a_pipeline_killed_while_it_sends_letters_sends_each_exactly_once(kafka: RunningServer, tmp_path: Path) -> None:
    bench, source = Bench(tmp_path), unique("events")
    file, names = bench.folder / "app.py", {"INPUT": str(bench.input), "DATABASE": str(bench.database)}
    text = APP.replace("SOURCE", source).replace("SERVERS", kafka.address)
    for name, value in names.items():
        text = text.replace(name, value)
    file.write_text(text)
    bench.write("1.jsonl", [{"id": "1", "k": "a", "at": at(0)}, b"not json \xff", {"id": "2", "k": "a", "at": at(60)}])
    bench.write("2.jsonl", [{"id": "3", "k": "a", "at": at(1)}, {"id": "4", "k": "a", "at": at(120)}, b"{broken"])

    command = [sys.executable, "-m", "tidegate.cli", "run", str(file), "--once", "--max-batch", "1"]
    command += ["--checkpoint", str(bench.checkpoint)]
    environment = os.environ | {"TIDEGATE_BRIEF": "yes", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    # The second time is in the letters' own transaction: the first is in SQLite's, which is delivered before.
    died = subprocess.run(
        command, env=environment | {"TIDEGATE_CRASH_AT": "mid_sink:2"}, capture_output=True, timeout=300, check=False
    )
    assert died.returncode == -signal.SIGKILL, died.stderr
    for _ in range(2):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr

    kept = {letter["dlq_id"]: letter["raw"] for letter in bench.dead_letters()}
    assert sorted(kept.values()) == sorted([b"not json \xff", b"{broken", kept_raw(at(1))])
    sent = [(dict(m.headers())["tidegate-id"].decode(), m.value()) for m in committed(kafka.address, f"dlq.{source}")]
    assert sorted(sent) == sorted(kept.items())


def kept_raw(when: str) -> bytes:
    """The late event as it was written."""
    return b'{"id": "3", "k": "a", "at": "%s"}' % when.encode()


def test_a_sink_of_panes_takes_no_letters_and_the_other_way_round(tmp_path: Path) -> None:
    app = tg.App("shop")
    stream = app.source("events", tg.Files(str(tmp_path)), contract="k STRING, at TIMESTAMP", event_time="at")
    counts = stream.key_by("k").window("counts", tg.Tumbling("10s")).aggregate(n=tg.count())
    with pytest.raises(PipelineError, match="takes panes"):
        app.dead_letters(tg.SQLite("x.db", table="letters"))
    with pytest.raises(PipelineError, match="takes dead letters"):
        app.sink("letters", counts, tg.KafkaDeadLetters("broker:9092"))
    with pytest.raises(PipelineError, match="already taken"):
        app.sink("dead_letters", counts, tg.Memory())
    app.dead_letters(tg.KafkaDeadLetters("broker:9092"))
    with pytest.raises(PipelineError, match="already"):
        app.dead_letters(tg.KafkaDeadLetters("broker:9092"))


def test_what_cannot_work_is_a_problem_that_check_finds() -> None:
    sink = tg.KafkaDeadLetters("", topic="a b", partitions=0, options={"sasl.password": "hush"})
    assert len(sink.problems()) == 3
    assert "hush" not in repr(sink) + sink.describe()
    with pytest.raises(SinkError):
        sink.open(target())
