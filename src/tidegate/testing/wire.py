"""Rows of a test as a source would bring them: in the bytes of its encoding.

A test that handed typed rows to a JSON source would step around its contract. So rows are written as the source's
system would hold them, and the engine decodes them as ever: what does not fit the contract becomes a dead letter.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from datetime import date
from typing import Any

from tidegate.errors import PipelineError
from tidegate.stream import SourceNode

Row = Mapping[str, Any]


def to_json(row: Row) -> str:
    """A row as JSON, with times in ISO 8601; fields that begin with an underscore are about it, not of it."""
    content = {name: value for name, value in row.items() if not name.startswith("_")}
    return json.dumps(content, default=_plain)


def to_bytes(row: Row | str | bytes, source: SourceNode) -> bytes:
    """A record as it lies in the source's system. Text and bytes are taken as they are, broken ones too."""
    if isinstance(row, bytes):
        return row
    if isinstance(row, str):
        return row.encode()
    match source.connector.encoding:
        case "json":
            return to_json(row).encode()
        case "csv":
            return _to_csv(row, source).encode()
        case encoding:
            raise PipelineError(
                f"source {source.name!r}: a row cannot be written as {encoding}", hint="feed it as bytes"
            )


def _to_csv(row: Row, source: SourceNode) -> str:
    line = io.StringIO()
    delimiter = getattr(source.connector, "delimiter", ",")
    cells = [row.get(name) for name in source.contract.names]
    csv.writer(line, delimiter=delimiter, lineterminator="").writerow(
        ["" if cell is None else _plain(cell) for cell in cells]
    )
    return line.getvalue()


def _plain(value: Any) -> str:
    return value.isoformat() if isinstance(value, date) else str(value)
