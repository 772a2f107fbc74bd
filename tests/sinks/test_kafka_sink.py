"""What is Kafka's own: messages as readers see them, transactions that break, a broker that goes away."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic
from sink_adapters import committed  # type: ignore[import-not-found]
from sink_cases import pane, record, target  # type: ignore[import-not-found]
from tests.servers import RunningServer, unique

from tidegate import crash
from tidegate.errors import Fenced, SinkError, Unavailable
from tidegate.patience import patiently
from tidegate.sinks import kafka_client, kafka_writer
from tidegate.sinks.kafka import KafkaTopic
from tidegate.sinks.kafka_writer import KafkaWriter, Message, Outgoing

server = pytest.mark.servers


@pytest.fixture
def topic() -> str:
    return unique("revenue")


@pytest.fixture
def staged(tmp_path: Path) -> Path:
    return tmp_path / "staged"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker counts as away after three seconds."""
    monkeypatch.setattr(kafka_writer, "TIMEOUT", 3.0)
    monkeypatch.setattr(kafka_client, "TIMEOUT", 3.0)


def opened(kafka: RunningServer, topic: str, claim: int = 1, **options: Any) -> KafkaWriter:
    """A writer for a checkpoint that is called as its topic is."""
    sink = KafkaTopic(kafka.address, topic, **{"partitions": 1} | options)
    return sink.open(target(checkpoint_id=topic, claim=claim))


def values(kafka: RunningServer, topic: str) -> list[int]:
    """The totals in a topic, tombstones left out."""
    return [json.loads(message.value())["total"] for message in committed(kafka.address, topic) if message.value()]


# What a message looks like.


@server
def test_a_message_has_its_identity_as_key_and_says_which_it_is(kafka: RunningServer, topic: str, staged: Path) -> None:
    with closing(opened(kafka, topic)) as writer:
        writer.deliver(record(staged, 7, pane("a", 1), pane("b", 2)))
        writer.deliver(record(staged, 8, pane("a", 1, change="retract")))
    first, second, tombstone = committed(kafka.address, topic)
    identity = {
        "merchant": "a",
        "window_start": "2026-03-01T12:00:00.000000Z",
        "window_end": "2026-03-01T12:05:00.000000Z",
    }
    assert json.loads(first.key()) == identity
    assert json.loads(first.value()) == identity | {
        "total": 1,
        "pane_index": 0,
        "pane_timing": "on_time",
        "pane_final": False,
    }
    assert tombstone.key() == first.key()
    assert tombstone.value() is None
    ids = [dict(message.headers())["tidegate-id"].decode() for message in (first, second, tombstone)]
    assert ids == [f"{topic}/out/7/0", f"{topic}/out/7/1", f"{topic}/out/8/0"]


@server
def test_a_topic_for_upserts_is_made_compacted(kafka: RunningServer, topic: str) -> None:
    opened(kafka, topic, partitions=2).close()
    admin = AdminClient({"bootstrap.servers": kafka.address})
    assert len(admin.list_topics(timeout=30).topics[topic].partitions) == 2
    for name in (topic, "tidegate.shop.out"):
        resource = ConfigResource(ResourceType.TOPIC, name)
        config = admin.describe_configs([resource])[resource].result(30)
        assert config["cleanup.policy"].value == "compact"


@server
def test_a_missing_topic_is_refused_unless_it_may_be_made(kafka: RunningServer, topic: str) -> None:
    with pytest.raises(SinkError, match=f"no topic '{topic}'") as error:
        opened(kafka, topic, partitions=None)
    assert "partitions=" in str(error.value.hint)


@server
def test_other_writers_may_use_the_topic_too(kafka: RunningServer, topic: str, staged: Path) -> None:
    with closing(opened(kafka, topic)) as writer:
        writer.deliver(record(staged, 1, pane("a", 1)))
        other = Producer({"bootstrap.servers": kafka.address})
        other.produce(topic, json.dumps({"total": 99}), "x")
        assert other.flush(30) == 0
        writer.deliver(record(staged, 2, pane("a", 2)))
    assert values(kafka, topic) == [1, 99, 2]


# Transactions that break.


def break_at_commit(monkeypatch: pytest.MonkeyPatch, trouble: Callable[[], None]) -> None:
    """Do something once, when all is sent and nothing is committed."""
    done = threading.Event()

    def point(name: str) -> None:
        if name == "mid_sink" and not done.is_set():
            done.set()
            trouble()

    monkeypatch.setattr(crash, "point", point)


