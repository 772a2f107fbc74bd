"""Latency quantiles and error rate per service and endpoint, minute by minute, from request logs in Kafka."""

import os

import tidegate as tg

KAFKA = os.environ["KAFKA_BOOTSTRAP_SERVERS"]

app = tg.App("observability")

requests = app.source(
    "requests",
    tg.Kafka(KAFKA, topic=os.environ.get("REQUESTS_TOPIC", "requests")),
    contract=tg.Contract(
        "service STRING NOT NULL, endpoint STRING NOT NULL, status INT NOT NULL, ms DOUBLE NOT NULL, at TIMESTAMP",
        expect={"took no negative time": "ms >= 0", "is an HTTP status": "status BETWEEN 100 AND 599"},
    ),
    event_time="at",
    watermark=tg.Watermark(delay="20s", idle_after="1m"),
)

# A rate is no sum: two rates cannot be added. What can be added is kept, and divided at the end.
error_rate = tg.custom(
    partial={"errors": "count_if(status >= 500)", "requests": "count(1)"},
    merge={"errors": "sum({errors})", "requests": "sum({requests})"},
    finish="try_divide({errors}, {requests})",
    label="error rate",
)

health = (
    requests.key_by("service", "endpoint")
    .window("health", tg.Tumbling("1m"), allowed_lateness="5m")
    .aggregate(
        requests=tg.count(),
        p50=tg.quantile("ms", 0.50),
        p95=tg.quantile("ms", 0.95),
        p99=tg.quantile("ms", 0.99),
        error_rate=error_rate,
    )
)

app.sink("dashboard", health, tg.Postgres(os.environ["DATABASE_URL"], table="health"))
app.sink("alerts", health, tg.KafkaTopic(KAFKA, os.environ.get("HEALTH_TOPIC", "health"), partitions=2))
