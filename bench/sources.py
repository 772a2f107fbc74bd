"""What each source brings in: rows per second, the same pipeline on the same events, as ratios inside one run.

Files of Parquet, files of JSON, a Kafka topic of JSON and one of Avro, whose schema is in a registry, hold the same
events. Rounds alternate; of each run the second half of the batches counts, and the median of all rounds. The servers
run on this machine and take their share of it.

    python bench/sources.py [--rows N] [--batches N] [--rounds N]
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from data import Shape

import tidegate as tg
from tidegate import dev
from tidegate.contracts.registry_client import RegistryClient
from tidegate.contracts.schema import Schema
from tidegate.runtime.drivers import run
from tidegate.runtime.reports import BatchReport, RunOptions
from tidegate.runtime.session import make_session

OUT = Path("bench-out")
PARTITIONS = 4
CONTRACT = "ts TIMESTAMP, key BIGINT, value DOUBLE"
AVRO = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "key", "type": "long"},
        {"name": "value", "type": "double"},
    ],
}


class Seconds:
    """A watcher that keeps what each batch read, and how long after the one before it was recorded.

    A batch is concluded while the next is folded, so how long each takes by itself would count some seconds twice.
    """

    def __init__(self) -> None:
        self.batches: list[tuple[int, float]] = []
        self._before = time.monotonic()

    def say(self, message: str) -> None:
        pass

    def batch(self, report: BatchReport) -> None:
        now = time.monotonic()
        if line := report.ledger.sources.get("events"):
            self.batches.append((line.read, now - self._before))
        self._before = now


def lines(path: Path) -> list[bytes]:
    table = pq.read_table(path)
    table = table.set_column(0, "ts", table["ts"].cast(pa.timestamp("us")).cast(pa.string()))
    times, keys, values = (table[name].to_pylist() for name in ("ts", "key", "value"))
    return [
        b'{"ts":"%sZ","key":%d,"value":%r}' % (t.encode(), k, v) for t, k, v in zip(times, keys, values, strict=True)
    ]


def avro_of(id_: int) -> Callable[[Path], list[bytes]]:
    """Encode the events of a file, each behind the id of its schema."""
    schema = fastavro.parse_schema(AVRO)
    prefix = b"\x00" + id_.to_bytes(4, "big")

    def encode(path: Path) -> list[bytes]:
        table = pq.read_table(path)
        columns = (table["ts"].cast(pa.int64()), table["key"], table["value"])
        found = []
        for ts, key, value in zip(*(column.to_pylist() for column in columns), strict=True):
            out = io.BytesIO(prefix)
            out.seek(len(prefix))
            fastavro.schemaless_writer(out, schema, {"ts": ts, "key": key, "value": value})
            found.append(out.getvalue())
        return found

    return encode


def write_json(parquet: Path) -> Path:
    folder = parquet.with_name(parquet.name + "-json")
    if not (folder / "_complete").exists():
        folder.mkdir(exist_ok=True)
        for path in sorted(parquet.glob("*.parquet")):
            (folder / f"{path.stem}.jsonl").write_bytes(b"\n".join(lines(path)) + b"\n")
        (folder / "_complete").touch()
    return folder


def write_topic(address: str, name: str, parquet: Path, encode: Callable[[Path], list[bytes]]) -> str:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result()
    producer = Producer({"bootstrap.servers": address, "linger.ms": 50, "batch.size": 500_000, "acks": 1})
    for path in sorted(parquet.glob("*.parquet")):
        for number, record in enumerate(encode(path)):
            while True:
                try:
                    producer.produce(name, record, partition=number % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.05)
        producer.flush()
    return name


def measure(source: Any, max_batch: int, contract: Any = CONTRACT, event_id: str | None = None) -> list[float]:
    """Rows per second of each batch in the second half of a run."""
    app = tg.App("bench")
    watermark = tg.Watermark(delay="1m", max_future=None)
    events = app.source("events", source, contract=contract, event_time="ts", event_id=event_id, watermark=watermark)
    result = events.key_by("key").window("totals", tg.Tumbling("1m")).aggregate(n=tg.count(), total=tg.sum("value"))
    app.sink("nowhere", result, tg.Memory())
    watched = Seconds()
    with tempfile.TemporaryDirectory() as folder:
        run(app, RunOptions(f"{folder}/checkpoint", mode="once", max_batch=max_batch), watched)
    later = watched.batches[len(watched.batches) // 2 :]
    return [rows / seconds for rows, seconds in later]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    shape = Shape("sources", options.batches, options.rows, 10_000, 60)
    parquet = shape.write(OUT / "data")
    as_json = write_json(parquet)
    servers = (OUT / "sources-servers").resolve()
    make_session("bench", jars=("kafka", "avro"))
    try:
        addresses = dev.start(servers, ["kafka", "registry"])
        address = addresses["kafka"]
        registered = RegistryClient(addresses["registry"]).register("avro-value", Schema.of("avro", json.dumps(AVRO)))
        in_json = tg.Kafka(address, topic=write_topic(address, "json", parquet, lines))
        in_avro = tg.Kafka(address, topic=write_topic(address, "avro", parquet, avro_of(registered.id)))
        contract = tg.Registry(addresses["registry"], "avro-value")
        contestants: dict[str, Callable[[], list[float]]] = {
            "files, Parquet": lambda: measure(tg.Files(str(parquet), format="parquet"), 1),
            "files, JSON": lambda: measure(tg.Files(str(as_json)), 1),
            "Kafka, JSON": lambda: measure(in_json, options.rows),
            "Kafka, Avro": lambda: measure(in_avro, options.rows, contract),
            "Kafka, Avro, event_id": lambda: measure(in_avro, options.rows, contract, "CAST(value AS STRING)"),
        }
        found: dict[str, list[float]] = {name: [] for name in contestants}
        for _ in range(options.rounds):
            for name, contestant in contestants.items():
                found[name] += contestant()
    finally:
        dev.stop(servers, ["kafka", "registry"], delete=True)
        shutil.rmtree(servers, ignore_errors=True)
    rates = {name: statistics.median(values) for name, values in found.items()}
    best = rates["files, JSON"]
    for name, rate in rates.items():
        print(f"{name:22} {rate:12,.0f} rows/s   {rate / best:5.2f} × files, JSON")
    (OUT / "sources.json").write_text(json.dumps(rates, indent=2))


if __name__ == "__main__":
    main()
