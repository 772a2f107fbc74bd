"""A contract from a JSON Schema: its properties are the fields, its bounds and enums are expectations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegate.contracts.contract import Contract, Field
from tidegate.contracts.wire import Wire
from tidegate.errors import ContractError

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


def json_contract(schema: Any, name: str, wire: Wire | None = None) -> Contract:
    """The contract that a JSON Schema describes; `name` is what to call it when it is not one."""
    if not isinstance(schema, dict) or "properties" not in schema:
        raise ContractError(f"contract {name!r} is not a JSON Schema of an object with `properties`")
    fields = [Field(field, _json_type(sub, field)) for field, sub in schema["properties"].items()]
    return Contract(fields, required=schema.get("required", ()), expect=_json_expectations(schema), wire=wire)
