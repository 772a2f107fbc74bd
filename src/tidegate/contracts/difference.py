"""The difference of two schemas: fields added, removed and changed, each by its path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from tidegate.contracts.avro import AvroType
from tidegate.contracts.contract import Field
from tidegate.contracts.ddl_rules import split_type, struct_fields
from tidegate.contracts.incompatibility import below
from tidegate.contracts.json_rules import follow, types_of
from tidegate.contracts.schema import Schema


@dataclass(frozen=True)
class Difference:
    """One field that is not the same: how it was described, and how it is."""

    what: Literal["added", "removed", "changed"]
    path: str
    before: str | None
    after: str | None


def differences(old: Schema, new: Schema) -> list[Difference]:
    """What changed from `old` to `new`, in the order of the new schema, then what is gone."""
    before, after = paths(old), paths(new)
    found = []
    for path, text in after.items():
        if path not in before:
            found.append(Difference("added", path, None, text))
        elif before[path] != text:
            found.append(Difference("changed", path, before[path], text))
    return found + [Difference("removed", path, text, None) for path, text in before.items() if path not in after]


def paths(schema: Schema) -> dict[str, str]:
    """Every field by its path, with its type and whether it may be missing."""
    found: dict[str, str] = {}
    match schema.form:
        case "avro":
            _avro(schema.avro, "", found, (), "")
        case "json":
            _json(schema.json, schema.json, "", found, 0, "")
        case "ddl":
            _ddl(schema.fields, "", found)
    return found


def _avro(node: AvroType, path: str, found: dict[str, str], around: tuple[str, ...], default: str) -> None:
    """`around` are the records that we are inside of: one that contains itself is shown once."""
    found[path] = _avro_text(node) + default
    branches = node.branches if node.kind == "union" else (node,)
    for branch in branches:
        if branch.kind in ("array", "map"):
            suffix = "[]" if branch.kind == "array" else "{}"
            if branch.inner.kind not in ("record", "union", "array", "map"):
                continue
            _avro(branch.inner, path + suffix, found, around, "")
        elif branch.kind == "record" and branch.name not in around:
            for field in branch.fields:
                told = f", default {field.default!r}" if field.has_default else ""
                _avro(field.type, below(path, field.name), found, (*around, branch.name), told)


def _avro_text(node: AvroType) -> str:
    match node.kind:
        case "union":
            return " | ".join(map(_avro_text, node.branches))
        case "array" | "map":
            return f"{node.kind} of {_avro_text(node.inner)}"
        case "enum":
            chosen = f" (default {node.default})" if node.default else ""
            return f"enum {node.name} of {', '.join(node.symbols)}{chosen}"
        case "fixed" if node.logical is None:
            return f"fixed {node.name} of {node.size} bytes"
    return str(node)


_TOLD = (
    *("format", "enum", "const", "pattern", "multipleOf", "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"),
    *("minLength", "maxLength", "minItems", "maxItems", "additionalProperties"),
)


def _json(schema: Any, root: Any, path: str, found: dict[str, str], depth: int, told: str) -> None:
    if depth > 8:  # a schema that contains itself
        return
    plain = follow(schema, root, path)
    rules = [f"{word} {plain[word]!r}" for word in _TOLD if word in plain and not isinstance(plain[word], dict)]
    found[path] = ", ".join([" | ".join(types_of(plain)), *rules]) + told
    for name, inner in plain.get("properties", {}).items():
        needed = ", required" if name in plain.get("required", ()) else ""
        _json(inner, root, below(path, name), found, depth + 1, needed)
    if isinstance(plain.get("items"), dict):
        _json(plain["items"], root, path + "[]", found, depth + 1, "")


def _ddl(fields: tuple[Field, ...], path: str, found: dict[str, str]) -> None:
    for field in fields:
        where = below(path, field.name)
        found[where] = " ".join(field.type.upper().split()) + (" NOT NULL" if field.required else "")
        word, parts = split_type(field.type)
        while word == "ARRAY":
            where += "[]"
            word, parts = split_type(parts[0])
        if word == "STRUCT":
            _ddl(struct_fields(parts), where, found)
