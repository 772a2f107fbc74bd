"""Decode what the contract says how to read: Avro, or JSON behind a schema id; natively, several versions at once.

Each record names the schema that it was written with; a CASE picks the `from_avro` for it, which reads the record as
the reader's schema. `from_avro` gives NULL for a record that it cannot read, and throws for none. Two things are added:

- The schema is put into a record around it, whose encoding is that of the record alone. For what cannot be read
  `from_avro` gives a struct of NULLs, and so would a record all of whose fields are null; the struct inside is NULL
  only for the first.
- Behind the record stand eight bytes of ours, which the schema around it names as a second field. They come out
  whole only when the record ended where its schema says: cut short or with bytes left over, they do not.

Text is checked to be UTF-8, as it is for JSON: whoever gets the results would choke on it otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from tidegate.contracts.avro import AvroType, parse
from tidegate.contracts.wire import HEADER, Writer
from tidegate.operators.sql import Relation, quote, select, text

if TYPE_CHECKING:
    from tidegate.contracts.wire import Wire
    from tidegate.stream import SourceNode

RAW = {"_partition": "STRING", "_origin": "STRING", "_position": "BIGINT", "_arrival": "BIGINT", "_raw": "BINARY"}
"""What a connector says of each record (see `sources.base`)."""

_END = "A51D9E3C7B42F068"
"""Its first byte stands in it only once, so that it cannot be found shifted."""

PREFIX = 5
"""The length of a schema's name in front of a record: a zero byte and four bytes of its id."""

AT = "at "
"""How the sentence about a field that breaks the contract begins; the path of the field follows, and a colon."""


def reads_headers(source: SourceNode) -> bool:
    """Does the schema's name stand in a header, and has the connector headers?"""
    wire = source.contract.wire
    wants = wire is not None and wire.registry is not None and wire.registry.wire == "header"
    return wants and "_headers" in source.connector.extra


def in_header(headers: str) -> str:
    """What the headers of a record say its schema is."""
    return f"get(filter({headers}, h -> h.key = {text(HEADER)}), 0).value"


def decode_wire(source: SourceNode, raw: Relation, writers: Sequence[Writer]) -> Relation:
    """As `decode`, for a contract with a wire."""
    wire = source.contract.wire
    assert wire is not None
    numbered = "monotonically_increasing_id() AS _row"
    raw_columns = (*RAW, *source.connector.extra)
    if wire.registry is None:
        framed = select([*raw_columns, numbered, "CAST(NULL AS BINARY) AS _schema", "_raw AS _payload"], raw)
    elif not reads_headers(source):
        schema = f"substring(_raw, 1, {PREFIX}) AS _schema"
        framed = select([*raw_columns, numbered, schema, f"substring(_raw, {PREFIX + 1}) AS _payload"], raw)
    else:
        found = select([*raw_columns, numbered, f"{in_header('_headers')} AS _header"], raw)
        schema = f"coalesce(_header, substring(_raw, 1, {PREFIX})) AS _schema"
        payload = f"CASE WHEN _header IS NULL THEN substring(_raw, {PREFIX + 1}) ELSE _raw END AS _payload"
        framed = select([*raw_columns, "_row", schema, payload], found)
    carried = [*raw_columns, "_row", "_schema"]
    if wire.form == "json":
        return _json(source, framed, writers, carried)
    decoded = select([*carried, "_payload", f"{_from_avro(source, writers)} AS _decoded"], framed)
    sound = ["_decoded.record IS NOT NULL", f"_decoded.end = X'{_END}'"]
    utf8 = valid_text(parse(wire.reader), "_decoded.record")
    faults = _faults(wire, writers, " AND ".join([*sound, *([utf8] if utf8 else [])]))
    return _finish(
        source, select([*carried, "_decoded.record AS _decoded", f"{_code(faults)} AS _fault"], decoded), faults
    )


Fault = tuple[str, str | None, str]
"""A condition, the reason (None when the record is sound), and a sentence as SQL."""


def _faults(wire: Wire, writers: Sequence[Writer], sound: str) -> list[Fault]:
    """What may be wrong with a record, in the order in which it is asked; first, whether anything is."""
    faults: list[Fault] = [(sound, None, "NULL")]
    faults.append(("_raw IS NULL", "MALFORMED", text("the record has no value: it is a tombstone")))
    if wire.registry is not None:
        faults += _frame_faults(writers)
        for writer in writers:
            if writer.trouble is not None:
                mine = _among([writer])
                if writer.schema:  # a record that its own writer could not read is corrupt, and breaks no contract
                    mine += f" AND {_framed('_payload', writer.schema, None)}.end = X'{_END}'"
                faults.append((mine, "CONTRACT_VIOLATION", text(_said(writer))))
    faults.append(("true", "MALFORMED", text("the record is not Avro of its schema")))
    return faults


def _frame_faults(writers: Sequence[Writer]) -> list[Fault]:
    named = f"length(_schema) = {PREFIX} AND substring(_schema, 1, 1) = X'00'"
    named = f"(({named}) OR (length(_schema) = 17 AND substring(_schema, 1, 1) = X'01'))"
    unknown = f"NOT coalesce({_among(writers)}, false)"
    id_ = "conv(hex(substring(_schema, 2, 4)), 16, 10)"
    return [
        (f"NOT {named}", "MALFORMED", text("the record does not begin with a zero byte and a schema id")),
        (unknown, "SCHEMA_UNKNOWN", f"concat({text('the registry does not know schema ')}, {id_})"),
    ]


def _said(writer: Writer) -> str:
    assert writer.trouble is not None
    where = writer.trouble.path or "the whole record"
    return f"{AT}{where}: {writer.trouble.message} (schema {writer.id})"


