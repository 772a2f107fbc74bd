"""The registry client and the commands that use it, against a real registry."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.servers import RunningServer, unique

from tidegate.cli import main
from tidegate.contracts.registry import NotThere, Registry, Tls
from tidegate.contracts.registry_client import RegistryClient
from tidegate.contracts.schema import Schema
from tidegate.errors import ContractError, Unavailable

servers = pytest.mark.servers
Cli = Callable[..., Result]

ID = {"name": "id", "type": "string"}
N = {"name": "n", "type": "int", "default": 0}
NEEDED = {"name": "needed", "type": "int"}


def text_of(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Payment", "fields": list(fields)})


def avro(*fields: dict[str, Any]) -> Schema:
    return Schema.of("avro", text_of(*fields))


@pytest.fixture
def client(registry: RunningServer) -> RegistryClient:
    return RegistryClient(registry.address)


@pytest.fixture
def subject() -> str:
    return unique("payments") + "-value"


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "v1.avsc").write_text(text_of(ID))
    (tmp_path / "v2.avsc").write_text(text_of(ID, N))
    (tmp_path / "bad.avsc").write_text(text_of(ID, NEEDED))
    return lambda *words: CliRunner().invoke(main, [str(word) for word in words])


@servers
def test_a_schema_is_registered_once(client: RegistryClient, subject: str) -> None:
    assert client.versions(subject) == []
    assert client.find(subject, avro(ID)) is None
    first = client.register(subject, avro(ID))
    second = client.register(subject, avro(ID, N))
    again = client.register(subject, avro(ID))
    assert (first.version, second.version, again.version) == (1, 2, 1)
    assert first.id == again.id != second.id
    assert subject in client.subjects()
    assert [(found.id, found.version) for found in client.history(subject)] == [(first.id, 1), (second.id, 2)]
    assert client.version(subject, "latest").id == second.id
    assert client.schema(first.id).same_as(avro(ID))


@servers
def test_a_version_is_fetched_once(client: RegistryClient, subject: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client.register(subject, avro(ID))
    client.history(subject)
    calls: list[str] = []
    real = client._call

    def call(method: str, path: str, body: Any = None) -> Any:
        calls.append(path)
        return real(method, path, body)

    monkeypatch.setattr(client, "_call", call)
    client.history(subject)
    assert [path for path in calls if "/versions/" in path] == []
    assert len(calls) == 1


@servers
def test_what_was_deleted_softly_is_still_known_to_readers(client: RegistryClient, subject: str) -> None:
    first = client.register(subject, avro(ID))
    client.register(subject, avro(ID, N))
    client._call("DELETE", f"/subjects/{subject}/versions/1")
    assert client.versions(subject) == [2]
    assert client.versions(subject, deleted=True) == [1, 2]
    assert RegistryClient(client.url).version(subject, 1).id == first.id


@servers
def test_levels_are_the_registrys(client: RegistryClient, subject: str) -> None:
    client.register(subject, avro(ID))
    assert client.level(subject) == "NONE"  # this registry's default
    client.set_level(subject, "FULL_TRANSITIVE")
    assert client.level(subject) == "FULL_TRANSITIVE"
    assert client.objections(subject, avro(ID, N)) == []
    assert client.objections(subject, avro(ID, NEEDED)) != []
    with pytest.raises(ContractError, match=r"409, .*ncompatible"):
        client.register(subject, avro(ID, NEEDED))


@servers
def test_references_to_other_subjects_are_followed(client: RegistryClient, subject: str) -> None:
    other = unique("money")
    money = {"type": "record", "name": "Money", "namespace": "shop", "fields": [{"name": "cents", "type": "long"}]}
    client.register(other, Schema.of("avro", json.dumps(money)))
    body = {
        "schema": text_of(ID, {"name": "price", "type": "shop.Money"}),
        "references": [{"name": "shop.Money", "subject": other, "version": 1}],
    }
    client._call("POST", f"/subjects/{subject}/versions", body)
    (found,) = client.history(subject)
    assert found.schema.avro.fields[1].type.fields[0].name == "cents"


@servers
def test_json_schemas_are_held_too(client: RegistryClient, subject: str) -> None:
    schema = Schema.of("json", '{"type": "object", "properties": {"a": {"type": "string"}}}')
    client.register(subject, schema)
    (found,) = client.history(subject)
    assert found.schema.form == "json"
    assert found.schema.same_as(schema)


@servers
def test_what_the_registry_refuses_is_said_in_its_words(client: RegistryClient, subject: str) -> None:
    with pytest.raises(NotThere, match=r"404, .*was found"):
        client.version(subject, 1)
    with pytest.raises(NotThere, match="404"):
        client.schema(987_654_321)
    with pytest.raises(ContractError, match=r"finds the schema invalid .422"):
        client._call("POST", f"/subjects/{subject}/versions", {"schema": "{nope", "schemaType": "AVRO"})
    elsewhere = RegistryClient(client.url.partition("/apis")[0])
    with pytest.raises(ContractError, match=r"answered GET /subjects.* with 404") as failure:
        elsewhere.versions(subject)  # a wrong address must not look like a subject without versions
    assert "ends in /apis/ccompat/v7" in str(failure.value)


@servers
def test_a_registry_that_is_down_is_unavailable(registry: RunningServer, client: RegistryClient, subject: str) -> None:
    client.register(subject, avro(ID))
    registry.stop()
    try:
        with pytest.raises(Unavailable, match="cannot be reached: connection refused"):
            client.versions(subject)
    finally:
        registry.start()


@contextmanager
def answering(code: int, body: bytes, seen: list[dict[str, str]] | None = None) -> Iterator[str]:
    """A server with one answer to everything: for what a healthy registry does not say."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if seen is not None:
                seen.append(dict(self.headers))
            self.send_response(code)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("code", [500, 502, 503, 504, 429])
