"""Writing dead letters elsewhere: JSON lines, CSV, Parquet, or the raw records alone for a replay.

`raw`, `key` and the values of headers are bytes. In text formats they are written as UTF-8 where they are that, else
in base64, and `raw_encoding` and its like say which. Files are written beside their name and moved there when
complete: half an export looks like a whole one.
"""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Literal

from tidegate.deadletter.letter import COPIES
from tidegate.deadletter.store import NAMES, DeadLetters, Filter, Letter
from tidegate.errors import PipelineError

Format = Literal["jsonl", "csv", "parquet"]
FIELDS: tuple[str, ...] = (*NAMES, "raw_encoding", "key_encoding")


def readable(letter: Letter) -> dict[str, Any]:
    """A letter as text formats hold it: times in ISO 8601, raw bytes as text."""
    found = {
        name: value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value
        for name, value in letter.items()
    }
    if "raw" in letter:
        found["raw"], found["raw_encoding"] = _as_text(letter["raw"])
    if "key" in letter:
        found["key"], found["key_encoding"] = _as_text(letter["key"])
    if letter.get("headers") is not None:
        found["headers"] = [_header(header) for header in letter["headers"]]
    return found


def _header(header: dict[str, Any]) -> dict[str, str | None]:
    value, encoding = _as_text(header["value"])
    return {"key": header["key"], "value": value, "value_encoding": encoding}


def export(letters: DeadLetters, which: Filter, form: Format, out: IO[bytes]) -> int:
    """Write the letters to `out`; how many there were."""
    if form == "parquet":
        return _parquet(letters, which, out)
    writer = _jsonl if form == "jsonl" else _csv
    return writer(letters.letters(which), out)


def export_raw(letters: DeadLetters, which: Filter, out: IO[bytes]) -> tuple[int, int]:
    """Write the raw records, one per line, byte for byte; how many were written, and how many have none.

    Copies (duplicates, partially late events) are left out unless they are asked for by reason: their events
    are in the results already, and a replay would count them twice.
    """
    written = without = 0
    for letter in letters.letters(which, columns=("reason", "raw")):
        if letter["reason"] in COPIES and which.reason is None:
            continue
        if letter["raw"] is None:
            without += 1
            continue
        out.write(letter["raw"] + b"\n")
        written += 1
    return written, without


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that appears under its name only when it is complete."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        with temporary.open("wb") as file:
            yield file
        temporary.replace(path)
    except OSError as error:
        raise PipelineError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _as_text(raw: bytes | None) -> tuple[str | None, str | None]:
    if raw is None:
        return None, None
    try:
        return raw.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(raw).decode("ascii"), "base64"


def _jsonl(letters: Iterable[Letter], out: IO[bytes]) -> int:
    count = 0
    for letter in letters:
        out.write(json.dumps(readable(letter), ensure_ascii=False).encode() + b"\n")
        count += 1
    return count


def _csv(letters: Iterable[Letter], out: IO[bytes]) -> int:
    count = 0
    out.write(_csv_line(FIELDS))
    for letter in letters:
        found = readable(letter)
        if found["headers"] is not None:
            found["headers"] = json.dumps(found["headers"], ensure_ascii=False)
        out.write(_csv_line([found[name] for name in FIELDS]))
        count += 1
    return count


def _csv_line(values: Sequence[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow(values)
    return text.getvalue().encode()


def _parquet(letters: DeadLetters, which: Filter, out: IO[bytes]) -> int:
    import pyarrow.parquet as pq

    from tidegate.deadletter.arrow import SCHEMA

    count = 0
    with pq.ParquetWriter(out, SCHEMA) as writer:
        for table in letters.tables(which):
            writer.write_table(table.cast(SCHEMA))
            count += table.num_rows
    return count
