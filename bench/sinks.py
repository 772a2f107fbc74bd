"""Rows per second of each sink: `rows` results inserted as one record, then all of them updated by the next.

Servers are started for the run (`tidegate dev`) and stopped after it. Every figure is the best of `--rounds`, on this
machine: a sink beside others, not a promise.

    python bench/sinks.py [--rows 200000] [--only sqlite,postgres] [--rounds 2]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import tidegate as tg
from tidegate import dev
from tidegate.runtime.session import make_session
from tidegate.sinks.base import Delivery, Sink, SinkTarget

OUT = Path("bench-out")
SERVERS = {"postgres": "postgres", "redis": "redis", "kafka": "kafka", "kafka_log": "kafka"}
KINDS = ("sqlite", "parquet_log", "postgres", "redis", "kafka", "kafka_log", "delta", "delta_log")


def results(rows: int, index: int) -> pa.Table:
    """Panes of `rows` keys in eight windows: a text key, a count, a decimal, a double."""
    number = pa.array(range(rows), pa.int64())
    start = pc.add(pc.multiply(pc.bit_wise_and(number, 7), 300_000_000), 1_772_366_400_000_000)
    return pa.table(
        {
            "merchant": pc.binary_join_element_wise("merchant", number.cast(pa.string()), "-"),
            "window_start": start.cast(pa.timestamp("us", "UTC")),
            "window_end": pc.add(start, 300_000_000).cast(pa.timestamp("us", "UTC")),
            "orders": pc.add(number, index),
            "total": number.cast(pa.decimal128(19, 0)).cast(pa.decimal128(22, 2)),
            "mean": pc.divide(number.cast(pa.float64()), 7.0),
            "pane_index": pa.repeat(pa.scalar(index, pa.int32()), rows),
            "pane_timing": pa.repeat("late" if index else "on_time", rows),
            "pane_final": pa.repeat(False, rows),
            "pane_change": pa.repeat("upsert", rows),
        }
    )


def declare(kind: str, folder: Path, addresses: dict[str, str]) -> Sink:
    name = f"bench_{uuid4().hex[:8]}"
    makers: dict[str, Callable[[], Sink]] = {
        "sqlite": lambda: tg.SQLite(folder / f"{name}.db", table="results"),
        "parquet_log": lambda: tg.ParquetLog(folder / name),
        "postgres": lambda: tg.Postgres(addresses["postgres"], table=name),
        "redis": lambda: tg.Redis(addresses["redis"], prefix=name),
        "kafka": lambda: tg.KafkaTopic(addresses["kafka"], name, partitions=3),
        "kafka_log": lambda: tg.KafkaTopic(addresses["kafka"], name, partitions=3, changes="log"),
        "delta": lambda: tg.Delta(folder / name),
        "delta_log": lambda: tg.Delta(folder / name, changes="log"),
    }
    return makers[kind]()


def measure(sink: Sink, records: list[Delivery]) -> list[float]:
    """Seconds of each record."""
    target = SinkTarget("bench", uuid4().hex, "out", 1, ("merchant",), ("orders", "total", "mean"), "results")
    with closing(sink.open(target)) as writer:
        seconds = []
        for delivery in records:
            began = time.perf_counter()
            writer.deliver(delivery)
            seconds.append(time.perf_counter() - began)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--only", default=",".join(KINDS))
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    kinds = options.only.split(",")
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"unknown sink {', '.join(sorted(unknown))}; choose of {', '.join(KINDS)}")
    servers = sorted({SERVERS[kind] for kind in kinds if kind in SERVERS})
    if any(kind.startswith("delta") for kind in kinds):
        make_session("bench", jars=("delta",))
    report = []
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as scratch:
        folder = Path(scratch)
        folder.chmod(0o755)  # PostgreSQL may have to run as another user
        try:
            addresses = dev.start(folder / "dev", servers)
            records = []
            for sequence in (1, 2):
                pq.write_table(results(options.rows, sequence - 1), folder / f"{sequence}.parquet")
                records.append(Delivery(sequence, (folder / f"{sequence}.parquet",)))
            print(f"{'sink':12} {'insert rows/s':>14} {'update rows/s':>14}")
            for kind in kinds:
                rounds = [measure(declare(kind, folder, addresses), records) for _ in range(options.rounds)]
                insert, update = (round(options.rows / min(seconds)) for seconds in zip(*rounds, strict=True))
                report.append({"sink": kind, "insert_rows_per_second": insert, "update_rows_per_second": update})
                print(f"{kind:12} {insert:>14,} {update:>14,}", flush=True)
        finally:
            dev.stop(folder / "dev", servers, delete=True)
    OUT.mkdir(exist_ok=True)
    (OUT / "sinks.json").write_text(json.dumps({"rows": options.rows, "sinks": report}, indent=2))
    print(f"written to {OUT / 'sinks.json'}")


if __name__ == "__main__":
    main()
