"""A record without bytes is kept as JSON in its dead letter: every type, exactly."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.deadletter.as_json import as_json
from tidegate.testing.feed import Feed
from tidegate.testing.harness import Harness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def text_of(value: Any, kind: pa.DataType) -> str:
    return str(as_json(pa.array([value], kind))[0].as_py())


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (-7, pa.int64(), "-7"),
        (True, pa.bool_(), "true"),
        (0.1, pa.float64(), "0.1"),
        (float("nan"), pa.float64(), '"NaN"'),
        (float("-inf"), pa.float64(), '"-Infinity"'),
        (Decimal("1.20"), pa.decimal128(9, 2), "1.20"),
        (AT, pa.timestamp("us", tz="UTC"), '"2026-01-02T03:04:05.678901Z"'),
        (AT.replace(tzinfo=None), pa.timestamp("us"), '"2026-01-02T03:04:05.678901"'),
        (date(2026, 1, 2), pa.date32(), '"2026-01-02"'),
        (b"\x00\xff", pa.binary(), '"AP8="'),
        ('say "ü"\\\n\x01', pa.string(), '"say \\"ü\\"\\\\\\n\\u0001"'),
        ([1, None], pa.list_(pa.int32()), "[1,null]"),
        ([], pa.list_(pa.int32()), "[]"),
        ({"a": [{"b": None}]}, pa.struct({"a": pa.list_(pa.struct({"b": pa.string()}))}), '{"a":[{"b":null}]}'),
        (None, pa.struct({"a": pa.int32()}), "null"),
        (None, pa.null(), "null"),
    ],
)
def test_a_value_of_every_type_is_written_exactly(value: Any, kind: pa.DataType, expected: str) -> None:
    assert text_of(value, kind) == expected
    json.loads(expected)


def test_parts_of_arrays_are_written_like_whole_ones() -> None:
    records = [{"k": n, "l": [str(n)] * n, "s": None if n % 2 else {"x": n}} for n in range(6)]
    whole = pa.array(records)
    assert [json.loads(text) for text in as_json(whole.slice(2, 3)).to_pylist()] == records[2:5]


@pytest.mark.spark
def test_a_record_with_a_map_which_no_row_can_be_grouped_by_is_kept_exactly_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    app = tg.App("maps")
    contract = tg.Contract("t TIMESTAMP, k STRING, tags MAP<STRING, INT>", required=["k"])
    events = app.source("events", Feed(), contract=contract, event_time="t", watermark=tg.Manual())
    app.sink("out", events.key_by("k").window("minutes", tg.Tumbling("1m")).aggregate(n=tg.count()), tg.Memory())
    harness = Harness(spark, app, tmp_path / "checkpoint")
    try:
        rows = [{"t": AT.isoformat(), "k": key, "tags": {"a": 1}} for key in (None, "x")]
        (letter,) = harness.feed({"events": rows}).letters
    finally:
        harness.close()
    assert json.loads(letter["raw"]) == {"t": "2026-01-02T03:04:05.678901Z", "tags": {"a": 1}}
