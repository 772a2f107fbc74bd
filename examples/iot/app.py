"""Sessions per device, and an alarm when a reading is more than three standard deviations off what came before it."""

import os

import tidegate as tg

REDIS = os.environ["REDIS_URL"]

app = tg.App("iot")

readings = app.source(
    "readings",
    tg.Kafka(os.environ["KAFKA_BOOTSTRAP_SERVERS"], topic=os.environ.get("READINGS_TOPIC", "readings")),
    contract="device STRING NOT NULL, celsius DOUBLE NOT NULL, at TIMESTAMP NOT NULL",
    event_time="at",
    watermark=tg.Watermark(delay="1m", idle_after="5m"),
)

# A device is on while it sends; two minutes of silence end a session, and so do thirty minutes without any.
sessions = (
    readings.key_by("device")
    .window("sessions", tg.Session("2m", max_length="30m"))
    .aggregate(readings=tg.count(), coldest=tg.min("celsius"), warmest=tg.max("celsius"), mean=tg.avg("celsius"))
)

# Every reading with the ten minutes up to it.
recent = (
    readings.key_by("device")
    .window("recent", tg.Rolling("10m"))
    .aggregate(n=tg.count(), celsius=tg.last("celsius"), mean=tg.avg("celsius"), sigma=tg.stddev("celsius"))
)

# A reading must not be judged by itself: it would pull the mean towards it, and widen sigma. So it is taken out of
# both: from the mean of n values to that of the n - 1 before, and likewise the sum of the squared deviations.
before = (
    recent.as_stream()
    .where("n > 30")
    .select("device", "n", "celsius", "mean", "sigma", at="window_end", usual="(n * mean - celsius) / (n - 1)")
    .select(
        "device",
        "celsius",
        "at",
        "usual",
        sigma="sqrt(greatest(0, (n - 1) * sigma * sigma - (celsius - mean) * (celsius - usual)) / (n - 2))",
    )
)

# One row per device and minute, however often it happens in it.
alarms = (
    before.where("abs(celsius - usual) > 3 * sigma")
    .key_by("device")
    .window("alarms", tg.Tumbling("1m"))
    .aggregate(readings=tg.count(), at=tg.first("at"), celsius=tg.first("celsius"), usual=tg.first("usual"))
)

app.sink("device_sessions", sessions, tg.Redis(REDIS, prefix="session", ttl="30d", ttl_from="write"))
app.sink("device_alarms", alarms, tg.Redis(REDIS, prefix="alarm", ttl="30d", ttl_from="write"))
