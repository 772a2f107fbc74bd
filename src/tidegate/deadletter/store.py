"""Reading dead letters: the Parquet files that the records name, and nothing else.

A dead letter was decided together with its batch, so it stands in exactly one of the files of kind ``dead`` that
the last record still lists; those files are never removed from that list. The caller says which files these are, for
records are the runtime's business. Reading needs pyarrow and no Spark; the raw records are read only when asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tidegate.deadletter.letter import COLUMNS
from tidegate.errors import CheckpointError, PipelineError
from tidegate.storage.parquet import read_table, schema_of
from tidegate.storage.places import Place

if TYPE_CHECKING:
    import pyarrow as pa

Letter = dict[str, Any]
"""One dead letter: the columns of `letter.COLUMNS` by name, times as aware `datetime` in UTC."""

NAMES: tuple[str, ...] = tuple(name for name, _ in COLUMNS)
WITHOUT_RAW: tuple[str, ...] = tuple(name for name in NAMES if name not in ("raw", "key", "headers"))
_TIMES = tuple(name for name, type_ in COLUMNS if type_ == "TIMESTAMP")


@dataclass(frozen=True)
class Filter:
    """Which letters; a field that is None does not restrict. `since` and `until` bound the time of failure."""

    reason: str | None = None
    source: str | None = None
    operator: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def mask(self, table: pa.Table) -> pa.Array:
        """True for each row that is meant; NULL, which a filter takes for false, where a field is missing."""
        import pyarrow as pa
        import pyarrow.compute as pc

        parts = [
            pc.equal(table[column], value)
            for column, value in (("reason", self.reason), ("source", self.source), ("operator", self.operator))
            if value is not None
        ]
        if self.since is not None:
            parts.append(pc.greater_equal(table["failed_at"], pa.scalar(self.since, pa.timestamp("us", "UTC"))))
        if self.until is not None:
            parts.append(pc.less(table["failed_at"], pa.scalar(self.until, pa.timestamp("us", "UTC"))))
        mask = pa.chunked_array([pa.array([True] * table.num_rows, pa.bool_())])
        for part in parts:
            mask = pc.and_(mask, part)
        return mask


@dataclass(frozen=True)
class DeadLetters:
    """The dead letters in these files, which are given newest first."""

    files: Sequence[Place]

    def tables(self, which: Filter, columns: Sequence[str] = NAMES) -> Iterator[pa.Table]:
        """One table per file that has letters which are meant, rows in the order of their records."""
        needed = dict.fromkeys((*columns, "reason", "source", "operator", "failed_at", "origin", "position"))
        for path in self.files:
            table = _read(path, list(needed))
            table = table.filter(which.mask(table))
            if table.num_rows:
                order = [("failed_at", "ascending"), ("origin", "ascending"), ("position", "ascending")]
                yield table.sort_by(order).select(list(columns))

    def letters(self, which: Filter, *, limit: int | None = None, columns: Sequence[str] = NAMES) -> Iterator[Letter]:
        """The letters, those of the newest record first; reading stops at `limit`."""
        left = limit
        for table in self.tables(which, columns):
            part = table if left is None else table.slice(0, left)
            yield from part.to_pylist()
            if left is not None:
                left -= part.num_rows
                if left <= 0:
                    return

    def find(self, dlq_id: str) -> Letter:
        """The letter with this id, or with an id that begins so, when there is only one."""
        import pyarrow.compute as pc

        found: list[Letter] = []
        for path in self.files:
            ids = _read(path, ["dlq_id"])
            if pc.any(pc.starts_with(ids["dlq_id"], dlq_id)).as_py():
                table = _read(path, list(NAMES))
                found += table.filter(pc.starts_with(table["dlq_id"], dlq_id)).to_pylist()
        exact = [letter for letter in found if letter["dlq_id"] == dlq_id]
        if exact or len(found) == 1:
            return (exact or found)[0]
        if not found:
            raise PipelineError(f"there is no dead letter {dlq_id!r}", hint="`tidegate dlq list` shows their ids")
        some = ", ".join(letter["dlq_id"] for letter in found[:3])
        raise PipelineError(f"{len(found)} dead letters have an id that begins with {dlq_id!r}", hint=f"such as {some}")

    def counts(self, which: Filter, by: str) -> dict[str | None, int]:
        """How many letters per value of the column `by`, the most frequent first."""
        found: dict[str | None, int] = {}
        for table in self.tables(which, (by,)):
            for row in table.group_by(by).aggregate([([], "count_all")]).to_pylist():
                found[row[by]] = found.get(row[by], 0) + row["count_all"]
        return dict(sorted(found.items(), key=lambda item: (-item[1], str(item[0]))))

    def span(self, which: Filter) -> tuple[datetime, datetime] | None:
        """When the first and the last of these letters failed; None when there are none."""
        import pyarrow.compute as pc

        bounds = [pc.min_max(table["failed_at"]).as_py() for table in self.tables(which, ("failed_at",))]
        times = [time for bound in bounds for time in bound.values() if time is not None]
        return (min(times), max(times)) if times else None


def instant(text: str) -> datetime:
    """An instant as a user writes it: ISO 8601, UTC unless it says otherwise."""
    time = datetime.fromisoformat(text)
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


def _read(path: Place, columns: list[str]) -> pa.Table:
    import pyarrow as pa

    from tidegate.deadletter.arrow import SCHEMA

    try:
        # `partitioning=None`: folder names such as `operator=x` must not become columns
        there = schema_of(path).names
        table = read_table(path, [name for name in columns if name in there], partitioning=None)
    except (OSError, pa.ArrowException) as error:
        raise CheckpointError(
            f"dead letters in {path} cannot be read: {error}",
            hint="the file is named by a record and must be there; restore it from a copy of the checkpoint",
        ) from error
    for name in columns:
        if name not in table.column_names:  # a file from before letters had this column
            table = table.append_column(SCHEMA.field(name), pa.nulls(table.num_rows, SCHEMA.field(name).type))
    # Spark may write INT96, which comes back in nanoseconds and without a time zone; it is always UTC.
    for name in set(columns) & set(_TIMES):
        index = table.column_names.index(name)
        column = table[name]
        if column.type != pa.timestamp("us", "UTC"):
            column = column.cast(pa.timestamp("us", getattr(column.type, "tz", None))).cast(pa.timestamp("us", "UTC"))
            table = table.set_column(index, name, column)
    return table
