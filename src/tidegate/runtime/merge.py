"""Concatenating small Parquet files into one, row group by row group, so that memory stays flat.

Dead letters and ids are only ever joined: unlike slices there is nothing in them to merge.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.runtime.state import LARGEST_CONCATENATED, Change, State
from tidegate.storage.parquet import reading, schema_of, writing
from tidegate.storage.places import Place


def join_crowd(state: State, change: Change, owner: str, kind: str, target: Place, sequence: int) -> None:
    """When small files of a kind have become many, let `target` take their place."""
    crowd = state.crowded(owner, (kind,), LARGEST_CONCATENATED)
    crowd = [file for file in crowd if file.path not in change.removed]
    if len(crowd) < 2:
        return
    concatenate([state.folder / file.path for file in crowd], target)
    change.removed += [file.path for file in crowd]
    low, high = min(file.low for file in crowd), max(file.high for file in crowd)
    change.added.append(state.entry(target, owner, kind, low=low, high=high, sequence=sequence, tier=crowd[0].tier + 1))


def concatenate(sources: list[Place], target: Place) -> None:
    """Write the rows of `sources`, in order, into `target`: the newest file's columns, NULL where an older has none."""
    target.parent.mkdir(parents=True, exist_ok=True)
    schema = schema_of(sources[-1]).remove_metadata()
    with writing(target) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for path in sources:
            with reading(path) as source:
                for batch in pq.ParquetFile(source).iter_batches(batch_size=50_000):
                    table = pa.Table.from_batches([batch])
                    for field in schema:
                        if field.name not in table.column_names:  # a file from before there was this column
                            table = table.append_column(field, pa.nulls(table.num_rows, field.type))
                    writer.write_table(table.select(schema.names).cast(schema))
