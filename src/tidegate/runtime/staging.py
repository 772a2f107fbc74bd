"""Staging: the result of a computation as immutable Parquet files of this attempt, and what is in them.

A large result is written by the executors. A small one is taken as Arrow and written by the driver, which saves most
of the cost of a Spark write (140,000 rows: the last stage took 0.2 to 0.3 s instead of 0.45 to 0.55); the size of the
previous batch says which it will be, and a result that turns out too large to take goes the other way. What was taken
is in memory, so whoever only looks at it need not wait until it is written."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate import crash
from tidegate.storage.parquet import read_table, reading, rows_in, schema_of, write_table
from tidegate.storage.places import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SMALL = 16 << 20
"""Bytes of staged files up to which the next result is expected to be small enough to be taken to the driver."""
_PACKED = 4
"""Rows in memory take about so many times the room that they take in a file."""
_PIECE = 50_000
"""Rows that are looked at together where there may be very many."""

_WRITERS = ThreadPoolExecutor(max_workers=4, thread_name_prefix="tidegate-staging")


@dataclass
class Staged:
    """Staged files by the value of the column that split them, and what the driver still has of them in memory.

    `files` are there, or about to be; `of` waits for them. Kinds that nobody needs as files are in memory alone, under
    the name that their file would have had.
    """

    files: dict[str, list[Place]]
    taken: dict[Place, pa.Table] = field(default_factory=dict)
    _writing: list[Future[None]] = field(default_factory=list)

    def of(self, *kinds: str) -> list[Place]:
        for written in self._writing:
            written.result()
        return [path for kind in kinds for path in self.files.get(kind, [])]

    def rest(self) -> None:
        """Wait until nothing is written any more, whether it went well or not."""
        wait(self._writing)

    def is_small(self) -> bool:
        """Whether a result of this size can be taken to the driver."""
        packed: int = sum(table.nbytes for table in self.taken.values()) // _PACKED
        paths = [path for paths in self.files.values() for path in paths if path not in self.taken]
        return packed + sum(path.stat().st_size for path in paths) <= SMALL

    def read(self, path: Place, columns: Sequence[str]) -> pa.Table:
        """Those of some columns that a staged file has, for the ledger and the watermark."""
        if (table := self.taken.get(path)) is not None:
            return table.select([name for name in columns if name in table.column_names])
        available = schema_of(path).names
        return read_table(path, [name for name in columns if name in available])

    def pieces(self, *kinds: str, columns: list[str]) -> Iterator[pa.Table]:
        """Some columns of some kinds, not all rows at once."""
        for path in self.of(*kinds):
            if (table := self.taken.get(path)) is not None:
                yield from (table.select(columns).slice(at, _PIECE) for at in range(0, table.num_rows, _PIECE))
            else:
                with reading(path) as file:
                    for batch in pq.ParquetFile(file).iter_batches(batch_size=_PIECE, columns=columns):
                        yield pa.Table.from_batches([batch])

    def table(self, *kinds: str, columns: Sequence[str]) -> pa.Table | None:
        """Some columns of some kinds; None when there are no rows."""
        paths = self.of(*kinds)
        return pa.concat_tables([self.read(path, columns) for path in paths]) if paths else None


@dataclass(frozen=True)
class Taking:
    """What may be spared where the driver takes a result.

    Kinds that are not `needed` stay in memory. Columns that are only `noted` are in memory and not in files. And a
    column that is `seldom` there, a struct, travels as a list of at most one: Arrow writes a struct that is NULL as a
    NULL of each of its parts, and a list that is NULL as nothing.
    """

    needed: Collection[str]
    noted: Collection[str]
    seldom: str


def stage(
    result: DataFrame,
    folder: Place,
    split: str | None = None,
    kinds: Sequence[str] = (),
    *,
    small: bool,
    taking: Taking | None = None,
) -> Staged:
    """Compute `result` and leave it under `folder`, split by the column `split`: a name, or a number among `kinds`."""
    if small:
        try:
            table = (_as_list(result, taking.seldom) if taking else result).toArrow()
        except Exception as error:
            if "maxResultSize" not in str(error):
                raise
        else:
            return _write(table, folder, split, kinds, taking)
    crash.point("while_staging")
    writer = result.write.mode("errorifexists")
    if split is not None:
        writer = writer.partitionBy(split)
    writer.parquet(str(folder))
    return _found(folder, split, kinds)


def _write(table: pa.Table, folder: Place, split: str | None, kinds: Sequence[str], taking: Taking | None) -> Staged:
    staged = Staged({})
    folder.mkdir(parents=True, exist_ok=True)
    crash.point("while_staging")
    values: list[Any] = [""] if split is None else pc.unique(table[split]).to_pylist()
    for value in values:
        part = table if split is None else table.filter(pc.equal(table[split], value)).drop_columns([split])
        if part.num_rows == 0:
            continue
        kind = kinds[value] if kinds else value
        path = folder / f"{kind or 'part'}.parquet"
        kept, codec = part, "zstd"
        if taking:
            part = _from_list(part, taking.seldom)
            kept = part.drop_columns([name for name in taking.noted if name in part.column_names])
            codec = "lz4"  # state is read soon, and not for long: what packs fast is better than what packs small
        if taking is None or kind in taking.needed:
            # Without dictionaries: keys and sums hardly repeat. It takes half the time, and the files are smaller.
            writing = _WRITERS.submit(write_table, kept, path, compression=codec, use_dictionary=False)
            staged._writing.append(writing)
        staged.files[kind], staged.taken[path] = [path], part
    return staged


def _as_list(result: DataFrame, seldom: str) -> DataFrame:
    from pyspark.sql import functions as F

    return result.withColumn(seldom, F.expr(f"CASE WHEN {seldom} IS NOT NULL THEN array({seldom}) END"))


def _from_list(part: pa.Table, seldom: str) -> pa.Table:
    """The struct that was in the list; rows of one kind have it or have it not, and those without have no column."""
    at, found = part.column_names.index(seldom), part[seldom]
    if found.null_count == part.num_rows:
        return part.remove_column(at)
    return part.set_column(at, seldom, pc.list_flatten(found))


def _found(folder: Place, split: str | None, kinds: Sequence[str]) -> Staged:
    files: dict[str, list[Place]] = {}
    for path in sorted(folder.rglob("*.parquet")):
        value = "" if split is None else path.parent.name.removeprefix(f"{split}=")
        kind = kinds[int(value)] if kinds else value
        if rows_in(path):
            files.setdefault(kind, []).append(path)
    return Staged(files)
