"""`tg.Registry`: a contract whose schemas live in a schema registry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args
from urllib.parse import urlsplit

from tidegate.errors import ContractError

if TYPE_CHECKING:
    import ssl

    from tidegate.contracts.registry_client import RegistryClient

Framing = Literal["prefix", "header"]


@dataclass(frozen=True)
class Tls:
    """How the registry's certificate is checked, and our own: paths of PEM files."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None

    def context(self) -> ssl.SSLContext:
        import ssl

        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            named = ", ".join(path for path in (self.ca, self.certificate, self.key) if path)
            raise ContractError(f"the certificates for the registry cannot be used ({named}): {error}") from error
        return context


@dataclass(frozen=True)
class Registry:
    """The records of a source name the schema they were written with, and this registry knows it.

    `reader` is the schema that they are read as: a file (``"payment.avsc"``, or ``.json`` for JSON Schema), a version
    of the subject, or ``"latest"``, which is looked up when the pipeline starts. `wire` says where a record names its
    schema: in front of it (``"prefix"``), or in a header of the message (``"header"``; a message without it is read by
    its prefix). `auth` is (user, password) or a bearer token, and is shown nowhere.
    """

    url: str
    subject: str
    reader: str | int = "latest"
    auth: tuple[str, str] | str | None = field(default=None, repr=False)
    wire: Framing = "prefix"
    tls: Tls | None = None
    timeout: float = 10.0
    expect: Mapping[str, str] | Sequence[str] = field(default=(), hash=False)

    def __post_init__(self) -> None:
        if self.wire not in get_args(Framing):
            raise ContractError(f"wire {self.wire!r} is unknown", hint=f"one of {', '.join(get_args(Framing))}")
        if not self.subject:
            raise ContractError("a registry contract needs a subject", hint='Registry(url, subject="payments-value")')
        parts = urlsplit(self.url)
        if parts.username is not None and self.auth is None:
            object.__setattr__(self, "auth", (parts.username, parts.password or ""))
        object.__setattr__(self, "url", without_secrets(self.url))

    def client(self) -> RegistryClient:
        from tidegate.contracts.registry_client import RegistryClient

        return RegistryClient(self.url, self.auth, self.tls, self.timeout)

    def describe(self) -> str:
        """For people, without secrets."""
        return f"subject {self.subject} of {self.url}, read as {self.reader}, id in the {self.wire}"


class NotThere(ContractError):
    """The registry has no such subject, version or schema."""


def without_secrets(url: str) -> str:
    """The address without the user and password that may stand in it."""
    parts = urlsplit(url)
    plain = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ContractError(
            f"{plain!r} is not the address of a registry",
            hint="it begins with http:// or https://; for Apicurio it ends in /apis/ccompat/v7",
        )
    return plain
