"""A broker that asks for a password: the right one is let in, the wrong one is told so, and neither is ever shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sink_cases import pane, record, target  # type: ignore[import-not-found]
from tests.servers import unique

from tidegate.dev.kafka import Kafka
from tidegate.errors import SinkError
from tidegate.sinks import kafka_client
from tidegate.sinks.kafka import KafkaTopic

pytestmark = pytest.mark.servers

SASL = """
listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
username="admin" password="boss" user_admin="boss" user_alice="wonderland";
"""


class SecuredKafka(Kafka):
    def command(self, ports: list[int]) -> list[str]:
        command = super().command(ports)
        with (self.folder / "server.properties").open("a") as settings:
            settings.write(SASL)
        return command


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = SecuredKafka(tmp_path_factory.mktemp("secured") / "kafka")
    try:
        yield server.start(print)
    finally:
        server.stop(delete=True)


def sink(address: str, password: str) -> KafkaTopic:
    options = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "PLAIN", "sasl.username": "alice"}
    return KafkaTopic(address, unique("revenue"), partitions=1, options=options | {"sasl.password": password})


def test_the_right_password_from_the_environment_is_let_in(
    secured: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALICES_PASSWORD", "wonderland")
    with closing(sink(secured, "env:ALICES_PASSWORD").open(target(checkpoint_id=unique("c")))) as writer:
        assert writer.deliver(record(tmp_path / "staged", 1, pane("a", 1))) == 1


def test_a_wrong_password_is_no_broker_that_is_away(secured: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_client, "TIMEOUT", 5.0)
    with pytest.raises(SinkError, match=r"(?i)authentication") as error:
        sink(secured, "looking-glass").open(target())
    assert "sasl.password" in str(error.value.hint)
    assert "looking-glass" not in str(error.value)


def test_a_variable_that_is_not_set_is_named(secured: str) -> None:
    with pytest.raises(SinkError, match="NOT_SET_AT_ALL"):
        sink(secured, "env:NOT_SET_AT_ALL").open(target())
