"""What can be said about a Kafka source without a broker: its declaration, its secrets, its proof."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import tidegate as tg
from tidegate.contracts import Contract
from tidegate.errors import CheckpointError, DataLossRisk, PipelineError, SourceError, Unavailable
from tidegate.sources.kafka import Kafka
from tidegate.sources.kafka_admin import hidden, meaning
from tidegate.sources.kafka_proof import OffsetProof, Span
from tidegate.sources.kafka_reader import KafkaReader

CONTRACT = Contract("k STRING, at TIMESTAMP")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topic": "a,b"}, "not the name of a topic"),
        ({"servers": " "}, "address of a broker"),
        ({"start": "yesterday"}, "start 'yesterday'"),
        ({"max_offsets": 0}, "at least one record"),
        ({"isolation": "dirty"}, "isolation 'dirty'"),
        ({"tombstones": "keep"}, "tombstones 'keep'"),
        ({"partition": "path:x"}, "partition 'path:x'"),
        ({"options": {"kafka.bootstrap.servers": "x"}}, "'bootstrap.servers' cannot be set"),
        ({"options": {"fetch.min.bytes": 3}}, "'fetch.min.bytes' is not text"),
    ],
)
def test_what_cannot_be_meant_is_refused_when_it_is_written(given: dict[str, Any], said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        Kafka(**{"servers": "localhost:9092", "topic": "t", **given})


def test_it_is_described_without_its_options() -> None:
    source = tg.Kafka("localhost:9092", topic="t", options={"sasl.jaas.config": "password=hunter2"})
    assert "hunter2" not in repr(source) + source.describe()
    assert source.describe() == "kafka localhost:9092 topic t (from earliest, read_committed)"


def test_a_partition_column_must_be_in_the_contract() -> None:
    assert tg.Kafka("b", topic="t", partition="column:region").problems(CONTRACT)
    assert not tg.Kafka("b", topic="t", partition="column:k").problems(CONTRACT)


def test_secrets_are_looked_up_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_USER", "me")
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")
    jaas = 'required username="${env:KAFKA_USER}" password="${env:KAFKA_PASSWORD}";'
    source = tg.Kafka("b", topic="t", options={"sasl.jaas.config": jaas, "ssl.key.password": "env:KAFKA_PASSWORD"})
    assert source.client_options() == {
        "sasl.jaas.config": 'required username="me" password="hunter2";',
        "ssl.key.password": "hunter2",
    }
    monkeypatch.delenv("KAFKA_USER")
    with pytest.raises(SourceError, match="KAFKA_USER, which is not set"):
        source.ready()


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node", Unavailable),
        ("…SaslAuthenticationException: Authentication failed: password=hunter2 is wrong", SourceError),
        ("org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server …", SourceError),
        ("KafkaException: Failed to load SSL keystore hunter2 of type JKS\njava.io.IOException", SourceError),
        ("java.lang.OutOfMemoryError: Java heap space", None),
    ],
)
def test_the_words_of_a_client_are_told_in_ours(words: str, kind: type | None) -> None:
    found = meaning(words, "b:1", "t", {"sasl.jaas.config": "hunter2"})
    assert type(found) is (kind or type(None))
    assert "hunter2" not in str(found)


def test_every_value_of_an_option_is_hidden() -> None:
    assert hidden("tried s3cret with abc and token=xyz", {"a": "s3cret"}) == "tried … with abc and token=…"


# -- ranges -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def reader() -> KafkaReader:
    nobody: Any = None
    return KafkaReader(tg.Kafka("b:1", topic="t"), nobody, "payments", 10)


def test_a_range_lies_between_two_offsets_of_the_log(tmp_path: Path, reader: KafkaReader) -> None:
    (tmp_path / "0").write_bytes(b'\0v1\n{"t":{"0":5,"1":0}}')
    assert reader.taken(tmp_path, None, '{"t":{"0":8,"1":0}}').spans == (Span(0, 5, 8), Span(1, 0, 0))
    later = reader.taken(tmp_path, '{"t":{"0":8,"1":0}}', '{"t":{"0":8,"1":0,"2":4}}')
    assert later.spans == (Span(0, 8, 8), Span(1, 0, 0), Span(2, 0, 4)), "a new partition is read from its beginning"
    assert later
    assert later.filled == (Span(2, 0, 4),)
    assert not reader.taken(tmp_path, '{"t":{"0":8}}', '{"t":{"0":8}}')


@pytest.mark.parametrize(
    ("start", "end", "said"),
    [
        ('{"t":{"0":8}}', '{"t":{"0":3}}', "ends at 3, and we had read up to 8"),
        ('{"t":{"0":8,"1":1}}', '{"t":{"0":8}}', "partition 1 is no longer there"),
    ],
)
def test_a_range_that_goes_back_is_loss(reader: KafkaReader, start: str, end: str, said: str) -> None:
    with pytest.raises(DataLossRisk, match=said):
        reader.taken(Path("/nowhere"), start, end)


def test_an_offset_of_another_topic_is_refused(reader: KafkaReader) -> None:
    with pytest.raises(CheckpointError, match="not of topic 't'"):
        reader.taken(Path("/nowhere"), '{"logOffset":3}', '{"t":{"0":3}}')


def test_without_spark_s_note_on_the_beginning_nothing_is_guessed(tmp_path: Path, reader: KafkaReader) -> None:
    with pytest.raises(CheckpointError, match="cannot be read"):
        reader.taken(tmp_path, None, '{"t":{"0":3}}')


# -- the proof, on rows as they would have come -----------------------------------------------------------------------

SPANS = (Span(0, 100, 110), Span(2, 7, 12))
WHOLE = [(0, offset) for offset in range(100, 110)] + [(2, offset) for offset in range(7, 12)]


@pytest.fixture
def prove(spark: SparkSession) -> Callable[..., None]:
    def run(
        rows: Iterable[tuple[int, int]], second: Iterable[tuple[int, int]] | None = None, *, compacted: bool = False
    ) -> None:
        proof = OffsetProof("t", SPANS, lambda: compacted)

        def count(rows: Iterable[tuple[int, int]]) -> dict[str, int]:
            frame = spark.createDataFrame([(str(p), o) for p, o in rows], "_partition STRING, _position BIGINT")
            return frame.selectExpr(*[f"{sql} AS {name}" for name, sql in proof.counts.items()]).collect()[0].asDict()

        first = list(rows)
        proof.check(count(first), lambda: count(first if second is None else second))

    return run


@pytest.mark.spark
def test_the_whole_range_is_proven(prove: Callable[..., None]) -> None:
    prove(reversed(WHOLE))


@pytest.mark.spark
@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([*WHOLE, (0, 110)], "1 records lie outside"),
        ([*WHOLE[:-1], (1, 11)], "1 records lie outside"),
        ([*WHOLE, WHOLE[0]], "16 records came of a range of 15"),
        ([*WHOLE[1:], WHOLE[1]], "some records came twice"),
        ([*WHOLE[:5], *WHOLE[:5], *WHOLE[10:]], "some records came twice"),
        ([WHOLE[0], WHOLE[0], WHOLE[3], WHOLE[3], *WHOLE[4:]], "some records came twice"),
    ],
    ids=["behind", "other partition", "one too many", "one twice", "a part twice", "the sum is right"],
)
def test_what_is_not_the_range_is_found(prove: Callable[..., None], rows: list[tuple[int, int]], said: str) -> None:
    with pytest.raises(DataLossRisk, match=said):
        prove(rows)


@pytest.mark.spark
def test_a_gap_is_believed_when_a_second_reading_has_it_too(prove: Callable[..., None]) -> None:
    prove(WHOLE[:4] + WHOLE[5:])
    prove([])
    prove(WHOLE[:4] + WHOLE[5:], WHOLE[:4] + WHOLE[6:], compacted=True)
    with pytest.raises(DataLossRisk, match="14 of 15 offsets came, and 15 when read again"):
        prove(WHOLE[:4] + WHOLE[5:], WHOLE)
    with pytest.raises(DataLossRisk, match="when read again"):
        prove(WHOLE[:4] + WHOLE[5:], WHOLE[:5] + WHOLE[6:])


@pytest.mark.spark
def test_the_sums_hold_for_ranges_larger_than_the_modulus(spark: SparkSession) -> None:
    proof = OffsetProof("t", (Span(0, 10**15, 10**15 + 2_500_000),), lambda: False)
    frame = spark.range(10**15, 10**15 + 2_500_000).selectExpr("'0' AS _partition", "id AS _position")
    counted = frame.selectExpr(*[f"{sql} AS {name}" for name, sql in proof.counts.items()]).collect()[0].asDict()
    proof.check(counted, lambda: pytest.fail("it is whole"))
