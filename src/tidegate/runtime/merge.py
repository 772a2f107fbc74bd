"""Concatenating small Parquet files into one, row group by row group, so that memory stays flat."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def concatenate(sources: list[Path], target: Path) -> None:
    """Write the rows of `sources`, in order, into `target`: the newest file's columns, NULL where an older has none."""
    target.parent.mkdir(parents=True, exist_ok=True)
    schema = pq.read_schema(sources[-1]).remove_metadata()
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        for path in sources:
            for batch in pq.ParquetFile(path).iter_batches(batch_size=50_000):
                table = pa.Table.from_batches([batch])
                for field in schema:
                    if field.name not in table.column_names:  # a file from before there was this column
                        table = table.append_column(field, pa.nulls(table.num_rows, field.type))
                writer.write_table(table.select(schema.names).cast(schema))
