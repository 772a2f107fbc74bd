"""The compatibility checker against fastavro: what it calls readable is read, and what it does not, is not."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.contracts.avro_cases import changes, encode, read, records, variants

from tidegate.contracts.avro import named_types, parse, schema_text
from tidegate.contracts.avro_rules import avro_incompatibilities
from tidegate.contracts.incompatibility import SILENT

relaxed = settings(
    max_examples=400,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def _unreadable(writer: Any, reader: Any) -> list[str]:
    failures = []
    for datum in variants(writer):
        payload = encode(writer, datum)
        try:
            read(payload, writer, reader)
        except Exception as error:  # fastavro raises many kinds
            failures.append(f"{datum!r}: {error!r}")
    return failures


@st.composite
def evolutions(draw: st.DrawFn) -> tuple[Any, Any]:
    writer = draw(records())
    return writer, draw(changes(writer))


@relaxed
@given(evolutions())
def test_the_verdict_is_what_fastavro_does(pair: tuple[Any, Any]) -> None:
    writer, reader = pair
    found = avro_incompatibilities(parse(json.dumps(reader)), parse(json.dumps(writer)))
    failures = _unreadable(writer, reader)
    if not found:
        assert not failures
    elif any(item.kind not in SILENT for item in found):
        assert failures, [str(item) for item in found]


@relaxed
@given(records())
def test_every_schema_reads_what_it_wrote_and_its_text_stands_for_it(schema: Any) -> None:
    parsed = parse(json.dumps(schema))
    again = parse(schema_text(parsed))
    assert avro_incompatibilities(parsed, again) == avro_incompatibilities(again, parsed) == []
    assert schema_text(again) == schema_text(parsed)
    assert set(named_types(again)) == set(named_types(parsed))
    for datum in variants(schema):
        assert read(encode(schema, datum), schema, json.loads(schema_text(parsed))) == read(
            encode(schema, datum), schema, schema
        )
