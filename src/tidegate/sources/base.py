"""What a source is to the engine: ranges of raw records, each record with an envelope that says where it came from.

A *source* is what a user declares, a frozen value. Opened, it is a *reader*. The streaming query of a run supplies
nothing but offsets; what lies between two of them is a *range* – some files, or the offsets from … to … of each
partition of a topic – and the engine reads the range itself, as often as it needs to (decision 007). A bounded run
reads one range: everything that is there.

A reader turns its system's rows into five columns, the same in streaming and in batch:

- ``_partition`` (string): what the watermark is kept by;
- ``_origin`` (string): the file, or topic and partition, that holds the record;
- ``_position`` (bigint): its place there (an offset, a row number), or NULL when the system does not say; the engine
  then numbers the rows of the batch. Origin and position together are the identity of a record;
- ``_arrival`` (bigint, µs): the broker's or file's timestamp;
- ``_raw`` (binary): the record byte for byte, or NULL when the system hands out typed columns (Parquet),
  which then follow under their own names.

A system whose records are more than that (the key and the headers of Kafka) has further columns, its `extra`; they go
along, and a dead letter keeps them. Headers are ``_headers``, an array of structs of `key` (string) and `value`
(binary).

When the contract has a *wire* (Avro, a schema registry), that says how ``_raw`` is written, and `encoding` does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidegate.contracts import Contract
    from tidegate.errors import TidegateError
    from tidegate.storage.places import Place


@dataclass(frozen=True)
class Standing:
    """What a source still holds after a range was read.

    `unread` is how many records, by partition of its system, where the system says so. `behind` are the partitions of
    the watermark that have unread data; `behind_somewhere`: there is some, and only reading will tell in which.
    `identity` is what the system calls the thing that is read, when a new one could take its name (the id of a topic).
    """

    unread: Mapping[str, int] = field(default_factory=dict)
    behind: frozenset[str] = frozenset()
    behind_somewhere: bool = False
    identity: str | None = None


NOTHING_LEFT = Standing()

ONLY_PARTITION = "0"
"""The partition of a source that has but one."""


class Proof(Protocol):
    """What a source knows about the records of a range before they are read."""

    @property
    def counts(self) -> Mapping[str, str]:
        """What to count over the raw records while they are read: `name → SQL aggregate`."""
        ...

    def check(self, counted: Mapping[str, int], again: Callable[[], Mapping[str, int]]) -> None:
        """Raise DataLossRisk when the records cannot be those of the range. `again` reads and counts them anew."""
        ...


@dataclass(frozen=True)
class Records:
    """Raw records of a range.

    `count` is how many there are by the source's own account, where it keeps one. `proof` tells whether what was read
    is what the range holds. `wanted` is a condition: records that do not meet it are skipped, and counted.
    """

    frame: DataFrame
    count: int | None = None
    proof: Proof | None = None
    wanted: str | None = None


class Reader(Protocol):
    """A source of a running pipeline. `Any` is its own kind of range, which only it looks into.

    A range is false when it is empty, and its text is the identity of a bounded run's input.
    """

    def stream(self) -> DataFrame:
        """The endless form, bounded per micro-batch, of which only the offsets are used."""
        ...

    def whole(self) -> Any:
        """The range that a bounded run reads: from where the source begins to what is there now."""
        ...

    def taken(self, log: Place, start: str | None, end: str) -> Any:
        """The range between two offsets of Spark's log. `log` is the folder in which Spark keeps notes on the source.

        Without a start it is the first range of the source.
        """
        ...

    def without(self, span: Any, origins: frozenset[str]) -> Any:
        """The same range without some origins: files that cannot be read."""
        ...

    def holds(self, origin: str) -> int:
        """How surely an origin that Spark complains of is of this source; 0 when it is not."""
        ...

    def records(self, span: Any) -> Records:
        """The raw records of a range."""
        ...

    def standing(self, span: Any | None) -> Standing:
        """What is left when the range has been read; without one, what is left now, when nothing comes."""
        ...

    def check(self, before: str | None) -> None:
        """Ask the system whether it can be read on; `before` is the identity of what was read until now.

        Raises Unavailable when it does not answer, SourceError or DataLossRisk when it is not what was read before.
        """
        ...

    def trouble(self, error: BaseException) -> TidegateError | None:
        """What an error of Spark means, when it comes from this source; None when it does not."""
        ...

    def close(self) -> None: ...


class Source(Protocol):
    """What a user declares: a frozen value that can be described, checked and opened."""

    @property
    def encoding(self) -> str:
        """How `_raw` is written: json, csv, or record (typed columns)."""
        ...

    @property
    def extra(self) -> Mapping[str, str]:
        """Further columns of each raw record, `name → type`."""
        ...

    @property
    def partition(self) -> str | None:
        """``column:NAME`` when a field of the contract is what the watermark is kept by."""
        ...

    @property
    def one_partition(self) -> bool:
        """Whether all its records are of `ONLY_PARTITION`."""
        ...

    def describe(self) -> str:
        """One line for `explain`, without secrets."""
        ...

    def problems(self, contract: Contract) -> list[str]:
        """What `check` can find wrong without Spark."""
        ...

    def ready(self) -> None:
        """Raise SourceError when it cannot be read now, as far as that can be told before Spark starts."""
        ...

    def open(self, spark: SparkSession, contract: Contract, name: str, max_batch: int | None) -> Reader:
        """A reader. Under `name` Spark's log finds the source again; `max_batch` bounds a micro-batch."""
        ...
