"""Decode: raw records to typed rows, before anything else.

Every row leaves with its envelope, whatever became of it: a record that does not parse keeps its raw bytes and gets
the reason `MALFORMED`. Nothing of the user's runs here, so nothing here can throw on one record and take the batch with
it; expressions are evaluated in `route`, where a poison record can be isolated.

Columns are flat: a struct would be put together, with every number boxed, for each of millions of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidegate.operators.decode_wire import RAW as RAW
from tidegate.operators.decode_wire import decode_wire
from tidegate.operators.sql import Relation, quote, select, text

if TYPE_CHECKING:
    from tidegate.contracts.wire import Writer
    from tidegate.stream import SourceNode

DECODED = (*RAW, "_reason", "_error", "_row")
"""The envelope of a decoded record. `_row` numbers the rows: unique, and the same each time they are evaluated."""


def raw_ddl(source: SourceNode) -> str:
    """The columns of the records that a source's connector hands over."""
    typed = f", {source.contract.ddl}" if source.connector.encoding == "record" else ""
    return ", ".join(f"{name} {kind}" for name, kind in (RAW | dict(source.connector.extra)).items()) + typed


def decoded_columns(source: SourceNode) -> tuple[str, ...]:
    """The envelope of a decoded record of this source, with the further columns that its system has."""
    return (*DECODED, *source.connector.extra)


def decode(source: SourceNode, raw: Relation, writers: Sequence[Writer] = ()) -> Relation:
    """The rows of one source: the envelope, and a column for each field of the contract.

    `writers` are the schemas that the records can have been written with, where each record names its own.
    """
    if source.contract.wire is not None and source.connector.encoding != "record":
        return decode_wire(source, raw, writers)
    names = source.contract.names
    numbered = "monotonically_increasing_id() AS _row"
    raw_columns = (*RAW, *source.connector.extra)
    others = [column for column in raw_columns if column != "_partition"]
    kind, _, by = (source.connector.partition or "").partition(":")
    if source.connector.encoding == "record":
        partition = f"coalesce(CAST({quote(by)} AS STRING), '?') AS _partition" if kind == "column" else "_partition"
        nothing = ["CAST(NULL AS STRING) AS _reason", "CAST(NULL AS STRING) AS _error"]
        return select([partition, *others, *nothing, numbered, *map(quote, names)], raw)
    lines = select([*raw_columns, "CAST(_raw AS STRING) AS _line", numbered], raw)
    parsed = select([*raw_columns, "_row", "_line", f"{_parse(source)} AS _decoded"], lines)
    partition = (
        f"coalesce(CAST(_decoded.{quote(by)} AS STRING), '?') AS _partition" if kind == "column" else "_partition"
    )
    broken = "NOT is_valid_utf8(_line) OR _decoded IS NULL OR _decoded._corrupt IS NOT NULL"
    error = (
        "CASE WHEN _raw IS NULL THEN 'the record has no value: it is a tombstone' "
        "WHEN NOT is_valid_utf8(_line) THEN 'the record is not valid UTF-8' "
        f"WHEN {broken} THEN {text(f'the record is not {source.connector.encoding} of the contract')} END AS _error"
    )
    reason = f"CASE WHEN {broken} THEN 'MALFORMED' END AS _reason"
    fields = [f"_decoded.{quote(name)} AS {quote(name)}" for name in names]
    return select([partition, *others, reason, error, "_row", *fields], parsed)


def _parse(source: SourceNode) -> str:
    """The native parser, in its permissive mode: it never throws, it marks."""
    schema = text(source.contract.ddl + ", `_corrupt` STRING")
    options = "'mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '_corrupt'"
    if source.connector.encoding == "csv":
        delimiter = source.connector.delimiter  # type: ignore[attr-defined]
        return f"from_csv(_line, {schema}, map({options}, 'sep', {text(delimiter)}))"
    return f"from_json(_line, {schema}, map({options}))"
