"""Compatibility, case by case: reader, writer, and what is found where."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidegate.contracts.compatibility import MODES, Mode, incompatibilities, violations
from tidegate.contracts.schema import Form, Schema
from tidegate.errors import ContractError


def record(*fields: Any, name: str = "Payment", **more: Any) -> dict[str, Any]:
    """A record; a field is (name, type) or (name, type, default), or written out."""
    written = [
        f if isinstance(f, dict) else {"name": f[0], "type": f[1]} | ({"default": f[2]} if len(f) > 2 else {})
        for f in fields
    ]
    return {"type": "record", "name": name, "fields": written, **more}


def money(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def logical(kind: str, name: str) -> dict[str, str]:
    return {"type": kind, "logicalType": name}


def enum(*symbols: str, name: str = "Status", **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def fixed(size: int, name: str = "Hash") -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size}


TREE = record(("value", "int"), ("left", ["null", "Tree"], None), name="Tree")
DEEP_TREE = record(("value", "long"), ("left", ["null", "Tree"], None), ("label", "string"), name="Tree")

AVRO: dict[str, tuple[Any, Any, list[str]]] = {
    # name: (reader, writer, what is found)
    "the same": (record(("id", "string")), record(("id", "string")), []),
    "int to long": (record(("n", "long")), record(("n", "int")), []),
    "int to float": (record(("n", "float")), record(("n", "int")), []),
    "int to double": (record(("n", "double")), record(("n", "int")), []),
    "long to float": (record(("n", "float")), record(("n", "long")), []),
    "long to double": (record(("n", "double")), record(("n", "long")), []),
    "float to double": (record(("n", "double")), record(("n", "float")), []),
    "long to int": (record(("n", "int")), record(("n", "long")), ["TYPE_CHANGED n"]),
    "double to float": (record(("n", "float")), record(("n", "double")), ["TYPE_CHANGED n"]),
    "string to bytes": (record(("s", "bytes")), record(("s", "string")), []),
    "bytes to string": (record(("s", "string")), record(("s", "bytes")), []),
    "int to string": (record(("s", "string")), record(("s", "int")), ["TYPE_CHANGED s"]),
    "boolean to int": (record(("s", "int")), record(("s", "boolean")), ["TYPE_CHANGED s"]),
    "added with default": (record(("id", "string"), ("n", "int", 0)), record(("id", "string")), []),
    "added with null": (record(("id", "string"), ("n", ["null", "int"], None)), record(("id", "string")), []),
    "added without default": (
        record(("id", "string"), ("n", "int")),
        record(("id", "string")),
        ["FIELD_MISSING n"],
    ),
    "nullable without default": (record(("n", ["null", "int"])), record(), ["FIELD_MISSING n"]),
    "removed": (record(("id", "string")), record(("id", "string"), ("n", "int")), []),
    "renamed with alias": (
        record({"name": "key", "type": "string", "aliases": ["id"]}),
        record(("id", "string")),
        [],
    ),
    "renamed without alias": (record(("key", "string")), record(("id", "string")), ["FIELD_MISSING key"]),
    "alias of another type": (
        record({"name": "key", "type": "int", "aliases": ["id"]}),
        record(("id", "string")),
        ["TYPE_CHANGED key"],
    ),
    "record renamed": (record(name="Order"), record(name="Payment"), ["NAME_CHANGED "]),
    "record renamed with alias": (record(name="Order", aliases=["Payment"]), record(name="Payment"), []),
    "alias with namespace": (
        record(name="Order", namespace="new", aliases=["old.Payment"]),
        record(name="Payment", namespace="old"),
        [],
    ),
    "alias in another namespace": (
        record(name="Order", namespace="new", aliases=["Payment"]),
        record(name="Payment", namespace="old"),
        ["NAME_CHANGED "],
    ),
    "namespace changed": (record(namespace="b"), record(namespace="a"), []),
    "made nullable": (record(("n", ["null", "int"])), record(("n", "int")), []),
    "made nullable and wider": (record(("n", ["null", "long"])), record(("n", "int")), []),
    "null taken away": (record(("n", "int")), record(("n", ["null", "int"])), ["TYPE_CHANGED n"]),
    "branch added": (record(("n", ["null", "int", "string"])), record(("n", ["null", "int"])), []),
    "branch taken away": (
        record(("n", ["null", "int"])),
        record(("n", ["null", "int", "string"])),
        ["BRANCH_MISSING n"],
    ),
    "union reordered": (record(("n", ["int", "null"])), record(("n", ["null", "int"])), []),
    "record in a union": (
        record(("r", ["null", record(("a", "int"), ("b", "int"), name="Inner")])),
        record(("r", ["null", record(("a", "int"), name="Inner")])),
        ["FIELD_MISSING r.b"],
    ),
    "symbol added": (record(("s", enum("A", "B", "C"))), record(("s", enum("A", "B"))), []),
    "symbol removed": (record(("s", enum("A"))), record(("s", enum("A", "B"))), ["SYMBOLS_MISSING s"]),
    "symbol removed, default": (record(("s", enum("A", default="A"))), record(("s", enum("A", "B"))), []),
    "enum renamed": (record(("s", enum("A", name="State"))), record(("s", enum("A"))), ["NAME_CHANGED s"]),
    "fixed the same": (record(("h", fixed(16))), record(("h", fixed(16))), []),
    "fixed of another size": (record(("h", fixed(32))), record(("h", fixed(16))), ["SIZE_CHANGED h"]),
    "fixed renamed": (record(("h", fixed(16, "Sum"))), record(("h", fixed(16))), ["NAME_CHANGED h"]),
    "fixed to bytes": (record(("h", "bytes")), record(("h", fixed(16))), ["TYPE_CHANGED h"]),
    "array widened": (
        record(("a", {"type": "array", "items": "long"})),
        record(("a", {"type": "array", "items": "int"})),
        [],
    ),
    "array narrowed": (
        record(("a", {"type": "array", "items": "int"})),
        record(("a", {"type": "array", "items": "long"})),
        ["TYPE_CHANGED a[]"],
    ),
    "field in an array of records": (
        record(("a", {"type": "array", "items": record(("x", "int"), ("y", "int"), name="Item")})),
        record(("a", {"type": "array", "items": record(("x", "int"), name="Item")})),
        ["FIELD_MISSING a[].y"],
    ),
    "map to array": (
        record(("a", {"type": "array", "items": "int"})),
        record(("a", {"type": "map", "values": "int"})),
        ["TYPE_CHANGED a"],
    ),
    "map values narrowed": (
        record(("m", {"type": "map", "values": "int"})),
        record(("m", {"type": "map", "values": "string"})),
        ["TYPE_CHANGED m{}"],
    ),
    "nested record": (
        record(("r", record(("a", "string"), name="Inner"))),
        record(("r", record(("a", "int"), name="Inner"))),
        ["TYPE_CHANGED r.a"],
    ),
    "recursive": (TREE, TREE, []),
    "recursive, changed": (DEEP_TREE, TREE, ["FIELD_MISSING label"]),
    "recursive, narrowed": (TREE, DEEP_TREE, ["TYPE_CHANGED value"]),
    "two things at once": (
        record(("a", "int"), ("b", "int")),
        record(("a", "string")),
        ["TYPE_CHANGED a", "FIELD_MISSING b"],
    ),
    "decimal the same": (record(("m", money(12, 2))), record(("m", money(12, 2))), []),
    "decimal with more digits": (record(("m", money(18, 2))), record(("m", money(12, 2))), []),
    "decimal with fewer digits": (record(("m", money(9, 2))), record(("m", money(12, 2))), ["DECIMAL_CHANGED m"]),
    "decimal of another scale": (record(("m", money(12, 4))), record(("m", money(12, 2))), ["DECIMAL_CHANGED m"]),
    "decimal to bytes": (record(("m", "bytes")), record(("m", money(12, 2))), []),
    "millis to micros": (
        record(("t", logical("long", "timestamp-micros"))),
        record(("t", logical("long", "timestamp-millis"))),
        ["MEANING_CHANGED t"],
    ),
    "date to timestamp": (
        record(("t", logical("long", "timestamp-millis"))),
        record(("t", logical("int", "date"))),
        ["MEANING_CHANGED t"],
    ),
    "long to timestamp": (record(("t", logical("long", "timestamp-millis"))), record(("t", "long")), []),
    "timestamp to long": (record(("t", "long")), record(("t", logical("long", "timestamp-millis"))), []),
    "unknown logical types are ignored": (
        record(("t", logical("long", "fortnights"))),
        record(("t", logical("long", "timestamp-millis"))),
        [],
    ),
    "plain types": ("long", "int", []),
    "plain to record": (record(), "int", ["TYPE_CHANGED "]),
}


def thing(properties: dict[str, Any] | None = None, *required: str, **more: Any) -> dict[str, Any]:
    found = {"type": "object", "properties": properties or {}, **more}
    return found | ({"required": list(required)} if required else {})


TEXT, WHOLE, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
LIST = {"$ref": "#/$defs/node", "$defs": {"node": thing({"value": WHOLE, "next": {"$ref": "#/$defs/node"}})}}
WIDE_LIST = {"$ref": "#/$defs/node", "$defs": {"node": thing({"value": TEXT, "next": {"$ref": "#/$defs/node"}})}}

JSON: dict[str, tuple[Any, Any, list[str]]] = {
    "the same": (thing({"a": TEXT}, "a"), thing({"a": TEXT}, "a"), []),
    "words only": (thing({"a": TEXT | {"description": "x"}}), thing({"a": TEXT}), []),
    "optional added": (thing({"a": TEXT, "b": WHOLE}), thing({"a": TEXT}), []),
    "required added": (thing({"a": TEXT, "b": WHOLE}, "b"), thing({"a": TEXT}), ["FIELD_MISSING b"]),
    "made required": (thing({"a": TEXT}, "a"), thing({"a": TEXT}), ["REQUIRED_ADDED a"]),
    "made optional": (thing({"a": TEXT}), thing({"a": TEXT}, "a"), []),
    "removed": (thing({}), thing({"a": TEXT}), []),
    "removed from a closed object": (
        thing({}, additionalProperties=False),
        thing({"a": TEXT}, additionalProperties=False),
        ["FIELD_REMOVED a"],
    ),
    "closed": (thing({}, additionalProperties=False), thing({}), ["CLOSED "]),
    "opened": (thing({}), thing({}, additionalProperties=False), []),
    "the rest typed": (
        thing({}, additionalProperties=TEXT),
        thing({"a": WHOLE}),
        ["TYPE_CHANGED a", "TYPE_CHANGED {}"],
    ),
    "integer to number": (thing({"a": NUMBER}), thing({"a": WHOLE}), []),
    "number to integer": (thing({"a": WHOLE}), thing({"a": NUMBER}), ["TYPE_CHANGED a"]),
    "string to integer": (thing({"a": WHOLE}), thing({"a": TEXT}), ["TYPE_CHANGED a"]),
    "null added": (thing({"a": {"type": ["string", "null"]}}), thing({"a": TEXT}), []),
    "null taken away": (thing({"a": TEXT}), thing({"a": {"type": ["string", "null"]}}), ["TYPE_CHANGED a"]),
    "typed at last": (thing({"a": TEXT}), thing({"a": {}}), ["TYPE_CHANGED a"]),
    "anything": (thing({"a": {}}), thing({"a": TEXT}), []),
    "anything by true": (thing({"a": True}), thing({"a": TEXT}), []),
    "enum widened": (thing({"a": {"enum": ["x", "y"]}}), thing({"a": {"enum": ["x"]}}), []),
    "enum narrowed": (thing({"a": {"enum": ["x"]}}), thing({"a": {"enum": ["x", "y"]}}), ["VALUES_NARROWED a"]),
    "enum added": (thing({"a": TEXT | {"enum": ["x"]}}), thing({"a": TEXT}), ["VALUES_NARROWED a"]),
    "const to enum": (thing({"a": {"enum": ["x", "y"]}}), thing({"a": {"const": "x"}}), []),
    "minimum raised": (
        thing({"a": NUMBER | {"minimum": 1}}),
        thing({"a": NUMBER | {"minimum": 0}}),
        ["BOUND_NARROWED a"],
    ),
    "minimum lowered": (thing({"a": NUMBER | {"minimum": 0}}), thing({"a": NUMBER | {"minimum": 1}}), []),
    "minimum added": (thing({"a": NUMBER | {"minimum": 0}}), thing({"a": NUMBER}), ["BOUND_NARROWED a"]),
    "minimum made exclusive": (
        thing({"a": NUMBER | {"exclusiveMinimum": 0}}),
        thing({"a": NUMBER | {"minimum": 0}}),
        ["BOUND_NARROWED a"],
    ),
    "maximum lowered": (
        thing({"a": NUMBER | {"maximum": 1}}),
        thing({"a": NUMBER | {"maximum": 2}}),
        ["BOUND_NARROWED a"],
    ),
    "maximum raised": (thing({"a": NUMBER | {"maximum": 3}}), thing({"a": NUMBER | {"maximum": 2}}), []),
    "maxLength lowered": (
        thing({"a": TEXT | {"maxLength": 2}}),
        thing({"a": TEXT | {"maxLength": 3}}),
        ["BOUND_NARROWED a"],
    ),
    "minLength raised": (thing({"a": TEXT | {"minLength": 2}}), thing({"a": TEXT}), ["BOUND_NARROWED a"]),
    "pattern added": (thing({"a": TEXT | {"pattern": "^x"}}), thing({"a": TEXT}), ["BOUND_NARROWED a"]),
    "pattern removed": (thing({"a": TEXT}), thing({"a": TEXT | {"pattern": "^x"}}), []),
    "format added": (thing({"a": TEXT | {"format": "date-time"}}), thing({"a": TEXT}), ["BOUND_NARROWED a"]),
    "multipleOf finer": (
        thing({"a": NUMBER | {"multipleOf": 0.01}}),
        thing({"a": NUMBER | {"multipleOf": 0.1}}),
        [],
    ),
    "multipleOf coarser": (
        thing({"a": NUMBER | {"multipleOf": 0.1}}),
        thing({"a": NUMBER | {"multipleOf": 0.01}}),
        ["BOUND_NARROWED a"],
    ),
    "items narrowed": (
        thing({"a": {"type": "array", "items": WHOLE}}),
        thing({"a": {"type": "array", "items": NUMBER}}),
        ["TYPE_CHANGED a[]"],
    ),
    "nested": (
        thing({"o": thing({"x": TEXT}, "x")}),
        thing({"o": thing({"x": TEXT})}),
        ["REQUIRED_ADDED o.x"],
    ),
    "an alternative added": (thing({"a": {"anyOf": [TEXT, WHOLE]}}), thing({"a": TEXT}), []),
    "an alternative taken away": (
        thing({"a": {"oneOf": [TEXT, {"type": "boolean"}]}}),
        thing({"a": {"oneOf": [TEXT, WHOLE]}}),
        ["BRANCH_MISSING a"],
    ),
    "allOf changed": (thing({"a": {"allOf": [TEXT]}}), thing({"a": TEXT}), ["NOT_COMPARABLE a"]),
    "recursive": (LIST, LIST, []),
    "recursive, changed": (LIST, WIDE_LIST, ["TYPE_CHANGED value"]),
}

DDL: dict[str, tuple[str, str, list[str]]] = {
    "the same": ("id STRING NOT NULL, n INT", "id STRING NOT NULL, n INT", []),
    "case does not matter": ("ID string", "id STRING", []),
    "optional added": ("id STRING, n INT", "id STRING", []),
    "required added": ("id STRING, n INT NOT NULL", "id STRING", ["FIELD_MISSING n"]),
    "made required": ("id STRING NOT NULL", "id STRING", ["REQUIRED_ADDED id"]),
    "removed": ("id STRING", "id STRING, n INT", []),
    "int to bigint": ("n BIGINT", "n INTEGER", []),
    "long is bigint": ("n LONG", "n BIGINT", []),
    "bigint to int": ("n INT", "n BIGINT", ["TYPE_CHANGED n"]),
    "float to double": ("n DOUBLE", "n FLOAT", []),
    "bigint to double": ("n DOUBLE", "n BIGINT", ["TYPE_CHANGED n"]),
    "anything to string": ("n STRING", "n DECIMAL(10,2)", []),
    "string to int": ("n INT", "n STRING", ["TYPE_CHANGED n"]),
    "decimal wider": ("n DECIMAL(14,4)", "n DECIMAL(12,2)", []),
    "decimal with less room": ("n DECIMAL(12,4)", "n DECIMAL(12,2)", ["TYPE_CHANGED n"]),
    "int to decimal": ("n DECIMAL(12,2)", "n INT", []),
    "int to small decimal": ("n DECIMAL(10,2)", "n INT", ["TYPE_CHANGED n"]),
    "date to timestamp": ("n TIMESTAMP", "n DATE", ["TYPE_CHANGED n"]),
    "array": ("a ARRAY<BIGINT>", "a ARRAY<INT>", []),
    "array narrowed": ("a ARRAY<INT>", "a ARRAY<STRING>", ["TYPE_CHANGED a[]"]),
    "map": ("m MAP<STRING, INT>", "m MAP<STRING, BIGINT>", ["TYPE_CHANGED m{}"]),
    "struct": ("s STRUCT<a: INT, b: STRING>", "s STRUCT<a: BIGINT>", ["TYPE_CHANGED s.a"]),
    "struct in array": ("s ARRAY<STRUCT<`a`: INT NOT NULL>>", "s ARRAY<STRUCT<b: INT>>", ["FIELD_MISSING s[].a"]),
    "varchar shorter": ("s VARCHAR(5)", "s VARCHAR(10)", ["TYPE_CHANGED s"]),
}

CASES: list[tuple[Form, str, Any, Any, list[str]]] = [
    *(("avro", name, json.dumps(r), json.dumps(w), found) for name, (r, w, found) in AVRO.items()),
    *(("json", name, json.dumps(r), json.dumps(w), found) for name, (r, w, found) in JSON.items()),
    *(("ddl", name, r, w, found) for name, (r, w, found) in DDL.items()),
]


@pytest.mark.parametrize(
    ("form", "reader", "writer", "expected"),
    [pytest.param(form, r, w, found, id=f"{form}: {name}") for form, name, r, w, found in CASES],
)
def test_an_incompatibility_has_a_name_a_path_and_a_sentence(
    form: Form, reader: str, writer: str, expected: list[str]
) -> None:
    found = incompatibilities(Schema.of(form, reader), Schema.of(form, writer))
    assert [f"{item.kind} {item.path}" for item in found] == expected
    assert all(len(item.message) > 10 for item in found)


def _avro(*fields: Any) -> Schema:
    return Schema.of("avro", json.dumps(record(*fields)), f"v{len(fields)}")


V1 = _avro(("a", "int"))
V2 = _avro(("a", "int"), ("b", "int", 0))
V3_NEEDS_B = _avro(("a", "int"), ("b", "int"), ("c", "int", 0))  # reads v2, not v1

VERDICTS: dict[Mode, tuple[list[str], list[str]]] = {
    # mode: (V3 after V1, V2; a schema without `a` after V1, V2)
    "BACKWARD": ([], []),
    "BACKWARD_TRANSITIVE": (["backward v1 b"], []),
    "FORWARD": ([], ["forward v2 a"]),
    "FORWARD_TRANSITIVE": ([], ["forward v2 a", "forward v1 a"]),
    "FULL": ([], ["forward v2 a"]),
    "FULL_TRANSITIVE": (["backward v1 b"], ["forward v2 a", "forward v1 a"]),
    "NONE": ([], []),
}


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_says_in_which_direction_and_how_far_back(mode: Mode) -> None:
    without_a = _avro(("b", "int", 0))
    for new, expected in zip((V3_NEEDS_B, without_a), VERDICTS[mode], strict=True):
        found = violations(new, [V1, V2], mode)
        assert [f"{item.direction} {item.against} {item.incompatibility.path}" for item in found] == expected


def test_the_first_version_follows_nothing() -> None:
    assert violations(V1, [], "FULL_TRANSITIVE") == []


def test_schemas_of_two_forms_do_not_compare() -> None:
    (found,) = incompatibilities(V1, Schema.of("ddl", "a INT"))
    assert found.kind == "NOT_COMPARABLE"


WRONG: dict[str, tuple[Any, str]] = {
    "not JSON": ('{"type": ', "not JSON"),
    "unknown type": (record(("a", "integer")), "a: the type 'integer' is not known"),
    "no type": (record({"name": "a"}), "a: the field has no type"),
    "doubled field": (record(("a", "int"), ("a", "int")), "a: the field stands twice"),
    "doubled name": (record(("a", fixed(1)), ("b", fixed(2))), "b: 'Hash' is defined twice"),
    "doubled branch": (record(("a", ["int", "int"])), "a: the union has 'int' twice"),
    "empty union": (record(("a", [])), "a: the union has no branches"),
    "union in union": (record(("a", ["null", ["int"]])), "a: a union stands directly in a union"),
    "default of another type": (record(("a", "int", "x")), 'a: the default "x" is not of type int'),
    "default too large": (record(("a", "int", 2**31)), "is not of type int"),
    "default of a record": (record(("a", record(("x", "int"), name="I"), {})), "is not of type record I"),
    "bad decimal": (record(("a", money(2, 3))), "a: a decimal has precision 2 and scale 3"),
    "enum default": (record(("a", enum("A", default="Z"))), 'the default "Z" is not a symbol'),
    "bad size": (record(("a", fixed(-1))), "fixed Hash has the size -1"),
    "array of what": (record(("a", {"type": "array"})), "a: the array does not say of what"),
    "bad name": (record(name="a-b"), 'the record has the name "a-b"'),
    "no fields": ({"type": "record", "name": "A"}, "no list of fields"),
}


@pytest.mark.parametrize(("schema", "message"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_with_an_avro_schema_is_said_with_its_path(schema: Any, message: str) -> None:
    with pytest.raises(ContractError) as failure:
        Schema.of("avro", schema if isinstance(schema, str) else json.dumps(schema), "payment.avsc")
    assert message in str(failure.value)
    assert str(failure.value).startswith("payment.avsc: ")


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"$ref": "#/$defs/gone"}, "leads nowhere"),
        ({"$ref": "#"}, "leads back to itself"),
        ({"$ref": "other.json#/x"}, "outside of the file"),
    ],
)
def test_a_reference_that_cannot_be_followed_is_named(schema: Any, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        incompatibilities(Schema.of("json", json.dumps(schema)), Schema.of("json", json.dumps(TEXT)))
