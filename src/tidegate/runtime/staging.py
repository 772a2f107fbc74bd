"""Staging: the result of a computation as immutable Parquet files of this attempt, and what is in them.

A large result is written by the executors. A small one is taken as Arrow and written by the driver, which saves most
of the fixed cost of a Spark write; the size of the previous batch says which it will be, and a result that turns out
too large to take goes the other way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate import crash

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SMALL = 100_000
"""Rows up to which a result is expected to be taken to the driver."""


@dataclass
class Staged:
    """Staged files by the value of the column that split them."""

    files: dict[str, list[Path]]

    def of(self, *kinds: str) -> list[Path]:
        return [path for kind in kinds for path in self.files.get(kind, [])]

    def rows(self, *kinds: str) -> int:
        return sum(pq.read_metadata(path).num_rows for path in self.of(*kinds))

    def table(self, *kinds: str, columns: list[str]) -> pa.Table | None:
        """Some columns of some kinds, for the ledger and the watermark; None when there are no rows."""
        paths = self.of(*kinds)
        return pa.concat_tables([pq.read_table(path, columns=columns) for path in paths]) if paths else None


def stage(
    result: DataFrame, folder: Path, split: str | None = None, kinds: Sequence[str] = (), *, small: bool
) -> Staged:
    """Compute `result` and leave it under `folder`, split by the column `split`: a name, or a number among `kinds`."""
    if small:
        try:
            table = result.toArrow()
        except Exception as error:
            if "maxResultSize" not in str(error):
                raise
        else:
            return _write(table, folder, split, kinds)
    crash.point("while_staging")
    writer = result.write.mode("errorifexists")
    if split is not None:
        writer = writer.partitionBy(split)
    writer.parquet(str(folder))
    return _found(folder, split, kinds)


def _write(table: pa.Table, folder: Path, split: str | None, kinds: Sequence[str]) -> Staged:
    files: dict[str, list[Path]] = {}
    folder.mkdir(parents=True, exist_ok=True)
    crash.point("while_staging")
    values: list[Any] = [""] if split is None else pc.unique(table[split]).to_pylist()
    for value in values:
        part = table if split is None else table.filter(pc.equal(table[split], value)).drop_columns([split])
        if part.num_rows == 0:
            continue
        kind = kinds[value] if kinds else value
        path = folder / f"{kind or 'part'}.parquet"
        pq.write_table(part, path, compression="zstd")
        files[kind] = [path]
    return Staged(files)


def _found(folder: Path, split: str | None, kinds: Sequence[str]) -> Staged:
    files: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*.parquet")):
        value = "" if split is None else path.parent.name.removeprefix(f"{split}=")
        kind = kinds[int(value)] if kinds else value
        if pq.read_metadata(path).num_rows:
            files.setdefault(kind, []).append(path)
    return Staged(files)
