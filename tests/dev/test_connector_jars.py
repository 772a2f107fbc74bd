"""The locked jars work together in one session: Kafka, Avro and Delta, on the Spark that is installed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from tests.servers import RunningServer, unique

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.servers, pytest.mark.spark]


def test_rows_go_through_kafka_as_avro_and_into_delta(
    spark: SparkSession, kafka: RunningServer, tmp_path: Path
) -> None:
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import from_avro, to_avro

    topic = unique("avro")
    admin = AdminClient({"bootstrap.servers": kafka.address})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)
    options = {"kafka.bootstrap.servers": kafka.address}
    rows = spark.range(100).select(to_avro(F.struct("id")).alias("value"))
    rows.write.format("kafka").options(**options, topic=topic).save()

    schema = '{"type": "record", "name": "row", "fields": [{"name": "id", "type": "long"}]}'
    read = spark.read.format("kafka").options(**options, subscribe=topic).load()
    ids = read.select(from_avro("value", schema).alias("row")).select("row.id")
    ids.write.format("delta").option("txnAppId", "app").option("txnVersion", "1").save(str(tmp_path / "table"))
    assert spark.read.format("delta").load(str(tmp_path / "table")).agg(F.sum("id")).collect()[0][0] == 4950
