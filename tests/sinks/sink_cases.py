"""Panes for sink tests: what the engine would stage, written with pyarrow alone.

Test folders are no packages: pytest puts this one on the path, and mypy cannot see that.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.sinks.base import Delivery, SinkTarget

Row = dict[str, Any]
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
FIVE_MINUTES = timedelta(minutes=5)


def target(sink: str = "out", **changes: Any) -> SinkTarget:
    fields: Row = {
        "pipeline": "shop",
        "checkpoint_id": "c0ffee",
        "sink": sink,
        "claim": 1,
        "key": ("merchant",),
        "values": ("total",),
        "operator": "revenue",
    }
    return SinkTarget(**(fields | changes))


def pane(merchant: Any, total: Any, *, start: datetime | None = NOON, change: str = "upsert", index: int = 0) -> Row:
    return {
        "merchant": merchant,
        "window_start": start,
        "window_end": None if start is None else start + FIVE_MINUTES,
        "total": total,
        "pane_index": index,
        "pane_timing": "on_time" if index == 0 else "late",
        "pane_final": False,
        "pane_change": change,
    }


def schema(*, merchant: pa.DataType | None = None, **values: pa.DataType) -> pa.Schema:
    """The schema of staged files: a key `merchant`, and `total` or the given value columns."""
    instant = pa.timestamp("us", "UTC")
    columns = {"merchant": merchant or pa.string(), "window_start": instant, "window_end": instant}
    columns |= values or {"total": pa.int64()}
    columns |= {"pane_index": pa.int32(), "pane_timing": pa.string(), "pane_final": pa.bool_()}
    return pa.schema(columns | {"pane_change": pa.string()})


def stage(folder: Path, rows: Sequence[Row], as_schema: pa.Schema | None = None) -> Path:
    """Write rows as the engine would: one Parquet file with a name that was never used before."""
    folder.mkdir(exist_ok=True)
    file = folder / f"{uuid4().hex}.parquet"
    pq.write_table(pa.Table.from_pylist(list(rows), as_schema or schema()), file)
    return file


def record(folder: Path, sequence: int, *rows: Row, as_schema: pa.Schema | None = None) -> Delivery:
    """Record `sequence` with its rows in one staged file; without rows, with no file."""
    return Delivery(sequence, (stage(folder, rows, as_schema),) if rows else ())
