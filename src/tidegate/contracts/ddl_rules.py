"""Can a DDL contract read what was written for another? Fields go by name, types may only widen.

A type is read as a tree: ``STRUCT<a: INT, b: ARRAY<STRING>>``. What only the writer has is ignored; what only the
reader has is NULL, unless it is required. Any plain type can be read as STRING, for the records are text.
"""

from __future__ import annotations

import re

from tidegate.contracts.contract import Field, parse_ddl
from tidegate.contracts.incompatibility import Incompatibility, below

_SAME = {
    "BYTE": "TINYINT",
    "SHORT": "SMALLINT",
    "INTEGER": "INT",
    "LONG": "BIGINT",
    "REAL": "FLOAT",
    "DEC": "DECIMAL",
    "NUMERIC": "DECIMAL",
    "TIMESTAMP_LTZ": "TIMESTAMP",
}
_WIDER = {
    "SMALLINT": ("TINYINT",),
    "INT": ("TINYINT", "SMALLINT"),
    "BIGINT": ("TINYINT", "SMALLINT", "INT"),
    "FLOAT": ("TINYINT", "SMALLINT"),
    "DOUBLE": ("TINYINT", "SMALLINT", "INT", "FLOAT"),  # not BIGINT: large numbers would be rounded
}
_DIGITS = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 19}
_NESTED = ("ARRAY", "MAP", "STRUCT")


def ddl_incompatibilities(reader: tuple[Field, ...], writer: tuple[Field, ...]) -> list[Incompatibility]:
    """Every reason why records of the contract `writer` may be refused under `reader`."""
    return _fields(reader, writer, "")


def _fields(reader: tuple[Field, ...], writer: tuple[Field, ...], path: str) -> list[Incompatibility]:
    theirs = {field.name.lower(): field for field in writer}
    found: list[Incompatibility] = []
    for mine in reader:
        where, other = below(path, mine.name), theirs.get(mine.name.lower())
        if other is None:
            if mine.required:
                found.append(Incompatibility("FIELD_MISSING", where, "the reader needs this field; no writer has it"))
            continue
        if mine.required and not other.required:
            found.append(Incompatibility("REQUIRED_ADDED", where, "it may be missing in what was written"))
        found += _types(mine.type, other.type, where)
    return found


def _types(reader: str, writer: str, path: str) -> list[Incompatibility]:
    (mine, my_parts), (theirs, their_parts) = split_type(reader), split_type(writer)
    if mine == theirs == "ARRAY":
        return _types(my_parts[0], their_parts[0], path + "[]")
    if mine == theirs == "MAP":
        return _types(my_parts[0], their_parts[0], path + "{key}") + _types(my_parts[1], their_parts[1], path + "{}")
    if mine == theirs == "STRUCT":
        return _fields(struct_fields(my_parts), struct_fields(their_parts), path)
    if _reads(mine, my_parts, theirs, their_parts):
        return []
    return [Incompatibility("TYPE_CHANGED", path, f"{writer} cannot be read as {reader}")]


def _reads(mine: str, my_parts: list[str], theirs: str, their_parts: list[str]) -> bool:
    if mine in ("STRING", "VARIANT") and (theirs not in _NESTED or mine == "VARIANT"):
        return True
    if mine == "DECIMAL":
        precision, scale = _decimal(my_parts)
        if theirs in _DIGITS:
            return precision - scale >= _DIGITS[theirs]
        their_precision, their_scale = _decimal(their_parts)
        return theirs == "DECIMAL" and scale >= their_scale and precision - scale >= their_precision - their_scale
    if mine in ("VARCHAR", "CHAR"):
        return mine == theirs and int(my_parts[0]) >= int(their_parts[0])
    return (mine == theirs and my_parts == their_parts) or theirs in _WIDER.get(mine, ())


def _decimal(parts: list[str]) -> tuple[int, int]:
    """Spark's default is DECIMAL(10,0)."""
    precision, scale = ([*parts, "0"] if len(parts) == 1 else parts or ["10", "0"])[:2]
    return int(precision), int(scale)


def split_type(text: str) -> tuple[str, list[str]]:
    """``MAP<STRING, INT>`` is (MAP, [STRING, INT]); a plain type has no parts."""
    match = re.fullmatch(r"\s*(\w+)\s*(?:[<(](.*)[>)])?\s*(.*)", text, re.DOTALL)
    if match is None:
        return text.strip().upper(), []
    word = match[1].upper()
    if match[3]:  # INTERVAL DAY TO SECOND
        return " ".join(text.upper().split()), []
    return _SAME.get(word, word), _split(match[2]) if match[2] else []


def struct_fields(parts: list[str]) -> tuple[Field, ...]:
    """The fields of a STRUCT, whose colon is optional."""
    return parse_ddl(", ".join(re.sub(r"^(`[^`]+`|\w+)\s*:\s*", r"\1 ", part) for part in parts)) if parts else ()


def _split(text: str) -> list[str]:
    parts, depth, current = [], 0, ""
    for char in text:
        depth += (char in "<(") - (char in ">)")
        if char == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += char
    return [*parts, current.strip()]
