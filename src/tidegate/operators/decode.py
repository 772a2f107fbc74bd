"""Decode: raw records to typed rows, in the streaming plan, before anything else.

Every row leaves with its envelope, the struct ``_tg``, whatever became of it: a record that does not parse keeps its
raw bytes and gets the reason `MALFORMED`. Nothing of the user's runs here, so nothing here can throw on one record
and take the batch with it; expressions are evaluated in `route`, where a poison record can be isolated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidegate.operators.sql import quote, text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidegate.stream import SourceNode


def decode(source: SourceNode, raw: DataFrame) -> DataFrame:
    """The rows of one source as (`_tg`, one struct named after the source)."""
    contract = source.contract
    if source.connector.encoding == "record":
        rows = raw.withColumn("_decoded", F.col("_record"))
        reason, error = "CAST(NULL AS STRING)", "CAST(NULL AS STRING)"
    else:
        rows = raw.withColumn("_line", F.expr("CAST(_raw AS STRING)"))
        rows = rows.withColumn("_decoded", F.expr(_parse(source)))
        broken = "NOT is_valid_utf8(_line) OR _decoded IS NULL OR _decoded._corrupt IS NOT NULL"
        reason = f"CASE WHEN {broken} THEN 'MALFORMED' END"
        error = (
            "CASE WHEN NOT is_valid_utf8(_line) THEN 'the record is not valid UTF-8' "
            f"WHEN {broken} THEN {text(f'the record is not {source.connector.encoding} of the contract')} END"
        )
    partition = "_partition"
    kind, _, name = (getattr(source.connector, "partition", None) or "").partition(":")
    if kind == "column":
        partition = f"coalesce(CAST(_decoded.{quote(name)} AS STRING), '?')"
    fields = ", ".join(f"'{field.name}', _decoded.{quote(field.name)}" for field in contract.fields)
    envelope = (
        f"named_struct('partition', {partition}, 'origin', _origin, 'position', _position, 'arrival', _arrival, "
        f"'raw', _raw, 'reason', {reason}, 'error', {error})"
    )
    if source.connector.encoding == "csv" and getattr(source.connector, "header", False):
        delimiter = source.connector.delimiter  # type: ignore[attr-defined]
        header = delimiter.join(contract.names)
        rows = rows.where(f"replace(trim(_line), '\"', '') != {text(header)}")
    return rows.select(F.expr(envelope).alias("_tg"), F.expr(f"named_struct({fields})").alias(source.name))


def _parse(source: SourceNode) -> str:
    """The native parser, in its permissive mode: it never throws, it marks."""
    schema = text(source.contract.ddl + ", `_corrupt` STRING")
    options = "'mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '_corrupt'"
    if source.connector.encoding == "csv":
        delimiter = source.connector.delimiter  # type: ignore[attr-defined]
        return f"from_csv(_line, {schema}, map({options}, 'sep', {text(delimiter)}))"
    return f"from_json(_line, {schema}, map({options}))"


def union(sources: list[tuple[SourceNode, DataFrame]]) -> DataFrame:
    """All sources in one query: one nested struct per source, of which one is set."""
    parts = []
    for node, rows in sources:
        others = [
            F.expr(f"CAST(NULL AS STRUCT<{other.contract.ddl.replace('` ', '`: ')}>)").alias(other.name)
            if other is not node
            else F.col(node.name)
            for other, _ in sources
        ]
        parts.append(rows.select(F.lit(node.name).alias("_source"), F.col("_tg"), *others))
    joined = parts[0]
    for part in parts[1:]:
        joined = joined.unionByName(part)
    return joined