@server
def test_a_broken_transaction_is_sent_again_and_seen_once(
    kafka: RunningServer, topic: str, staged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise KeyboardInterrupt

    delivery = record(staged, 1, pane("a", 1))
    with closing(opened(kafka, topic)) as writer:
        break_at_commit(monkeypatch, fail)
        with pytest.raises(KeyboardInterrupt):
            writer.deliver(delivery)
        assert values(kafka, topic) == []
        assert writer.deliver(delivery) == 1
        assert writer.deliver(delivery) == 0
    assert values(kafka, topic) == [1]


@server
def test_a_broker_bounced_between_write_and_commit_neither_loses_nor_doubles(
    kafka: RunningServer, topic: str, staged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bounce() -> None:
        kafka.kill()
        kafka.start()

    said: list[str] = []
    with closing(opened(kafka, topic)) as writer:
        writer.deliver(record(staged, 1, pane("a", 1)))
        break_at_commit(monkeypatch, bounce)
        second = record(staged, 2, pane("b", 2))
        patiently(lambda: writer.deliver(second), said.append, longest_wait=2)
        writer.deliver(record(staged, 3, pane("c", 3)))
        assert writer.confirmed() == 3
    assert values(kafka, topic) == [1, 2, 3]
    with closing(opened(kafka, topic, claim=2)) as writer:
        assert writer.confirmed() == 3


@server
def test_a_broker_bounced_again_and_again_during_delivery_neither_loses_nor_doubles(
    kafka: RunningServer, topic: str, staged: Path, impatient: None
) -> None:
    over = threading.Event()

    def bounce() -> None:
        for way in (kafka.kill, kafka.stop):
            if over.wait(1):
                return
            way()
            over.wait(4)
            kafka.start()

    bouncing = threading.Thread(target=bounce)
    said: list[str] = []
    with closing(opened(kafka, topic)) as writer:
        bouncing.start()
        try:
            sequence = 0
            while bouncing.is_alive() or sequence < 20:
                sequence += 1
                delivery = record(staged, sequence, pane("a", sequence), pane("b", -sequence))
                patiently(lambda delivery=delivery: writer.deliver(delivery), said.append, longest_wait=2)  # type: ignore[misc]
        finally:
            over.set()
            bouncing.join()
    expected = [number for one in range(1, sequence + 1) for number in (one, -one)]
    assert Counter(values(kafka, topic)) == Counter(expected)
    assert any("cannot be reached" in line for line in said), said


@server
def test_a_commit_whose_answer_is_lost_is_judged_by_the_marker(
    kafka: RunningServer, topic: str, staged: Path, monkeypatch: pytest.MonkeyPatch, impatient: None
) -> None:
    delivery = record(staged, 1, pane("a", 1))
    with closing(opened(kafka, topic)) as writer:
        break_at_commit(monkeypatch, kafka.pause)
        try:
            with pytest.raises(Unavailable):
                writer.deliver(delivery)
        finally:
            kafka.resume()
        patiently(lambda: writer.deliver(delivery), print, longest_wait=2)
        assert writer.confirmed() == 1
    assert values(kafka, topic) == [1]


@server
def test_a_zombie_that_disturbs_its_successor_does_not_stop_it(kafka: RunningServer, topic: str, staged: Path) -> None:
    with closing(opened(kafka, topic, claim=1)) as zombie, closing(opened(kafka, topic, claim=2)) as successor:
        zombie._let_go()  # as after a broken transaction: its next delivery begins with a new producer
        with pytest.raises(Fenced, match="claim 2"):
            zombie.deliver(record(staged, 1, pane("zombie", 666)))
        delivery = record(staged, 1, pane("a", 1))
        assert patiently(lambda: successor.deliver(delivery), print) == 1
    assert values(kafka, topic) == [1]


@server
def test_a_zombie_that_learns_it_in_the_middle_of_a_record_is_fenced(
    kafka: RunningServer, topic: str, staged: Path
) -> None:
    with closing(opened(kafka, topic, claim=1)) as zombie, closing(opened(kafka, topic, claim=2)):
        outgoing = zombie._outgoing

        zombie._outgoing = lambda delivery: Hesitant(outgoing(delivery))
        with pytest.raises(Fenced, match="claim 2"):
            zombie.deliver(record(staged, 1, pane("a", 666), pane("b", 667)))
    assert values(kafka, topic) == []


class Hesitant:
    """Messages of which the second comes only when the broker has long answered to the first."""

    def __init__(self, messages: Outgoing) -> None:
        self._messages = messages

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Message]:
        for message in self._messages:
            yield message
            time.sleep(2)


@server
def test_a_marker_topic_that_was_deleted_stops_the_writer(kafka: RunningServer, topic: str, staged: Path) -> None:
    sink = KafkaTopic(kafka.address, topic, partitions=1)
    own = unique("sink")
    with closing(sink.open(target(own, checkpoint_id=topic))) as writer:
        writer.deliver(record(staged, 1, pane("a", 1)))
        admin = AdminClient({"bootstrap.servers": kafka.address})
        name = f"tidegate.shop.{own}"
        admin.delete_topics([name])[name].result(30)
        admin.create_topics([NewTopic(name, 1)])[name].result(30)
        writer._let_go()
        with pytest.raises(SinkError, match=r"marker of sink .* has vanished"):
            writer.deliver(record(staged, 2, pane("a", 2)))
    assert values(kafka, topic) == [1]


# A broker that is away, and what check finds.


def test_a_broker_that_is_away_is_waited_for(impatient: None) -> None:
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1 cannot be reached"):
        KafkaTopic("127.0.0.1:1", "revenue").open(target())


def test_an_option_that_does_not_exist_is_named(impatient: None) -> None:
    with pytest.raises(SinkError, match=r"sasl\.pasword") as error:
        KafkaTopic("127.0.0.1:1", "revenue", options={"sasl.pasword": "hush"}).open(target())
    assert "hush" not in str(error.value)


def test_secrets_are_never_shown() -> None:
    sink = KafkaTopic("broker:9092", "revenue", options={"sasl.password": "hush"})
    assert "hush" not in sink.describe() + repr(sink)


@pytest.mark.parametrize(
    "wrong",
    [
        {"servers": ""},
        {"servers": "kafka://broker:9092"},
        {"topic": "a topic"},
        {"changes": "delta"},
        {"partitions": 0},
        {"options": {"transactional.id": "mine"}},
    ],
)
def test_what_cannot_work_is_a_problem_that_check_finds(wrong: dict[str, Any]) -> None:
    sink = KafkaTopic(**{"servers": "broker:9092", "topic": "revenue"} | wrong)
    assert len(sink.problems()) == 1
    with pytest.raises(SinkError):
        sink.open(target())
