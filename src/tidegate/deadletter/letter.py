"""The dead letter: the fields that every refused record carries.

Dead letters *are* the staged Parquet files of the records (`kind == "dead"`): they are decided together with the
rest of the batch, so each stands there exactly once. `raw` is the record as it came, byte for byte; the fields beside
it say where it came from, who refused it and why.
"""

from __future__ import annotations

from typing import Literal

Reason = Literal[
    "MALFORMED",
    "NULL_EVENT_TIME",
    "CONTRACT_VIOLATION",
    "FUTURE",
    "DUPLICATE",
    "LATE",
    "PARTIALLY_LATE",
    "EXPRESSION_ERROR",
    "CORRUPT_FILE",
    "SCHEMA_UNKNOWN",
]

COPIES: tuple[str, ...] = ("DUPLICATE", "PARTIALLY_LATE")
"""Reasons whose letters are copies kept on request: the event itself is accounted for elsewhere in the ledger."""

COLUMNS: tuple[tuple[str, str], ...] = (
    ("dlq_id", "STRING"),  # deterministic: pipeline, source position, operator
    ("pipeline", "STRING"),
    ("source", "STRING"),
    ("operator", "STRING"),  # NULL when the source refused it
    ("sequence", "BIGINT"),  # the record that decided it
    ("reason", "STRING"),
    ("error", "STRING"),  # a sentence, shortened
    ("partition", "STRING"),
    ("origin", "STRING"),  # file, or topic
    ("position", "BIGINT"),
    ("arrival", "TIMESTAMP"),
    ("event_time", "TIMESTAMP"),
    ("watermark", "TIMESTAMP"),  # at the decision
    ("late_by_ms", "BIGINT"),
    ("window_start", "TIMESTAMP"),  # of the last window it missed
    ("window_end", "TIMESTAMP"),
    ("allowed_lateness_ms", "BIGINT"),
    ("subject", "STRING"),  # of the schema registry
    ("schema_id", "BIGINT"),  # that the record names
    ("path", "STRING"),  # the field that breaks the contract
    ("failed_at", "TIMESTAMP"),  # the batch's clock
    ("attempt", "INT"),
    ("status", "STRING"),  # new
    ("raw", "BINARY"),
    ("key", "BINARY"),  # of a Kafka record, with its headers, byte for byte
    ("headers", "ARRAY<STRUCT<key: STRING, value: BINARY>>"),
)
