"""Writing dead letters: the fold's refused rows, completed with what is the same for the whole batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from tidegate import crash
from tidegate.deadletter.arrow import INSTANT, SCHEMA, TYPES
from tidegate.deadletter.as_json import as_json
from tidegate.deadletter.letter import ABOUT

_FEW_VALUES = ["pipeline", "source", "operator", "reason", "error", "partition", "origin", "status", "subject", "path"]


@dataclass(frozen=True)
class Circumstances:
    """What all letters of one source and batch share. Instants in µs; watermarks are those before the batch.

    What an operator has refused was judged by its own watermark, which with several sources is not that of the source.
    """

    pipeline: str
    source: str
    sequence: int
    clock: int
    watermark: int | None
    allowed_lateness: dict[str, int]
    watermarks: dict[str, int | None] = field(default_factory=dict)


def write_letters(staged: list[Path], target: Path, about: Circumstances) -> int:
    """Turn staged refused rows into dead letters, row group by row group; how many there are."""
    rows = 0
    target.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(target, SCHEMA, compression="zstd", use_dictionary=_FEW_VALUES) as writer:
        for path in staged:
            file = pq.ParquetFile(path)
            for batch in file.iter_batches(batch_size=50_000, columns=["_partition", "_dead"]):
                letters = _letters(pa.Table.from_batches([batch]), about)
                writer.write_table(letters)
                rows += letters.num_rows
                crash.point("mid_dead_letters")
    return rows


def corrupt_file_letters(paths: list[str], errors: list[str], about: Circumstances) -> pa.Table:
    """Letters for files that cannot be read at all: the file stays where it is, the letter names it."""
    empty = {name: [None] * len(paths) for name in SCHEMA.names}
    known = {
        "dlq_id": [f"file:{path}" for path in paths],
        "pipeline": [about.pipeline] * len(paths),
        "source": [about.source] * len(paths),
        "sequence": [about.sequence] * len(paths),
        "reason": ["CORRUPT_FILE"] * len(paths),
        "error": errors,
        "origin": paths,
        "failed_at": [about.clock] * len(paths),
        "attempt": [1] * len(paths),
        "status": ["new"] * len(paths),
    }
    columns = empty | known
    return pa.table(
        {name: pa.array(columns[name]).cast(SCHEMA.field(name).type) for name in SCHEMA.names}, schema=SCHEMA
    )


def _letters(rows: pa.Table, about: Circumstances) -> pa.Table:
    dead = rows["_dead"].combine_chunks()
    fields = {dead.type.field(i).name: pc.struct_field(dead, i) for i in range(dead.type.num_fields)}
    fields |= _told(fields.pop("about"))
    if "record" in fields:
        fields["raw"] = as_json(fields.pop("record")).cast(pa.binary())
    number = rows.num_rows
    is_late = pc.equal(fields["reason"], "LATE")
    watermark = pa.repeat(pa.scalar(about.watermark, pa.int64()), number)
    for operator, own in about.watermarks.items():
        is_theirs = pc.fill_null(pc.equal(fields["operator"], operator), False)
        watermark = pc.if_else(is_theirs, pa.scalar(own, pa.int64()), watermark)
    late_by = pc.divide(pc.subtract(watermark, fields["time"]), 1000)
    lateness = pa.nulls(number, pa.int64())
    for operator, allowed in about.allowed_lateness.items():
        lateness = pc.if_else(pc.equal(fields["operator"], operator), pa.scalar(allowed, pa.int64()), lateness)

    def same(value: str | int | None, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, kind), number)

    columns = {
        "dlq_id": fields["id"],
        "pipeline": same(about.pipeline, pa.string()),
        "source": same(about.source, pa.string()),
        "operator": fields["operator"],
        "sequence": same(about.sequence, pa.int64()),
        "reason": fields["reason"],
        "error": fields["error"],
        "partition": rows["_partition"],
        "origin": fields["origin"],
        "position": fields["position"],
        "arrival": _instant(fields["arrival"]),
        "event_time": _instant(fields["time"]),
        "watermark": _instant(watermark),
        "late_by_ms": pc.if_else(is_late, late_by, pa.scalar(None, pa.int64())),
        "window_start": _instant(fields["window_start"]),
        "window_end": _instant(fields["window_end"]),
        "allowed_lateness_ms": pc.divide(lateness, 1000),
        "subject": fields["subject"],
        "schema_id": fields["schema_id"],
        "path": fields["path"],
        "failed_at": same(about.clock, pa.int64()).cast(INSTANT),
        "attempt": same(1, pa.int32()),
        "status": same("new", pa.string()),
        "raw": fields["raw"],
        "key": fields.get("key", pa.nulls(number, TYPES["BINARY"])),
        "headers": fields.get("headers", pa.nulls(number, SCHEMA.field("headers").type)).cast(
            SCHEMA.field("headers").type
        ),
    }
    return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _told(about: pa.Array) -> dict[str, pa.Array]:
    """What a letter says about its event, from JSON to columns."""
    whole = pa.ListArray.from_arrays(pa.array([0, len(about)], pa.int32()), about)
    text = pc.binary_join(whole, "\n")[0].as_buffer()
    schema = pa.schema([(name, TYPES[kind]) for name, kind in ABOUT.items()])
    options = pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    # A block must hold a whole line, and the parser reads one at a time.
    table = pa_json.read_json(
        pa.BufferReader(text), pa_json.ReadOptions(use_threads=False, block_size=max(1 << 20, text.size + 1)), options
    )
    return {name: table[name].combine_chunks() for name in ABOUT}


def _instant(values: pa.Array) -> pa.Array:
    return values.cast(INSTANT)
