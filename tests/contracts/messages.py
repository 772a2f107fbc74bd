"""A source of messages for tests: Parquet files that hold each message as bytes, with headers, as a topic would."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.contracts import Contract
from tidegate.sources.files import Files, FilesReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_COLUMNS = "value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"


@dataclass(frozen=True)
class Messages(Files):
    """Its records are bytes; what they mean is for the contract to say."""

    format: Any = "parquet"
    has_headers: bool = True

    @property
    def encoding(self) -> str:
        return "json"  # as Kafka says, whatever the contract

    @property
    def extra(self) -> Mapping[str, str]:
        return {"_headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>"} if self.has_headers else {}

    def problems(self, contract: Contract) -> list[str]:
        return []

    def open(self, spark: SparkSession, contract: Contract, name: str, max_batch: int | None) -> FilesReader:
        return _Reader(self, spark, Contract(_COLUMNS), name, max_batch or self.max_files)


class _Reader(FilesReader):
    def _envelope(self, rows: DataFrame) -> DataFrame:
        found = super()._envelope(rows).drop("_raw").withColumnRenamed("value", "_raw")
        return found.withColumnRenamed("headers", "_headers")


def write_messages(
    path: Path, values: list[bytes | None], headers: list[list[tuple[str, bytes]]] | None = None
) -> None:
    told = [[{"key": key, "value": value} for key, value in row] for row in headers or [[] for _ in values]]
    pq.write_table(pa.table({"value": pa.array(values, pa.binary()), "headers": pa.array(told, _HEADERS)}), path)
