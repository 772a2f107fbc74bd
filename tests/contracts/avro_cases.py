"""Random Avro schemas, data that visits every branch of them, and random changes to them."""

from __future__ import annotations

import copy
import datetime
import decimal
import io
from typing import Any

import fastavro
from hypothesis import strategies as st

PLAIN = ("boolean", "int", "long", "float", "double", "bytes", "string")
LOGICAL: tuple[dict[str, Any], ...] = (
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "int", "logicalType": "date"},
    {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
)


class Namer:
    """Names that are unique within a schema."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"


@st.composite
def types(draw: st.DrawFn, name: Namer, depth: int = 2) -> Any:
    """A random type; only its named types have names."""
    kinds = ["plain", "plain", "plain", "logical", "enum", "fixed", "nullable"]
    kinds += ["array", "map", "record", "union"] if depth else []
    match draw(st.sampled_from(kinds)):
        case "plain":
            return draw(st.sampled_from(PLAIN))
        case "logical":
            return dict(draw(st.sampled_from(LOGICAL)))
        case "enum":
            return {"type": "enum", "name": name("E"), "symbols": ["A", "B", "C"][: draw(st.integers(1, 3))]}
        case "fixed":
            return {"type": "fixed", "name": name("X"), "size": draw(st.integers(1, 4))}
        case "nullable":
            return ["null", draw(st.sampled_from(PLAIN))]
        case "union":
            return draw(st.permutations(["null", "string", "long", "boolean"]))[: draw(st.integers(2, 3))]
        case "array":
            return {"type": "array", "items": draw(types(name, depth - 1))}
        case "map":
            return {"type": "map", "values": draw(types(name, depth - 1))}
    return draw(records(name, depth - 1))


@st.composite
def records(draw: st.DrawFn, name: Namer | None = None, depth: int = 2, most: int = 4) -> dict[str, Any]:
    name = name or Namer()
    own = name("R")
    fields = [{"name": name("f"), "type": draw(types(name, depth))} for _ in range(draw(st.integers(1, most)))]
    return {"type": "record", "name": own, "fields": fields}


def kind_of(schema: Any) -> str:
    return "union" if isinstance(schema, list) else schema if isinstance(schema, str) else schema["type"]


def variants(schema: Any) -> list[Any]:
    """Data that together visit every branch, every symbol, and the inside of every collection."""
    if isinstance(schema, dict) and "logicalType" in schema:
        known: dict[str, list[Any]] = {
            "timestamp-micros": [datetime.datetime(2024, 3, 1, 12, 0, 0, 123456, datetime.UTC)],
            "timestamp-millis": [datetime.datetime(2024, 3, 1, 12, 0, 0, 123000, datetime.UTC)],
            "date": [datetime.date(2024, 3, 1)],
            "decimal": [decimal.Decimal("-12345.67"), decimal.Decimal("0.00")],
        }
        return known[schema["logicalType"]]
    match kind_of(schema):
        case "null":
            return [None]
        case "boolean":
            return [True, False]
        case "int":
            return [-(2**31), 7, 2**31 - 1]
        case "long":
            return [-(2**63), 7, 2**63 - 1]
        case "float" | "double":
            return [1.5, -0.25]
        case "bytes":
            return [b"", b"bytes"]
        case "string":
            return ["", "ä text 🌊"]
        case "enum":
            return list(schema["symbols"])
        case "fixed":
            return [b"\x01\xff\x00\x7f"[: schema["size"]]]
        case "union":
            return [value for branch in schema for value in variants(branch)]
        case "array":
            return [variants(schema["items"]), []]
        case "map":
            return [{f"k{n}": value for n, value in enumerate(variants(schema["values"]))}, {}]
    fields = {field["name"]: variants(field["type"]) for field in schema["fields"]}
    number = max((len(values) for values in fields.values()), default=1)
    return [{name: values[n % len(values)] for name, values in fields.items()} for n in range(number)]


_DEFAULTS = {"boolean": True, "int": 5, "long": 5, "float": 0.5, "double": 0.5, "bytes": "new", "string": "new"}


@st.composite
def changes(draw: st.DrawFn, schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with a few things changed, in ways that are compatible and in ways that are not."""
    changed = copy.deepcopy(schema)
    for turn in range(draw(st.integers(0, 3))):
        record = draw(st.sampled_from(list(_records(changed))))
        fields = record["fields"]
        match draw(st.sampled_from(["add", "add default", "remove", "rename", "alias", "type", "type", "type"])):
            case "add":
                fields.append({"name": f"added{turn}", "type": "string"})
            case "add default":
                kind = draw(st.sampled_from(PLAIN))
                fields.append({"name": f"added{turn}", "type": kind, "default": _DEFAULTS[kind]})
            case "remove":
                fields.pop(draw(st.integers(0, len(fields) - 1))) if len(fields) > 1 else None
            case "rename":
                record["name"] += "x"
            case "alias" if not fields[0].get("aliases"):
                fields[0]["aliases"] = [fields[0]["name"]]
                fields[0]["name"] += "x"
            case _:
                field = draw(st.sampled_from(fields))
                field["type"] = draw(_changed_type(field["type"]))
                field.pop("default", None)
    return changed


@st.composite
def _changed_type(draw: st.DrawFn, schema: Any) -> Any:
    match kind_of(schema):
        case "enum":
            symbols = draw(st.sampled_from([["A"], ["A", "B"], ["A", "B", "C", "D"]]))
            return schema | {"symbols": symbols} | draw(st.sampled_from([{}, {"default": "A"}]))
        case "fixed":
            return schema | {"size": draw(st.integers(1, 4))}
        case "union":
            gone = draw(st.sampled_from(schema))
            without = [branch for branch in schema if branch != gone]
            alone = next(branch for branch in schema if branch != "null")
            return draw(st.sampled_from([schema if without in ([], ["null"]) else without, alone]))
        case "array":
            return schema | {"items": draw(_changed_type(schema["items"]))}
        case "map":
            return schema | {"values": draw(_changed_type(schema["values"]))}
        case "record":
            return schema
    if isinstance(schema, dict):
        return schema
    return draw(st.sampled_from([["null", schema], *PLAIN]))


def _records(schema: Any) -> Any:
    if isinstance(schema, list):
        for branch in schema:
            yield from _records(branch)
    elif isinstance(schema, dict):
        if schema["type"] == "record":
            yield schema
            for field in schema["fields"]:
                yield from _records(field["type"])
        yield from _records(schema.get("items"))
        yield from _records(schema.get("values"))


def encode(schema: Any, datum: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(copy.deepcopy(schema)), datum)
    return out.getvalue()


def read(payload: bytes, writer: Any, reader: Any) -> Any:
    """What fastavro, which is not ours, makes of it."""
    parsed = fastavro.parse_schema(copy.deepcopy(writer)), fastavro.parse_schema(copy.deepcopy(reader))
    return fastavro.schemaless_reader(io.BytesIO(payload), *parsed)
