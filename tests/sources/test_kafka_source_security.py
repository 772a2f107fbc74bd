"""A broker that asks for TLS and a password: Kafka's own options reach it, and no secret is left anywhere.

The run is a process of its own, with TIDEGATE_DEBUG, so that all it says is seen: its output and what Spark and Kafka's
clients log. After it everything in its folder is searched, byte by byte: Spark's log of offsets, our records, staged
files, dead letters.
"""

from __future__ import annotations

import os
import socket
import ssl
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from tests.servers import unique
from tests.workbench import Bench, at, line, read_table

import tidegate as tg
from tidegate.dev.kafka import Kafka
from tidegate.dev.server import HOST
from tidegate.errors import SourceError
from tidegate.java import need_java
from tidegate.runtime.drivers import run
from tidegate.runtime.reports import RunOptions

pytestmark = [pytest.mark.servers, pytest.mark.spark]

PASSWORD = "through-the-looking-glass"
STORE_PASSWORD = "jabberwocky-of-the-store"
SECRETS = (PASSWORD, STORE_PASSWORD)

SETTINGS = """
listener.security.protocol.map=PLAINTEXT:SASL_SSL,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
username="admin" password="{secret}" user_admin="{secret}" user_alice="{secret}";
ssl.keystore.location={store}
ssl.keystore.password={store_password}
ssl.truststore.location={store}
ssl.truststore.password={store_password}
"""

APP = """
import tidegate as tg

app = tg.App("secured")
payments = app.source(
    "payments",
    tg.Kafka("{address}", topic="{topic}", options={options}),
    contract="id STRING, k STRING, v BIGINT, at TIMESTAMP",
    event_time="at",
    event_id="id",
)
totals = payments.key_by("k").window("totals", tg.Tumbling("1m")).aggregate(n=tg.count(), total=tg.sum("v"))
app.sink("table", totals, tg.SQLite("out.db", table="results"))
"""


class SecuredKafka(Kafka):
    """The broker of `tidegate dev` with a certificate of its own, which nobody but its trust store knows."""

    @property
    def store(self) -> Path:
        return self.folder / "broker.p12"

    @property
    def certificate(self) -> Path:
        return self.folder / "broker.pem"

    def command(self, ports: list[int]) -> list[str]:
        if not self.store.exists():
            keytool = [str(Path(need_java()).with_name("keytool")), "-keystore", str(self.store), "-alias", "broker"]
            keytool += ["-storepass", STORE_PASSWORD]
            named = ["-dname", f"CN={HOST}", "-ext", f"san=ip:{HOST}", "-keyalg", "RSA", "-validity", "30"]
            self.run([*keytool, "-genkeypair", "-storetype", "PKCS12", *named], "make its certificate")
            exported = ["-exportcert", "-rfc", "-file", str(self.certificate)]
            self.run([*keytool, *exported], "write its certificate down")
        command = super().command(ports)
        with (self.folder / "server.properties").open("a") as settings:
            settings.write(SETTINGS.format(secret=PASSWORD, store=self.store, store_password=STORE_PASSWORD))
        return command

    def answers(self, port: int) -> bool:
        context = ssl.create_default_context(cafile=str(self.certificate))
        request = struct.pack(">hhih", 18, 0, 1, 1) + b"t"
        with (
            socket.create_connection((HOST, port), timeout=5) as plain,
            context.wrap_socket(plain, server_hostname=HOST) as connection,
        ):
            connection.sendall(struct.pack(">i", len(request)) + request)
            return len(connection.recv(8)) == 8


@dataclass(frozen=True)
class Secured:
    """The broker, and a topic with three events."""

    address: str
    server: SecuredKafka
    topic: str

    def options(self, **more: str) -> dict[str, str]:
        """What a user writes down in the app: no secret stands in it."""
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{module} required username="alice" password="${{env:ALICES_PASSWORD}}";',
            "ssl.truststore.location": str(self.server.store),
            "ssl.truststore.password": "env:STORE_PASSWORD",
        } | {name.replace("_", "."): value for name, value in more.items()}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    server = SecuredKafka(tmp_path_factory.mktemp("secured") / "kafka")
    try:
        address, topic = server.start(print), unique("payments")
        client: dict[str, str | int | float | bool] = {
            "bootstrap.servers": address,
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(server.certificate),
        }
        admin = AdminClient(client)
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
        producer = Producer(client)
        for number in range(3):
            producer.produce(topic, line(id=f"e{number}", k="a", v=number, at=at(number)))
        producer.produce(topic, b"no JSON at all")
        assert producer.flush(30) == 0
        yield Secured(address, server, topic)
    finally:
        server.stop(delete=True)


def test_a_run_on_tls_with_a_password_leaves_no_secret_anywhere(secured: Secured, tmp_path: Path) -> None:
    app = tmp_path / "secured.py"
    app.write_text(APP.format(address=secured.address, topic=secured.topic, options=secured.options()))
    secrets = {"ALICES_PASSWORD": PASSWORD, "STORE_PASSWORD": STORE_PASSWORD}
    said = typed(tmp_path, secrets, "run", "secured.py", "--drain", "--checkpoint", "checkpoint")
    said += typed(tmp_path, secrets, "explain", "secured.py")
    said += typed(tmp_path, secrets, "explain", "secured.py", "--json")
    said += typed(tmp_path, secrets, "status", "checkpoint", "--json")
    said += typed(tmp_path, secrets, "dlq", "list", "checkpoint", "--json")
    (row,) = read_table(tmp_path / "out.db")
    assert (row["n"], row["total"]) == (3, 3)
    assert "MALFORMED" in said
    kept = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert len(kept) > 8, "offsets, commits, records, state, dead letters"
    for secret in SECRETS:
        assert secret not in said
        assert [path for path, content in kept.items() if secret.encode() in content] == []


def typed(folder: Path, environment: Mapping[str, str], *words: str) -> str:
    """What a command prints on both of its streams."""
    done = subprocess.run(
        [sys.executable, "-m", "tidegate.cli", *words],
        cwd=folder,
        env=os.environ | {"TIDEGATE_DEBUG": "1", "TIDEGATE_BRIEF": "yes", "COLUMNS": "200"} | dict(environment),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("more", "password", "said"),
    [
        ({}, "red-queen-red-queen", "refuses us: SaslAuthenticationException"),
        ({"ssl_truststore_password": "env:WRONG_STORE"}, PASSWORD, "store of the source .* its password is wrong"),
    ],
    ids=["wrong password", "wrong password of the store"],
)
def test_what_is_refused_is_said_without_the_secret(
    secured: Secured, bench: Bench, monkeypatch: pytest.MonkeyPatch, more: dict[str, str], password: str, said: str
) -> None:
    monkeypatch.setenv("ALICES_PASSWORD", password)
    monkeypatch.setenv("STORE_PASSWORD", STORE_PASSWORD)
    monkeypatch.setenv("WRONG_STORE", "humpty-dumpty-of-the-store")
    app = tg.App("secured")
    source = tg.Kafka(secured.address, topic=secured.topic, options=secured.options(**more))
    events = app.source("payments", source, contract="id STRING, at TIMESTAMP", event_time="at")
    app.sink("out", events.key_by("id").window("w", tg.Tumbling("1m")).aggregate(n=tg.count()), tg.Memory())
    with pytest.raises(SourceError, match=said) as error:
        run(app, RunOptions(str(bench.checkpoint), mode="drain", cores="2"), bench.watched)
    shown = f"{error.value} {error.value.hint}" + "\n".join(bench.watched.said)
    for secret in (*SECRETS, password, "humpty-dumpty"):
        assert secret not in shown
