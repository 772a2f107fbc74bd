"""Words, numbers and tables as all commands print them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """One JSON value on stdout; what JSON does not know (paths, times) is written as text."""
    click.echo(json.dumps(value, indent=indent, default=str, ensure_ascii=False))


def number(value: int) -> str:
    return f"{value:,}"


def size(count: float) -> str:
    """Bytes, short: 812 B, 3.4 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def ago(us: int | None) -> str:
    """A span of time in its largest unit or two, for people: 41s, 3m 20s, 5h 2m, 12d 4h."""
    if us is None:
        return ""
    seconds = abs(us) // 1_000_000
    sign = "-" if us < 0 and seconds else ""
    for unit, length, below, part in (("d", 86_400, "h", 3_600), ("h", 3_600, "m", 60), ("m", 60, "s", 1)):
        if seconds >= length:
            rest = seconds % length // part
            return f"{sign}{seconds // length}{unit}" + (f" {rest}{below}" if rest else "")
    return f"{sign}{seconds}s"


def counts(values: dict[str, int]) -> str:
    """`LATE 12, MALFORMED 3`, the most frequent first."""
    ordered = sorted(values.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} {number(count)}" for name, count in ordered if count)


def table(headers: Sequence[str], rows: Sequence[Sequence[object]], *, indent: str = "  ") -> str:
    """Aligned columns; numbers to the right. Plain text, so that it can be piped and compared."""
    cells = [[number(cell) if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    right = [all(isinstance(row[i], int) for row in rows) and bool(rows) for i in range(len(headers))]
    widths = [max(len(header), *(len(row[i]) for row in cells), 0) for i, header in enumerate(headers)]

    def line(parts: Sequence[str]) -> str:
        placed = (
            part.rjust(width) if to_right else part.ljust(width)
            for part, width, to_right in zip(parts, widths, right, strict=True)
        )
        return (indent + "  ".join(placed)).rstrip()

    return "\n".join([line(headers), *map(line, cells)])