def test_a_registry_that_cannot_serve_now_is_waited_for(code: int) -> None:
    said = f"cannot serve now .{code}, store timeout"
    answer = answering(code, b'{"error_code": 50002, "message": "store timeout"}')
    with answer as url, pytest.raises(Unavailable, match=said):
        RegistryClient(url).subjects()


def test_a_refused_password_is_not_waited_for_and_not_shown() -> None:
    answer = answering(401, b'{"error_code": 401, "message": "Unauthorized"}')
    with answer as url, pytest.raises(ContractError, match=r"refuses us .401, Unauthorized") as failure:
        RegistryClient(url, ("ada", "s3cret")).subjects()
    assert "s3cret" not in str(failure.value)


def test_who_asks_is_said_to_the_registry_and_to_nobody_else() -> None:
    seen: list[dict[str, str]] = []
    with answering(200, b"[]", seen) as url:
        RegistryClient(url, ("ada", "s3cret")).subjects()
        RegistryClient(url, "t0ken").subjects()
        RegistryClient(url.replace("http://", "http://ada:s3cret@")).subjects()
    sent = [headers["Authorization"] for headers in seen]
    assert sent == ["Basic YWRhOnMzY3JldA==", "Bearer t0ken", "Basic YWRhOnMzY3JldA=="]
    shown = [RegistryClient("http://ada:s3cret@x"), RegistryClient("http://x", "s3cret")]
    contracts = [Registry("http://ada:s3cret@x", "s", "a.avsc"), Registry("http://x", "s", auth=("ada", "s3cret"))]
    assert "s3cret" not in repr(shown) + repr(contracts) + contracts[0].describe() + contracts[1].describe()
    assert contracts[0].client().auth == ("ada", "s3cret")


def test_something_else_at_the_address_is_said() -> None:
    answer = answering(200, b"<html>welcome</html>")
    with answer as url, pytest.raises(ContractError, match="did not answer GET /subjects with JSON"):
        RegistryClient(url).subjects()


def test_one_that_never_answers_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = RegistryClient(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.2)
        with pytest.raises(Unavailable, match="timed out"):
            client.subjects()


@pytest.mark.parametrize("url", ["registry:8081", "ftp://registry", "http://"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ContractError, match="is not the address of a registry"):
        Registry(url, "payments-value")


def test_certificates_that_are_not_there_are_named(tmp_path: Path) -> None:
    client = RegistryClient("https://127.0.0.1:1", tls=Tls(ca=str(tmp_path / "ca.pem")))
    with pytest.raises(ContractError, match=r"certificates for the registry cannot be used .*ca.pem"):
        client.subjects()


@servers
def test_register_checks_first_and_is_idempotent(cli: Cli, client: RegistryClient, subject: str) -> None:
    where = ("--registry", client.url, "--subject", subject)
    first = cli("schema", "register", "v1.avsc", *where)
    assert first.exit_code == 0
    assert first.output.startswith(f"v1.avsc: registered as {subject} version 1, id ")
    client.set_level(subject, "BACKWARD")
    refused = cli("schema", "register", "bad.avsc", *where)
    assert refused.exit_code == 1
    assert "needed: the reader needs this field" in refused.output
    assert client.versions(subject) == [1]
    second = json.loads(cli("schema", "register", "v2.avsc", *where, "--json").output)
    again = json.loads(cli("schema", "register", "v2.avsc", *where, "--json").output)
    assert (second["version"], second["new"], again["new"]) == (2, True, False)
    assert again["id"] == second["id"]


@servers
def test_check_asks_the_registry_for_versions_and_level(cli: Cli, client: RegistryClient, subject: str) -> None:
    where = ("--registry", client.url, "--subject", subject)
    assert "good (there is no earlier schema)" in cli("schema", "check", "v1.avsc", *where, "--mode", "FULL").output
    client.register(subject, avro(ID))
    assert "good (the mode is NONE)" in cli("schema", "check", "bad.avsc", *where).output
    client.set_level(subject, "BACKWARD")
    assert cli("schema", "check", "v2.avsc", *where).exit_code == 0
    refused = cli("schema", "check", "bad.avsc", *where)
    assert refused.exit_code == 1
    assert f"not compatible (BACKWARD, against {subject} version 1)" in refused.output
    assert cli("schema", "check", "bad.avsc", *where, "--mode", "FORWARD").exit_code == 0


@servers
def test_a_contract_may_read_as_the_latest_or_a_numbered_version(client: RegistryClient, subject: str) -> None:
    from tidegate.contracts import load_contract

    client.register(subject, avro(ID))
    client.register(subject, avro(ID, N))
    assert load_contract(Registry(client.url, subject)).names == ("id", "n")
    assert load_contract(Registry(client.url, subject, reader=1)).names == ("id",)
    with pytest.raises(ContractError, match="there is no version 9"):
        load_contract(Registry(client.url, subject, reader=9))
    with pytest.raises(Unavailable, match="and the contract of 'x' is there"):
        load_contract(Registry("http://127.0.0.1:1", "x"))
    with pytest.raises(ContractError, match="reader 'newest' is not known"):
        load_contract(Registry(client.url, subject, reader="newest"))
