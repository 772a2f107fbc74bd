"""The dead letter as Arrow and Parquet hold it."""

from __future__ import annotations

import pyarrow as pa

from tidegate.deadletter.letter import COLUMNS

INSTANT = pa.timestamp("us", tz="UTC")

HEADERS = "ARRAY<STRUCT<key: STRING, value: BINARY>>"

TYPES: dict[str, pa.DataType] = {
    "STRING": pa.string(),
    "BIGINT": pa.int64(),
    "INT": pa.int32(),
    "TIMESTAMP": INSTANT,
    "BINARY": pa.binary(),
    HEADERS: pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}
SCHEMA = pa.schema([(name, TYPES[type_]) for name, type_ in COLUMNS])
