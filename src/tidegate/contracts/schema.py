"""A schema as it was written: its text, in which form – Avro, JSON Schema or Spark DDL – and how it is called.

The form of a file is told by its ending: ``.avsc`` is Avro, ``.json`` JSON Schema, ``.ddl`` and ``.sql`` are Spark DDL.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from tidegate.contracts import avro
from tidegate.contracts.contract import Field, parse_ddl
from tidegate.errors import ContractError

Form = Literal["avro", "json", "ddl"]

FORMS: dict[str, Form] = {".avsc": "avro", ".json": "json", ".ddl": "ddl", ".sql": "ddl"}


@dataclass(frozen=True)
class Schema:
    """One schema; it was parsed when it was made, so what is wrong with it has been said."""

    form: Form
    text: str
    name: str
    references: Mapping[str, avro.AvroType] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(
        cls, form: Form, text: str, name: str = "the schema", references: Mapping[str, avro.AvroType] | None = None
    ) -> Schema:
        """A schema from its text; `references` are the named Avro types that it uses from elsewhere."""
        schema = cls(form, text, name, references or {})
        try:
            _ = schema.avro if form == "avro" else schema.json if form == "json" else schema.fields
        except ContractError as error:
            raise ContractError(f"{name}: {error.message}", hint=error.hint) from error
        return schema

    @cached_property
    def avro(self) -> avro.AvroType:
        return avro.parse(self.text, self.references)

    @cached_property
    def json(self) -> Any:
        try:
            found = json.loads(self.text)
        except json.JSONDecodeError as error:
            raise ContractError(f"not JSON: {error}") from error
        if not isinstance(found, dict | bool):
            raise ContractError("not a JSON Schema, which is an object")
        return found

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return parse_ddl(self.text)

    def same_as(self, other: Schema) -> bool:
        """Do they say the same, however it is laid out?"""
        if self.form != other.form:
            return False
        match self.form:
            case "avro":
                return avro.schema_text(self.avro) == avro.schema_text(other.avro)
            case "json":
                return bool(self.json == other.json)
            case "ddl":
                return self.fields == other.fields


def form_of(path: str | Path) -> Form:
    """The form of a file, by its ending."""
    found = FORMS.get(Path(path).suffix)
    if found is None:
        raise ContractError(
            f"{str(path)!r}: a schema file ends in {', '.join(FORMS)}",
            hint=".avsc is Avro, .json JSON Schema, .ddl DDL",
        )
    return found


def read_schema(path: str | Path) -> Schema:
    """The schema in a file."""
    form = form_of(path)
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ContractError(f"schema {str(path)!r} cannot be read: {reason}") from error
    return Schema.of(form, text, str(path))
