"""The demo's pipeline: revenue per merchant and five minutes, as a data engineer would declare it."""

from __future__ import annotations

from pathlib import Path

import tidegate as tg

SCHEMA = (
    "payment_id STRING NOT NULL, merchant_id STRING NOT NULL, status STRING, amount DECIMAL(12,2), "
    "latency_ms BIGINT, paid_at TIMESTAMP"
)
WINDOW = "5m"
DELAY = "1m"
ALLOWED_LATENESS = "10m"
MAX_FUTURE = "1h"
IDLE_AFTER = "5s"
"""Idleness is measured by the clock on the wall, and the replay is many times faster than life: so short a wait here
stands for minutes of silence there."""

OPERATOR = "merchant_revenue"
"""The operator, and the table of its results."""


def revenue_app(inbox: Path, database: Path) -> tg.App:
    """The pipeline from the folder `inbox` into SQLite."""
    app = tg.App("demo")
    payments = app.source(
        "payments",
        tg.Files(str(inbox), partition="path:partition"),
        contract=tg.Contract(SCHEMA, expect=["amount >= 0"]),
        event_time="paid_at",
        event_id="payment_id",
        watermark=tg.Watermark(delay=DELAY, idle_after=IDLE_AFTER, max_future=MAX_FUTURE),
    )
    revenue = (
        payments.where("status = 'captured'")
        .key_by("merchant_id")
        .window(OPERATOR, tg.Tumbling(WINDOW), allowed_lateness=ALLOWED_LATENESS)
        .aggregate(orders=tg.count(), revenue=tg.sum("amount"), p95=tg.quantile("latency_ms", 0.95))
    )
    app.sink("results", revenue, tg.SQLite(database, table=OPERATOR))
    return app
