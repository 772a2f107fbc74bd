"""Writing dead letters: the fold's refused rows, completed with what is the same for the whole batch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate import crash
from tidegate.deadletter.arrow import HEADERS, INSTANT, SCHEMA, TYPES
from tidegate.deadletter.as_json import as_json
from tidegate.storage.parquet import writing
from tidegate.storage.places import Place

FROM_FOLD = ["_partition", "_dead"]
"""The columns of a refused row, as the fold has staged it, of which a letter is made."""
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


def write_letters(refused: Iterable[pa.Table], target: Place, about: Circumstances) -> None:
    """Turn refused rows, as the fold has staged them, into dead letters, piece by piece."""
    target.parent.mkdir(parents=True, exist_ok=True)
    how = {"compression": "zstd", "use_dictionary": _FEW_VALUES}
    with writing(target) as file, pq.ParquetWriter(file, SCHEMA, **how) as writer:
        for piece in refused:
            writer.write_table(_letters(piece, about))
            crash.point("mid_dead_letters")


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

    def told(name: str, kind: str) -> pa.Array:
        return fields[name] if name in fields else pa.nulls(number, TYPES[kind])

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
        "window_start": _instant(told("window_start", "BIGINT")),
        "window_end": _instant(told("window_end", "BIGINT")),
        "allowed_lateness_ms": pc.divide(lateness, 1000),
        "subject": told("subject", "STRING"),
        "schema_id": told("schema_id", "BIGINT"),
        "path": told("path", "STRING"),
        "failed_at": same(about.clock, pa.int64()).cast(INSTANT),
        "attempt": same(1, pa.int32()),
        "status": same("new", pa.string()),
        "raw": fields["raw"],
        "key": told("key", "BINARY"),
        "headers": told("headers", HEADERS).cast(TYPES[HEADERS]),
    }
    return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _instant(values: pa.Array) -> pa.Array:
    return values.cast(INSTANT)
