"""Avro through Spark's own `from_avro`, held against fastavro, and against bytes that are no Avro."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.contracts.avro_cases import changes, encode, kind_of, read, records, variants
from tests.contracts.messages import Messages

from tidegate.app import App
from tidegate.contracts import Contract, load_contract
from tidegate.contracts.avro import parse, schema_text
from tidegate.contracts.avro_contract import avro_contract
from tidegate.contracts.avro_rules import avro_incompatibilities
from tidegate.contracts.registry import Registry
from tidegate.contracts.wire import HEADER, Writer
from tidegate.errors import ContractError
from tidegate.operators.decode import DECODED, decode, raw_ddl
from tidegate.operators.sql import run
from tidegate.stream import SourceNode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

servers = pytest.mark.servers  # they need no server, but the jar of spark-avro
relaxed = settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
REGISTRY = Registry("http://127.0.0.1:1", subject="payments-value", reader=1)


def source_of(contract: Contract) -> SourceNode:
    app = App("test")
    app.source("events", Messages("nowhere"), contract=contract, event_time="current_timestamp()")
    return app.sources["events"]


def decoded(
    spark: SparkSession,
    contract: Contract,
    values: list[bytes],
    *writers: Writer,
    headers: list[tuple[str, bytes]] | None = None,
) -> list[dict[str, Any]]:
    """The rows that come of some records, which all have the same headers."""
    node = source_of(contract)
    told = None if headers is None else [{"key": key, "value": value} for key, value in headers]
    rows = [
        {"_partition": "0", "_origin": "f", "_position": n, "_arrival": 0, "_raw": value, "_headers": told}
        for n, value in enumerate(values)
    ]
    kinds = [("_partition", pa.string()), ("_origin", pa.string()), ("_position", pa.int64()), ("_arrival", pa.int64())]
    pairs = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    schema = pa.schema([*kinds, ("_raw", pa.binary()), ("_headers", pairs)])
    frame = spark.createDataFrame(pa.Table.from_pylist(rows, schema=schema)).coalesce(1)
    fields = [f"CASE WHEN _reason IS NULL THEN `{name}` END AS `{name}`" for name in contract.names]
    relation = decode(node, "{records}", writers)
    table = run(spark, relation, {"records": frame}).selectExpr(*DECODED, *fields).toArrow()
    found: list[dict[str, Any]] = table.to_pylist()
    return sorted(found, key=lambda row: row["_position"])


def writer_of(id_: int, schema: Any, reader: Any) -> Writer:
    trouble = next(iter(avro_incompatibilities(parse(reader), parse(schema))), None)
    return Writer(id_, (b"\x00" + id_.to_bytes(4, "big"),), schema_text(parse(schema)), trouble)


def prefixed(id_: int, payload: bytes) -> bytes:
    return b"\x00" + struct.pack(">I", id_) + payload


def normal(schema: Any, value: Any) -> Any:
    """A value in one form, whether Spark or fastavro read it."""
    if value is None:
        return None
    match kind_of(schema):
        case "float":
            return struct.unpack("f", struct.pack("f", value))[0]
        case "double":
            return float(value)
        case "string":
            return value.decode() if isinstance(value, bytes) else value
        case "bytes" | "fixed" if not (isinstance(schema, dict) and "logicalType" in schema):
            return value.encode() if isinstance(value, str) else bytes(value)
        case "array":
            return [normal(schema["items"], item) for item in value]
        case "map":
            return {
                key: normal(schema["values"], item)
                for key, item in (value.items() if isinstance(value, dict) else value)
            }
        case "record":
            return {field["name"]: normal(field["type"], value[field["name"]]) for field in schema["fields"]}
        case "union":
            branches = [branch for branch in schema if branch != "null"]
            if len(branches) == 1:
                return normal(branches[0], value)
            if isinstance(value, dict) and "member0" in value:
                return next((item for item in value.values() if item is not None), None)
    return value


@servers
@relaxed
@given(data=st.data())
def test_from_avro_reads_what_fastavro_reads(spark: SparkSession, data: st.DataObject) -> None:
    writer = data.draw(records(most=6))
    reader = data.draw(changes(writer).filter(lambda schema: not avro_incompatibilities(parse(schema), parse(writer))))
    values = variants(writer)
    contract = avro_contract(parse(reader), "reader.avsc", registry=REGISTRY)
    payloads = [encode(writer, value) for value in values]
    rows = decoded(spark, contract, [prefixed(7, payload) for payload in payloads], writer_of(7, writer, reader))
    assert [row["_reason"] for row in rows] == [None] * len(values)
    for row, payload in zip(rows, payloads, strict=True):
        assert normal(reader, row) == normal(reader, read(payload, writer, reader))


@servers
@relaxed
@given(data=st.data())
def test_a_record_cut_short_or_with_bytes_left_over_is_malformed(spark: SparkSession, data: st.DataObject) -> None:
    schema = data.draw(records())
    whole = [encode(schema, value) for value in variants(schema)]
    broken = [payload[:-1] for payload in whole if payload] + [payload + b"\x00" for payload in whole]
    rows = decoded(spark, avro_contract(parse(schema), "x.avsc"), whole + broken)
    assert [row["_reason"] for row in rows] == [None] * len(whole) + ["MALFORMED"] * len(broken)
    assert [row["_raw"] for row in rows] == whole + broken


@servers
@relaxed
@given(data=st.data())
def test_random_bytes_never_throw(spark: SparkSession, data: st.DataObject) -> None:
    schema = data.draw(records())
    values = data.draw(st.lists(st.binary(max_size=40), min_size=20, max_size=40))
    rows = decoded(spark, avro_contract(parse(schema), "x.avsc"), values)
    assert {row["_reason"] for row in rows} <= {None, "MALFORMED"}


def long(value: int) -> bytes:
    """A number as Avro writes it."""
    value, out = (value << 1) ^ (value >> 63), b""
    while value > 127:
        value, out = value >> 7, out + bytes([value & 127 | 128])
    return out + bytes([value])


TEXT = {"type": "record", "name": "T", "fields": [{"name": "s", "type": "string"}]}
LIST = {"type": "record", "name": "L", "fields": [{"name": "a", "type": {"type": "array", "items": "long"}}]}
BYTES = {"type": "record", "name": "B", "fields": [{"name": "b", "type": "bytes"}]}


@servers
@pytest.mark.parametrize("schema", [TEXT, LIST, BYTES], ids=["text", "list", "bytes"])
@pytest.mark.parametrize("length", [17_000_000, 1_900_000_000, 2**31 - 1, 2**40, -1, -(2**31)])
def test_a_length_that_lies_does_not_end_the_jvm(spark: SparkSession, schema: Any, length: int) -> None:
    rows = decoded(spark, avro_contract(parse(schema), "x.avsc"), [long(length) + b"abc"])
    assert [row["_reason"] for row in rows] == ["MALFORMED"]


@servers
def test_text_that_is_not_utf8_is_malformed_wherever_it_stands(spark: SparkSession) -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "t", "type": ["null", "string"]}]}
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "s", "type": "string"},
            {"name": "a", "type": {"type": "array", "items": inner}},
            {"name": "m", "type": {"type": "map", "values": "string"}},
            {"name": "u", "type": ["null", "string", "long"]},
        ],
    }
    good = {"s": "ok", "a": [{"t": "ok"}, {"t": None}], "m": {"k": "ok"}, "u": "ok"}
    bad = [good | {"s": "QQ"}, good | {"a": [{"t": "QQ"}]}, good | {"m": {"QQ": "x"}}, good | {"m": {"x": "QQ"}}]
    bad.append(good | {"u": "QQ"})
    values = [encode(schema, good), *(encode(schema, row).replace(b"QQ", b"\xc3\x28") for row in bad)]
    rows = decoded(spark, avro_contract(parse(schema), "x.avsc"), values)
    assert [row["_reason"] for row in rows] == [None] + ["MALFORMED"] * 5


@servers
def test_a_record_of_nulls_is_a_record(spark: SparkSession) -> None:
    schema = {"type": "record", "name": "N", "fields": [{"name": "a", "type": ["null", "string"]}]}
    rows = decoded(spark, avro_contract(parse(schema), "x.avsc"), [encode(schema, {"a": None}), b"", b"\x04"])
    assert [row["_reason"] for row in rows] == [None, "MALFORMED", "MALFORMED"]


@servers
def test_a_writer_that_breaks_the_contract_is_named_with_the_path(spark: SparkSession) -> None:
    reader = {
        "type": "record",
        "name": "P",
        "fields": [{"name": "id", "type": "string"}, {"name": "n", "type": "int"}],
    }
    without = {"type": "record", "name": "P", "fields": [{"name": "id", "type": "string"}]}
    nullable = {
        "type": "record",
        "name": "P",
        "fields": [{"name": "id", "type": "string"}, {"name": "n", "type": ["null", "int"]}],
    }
    contract = avro_contract(parse(reader), "x.avsc", registry=REGISTRY)
    values = [
        prefixed(1, encode(reader, {"id": "a", "n": 1})),
        prefixed(2, encode(without, {"id": "a"})),
        prefixed(2, encode(without, {"id": "a"})[:-1]),
        prefixed(3, encode(nullable, {"id": "a", "n": 5})),
        prefixed(3, encode(nullable, {"id": "a", "n": None})),
        prefixed(9, b"whatever"),
        b"\x01\x00\x00\x00\x01whatever",
        b"\x00\x00",
        b"",
    ]
    rows = decoded(
        spark, contract, values, *(writer_of(n, s, reader) for n, s in enumerate([reader, without, nullable], 1))
    )
    assert [(row["_reason"], row["n"]) for row in rows] == [
        (None, 1),
        ("CONTRACT_VIOLATION", None),
        ("MALFORMED", None),
        (None, 5),
        ("CONTRACT_VIOLATION", None),
        ("SCHEMA_UNKNOWN", None),
        ("MALFORMED", None),
        ("MALFORMED", None),
        ("MALFORMED", None),
    ]
    assert rows[1]["_error"].startswith("at n: the reader needs this field")
    assert rows[1]["_error"].endswith("(schema 2)")
    assert rows[5]["_error"] == "the registry does not know schema 9"


@servers
def test_a_header_may_name_the_schema_by_its_guid(spark: SparkSession) -> None:
    registry = Registry("http://127.0.0.1:1", subject="s", reader=1, wire="header")
    contract = avro_contract(parse(TEXT), "x.avsc", registry=registry)
    guid = bytes(range(16))
    writer = Writer(7, (b"\x00\x00\x00\x00\x07", b"\x01" + guid), schema_text(parse(TEXT)))
    payload = encode(TEXT, {"s": "a"})
    cases = {
        b"\x01" + guid: None,
        b"\x00\x00\x00\x00\x07": None,
        b"\x01" + guid[::-1]: "SCHEMA_UNKNOWN",
        b"\x00\x00\x00\x00\x08": "SCHEMA_UNKNOWN",
        b"\x00\x07": "MALFORMED",
        b"": "MALFORMED",
    }
    for value, reason in cases.items():
        (row,) = decoded(spark, contract, [payload], writer, headers=[("x", b"y"), (HEADER, value)])
        assert row["_reason"] == reason, value
    (row,) = decoded(spark, contract, [prefixed(7, payload)], writer, headers=[])
    assert (row["_reason"], row["s"]) == (None, "a")


@servers
def test_other_values_without_an_error_are_never_read(spark: SparkSession) -> None:
    def money(scale: int) -> dict[str, Any]:
        kind = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": scale}
        return {"type": "record", "name": "P", "fields": [{"name": "m", "type": kind}]}

    contract = avro_contract(parse(money(2)), "x.avsc", registry=REGISTRY)
    trouble = avro_incompatibilities(parse(money(2)), parse(money(4)))[0]
    writer = Writer(7, (b"\x00\x00\x00\x00\x07",), schema_text(parse(money(4))), trouble, hopeless=True)
    from decimal import Decimal

    (row,) = decoded(spark, contract, [prefixed(7, encode(money(4), {"m": Decimal("1.0000")}))], writer)
    assert (row["_reason"], row["m"]) == ("CONTRACT_VIOLATION", None)


@servers
@relaxed
@given(schema=records(most=6))
def test_the_types_of_a_contract_are_those_that_spark_gives(spark: SparkSession, schema: Any) -> None:
    from pyspark.sql.types import StructType

    contract = avro_contract(parse(schema), "x.avsc")
    node = source_of(contract)
    frame = spark.createDataFrame([], raw_ddl(node))
    given = run(spark, decode(node, "{records}"), {"records": frame}).select(*contract.names).schema
    assert given.simpleString() == StructType.fromDDL(contract.ddl).simpleString()


def test_fields_are_known_without_spark(tmp_path: Path) -> None:
    schema = {
        "type": "record",
        "name": "P",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
            {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
            {"name": "status", "type": {"type": "enum", "name": "S", "symbols": ["A"]}, "default": "A"},
            {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "int"}}},
            {"name": "who", "type": {"type": "record", "name": "W", "fields": [{"name": "x", "type": "float"}]}},
            {"name": "any", "type": ["string", "long"]},
        ],
    }
    file = tmp_path / "payment.avsc"
    file.write_text(json.dumps(schema))
    contract = load_contract(file)
    assert contract.describe() == (
        "id STRING NOT NULL, at TIMESTAMP NOT NULL, day DATE, amount DECIMAL(12,2) NOT NULL, status STRING, "
        "tags MAP<STRING, ARRAY<INT>> NOT NULL, who STRUCT<`x`: FLOAT> NOT NULL, "
        "any STRUCT<`member0`: STRING, `member1`: BIGINT> NOT NULL"
    )


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("int", "must be a record, not int"),
        (
            {"type": "record", "name": "R", "fields": [{"name": "n", "type": "null"}]},
            "n: a field that is only ever null",
        ),
        (
            {"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]},
            "r: record R contains itself",
        ),
        ({"type": "record", "name": "R", "fields": [{"name": "_x", "type": "int"}]}, "begin with an underscore"),
    ],
)
def test_what_spark_cannot_hold_is_refused_with_its_path(schema: Any, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        avro_contract(parse(json.dumps(schema)), "x.avsc")
