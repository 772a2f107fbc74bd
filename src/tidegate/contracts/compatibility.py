"""Compatibility: may this schema follow those that were released before it?

Seven levels, with the names that schema registries use. BACKWARD: whoever uses the new schema can read what was written
with the last one, so consumers are updated first. FORWARD: whoever still uses the last one can read what is written
with the new, so producers are updated first. FULL: both. ``_TRANSITIVE``: not only the last one, but all before it.
NONE: anything goes.

>>> from tidegate.contracts.schema import Schema
>>> old, new = Schema.of("ddl", "id STRING"), Schema.of("ddl", "id STRING, amount INT NOT NULL")
>>> [str(found.incompatibility) for found in violations(new, [old])]
['amount: the reader needs this field; no writer has it [FIELD_MISSING]']
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from tidegate.contracts.avro_rules import avro_incompatibilities
from tidegate.contracts.ddl_rules import ddl_incompatibilities
from tidegate.contracts.incompatibility import Incompatibility
from tidegate.contracts.json_rules import json_incompatibilities
from tidegate.contracts.schema import Schema
from tidegate.errors import ContractError

Mode = Literal["BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE"]
MODES: tuple[Mode, ...] = get_args(Mode)
DEFAULT: Mode = "BACKWARD"

Direction = Literal["backward", "forward"]


@dataclass(frozen=True)
class Violation:
    """An incompatibility with one earlier schema, in one direction: the new reads the old, or the old reads the new."""

    direction: Direction
    against: str
    incompatibility: Incompatibility


def incompatibilities(reader: Schema, writer: Schema) -> list[Incompatibility]:
    """Every reason why what was written with `writer` may not be readable with `reader`."""
    if reader.form != writer.form:
        text = f"a schema in {writer.form} cannot be compared with one in {reader.form}"
        return [Incompatibility("NOT_COMPARABLE", "", text)]
    match reader.form:
        case "avro":
            return avro_incompatibilities(reader.avro, writer.avro)
        case "json":
            return json_incompatibilities(reader.json, writer.json)
        case "ddl":
            return ddl_incompatibilities(reader.fields, writer.fields)


def violations(new: Schema, earlier: Sequence[Schema], mode: Mode = DEFAULT) -> list[Violation]:
    """What speaks against `new` after `earlier` (oldest first) under `mode`; nothing means that it may follow."""
    if mode not in MODES:
        raise ContractError(f"compatibility mode {mode!r} is unknown", hint=f"one of {', '.join(MODES)}")
    if mode == "NONE":
        return []
    compared = earlier if mode.endswith("_TRANSITIVE") else earlier[-1:]
    found: list[Violation] = []
    for old in reversed(compared):
        if mode.startswith(("BACKWARD", "FULL")):
            found += [Violation("backward", old.name, item) for item in incompatibilities(new, old)]
        if mode.startswith(("FORWARD", "FULL")):
            found += [Violation("forward", old.name, item) for item in incompatibilities(old, new)]
    return found
