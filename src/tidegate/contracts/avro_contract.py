"""A contract from an Avro schema: its fields with the types that Spark gives them, known without Spark.

A field is required when null is not among its types and it has no default. In a record that could be read, such a field
is always there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidegate.contracts.avro import AvroType, schema_text
from tidegate.contracts.contract import Contract, Field
from tidegate.contracts.registry import Registry
from tidegate.contracts.wire import Wire
from tidegate.errors import ContractError

_PLAIN = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bytes": "BINARY",
    "string": "STRING",
    "enum": "STRING",
    "fixed": "BINARY",
}
_LOGICAL = {
    "date": "DATE",
    "timestamp-millis": "TIMESTAMP",
    "timestamp-micros": "TIMESTAMP",
    "local-timestamp-millis": "TIMESTAMP_NTZ",
    "local-timestamp-micros": "TIMESTAMP_NTZ",
}
_LONGEST_DECIMAL = 38


def avro_contract(
    root: AvroType,
    name: str,
    *,
    registry: Registry | None = None,
    expect: Mapping[str, str] | Sequence[str] = (),
) -> Contract:
    """The contract of records that are read with this schema."""
    if root.kind != "record":
        raise ContractError(f"{name}: the Avro schema of a source must be a record, not {root}")
    fields = [
        Field(
            field.name,
            ddl_type(field.type, field.name, (root.name,)),
            not field.has_default and not nullable(field.type),
        )
        for field in root.fields
    ]
    return Contract(fields, expect=expect, wire=Wire("avro", schema_text(root), registry))


def nullable(node: AvroType) -> bool:
    return node.kind == "null" or any(branch.kind == "null" for branch in node.branches)


def ddl_type(node: AvroType, path: str, around: tuple[str, ...] = ()) -> str:
    """The Spark type of an Avro type; `around` are the records that it stands in."""
    if node.logical == "decimal":
        if node.precision > _LONGEST_DECIMAL:
            raise ContractError(f"{path}: {node} has more digits than Spark's {_LONGEST_DECIMAL}")
        return f"DECIMAL({node.precision},{node.scale})"
    if node.logical in _LOGICAL:
        return _LOGICAL[node.logical]
    match node.kind:
        case "array":
            return f"ARRAY<{ddl_type(node.inner, path + '[]', around)}>"
        case "map":
            return f"MAP<STRING, {ddl_type(node.inner, path + '{}', around)}>"
        case "record":
            if node.name in around:
                raise ContractError(
                    f"{path}: record {node.name} contains itself, and a Spark type cannot",
                    hint="leave the field out of the reader's schema; what only the writer has is skipped",
                )
            inside = (*around, node.name)
            inner = [f"`{f.name}`: {ddl_type(f.type, f'{path}.{f.name}', inside)}" for f in node.fields]
            return f"STRUCT<{', '.join(inner)}>"
        case "union":
            return _union(node, path, around)
        case "null":
            raise ContractError(f"{path}: a field that is only ever null has no Spark type", hint="leave it out")
    return _PLAIN[node.kind]


def _union(node: AvroType, path: str, around: tuple[str, ...]) -> str:
    """Null and one other are that other; numbers are the wider; else a struct with a member for each branch."""
    branches = [branch for branch in node.branches if branch.kind != "null"]
    if len(branches) == 1:
        return ddl_type(branches[0], path, around)
    kinds = {branch.kind for branch in branches}
    if kinds == {"int", "long"}:
        return "BIGINT"
    if kinds == {"float", "double"}:
        return "DOUBLE"
    members = [f"`member{n}`: {ddl_type(branch, path, around)}" for n, branch in enumerate(branches)]
    if not members:
        raise ContractError(f"{path}: a field that is only ever null has no Spark type", hint="leave it out")
    return f"STRUCT<{', '.join(members)}>"
