"""What the command line's tests share: a project folder, and a checkpoint with records and dead letters in it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from tidegate.cli import main
from tidegate.runtime.ledger import Ledger, OperatorLine, PathLine, SourceLine
from tidegate.runtime.records import (
    Checkpoint,
    Offsets,
    PartitionClock,
    Record,
    Snapshot,
    SourceClock,
    StateFile,
)

Cli = Callable[..., Result]

APP = """
import tidegate as tg

app = tg.App("shop")
payments = app.source(
    "payments",
    tg.Files("data", partition="column:region"),
    contract="id STRING NOT NULL, merchant STRING, region STRING, amount DECIMAL(12,2), "
    "status STRING, paid_at TIMESTAMP",
    event_time="paid_at",
    event_id="id",
    watermark=tg.Watermark(delay="30s"),
)
revenue = (
    payments.where("status = 'captured'")
    .key_by("merchant")
    .window("revenue", tg.Tumbling("5m"), allowed_lateness="10m")
    .aggregate(orders=tg.count(), total=tg.sum("amount"))
)
app.sink("warehouse", revenue, tg.SQLite("shop.db", table="revenue"))
"""

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOON_US = int(NOON.timestamp()) * 1_000_000
MINUTE = 60_000_000

_TYPES = {
    "sequence": pa.int64(),
    "position": pa.int64(),
    "late_by_ms": pa.int64(),
    "allowed_lateness_ms": pa.int64(),
    "attempt": pa.int32(),
    "raw": pa.binary(),
}
_TIMES = ("arrival", "event_time", "watermark", "window_start", "window_end", "failed_at")


@pytest.fixture
def cli() -> Cli:
    """Run a command in this process; exceptions that no command catches make the test fail."""

    def run(*args: object, env: dict[str, str] | None = None) -> Result:
        return CliRunner().invoke(main, [str(arg) for arg in args], env=env)

    return run


@pytest.fixture
def app_file(tmp_path: Path) -> Path:
    path = tmp_path / "pipeline.py"
    path.write_text(APP)
    return path


def letter(number: int, reason: str, raw: bytes | None, **more: Any) -> dict[str, Any]:
    """A dead letter as the engine writes it, but for what the test says otherwise."""
    return {
        "dlq_id": f"{number:02d}c0ffee",
        "pipeline": "shop",
        "source": "payments",
        "operator": None,
        "sequence": 2,
        "reason": reason,
        "error": None,
        "partition": "north",
        "origin": "data/a.jsonl",
        "position": number,
        "arrival": NOON,
        "event_time": None,
        "watermark": None,
        "late_by_ms": None,
        "window_start": None,
        "window_end": None,
        "allowed_lateness_ms": None,
        "failed_at": NOON,
        "attempt": 1,
        "status": "new",
        "raw": raw,
    } | more


LETTERS_OF_2 = [
    letter(1, "MALFORMED", b'{"id": "x', error="unexpected end of input"),
    letter(2, "MALFORMED", b"\xff\xfe\x00", error="not UTF-8"),
    letter(3, "DUPLICATE", b'{"id": "d"}'),
]
LETTERS_OF_3 = [
    letter(
        4,
        "LATE",
        '{"id": "spät"}'.encode(),
        operator="revenue",
        sequence=3,
        partition="south",
        failed_at=NOON + timedelta(hours=1),
        event_time=NOON - timedelta(hours=2),
        late_by_ms=7_200_000,
    )
]


def write_letters(path: Path, letters: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    schema = pa.schema(
        [(name, pa.timestamp("us", "UTC") if name in _TIMES else _TYPES.get(name, pa.string())) for name in letters[0]]
    )
    pq.write_table(pa.Table.from_pylist(letters, schema=schema), path)


def _ledger(read: int, dead: dict[str, int], late: int) -> Ledger:
    passed = read - sum(dead.values()) - 1
    return Ledger(
        sources={"payments": SourceLine(read, passed, duplicates=1, dead=dead)},
        paths={"revenue": PathLine(passed, filtered=10, arrived=passed - 10)},
        operators={"revenue": OperatorLine(passed - 10, passed - 10 - late, late, panes={"on_time": 7})},
    )


@pytest.fixture
def checkpoint(app_file: Path) -> Path:
    """The default checkpoint of `app_file`: a claim, then two batches with four dead letters, 1,000 events in all."""
    folder = app_file.parent / ".tidegate" / "shop"
    opened = Checkpoint.create_or_open(str(folder), "shop")
    files = []
    for sequence, letters in ((2, LETTERS_OF_2), (3, LETTERS_OF_3)):
        path = folder / "data" / "dead" / f"{sequence}.parquet"
        write_letters(path, letters)
        relative = str(path.relative_to(folder))
        files.append(StateFile(relative, "payments", "dead", len(letters), path.stat().st_size, 0, 0, sequence))
    slices = StateFile("data/revenue/s.parquet", "revenue", "slices", 42, 12_345, 0, 0, 3)
    sources = {
        "payments": SourceClock(
            NOON_US - 5 * MINUTE,
            {
                "north": PartitionClock(NOON_US, NOON_US),
                "south": PartitionClock(NOON_US - 4 * MINUTE, NOON_US - MINUTE),
            },
        )
    }
    nothing, first, second = Ledger(), _ledger(600, {"MALFORMED": 2}, 0), _ledger(400, {}, 1)
    common: dict[str, Any] = {"claim": 1, "attempt": "a", "sources": sources, "watermarks": {"revenue": NOON_US}}
    offsets = Offsets("q", None, "{}", 0)
    opened.publish(
        Record(
            1, "claim", clock=NOON_US, offsets=None, ledger=nothing, totals=nothing, snapshot=Snapshot((), {}), **common
        )
    )
    opened.publish(
        Record(2, "batch", clock=NOON_US, offsets=offsets, ledger=first, totals=first, added=(files[0],), **common)
    )
    opened.publish(
        Record(
            3,
            "batch",
            clock=NOON_US + MINUTE,
            offsets=offsets,
            ledger=second,
            totals=first.plus(second),
            added=(files[1], slices),
            seconds=1.25,
            **common,
        )
    )
    return folder
