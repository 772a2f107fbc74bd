"""Kafka as a source, on a real broker: totals, restarts, partitions, transactions, and what must be refused aloud."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from tests.servers import RunningServer
from tests.sources.topics import Headers, TestTopic
from tests.workbench import Bench, at

import tidegate as tg
from tidegate.cli import main
from tidegate.cli.watch import record_line
from tidegate.errors import DataLossRisk, SourceError
from tidegate.runtime.ledger import SourceLine

pytestmark = [pytest.mark.spark, pytest.mark.servers]

CONTRACT = "id STRING, k STRING, v BIGINT, at TIMESTAMP"


def event(number: int, seconds: float, k: str = "a", v: int = 1) -> dict[str, Any]:
    return {"id": f"e{number}", "k": k, "v": v, "at": at(seconds)}


def app_on(bench: Bench, topic: TestTopic, *, where: str | None = None, **options: Any) -> tg.App:
    watermark = options.pop("watermark", tg.Watermark(delay="10s"))
    event_id = options.pop("event_id", None)
    app = tg.App("payments")
    source: Any = app.source(
        "payments",
        tg.Kafka(topic.server.address, topic=topic.name, **options),
        contract=CONTRACT,
        event_time="at",
        event_id=event_id,
        watermark=watermark,
    )
    source = source.where(where) if where else source
    result = source.key_by("k").window("totals", tg.Tumbling("1m"))
    app.sink("table", result.aggregate(n=tg.count(), total=tg.sum("v")), tg.SQLite(str(bench.database), "results"))
    return app


def totals(bench: Bench) -> dict[tuple[str, str], tuple[int, int]]:
    return {(row["k"], row["window_start"][11:16]): (row["n"], row["total"]) for row in bench.table()}


def source_line(bench: Bench) -> SourceLine:
    return bench.records()[-1].totals.sources["payments"]


def test_records_of_all_partitions_come_to_their_windows(bench: Bench, kafka: RunningServer) -> None:
    topic = TestTopic.make(kafka, partitions=3)
    for partition in range(3):
        rows = [event(n, n % 120, k=f"k{n % 2}", v=n) for n in range(partition, 600, 3)]
        topic.send(rows, partition=partition)
    bench.run(app_on(bench, topic))
    expected: dict[tuple[str, str], tuple[int, int]] = {}
    for n in range(600):
        place = (f"k{n % 2}", f"12:0{n % 120 // 60}")
        count, total = expected.get(place, (0, 0))
        expected[place] = (count + 1, total + n)
    assert totals(bench) == expected
    assert source_line(bench) == SourceLine(read=600, passed=600)


def test_a_restart_goes_on_at_the_offset_where_the_last_batch_ended(bench: Bench, kafka: RunningServer) -> None:
    topic = TestTopic.make(kafka, partitions=2)
    topic.send([event(n, n) for n in range(30)], partition=0)
    topic.send([event(n, n) for n in range(30, 50)], partition=1)
    bench.run(app_on(bench, topic), "once", max_batch=20)
    batches = [report.ledger.sources["payments"].read for report in bench.watched.reports]
    assert sum(batches) == 50
    assert max(batches) <= 21, "a bounded batch, but for rounding"
    bench.run(app_on(bench, topic), "once")
    assert not bench.watched.reports, "nothing new, nothing read"
    topic.send([event(n, n - 40) for n in range(50, 60)], partition=1)
    bench.run(app_on(bench, topic))
    assert totals(bench) == {("a", "12:00"): (60, 60)}
    assert source_line(bench) == SourceLine(read=60, passed=60)


def test_a_bounded_batch_reads_from_the_start_to_the_end_that_is_known(bench: Bench, kafka: RunningServer) -> None:
    topic = TestTopic.make(kafka, partitions=2)
    topic.send([event(n, n) for n in range(20)], partition=1)
    bench.run(app_on(bench, topic), "batch")
    assert totals(bench) == {("a", "12:00"): (20, 20)}


def test_it_starts_at_an_instant(bench: Bench, kafka: RunningServer) -> None:
    topic = TestTopic.make(kafka, partitions=2)
    topic.send([event(1, 1)], at=1_733_000_000_000)
    topic.send([event(2, 2), event(3, 3)], at=1_733_000_600_000)
    topic.send([event(4, 4)], partition=1, at=1_733_000_000_000)
    app = app_on(bench, topic, start="2024-11-30T21:00:00Z")
    bench.run(app, "batch")
    assert totals(bench) == {("a", "12:00"): (2, 2)}
    (bench.folder / "stream").mkdir()
    other = Bench(bench.folder / "stream")
    other.run(app_on(other, topic, start="2024-11-30T21:00:00Z"))
    assert totals(other) == {("a", "12:00"): (2, 2)}


def test_it_starts_at_the_end_when_asked(bench: Bench, kafka: RunningServer) -> None:
    topic = TestTopic.make(kafka)
    topic.send([event(1, 1)])
    bench.run(app_on(bench, topic, start="latest"), "once")
    topic.send([event(2, 2)])
    bench.run(app_on(bench, topic, start="latest"))
    assert source_line(bench).read == 1


def test_key_value_headers_and_timestamp_of_a_refused_record_stay_byte_for_byte(
    bench: Bench, kafka: RunningServer
) -> None:
    topic = TestTopic.make(kafka, partitions=2)
    headers: Headers = [("trace", b"\x00\xff"), ("trace", b"again"), ("none", None)]
    topic.send([b'{"id": broken \xff'], partition=1, key=b"\x01key", headers=headers, at=1_700_000_000_123)
    topic.send([event(1, 1), b"plain nonsense"], partition=1)
    bench.run(app_on(bench, topic))
    first, second = sorted(bench.dead_letters("MALFORMED"), key=lambda letter: int(letter["position"]))
    assert first["raw"] == b'{"id": broken \xff'
    assert first["key"] == b"\x01key"
    assert [(h["key"], h["value"]) for h in first["headers"]] == headers
    assert (first["origin"], first["position"], first["partition"]) == (f"{topic.name}/1", 0, "1")
    assert first["arrival"].timestamp() == 1_700_000_000.123
    assert (second["raw"], second["key"], second["headers"]) == (b"plain nonsense", None, None)
    assert first["dlq_id"] != second["dlq_id"]
    assert source_line(bench) == SourceLine(read=3, passed=1, dead={"MALFORMED": 2})


def test_a_tombstone_is_a_dead_letter(bench: Bench, kafka: RunningServer) -> None:
    topic = TestTopic.make(kafka)
    topic.send([event(1, 1), None], key=b"k")
    bench.run(app_on(bench, topic))
    (letter,) = bench.dead_letters("MALFORMED")
    assert (letter["raw"], letter["key"]) == (None, b"k")
    assert "tombstone" in letter["error"]


@pytest.mark.parametrize("event_id", [None, "id"])
def test_a_tombstone_that_is_skipped_is_counted(bench: Bench, kafka: RunningServer, event_id: str | None) -> None:
    topic = TestTopic.make(kafka)
    topic.send([event(1, 1), None, event(2, 2), None, None], key=b"k")
    bench.run(app_on(bench, topic, tombstones="skip", event_id=event_id))
    assert source_line(bench) == SourceLine(read=5, passed=2, skipped=3)
    assert not bench.dead_letters()


@pytest.mark.parametrize(("isolation", "read"), [("read_committed", 5), ("read_uncommitted", 8)])
def test_what_a_transaction_aborted_is_seen_as_isolation_says(
    bench: Bench, kafka: RunningServer, isolation: str, read: int
) -> None:
    topic = TestTopic.make(kafka, partitions=2)
    producer = topic.producer(**{"transactional.id": topic.name})
    producer.init_transactions()
    for first, last, commit in ((0, 3, True), (3, 6, False), (6, 8, True)):
        producer.begin_transaction()
        topic.send([event(n, n) for n in range(first, last)], partition=first % 2, producer=producer)
        producer.flush()
        producer.commit_transaction() if commit else producer.abort_transaction()
    bench.run(app_on(bench, topic, isolation=isolation))
    assert source_line(bench) == SourceLine(read=read, passed=read)


def test_an_open_transaction_is_not_read_past(bench: Bench, kafka: RunningServer) -> None:
    topic = TestTopic.make(kafka)
    producer = topic.producer(**{"transactional.id": topic.name})
    producer.init_transactions()
    producer.begin_transaction()
    topic.send([event(1, 1)], producer=producer)
    producer.flush()
    topic.send([event(2, 2)])
    bench.run(app_on(bench, topic), "once")
    assert not bench.records()[-1].totals.sources
    producer.commit_transaction()
    bench.run(app_on(bench, topic))
    assert source_line(bench).read == 2


def test_a_poison_record_is_isolated_and_duplicates_are_found(bench: Bench, kafka: RunningServer) -> None:
    topic = TestTopic.make(kafka, partitions=2)
    topic.send([event(n, n, v=n) for n in range(10)], partition=0)
    topic.send([event(n, n, v=n) for n in range(5, 15)], partition=1)
    bench.run(app_on(bench, topic, event_id="id", where="10 / (v - 12) < 100"))
    (letter,) = bench.dead_letters("EXPRESSION_ERROR")
    assert (letter["origin"], letter["position"]) == (f"{topic.name}/1", 7)
    assert source_line(bench) == SourceLine(read=20, passed=14, duplicates=5, dead={"EXPRESSION_ERROR": 1})
    assert totals(bench) == {("a", "12:00"): (14, sum(range(15)) - 12)}


# -- partitions and the watermark -----------------------------------------------------------------------------------


def test_a_partition_that_is_far_behind_holds_the_watermark_while_it_has_unread_records(
    bench: Bench, kafka: RunningServer
) -> None:
    """Two hours of events wait in one partition, and the other is at the end already: nothing is late."""
    topic = TestTopic.make(kafka, partitions=2)
    topic.send([event(n, n * 10, k="slow") for n in range(720)], partition=0)
    topic.send([event(n, 7_200 + n, k="fast") for n in range(720, 730)], partition=1)
    bench.run(app_on(bench, topic, watermark=tg.Watermark(idle_after="1s")), max_batch=50)
    assert not bench.dead_letters()
    assert source_line(bench).passed == 730
    lags = [report.sources["payments"].unread for report in bench.watched.reports]
    assert 0 < lags[0]["0"] < 720
    assert lags[-1] == {"0": 0, "1": 0}
    assert "unread" in record_line(bench.watched.reports[0])
    shown = CliRunner().invoke(main, ["status", str(bench.checkpoint)]).output
    assert "unread records" in shown
    sources = json.loads(CliRunner().invoke(main, ["status", str(bench.checkpoint), "--json"]).output)["sources"]
    assert sources[0]["unread"] == {"0": 0, "1": 0}


def test_a_partition_that_is_added_joins_from_its_first_record(bench: Bench, kafka: RunningServer) -> None:
    topic = TestTopic.make(kafka)
    topic.send([event(1, 1)])
    bench.run(app_on(bench, topic), "once")
    topic.grow(3)
    topic.send([event(2, 2)], partition=1)
    topic.send([event(3, 3)], partition=2)
    topic.send([event(4, 4)])
    bench.run(app_on(bench, topic))
    assert totals(bench) == {("a", "12:00"): (4, 4)}
    assert {"0", "1", "2"} <= bench.records()[-1].sources["payments"].partitions.keys()


def test_an_empty_partition_holds_nothing(bench: Bench, kafka: RunningServer) -> None:
    topic = TestTopic.make(kafka, partitions=4)
    topic.send([event(1, 1), event(2, 200)])
    bench.run(app_on(bench, topic), "once")
    assert totals(bench) == {("a", "12:00"): (1, 1)}


def test_the_watermark_may_be_kept_by_a_field(bench: Bench, kafka: RunningServer) -> None:
    topic = TestTopic.make(kafka, partitions=2)
    topic.send([event(1, 1, k="north"), event(2, 200, k="south")], partition=1)
    bench.run(app_on(bench, topic, partition="column:k"), "once")
    clock = bench.records()[-1].sources["payments"]
    assert clock.partitions.keys() == {"north", "south"}
    assert clock.unread == {"0": 0, "1": 0}


# -- what must be refused aloud -------------------------------------------------------------------------------------


def test_records_that_expired_before_they_were_read_stop_the_pipeline(bench: Bench, kafka: RunningServer) -> None:
    from confluent_kafka import TopicPartition

    topic = TestTopic.make(kafka)
    topic.send([event(n, n) for n in range(10)])
    bench.run(app_on(bench, topic), "once")
    topic.send([event(n, n) for n in range(10, 30)])
    place = TopicPartition(topic.name, 0, 15)
    topic.admin.delete_records([place])[place].result()
    with pytest.raises(DataLossRisk, match=r"begins at offset 15.*from 10: 5 records expired") as refused:
        bench.run(app_on(bench, topic))
    assert "--checkpoint" in str(refused.value.hint)
    assert source_line(bench).read == 10, "nothing was passed over"


def test_a_topic_that_was_created_anew_is_not_taken_for_the_old_one(bench: Bench, kafka: RunningServer) -> None:
    topic = TestTopic.make(kafka)
    topic.send([event(n, n) for n in range(10)])
    bench.run(app_on(bench, topic), "once")
    topic.delete()
    topic.create()
    topic.send([event(n, n) for n in range(100, 120)])
    with pytest.raises(DataLossRisk, match="not the topic that was read before"):
        bench.run(app_on(bench, topic))


def test_a_topic_that_is_not_there_is_named(bench: Bench, kafka: RunningServer) -> None:
    topic = TestTopic(kafka, "nobody_made_this")
    with pytest.raises(SourceError, match="there is no topic 'nobody_made_this'"):
        bench.run(app_on(bench, topic))


def test_another_topic_under_the_name_of_a_source_is_refused(bench: Bench, kafka: RunningServer) -> None:
    one, other = TestTopic.make(kafka), TestTopic.make(kafka)
    one.send([event(1, 1)])
    other.send([event(2, 2)])
    bench.run(app_on(bench, one), "once")
    with pytest.raises(DataLossRisk, match="not the topic that was read before"):
        bench.run(app_on(bench, other))


def test_no_secret_is_found_in_messages_or_in_the_checkpoint(
    bench: Bench, kafka: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2-of-the-broker")
    topic = TestTopic.make(kafka)
    topic.send([event(1, 1)])
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    jaas = f'{module} required username="u" password="${{env:KAFKA_PASSWORD}}";'
    options = {"sasl.jaas.config": jaas, "client.id": "env:KAFKA_PASSWORD"}
    app = app_on(bench, topic, options=options)
    bench.run(app)
    assert source_line(bench).read == 1
    seen = repr(app.sources) + app.sources["payments"].connector.describe() + "\n".join(bench.watched.said)
    seen += "".join(p.read_bytes().decode(errors="replace") for p in bench.checkpoint.rglob("*") if p.is_file())
    assert "hunter2" not in seen
    assert "PlainLoginModule" not in seen


# -- other ways through the engine ------------------------------------------------------------------------------------


def test_a_late_event_of_a_session_keeps_its_key_and_headers(bench: Bench, kafka: RunningServer) -> None:
    topic = TestTopic.make(kafka)
    app = tg.App("sessions")
    source = app.source(
        "payments",
        tg.Kafka(kafka.address, topic=topic.name),
        contract=CONTRACT,
        event_time="at",
        event_id="id",
        keep_duplicates=True,
    )
    result = source.key_by("k").window("visits", tg.Session("1m", max_length="1h")).aggregate(n=tg.count())
    app.sink("table", result, tg.SQLite(str(bench.database), "results"))
    topic.send([event(1, 0), event(2, 600)])
    bench.run(app, "once")
    headers: Headers = [("h", b"\xfe")]
    topic.send([event(3, 5), event(2, 600)], key=b"\x00", headers=headers)
    bench.run(app)
    letters = {letter["reason"]: letter for letter in bench.dead_letters()}
    assert letters.keys() == {"LATE", "DUPLICATE"}
    for letter in letters.values():
        assert (letter["key"], letter["headers"]) == (b"\x00", [{"key": "h", "value": b"\xfe"}])


def test_transform_and_several_operators_take_the_same_records(bench: Bench, kafka: RunningServer) -> None:
    topic = TestTopic.make(kafka, partitions=2)
    topic.send([event(n, n) for n in range(20)], partition=0)
    topic.send([b"nonsense"], partition=1, key=b"k")
    app = tg.App("several")
    source = app.source("payments", tg.Kafka(kafka.address, topic=topic.name), contract=CONTRACT, event_time="at")
    plain = source.key_by("k").window("plain", tg.Tumbling("1m")).aggregate(n=tg.count())
    moved = source.transform(lambda df: df.withColumn("k", df.k)).key_by("k")
    app.sink("one", plain, tg.SQLite(str(bench.database), "plain"))
    app.sink(
        "two", moved.window("moved", tg.Tumbling("1m")).aggregate(n=tg.count()), tg.SQLite(str(bench.database), "moved")
    )
    bench.run(app)
    assert [row["n"] for row in bench.table("plain")] == [row["n"] for row in bench.table("moved")] == [20]
    assert source_line(bench) == SourceLine(read=21, passed=20, dead={"MALFORMED": 1})
    (letter,) = bench.dead_letters()
    assert letter["key"] == b"k"


def test_the_broker_says_whether_a_topic_is_compacted(spark: SparkSession, kafka: RunningServer) -> None:
    for policy, expected in (("delete", False), ("compact", True), ("compact,delete", True)):
        topic = TestTopic.make(kafka, cleanup_policy=policy)
        reader = tg.Kafka(kafka.address, topic=topic.name).open(spark, tg.Contract(CONTRACT), "payments", None)
        assert reader._is_compacted is expected
        reader.close()
