"""What a source is to the engine: raw rows, each with an envelope that says where it came from.

A source turns its system's rows into five columns, the same in streaming and in batch:

- ``_partition`` (string): what the watermark is kept by;
- ``_origin`` (string): the file, or topic and partition, that holds the record;
- ``_position`` (bigint): its place there (an offset, a row number), or NULL when the system does not say; the engine
  then numbers the rows of the batch;
- ``_arrival`` (bigint, µs): the broker's or file's timestamp;
- ``_raw`` (binary): the record byte for byte, or NULL when the system hands out typed columns (Parquet),
  which then follow under their own names.

A connector whose records have headers says so (`has_headers = True`) and adds ``_headers`` (array of structs of `key`,
string, and `value`, binary). When the contract has a *wire* (Avro, a schema registry) that says how to read ``_raw``,
and the connector's `encoding` does not matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidegate.contracts import Contract


class Source(Protocol):
    """What a user declares: a frozen value that can be described, checked and read."""

    @property
    def encoding(self) -> str:
        """How `_raw` is written: json, csv, or record (typed columns)."""
        ...

    def describe(self) -> str:
        """One line for `explain`, without secrets."""
        ...

    def problems(self, contract: Contract) -> list[str]:
        """What `check` can find wrong without Spark."""
        ...

    def ready(self) -> None:
        """Raise SourceError when it cannot be read now: a missing folder, a server that is down."""
        ...

    def listing(self) -> list[str]:
        """What a bounded run would read now: the identity of its input."""
        ...

    def count(self, files: list[str]) -> int | None:
        """How many records the files hold by their own account; None when only reading tells."""
        ...

    def stream(self, spark: SparkSession, contract: Contract, max_batch: int | None, name: str) -> DataFrame:
        """The endless form, bounded per micro-batch. Under `name` Spark's log finds it again, wherever it stands."""
        ...

    def batch(self, spark: SparkSession, contract: Contract, files: list[str] | None = None) -> DataFrame:
        """Everything that is there now, or only the given files."""
        ...
