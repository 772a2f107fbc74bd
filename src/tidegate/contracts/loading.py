"""Where contracts come from: a value, DDL text, a file, a schema registry."""

from __future__ import annotations

from pathlib import Path

from tidegate.contracts.avro_contract import avro_contract
from tidegate.contracts.contract import Contract
from tidegate.contracts.json_contract import json_contract
from tidegate.contracts.registry import NotThere, Registry
from tidegate.contracts.schema import FORMS, Schema, read_schema
from tidegate.contracts.wire import Wire
from tidegate.errors import ContractError, Unavailable


def load_contract(spec: str | Path | Contract | Registry) -> Contract:
    """A contract from what a user gave; a file is known by its ending (see `tidegate.contracts.schema`)."""
    if isinstance(spec, Contract):
        return spec
    if isinstance(spec, Registry):
        return _registered(spec)
    if Path(spec).suffix not in FORMS:
        return Contract(str(spec))
    try:
        schema = read_schema(spec)
    except ContractError as error:
        raise ContractError(f"contract {error.message}", hint=error.hint) from error
    match schema.form:
        case "avro":
            return avro_contract(schema.avro, str(spec))
        case "json":
            return json_contract(schema.json, str(spec))
        case "ddl":
            return Contract(schema.fields)


def _registered(registry: Registry) -> Contract:
    schema = _reader(registry)
    if schema.form == "avro":
        return avro_contract(schema.avro, schema.name, registry=registry, expect=registry.expect)
    if schema.form == "ddl":
        raise ContractError(f"{schema.name}: the reader's schema must be Avro (.avsc) or JSON Schema (.json)")
    found = json_contract(schema.json, schema.name, Wire("json", registry=registry))
    pairs = registry.expect.items() if hasattr(registry.expect, "items") else [(sql, sql) for sql in registry.expect]
    return Contract(found.fields, expect=dict(found.expectations) | dict(pairs), wire=found.wire)


def _reader(registry: Registry) -> Schema:
    """The schema that the records are to be read as."""
    reader = registry.reader
    if isinstance(reader, str) and Path(reader).suffix in FORMS:
        return read_schema(reader)
    if reader != "latest" and not isinstance(reader, int):
        raise ContractError(
            f"reader {reader!r} is not known", hint='a file ("payment.avsc"), a version (3), or "latest"'
        )
    way_out = f'give the schema as a file: Registry(…, subject="{registry.subject}", reader="schema.avsc")'
    try:
        return registry.client().version(registry.subject, reader).schema
    except NotThere as error:
        raise ContractError(
            f"there is no version {reader} of {registry.subject!r}: {error.message}", hint=way_out
        ) from error
    except Unavailable as error:
        raise Unavailable(
            f"{error.message}, and the contract of {registry.subject!r} is there", hint=way_out
        ) from error
