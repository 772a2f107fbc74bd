"""Avro schemas: read without a library, so that a contract is known before anything runs.

A schema is JSON in which a named type (record, enum, fixed) is defined once and then meant by its name, from inside
itself too. Here it is a graph of `AvroType`s with every name resolved; `schema_text` writes such a graph down again,
each definition at its first use, so that a schema with references to others becomes one text that stands alone.

>>> parse('{"type": "record", "name": "Payment", "fields": [{"name": "id", "type": "string"}]}').fields[0].type.kind
'string'
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.errors import ContractError

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
NAMED = ("record", "enum", "fixed")

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_LOGICAL = {
    "int": ("date", "time-millis"),
    "long": (
        *("time-micros", "timestamp-millis", "timestamp-micros", "timestamp-nanos"),
        *("local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos"),
    ),
    "string": ("uuid",),
    "bytes": ("decimal",),
    "fixed": ("decimal", "duration", "uuid"),
}
"""The logical types that Avro defines, by the type that carries them; any other is ignored, as Avro demands."""


@dataclass(eq=False)
class AvroType:
    """A type; `name` is the full name of a named one. Two types are the same only as the same object."""

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    fields: tuple[AvroField, ...] = ()
    symbols: tuple[str, ...] = ()
    default: str | None = None
    size: int = 0
    items: AvroType | None = None
    branches: tuple[AvroType, ...] = ()
    logical: str | None = None
    precision: int = 0
    scale: int = 0

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def inner(self) -> AvroType:
        """What an array or map is of."""
        assert self.items is not None
        return self.items

    def __str__(self) -> str:
        if self.kind == "union":
            return f"[{', '.join(map(str, self.branches))}]"
        if self.kind in ("array", "map"):
            return f"{self.kind} of {self.items}"
        if self.logical == "decimal":
            return f"decimal({self.precision},{self.scale})"
        if self.logical:
            return self.logical
        return f"{self.kind} {self.name}" if self.name else self.kind


@dataclass(frozen=True, eq=False)
class AvroField:
    """A field of a record. `default` counts only when `has_default`, for null is a default too."""

    name: str
    type: AvroType
    aliases: tuple[str, ...] = ()
    has_default: bool = False
    default: Any = None


def parse(schema: str | Any, references: Mapping[str, AvroType] | None = None) -> AvroType:
    """A schema from its JSON text or value; `references` are named types that were defined elsewhere."""
    if isinstance(schema, str) and schema.strip() not in PRIMITIVES:
        try:
            schema = json.loads(schema)
        except json.JSONDecodeError as error:
            raise ContractError(f"the Avro schema is not JSON: {error}") from error
    return _Parser(dict(references or {})).type(schema, "", "")


def named_types(root: AvroType) -> dict[str, AvroType]:
    """Every named type of a schema, by full name."""
    return {found.name: found for found in _walk(root, set()) if found.name}


def _walk(node: AvroType, seen: set[int]) -> Iterator[AvroType]:
    if id(node) in seen:
        return
    seen.add(id(node))
    yield node
    for child in (*(f.type for f in node.fields), *node.branches, *([node.items] if node.items else [])):
        yield from _walk(child, seen)


@dataclass
class _Parser:
    names: dict[str, AvroType]
    _defined: set[str] = field(default_factory=set)

    def type(self, schema: Any, namespace: str, path: str) -> AvroType:
        if isinstance(schema, str):
            return self._by_name(schema, namespace, path)
        if isinstance(schema, list):
            return self._union(schema, namespace, path)
        if not isinstance(schema, dict) or "type" not in schema:
            raise _wrong(path, f"{_shown(schema)} is not an Avro type", "a type is a name, a list or an object")
        kind = schema["type"]
        if not isinstance(kind, str):  # {"type": {"type": …}} is how some libraries write it
            return self.type(kind, namespace, path)
        match kind:
            case "record" | "error" | "enum" | "fixed":
                return self._named(schema, "record" if kind == "error" else kind, namespace, path)
            case "array" | "map":
                word = "items" if kind == "array" else "values"
                if word not in schema:
                    raise _wrong(path, f"the {kind} does not say of what", f'add "{word}"')
                inner = self.type(schema[word], namespace, path + ("[]" if kind == "array" else "{}"))
                return AvroType(kind, items=inner)
        if kind in PRIMITIVES:
            return self._annotated(AvroType(kind), schema, path)
        return self._by_name(kind, namespace, path)

    def _by_name(self, name: str, namespace: str, path: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self.names.get(full) or self.names.get(name)
        if found is None:
            known = ", ".join((*PRIMITIVES, "record, enum, fixed, array, map", *self.names))
            raise _wrong(
                path, f"the type {name!r} is not known", f"it must be defined before it is used; there are {known}"
            )
        return found

    def _union(self, schemas: list[Any], namespace: str, path: str) -> AvroType:
        branches = tuple(self.type(schema, namespace, path) for schema in schemas)
        keys = [branch.name or branch.kind for branch in branches]
        if not keys:
            raise _wrong(path, "the union has no branches")
        if "union" in keys:
            raise _wrong(path, "a union stands directly in a union", "write its branches into the outer one")
        doubled = sorted({key for key in keys if keys.count(key) > 1})
        if doubled:
            raise _wrong(path, f"the union has {doubled[0]!r} twice", "a reader could not tell them apart")
        return AvroType("union", branches=branches)

    def _named(self, schema: dict[str, Any], kind: str, namespace: str, path: str) -> AvroType:
        name = schema.get("name")
        if not isinstance(name, str) or not all(_NAME.fullmatch(part) for part in name.split(".")):
            raise _wrong(path, f"the {kind} has the name {_shown(name)}", "letters, digits, underscores, and dots")
        space = schema.get("namespace", namespace) or ""
        full = name if "." in name or not space else f"{space}.{name}"
        space = full.rpartition(".")[0]
        if full in self._defined:
            raise _wrong(path, f"{full!r} is defined twice", "define it once, and use its name after that")
        self._defined.add(full)
        aliases = tuple(a if "." in a or not space else f"{space}.{a}" for a in schema.get("aliases", ()))
        node = AvroType(kind, name=full, aliases=aliases)
        self.names[full] = node  # before its fields: a record may contain itself
        if kind == "record":
            node.fields = self._fields(schema.get("fields"), space, path)
        elif kind == "enum":
            node.symbols = _symbols(schema, path)
            node.default = schema.get("default")
            if node.default is not None and node.default not in node.symbols:
                raise _wrong(path, f"the default {_shown(node.default)} is not a symbol of enum {full}")
        else:
            size = schema.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise _wrong(path, f"fixed {full} has the size {_shown(size)}", "a number of bytes")
            node.size = size
            self._annotated(node, schema, path)
        return node

    def _fields(self, found: Any, namespace: str, path: str) -> tuple[AvroField, ...]:
        if not isinstance(found, list):
            raise _wrong(path, "the record has no list of fields")
        fields: list[AvroField] = []
        for entry in found:
            name = entry.get("name") if isinstance(entry, dict) else None
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise _wrong(path, f"a field has the name {_shown(name)}", "letters, digits and underscores")
            where = f"{path}.{name}" if path else name
            if any(other.name == name for other in fields):
                raise _wrong(where, "the field stands twice in its record")
            if "type" not in entry:
                raise _wrong(where, "the field has no type")
            kind = self.type(entry["type"], namespace, where)
            default = entry.get("default")
            if "default" in entry and not fits(default, kind):
                raise _wrong(where, f"the default {_shown(default)} is not of type {kind}")
            fields.append(AvroField(name, kind, tuple(entry.get("aliases", ())), "default" in entry, default))
        return tuple(fields)

    def _annotated(self, node: AvroType, schema: dict[str, Any], path: str) -> AvroType:
        logical = schema.get("logicalType")
        if logical not in _LOGICAL.get(node.kind, ()):
            return node
        if logical == "decimal":
            precision, scale = schema.get("precision"), schema.get("scale", 0)
            if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision > 0:
                raise _wrong(path, f"a decimal has precision {_shown(precision)} and scale {_shown(scale)}")
            node.precision, node.scale = precision, scale
        node.logical = logical
        return node


def _symbols(schema: dict[str, Any], path: str) -> tuple[str, ...]:
    symbols = schema.get("symbols")
    if not isinstance(symbols, list) or not all(isinstance(s, str) for s in symbols) or not symbols:
        raise _wrong(path, "the enum has no list of symbols")
    if len(set(symbols)) != len(symbols):
        raise _wrong(path, "the enum has a symbol twice")
    return tuple(symbols)


def fits(value: Any, kind: AvroType) -> bool:
    """Is the JSON `value` a default of this type? For a union, of any branch."""
    match kind.kind:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int" | "long":
            bits = 31 if kind.kind == "int" else 63
            return isinstance(value, int) and not isinstance(value, bool) and -(2**bits) <= value < 2**bits
        case "float" | "double":
            # Infinity and NaN have no JSON; libraries write them as text.
            return value in ("NaN", "Infinity", "-Infinity") or (
                isinstance(value, int | float) and not isinstance(value, bool)
            )
        case "string":
            return isinstance(value, str)
        case "bytes":
            return isinstance(value, str) and all(ord(c) < 256 for c in value)
        case "fixed":
            return isinstance(value, str) and len(value) == kind.size and all(ord(c) < 256 for c in value)
        case "enum":
            return value in kind.symbols
        case "array":
            return isinstance(value, list) and all(fits(v, kind.inner) for v in value)
        case "map":
            return isinstance(value, dict) and all(fits(v, kind.inner) for v in value.values())
        case "union":
            return any(fits(value, branch) for branch in kind.branches)
    return isinstance(value, dict) and all(
        fits(value[f.name], f.type) if f.name in value else f.has_default for f in kind.fields
    )


def schema_text(root: AvroType) -> str:
    """The schema as JSON that stands alone: names in full, each definition at its first use, no documentation."""
    return json.dumps(_json(root, set()), separators=(",", ":"))


def _json(node: AvroType, defined: set[str]) -> Any:
    if node.name and node.name in defined:
        return node.name
    if node.kind == "union":
        return [_json(branch, defined) for branch in node.branches]
    found: dict[str, Any] = {"type": node.kind}
    if node.name:
        defined.add(node.name)
        # An empty namespace must be said, or a name without dots would be taken into that of the type around it.
        found |= {"name": node.short_name, "namespace": node.name.rpartition(".")[0]}
        found |= {"aliases": list(node.aliases)} if node.aliases else {}
    match node.kind:
        case "record":
            found["fields"] = [
                {"name": f.name, "type": _json(f.type, defined)}
                | ({"aliases": list(f.aliases)} if f.aliases else {})
                | ({"default": f.default} if f.has_default else {})
                for f in node.fields
            ]
        case "enum":
            found |= {"symbols": list(node.symbols)} | ({"default": node.default} if node.default else {})
        case "fixed":
            found["size"] = node.size
        case "array" | "map":
            found["items" if node.kind == "array" else "values"] = _json(node.inner, defined)
    if node.logical:
        found["logicalType"] = node.logical
        found |= {"precision": node.precision, "scale": node.scale} if node.logical == "decimal" else {}
    return node.kind if found == {"type": node.kind} else found


def _wrong(path: str, what: str, hint: str | None = None) -> ContractError:
    return ContractError(f"Avro schema{f', {path}' if path else ''}: {what}", hint=hint)


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "…"
