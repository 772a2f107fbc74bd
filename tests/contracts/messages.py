"""A source of messages for tests: Parquet files that hold each message as bytes, with headers, as a topic would."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.sources.files import Files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidegate.contracts import Contract

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_COLUMNS = "value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"


@dataclass(frozen=True)
class Messages(Files):
    """Its records are bytes; what they mean is for the contract to say."""

    format: Any = "parquet"
    has_headers: bool = True

    @property
    def encoding(self) -> str:
        return "bytes"

    def problems(self, contract: Contract) -> list[str]:
        return []

    def stream(self, spark: Any, contract: Contract, max_batch: int | None, name: str) -> DataFrame:
        return super().stream(spark, _Columns(), max_batch, name)  # type: ignore[arg-type]

    def batch(self, spark: Any, contract: Contract, files: list[str] | None = None) -> DataFrame:
        return super().batch(spark, _Columns(), files)  # type: ignore[arg-type]

    def _envelope(self, rows: DataFrame, contract: Contract) -> DataFrame:
        found = super()._envelope(rows, contract).drop("_raw").withColumnRenamed("value", "_raw")
        return found.withColumnRenamed("headers", "_headers")


class _Columns:
    ddl = _COLUMNS


def write_messages(
    path: Path, values: list[bytes | None], headers: list[list[tuple[str, bytes]]] | None = None
) -> None:
    told = [[{"key": key, "value": value} for key, value in row] for row in headers or [[] for _ in values]]
    pq.write_table(pa.table({"value": pa.array(values, pa.binary()), "headers": pa.array(told, _HEADERS)}), path)
