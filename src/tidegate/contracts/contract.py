"""A contract: the fields of an event, which of them are required, and what must hold for each row.

It is written as Spark DDL (``"payment_id STRING NOT NULL, amount DECIMAL(12,2)"``), as a file with such
DDL (``.ddl``, ``.sql``), or as a JSON Schema file (``.json``). A record that does not parse is a dead letter
`MALFORMED`; one that parses but lacks a required field or breaks an expectation is `CONTRACT_VIOLATION`.

Contracts are read without Spark, so that `tidegate check` needs no session.

>>> Contract("id STRING NOT NULL, amount DECIMAL(12,2)").names
('id', 'amount')
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    """Fields, required fields, and named expectations (SQL conditions that every row must meet)."""

    fields: tuple[Field, ...]
    expectations: tuple[tuple[str, str], ...]

    def __init__(
        self,
        schema: str | Sequence[Field],
        *,
        required: Sequence[str] = (),
        expect: Mapping[str, str] | Sequence[str] = (),
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


_JSON_TYPES = {"string": "STRING", "integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN"}
_JSON_FORMATS = {"date-time": "TIMESTAMP", "date": "DATE"}


def _json_type(schema: Mapping[str, Any], path: str) -> str:
    kinds = schema.get("type")
    kind = next((k for k in kinds if k != "null"), None) if isinstance(kinds, list) else kinds
    if kind == "string" and schema.get("format") in _JSON_FORMATS:
        return _JSON_FORMATS[schema["format"]]
    if kind == "number" and "multipleOf" in schema:
        digits = len(str(schema["multipleOf"]).partition(".")[2])
        return f"DECIMAL(38,{digits})" if digits else "DOUBLE"
    if kind in _JSON_TYPES:
        return _JSON_TYPES[kind]
    if kind == "array":
        return f"ARRAY<{_json_type(schema.get('items', {}), path + '[]')}>"
    if kind == "object":
        inner = [f"`{name}`: {_json_type(sub, f'{path}.{name}')}" for name, sub in schema.get("properties", {}).items()]
        return f"STRUCT<{', '.join(inner)}>"
    raise ContractError(
        f"{path}: JSON Schema type {kinds!r} is not known here",
        hint="use string, integer, number, boolean, array or object (and format date-time or date)",
    )


def _json_expectations(schema: Mapping[str, Any]) -> dict[str, str]:
    """The JSON Schema bounds that are plain SQL conditions on one field."""
    found: dict[str, str] = {}
    for name, sub in schema.get("properties", {}).items():
        for word, sign in (
            ("minimum", ">="),
            ("maximum", "<="),
            ("exclusiveMinimum", ">"),
            ("exclusiveMaximum", "<"),
        ):
            if word in sub:
                found[f"{name} {sign} {sub[word]}"] = f"`{name}` IS NULL OR `{name}` {sign} {sub[word]}"
        if "enum" in sub:
            values = ", ".join(
                "'" + str(v).replace("'", "''") + "'" if isinstance(v, str) else str(v) for v in sub["enum"]
            )
            found[f"{name} in enum"] = f"`{name}` IS NULL OR `{name}` IN ({values})"
    return found


def load_contract(spec: str | Path | Contract) -> Contract:
    """A contract from a value, a DDL text, or a file (`.json` is JSON Schema, `.ddl` and `.sql` are DDL)."""
    if isinstance(spec, Contract):
        return spec
    path = Path(spec)
    if path.suffix not in (".json", ".ddl", ".sql", ".avsc"):
        return Contract(str(spec))
    try:
        text = path.read_text()
    except OSError as error:
        raise ContractError(f"contract {str(spec)!r} cannot be read: {error.strerror}") from error
    if path.suffix == ".avsc":
        raise ContractError(
            f"contract {str(spec)!r}: Avro contracts are not known yet",
            hint="use DDL or JSON Schema (.ddl, .sql, .json)",
        )
    if path.suffix != ".json":
        return Contract(text)
    try:
        schema = json.loads(text)
    except json.JSONDecodeError as error:
        raise ContractError(f"contract {str(spec)!r} is not JSON: {error}") from error
    if not isinstance(schema, dict) or "properties" not in schema:
        raise ContractError(f"contract {str(spec)!r} is not a JSON Schema of an object with `properties`")
    fields = [Field(name, _json_type(sub, name)) for name, sub in schema["properties"].items()]
    return Contract(fields, required=schema.get("required", ()), expect=_json_expectations(schema))
