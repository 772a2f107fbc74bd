"""A contract: the fields of an event, which of them are required, and what must hold for each row.

It is written as Spark DDL (``"payment_id STRING NOT NULL, amount DECIMAL(12,2)"``), as a file with such DDL (``.ddl``,
``.sql``), as a JSON Schema (``.json``) or an Avro schema (``.avsc``), or it comes from a schema registry. A record that
does not parse is a dead letter `MALFORMED`; one that parses but lacks a required field or breaks an expectation is
`CONTRACT_VIOLATION`.

Contracts are read without Spark, so that `tidegate check` needs no session.

>>> Contract("id STRING NOT NULL, amount DECIMAL(12,2)").names
('id', 'amount')
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegate.contracts.wire import Wire
from tidegate.errors import ContractError

TYPES = frozenset(
    [
        "BOOLEAN",
        "BYTE",
        "TINYINT",
        "SHORT",
        "SMALLINT",
        "INT",
        "INTEGER",
        "LONG",
        "BIGINT",
        "FLOAT",
        "REAL",
        "DOUBLE",
        "DEC",
        "DECIMAL",
        "NUMERIC",
        "STRING",
        "CHAR",
        "VARCHAR",
        "BINARY",
        "DATE",
        "TIME",
        "TIMESTAMP",
        "TIMESTAMP_LTZ",
        "TIMESTAMP_NTZ",
        "INTERVAL",
        "VARIANT",
        "ARRAY",
        "MAP",
        "STRUCT",
    ]
)
"""The words that a field's type may begin with; told here, because Spark's parser would only say "syntax error"."""


@dataclass(frozen=True)
class Field:
    """One field: its name, its Spark type as DDL, and whether it must be there."""

    name: str
    type: str
    required: bool = False


@dataclass(frozen=True, init=False)
class Contract:
    """Fields, required fields, and named expectations (SQL conditions that every row must meet).

    `wire` says how the records lie in the source; without it they are written as the connector says.
    """

    fields: tuple[Field, ...]
    expectations: tuple[tuple[str, str], ...]
    wire: Wire | None = None

    def __init__(
        self,
        schema: str | Sequence[Field],
        *,
        required: Sequence[str] = (),
        expect: Mapping[str, str] | Sequence[str] = (),
        wire: Wire | None = None,
    ) -> None:
        fields = parse_ddl(schema) if isinstance(schema, str) else tuple(schema)
        names = [field.name for field in fields]
        for name in required:
            if name not in names:
                raise ContractError(
                    f"required field {name!r} is not in the contract", hint=f"its fields are {', '.join(names)}"
                )
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise ContractError(f"field {doubled[0]!r} stands twice in the contract")
        for field in fields:
            kind = re.match(r"\w*", field.type)
            if kind is None or kind[0].upper() not in TYPES:
                raise ContractError(
                    f"field {field.name!r} has the unknown type {field.type!r}",
                    hint=f"Spark's types are {', '.join(sorted(TYPES))}",
                )
        for name in names:
            if name.startswith("_"):
                raise ContractError(f"field {name!r}: names that begin with an underscore are Tidegate's own")
        object.__setattr__(
            self,
            "fields",
            tuple(Field(field.name, field.type, field.required or field.name in required) for field in fields),
        )
        pairs = expect.items() if isinstance(expect, Mapping) else [(sql, sql) for sql in expect]
        object.__setattr__(self, "expectations", tuple(pairs))
        object.__setattr__(self, "wire", wire)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    @property
    def required(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields if field.required)

    @property
    def ddl(self) -> str:
        """The fields as Spark DDL; nullability is checked by us, with a reason, not by the parser."""
        return ", ".join(f"`{field.name}` {field.type}" for field in self.fields)

    def describe(self) -> str:
        parts = [f"{field.name} {field.type}{' NOT NULL' if field.required else ''}" for field in self.fields]
        return ", ".join(parts + [f"expect {name}" for name, _ in self.expectations])


def parse_ddl(text: str) -> tuple[Field, ...]:
    """Split DDL into top-level fields; types are left to Spark, which knows them best."""
    text = re.sub(r"--[^\n]*", "", text)
    parts, depth, current = [], 0, ""
    for char in text:
        depth += (char in "<(") - (char in ">)")
        if char == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += char
    parts.append(current)
    fields = []
    for part in (part.strip() for part in parts):
        match = re.fullmatch(r"(?:`([^`]+)`|(\w+))\s*:?\s+(.+?)(\s+NOT\s+NULL)?", part, re.IGNORECASE | re.DOTALL)
        if match is None:
            raise ContractError(
                f"cannot read {part!r} as a field", hint='a contract is "name TYPE [NOT NULL], …", as in a CREATE TABLE'
            )
        fields.append(Field(match[1] or match[2], match[3].strip(), bool(match[4])))
    return tuple(fields)
