"""Revenue per merchant, currency and five minutes, from payments in Avro; what is refused goes to `dlq.payments`."""

import os
from pathlib import Path

import tidegate as tg

KAFKA = os.environ["KAFKA_BOOTSTRAP_SERVERS"]
TOPIC = os.environ.get("PAYMENTS_TOPIC", "payments")

app = tg.App("payments")

payments = app.source(
    "payments",
    tg.Kafka(KAFKA, topic=TOPIC),
    contract=tg.Registry(
        os.environ["SCHEMA_REGISTRY_URL"],
        subject=f"{TOPIC}-value",
        reader=str(Path(__file__).parent / "schemas" / "payment-3.avsc"),
        expect=["cents > 0"],
    ),
    event_time="at",
    event_id="id",
    watermark=tg.Watermark(delay="1m", idle_after="5m"),
)

revenue = (
    payments.key_by("merchant", "currency")
    .window("revenue", tg.Tumbling("5m"), allowed_lateness="15m")
    .aggregate(orders=tg.count(), cents=tg.sum("cents"), by_card=tg.count("CASE WHEN method = 'card' THEN 1 END"))
)

app.sink("warehouse", revenue, tg.Postgres(os.environ["DATABASE_URL"], table="revenue"))
app.dead_letters(tg.KafkaDeadLetters(KAFKA))