def _from_avro(source: SourceNode, writers: Sequence[Writer]) -> str:
    wire = source.contract.wire
    assert wire is not None
    if wire.registry is None:
        return _framed("_payload", wire.reader, wire.reader)
    cases: dict[str, list[Writer]] = {}
    for writer in writers:
        if not writer.hopeless:
            cases.setdefault(writer.schema, []).append(writer)
    nothing = f"CAST(NULL AS STRUCT<record: STRUCT<{_struct(source)}>, end: BINARY>)"
    if not cases:
        return nothing
    branches = [
        f"WHEN {_among(group)} THEN {_framed('_payload', schema, wire.reader)}" for schema, group in cases.items()
    ]
    return f"CASE {' '.join(branches)} END"


def _struct(source: SourceNode) -> str:
    return ", ".join(f"{quote(field.name)}: {field.type}" for field in source.contract.fields)


def _among(writers: Sequence[Writer]) -> str:
    keys = [f"X'{key.hex()}'" for writer in writers for key in writer.keys]
    return f"_schema IN ({', '.join(keys)})" if keys else "false"


def _framed(payload: str, writer: str, reader: str | None) -> str:
    """The record and our end; without a reader's schema only the end, and the record is skipped."""
    options = {"avroSchema": _around(reader), "mode": "PERMISSIVE", "datetimeRebaseMode": "CORRECTED"}
    listed = ", ".join(f"{text(name)}, {text(value)}" for name, value in options.items())
    return f"from_avro(concat({payload}, X'{_END}'), {text(_around(writer))}, map({listed}))"


def _around(schema: str | None) -> str:
    """The schema in a record of ours, with our end behind it."""
    end = {"type": "fixed", "name": "TidegateEnd", "size": len(_END) // 2}
    fields: list[dict[str, Any]] = [] if schema is None else [{"name": "record", "type": json.loads(schema)}]
    fields.append({"name": "end", "type": end})
    return json.dumps({"type": "record", "name": "TidegateFrame", "fields": fields}, separators=(",", ":"))


def _json(source: SourceNode, framed: Relation, writers: Sequence[Writer], carried: list[str]) -> Relation:
    """JSON behind a schema id: the id must be known, the rest is as for JSON without one."""
    lines = select([*carried, "CAST(_payload AS STRING) AS _line"], framed)
    schema = text(source.contract.ddl + ", `_corrupt` STRING")
    options = "map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '_corrupt')"
    parsed = select([*carried, "_line", f"from_json(_line, {schema}, {options}) AS _decoded"], lines)
    sound = f"{_among(writers)} AND is_valid_utf8(_line) AND _decoded IS NOT NULL AND _decoded._corrupt IS NULL"
    faults: list[Fault] = [
        (sound, None, "NULL"),
        ("_raw IS NULL", "MALFORMED", text("the record has no value: it is a tombstone")),
        *_frame_faults(writers),
        ("NOT is_valid_utf8(_line)", "MALFORMED", text("the record is not valid UTF-8")),
        ("true", "MALFORMED", text("the record is not json of the contract")),
    ]
    return _finish(source, select([*carried, "_decoded", f"{_code(faults)} AS _fault"], parsed), faults)


def _code(faults: list[Fault]) -> str:
    return "CASE " + " ".join(f"WHEN {fault[0]} THEN {n}" for n, fault in enumerate(faults)) + " END"


def _finish(source: SourceNode, judged: Relation, faults: list[Fault]) -> Relation:
    """The envelope and the fields, as everything after decoding wants them."""
    kind, _, by = (source.connector.partition or "").partition(":")
    partition = "_partition"
    if kind == "column":
        # A refused record says nothing that can be relied on, not even text.
        partition = f"coalesce(CASE WHEN _fault = 0 THEN CAST(_decoded.{quote(by)} AS STRING) END, '?') AS _partition"
    wrong = [(n, fault) for n, fault in enumerate(faults) if fault[1] is not None]
    reason = "CASE _fault " + " ".join(f"WHEN {n} THEN '{fault[1]}'" for n, fault in wrong) + " END AS _reason"
    error = "CASE _fault " + " ".join(f"WHEN {n} THEN {fault[2]}" for n, fault in wrong) + " END AS _error"
    fields = [f"_decoded.{quote(name)} AS {quote(name)}" for name in source.contract.names]
    others = [column for column in (*RAW, *source.connector.extra) if column != "_partition"]
    return select([partition, *others, reason, error, "_row", *fields], judged)


def valid_text(node: AvroType, sql: str, numbers: count[int] | None = None) -> str | None:
    """A condition that all text inside is UTF-8; None when there is none inside."""
    numbers = numbers or count()
    match node.kind:
        case "string":
            return f"coalesce(is_valid_utf8({sql}), true)"
        case "array" | "map":
            values = sql if node.kind == "array" else f"map_values({sql})"
            name = f"x{next(numbers)}"
            inner = valid_text(node.inner, name, numbers)
            parts = [f"forall({values}, {name} -> {inner})"] if inner else []
            if node.kind == "map":
                parts.append(f"forall(map_keys({sql}), {name} -> is_valid_utf8({name}))")
            return f"coalesce({' AND '.join(parts)}, true)" if parts else None
        case "record":
            found = [valid_text(field.type, f"{sql}.{quote(field.name)}", numbers) for field in node.fields]
        case "union":
            branches = [branch for branch in node.branches if branch.kind != "null"]
            if len(branches) == 1:
                return valid_text(branches[0], sql, numbers)
            kinds = {branch.kind for branch in branches}
            if kinds in ({"int", "long"}, {"float", "double"}):
                return None
            found = [valid_text(branch, f"{sql}.member{n}", numbers) for n, branch in enumerate(branches)]
        case _:
            return None
    parts = [part for part in found if part]
    return " AND ".join(parts) or None
