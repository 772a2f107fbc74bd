"""A client of a schema registry: the REST interface that Confluent defined and others speak too.

Schemas are registered under a *subject* (``payments-value`` for the values of the topic ``payments``) as versions 1, 2,
3 …; each schema has an id, which producers write in front of every record. What an id or a version stands for never
changes, so both are fetched once. A registry that is down, or answers that it cannot serve now, is `Unavailable`; what
it refuses is a `ContractError` with its own words.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from tidegate.contracts.avro import AvroType, named_types
from tidegate.contracts.compatibility import DEFAULT, MODES, Mode
from tidegate.contracts.registry import NotThere, Tls, without_secrets
from tidegate.contracts.schema import Form, Schema
from tidegate.errors import ContractError, Unavailable

_CONTENT = "application/vnd.schemaregistry.v1+json"
_FORMS: dict[str, Form] = {"AVRO": "avro", "JSON": "json"}
_TYPES: dict[str, str] = {"avro": "AVRO", "json": "JSON"}
_NOT_THERE = re.compile(r"404\d\d")
_WAITING_HELPS = (408, 429, 500, 502, 503, 504)


@dataclass(frozen=True)
class Registered:
    """A schema as the registry holds it."""

    id: int
    version: int
    schema: Schema


@dataclass
class RegistryClient:
    """Talks to one registry. `auth` is (user, password), or a bearer token."""

    url: str
    auth: tuple[str, str] | str | None = field(default=None, repr=False)
    tls: Tls | None = None
    timeout: float = 10.0
    _said: dict[tuple[str, int], Mapping[str, Any]] = field(default_factory=dict, init=False, repr=False)
    _parsed: dict[tuple[str, int], Registered] = field(default_factory=dict, init=False, repr=False)
    _context: ssl.SSLContext | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.username is not None and self.auth is None:
            self.auth = (parts.username, parts.password or "")
        self.url = without_secrets(self.url)

    # -- subjects and versions --------------------------------------------------------------------------------------

    def subjects(self) -> list[str]:
        return list(self._call("GET", "/subjects"))

    def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        """The versions of a subject, oldest first; a subject that does not exist has none.

        `deleted`: also those that were deleted softly, for the records that were written with them are still there.
        """
        try:
            return sorted(self._call("GET", f"/subjects/{_part(subject)}/versions{'?deleted=true' if deleted else ''}"))
        except NotThere:
            return []

    def version(self, subject: str, version: int | str) -> Registered:
        """A version of a subject, by number or ``"latest"``."""
        said = self.said(subject, version)
        number = int(said["version"])
        if (subject, number) not in self._parsed:
            schema = self._schema(said, f"{subject} version {number}")
            self._parsed[subject, number] = Registered(int(said["id"]), number, schema)
        return self._parsed[subject, number]

    def said(self, subject: str, version: int | str) -> Mapping[str, Any]:
        """A version as the registry tells it: its id, and its schema as text that may not be one."""
        known = self._said.get((subject, version)) if isinstance(version, int) else None
        if known is None:
            deleted = "" if version == "latest" else "?deleted=true"
            known = self._call("GET", f"/subjects/{_part(subject)}/versions/{version}{deleted}")
            self._said[subject, int(known["version"])] = known
        return known

    def history(self, subject: str) -> list[Registered]:
        """All versions of a subject that were not deleted, oldest first."""
        return [self.version(subject, number) for number in self.versions(subject)]

    def schema(self, id: int) -> Schema:
        """The schema of an id."""
        return self._schema(self._call("GET", f"/schemas/ids/{id}"), f"schema {id}")

    # -- levels and registering -------------------------------------------------------------------------------------

    def level(self, subject: str) -> Mode:
        """The compatibility level of a subject, or of the registry when the subject has none of its own."""
        try:
            said = self._call("GET", f"/config/{_part(subject)}?defaultToGlobal=true")
        except NotThere:
            said = self._call("GET", "/config")
        level = str(said.get("compatibilityLevel") or said.get("compatibility") or DEFAULT).upper()
        if level not in MODES:
            raise ContractError(f"the registry has the unknown compatibility level {level!r} for {subject!r}")
        return level

    def set_level(self, subject: str, mode: Mode) -> None:
        self._call("PUT", f"/config/{_part(subject)}", {"compatibility": mode})

    def find(self, subject: str, schema: Schema) -> Registered | None:
        """The version under which exactly this schema is registered, if it is."""
        try:
            said = self._call("POST", f"/subjects/{_part(subject)}", _body(schema))
        except NotThere:
            return None
        return Registered(int(said["id"]), int(said["version"]), schema)

    def objections(self, subject: str, schema: Schema) -> list[str]:
        """What the registry itself says against the schema as the next version; nothing when it would take it."""
        path = f"/compatibility/subjects/{_part(subject)}/versions?verbose=true"
        try:
            said = self._call("POST", path, _body(schema))
        except NotThere:
            return []
        if said.get("is_compatible", True):
            return []
        return [str(message) for message in said.get("messages") or ()] or ["the registry finds it incompatible"]

    def register(self, subject: str, schema: Schema) -> Registered:
        """Register a schema; one that is there already keeps its id and version."""
        id_ = int(self._call("POST", f"/subjects/{_part(subject)}/versions", _body(schema))["id"])
        found = self.find(subject, schema)
        if found is None:
            raise ContractError(f"the registry took a schema for {subject!r} as id {id_}, and does not find it again")
        return found

    # -- parts ------------------------------------------------------------------------------------------------------

    def _schema(self, said: Mapping[str, Any], name: str) -> Schema:
        kind = said.get("schemaType") or "AVRO"
        if kind not in _FORMS:
            raise ContractError(f"{name} is {kind}; Tidegate reads AVRO and JSON schemas")
        return Schema.of(_FORMS[kind], said["schema"], name, self._references(said.get("references") or ()))

    def _references(self, references: Sequence[Mapping[str, Any]]) -> dict[str, AvroType]:
        """The named types of the schemas that a schema refers to."""
        found: dict[str, AvroType] = {}
        for reference in references:
            schema = self.version(reference["subject"], int(reference["version"])).schema
            if schema.form == "avro":
                found |= named_types(schema.avro)
        return found

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            self.url + path, method=method, headers={"Accept": f"{_CONTENT}, application/json"}
        )
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", _CONTENT)
        if isinstance(self.auth, str):
            request.add_header("Authorization", f"Bearer {self.auth}")
        elif self.auth is not None:
            user, password = self.auth
            request.add_header("Authorization", "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode())
        if self.tls is not None and self._context is None:
            self._context = self.tls.context()
        try:
            with urllib.request.urlopen(request, timeout=self.timeout, context=self._context) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise self._refusal(error, f"{method} {path.partition('?')[0]}") from None
        except (urllib.error.URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise ContractError(
                    f"the certificate of the schema registry {self.url} is not trusted: {reason.verify_message}",
                    hint="give the certificate of its authority: Tls(ca=…), or --ca",
                ) from None
            raise Unavailable(f"the schema registry {self.url} cannot be reached: {_words(reason)}") from None
        except ValueError:
            raise ContractError(
                f"{self.url} did not answer {method} {path.partition('?')[0]} with JSON",
                hint="is this the address of a schema registry? For Apicurio it ends in /apis/ccompat/v7",
            ) from None

    def _refusal(self, error: urllib.error.HTTPError, call: str) -> Exception:
        said: dict[str, Any] = {}
        with contextlib.suppress(ValueError, OSError):
            found = json.load(error)
            said = found if isinstance(found, dict) else {}
        words = str(said.get("message") or said.get("error") or "")
        told = f"{error.code}{f', {words}' if words else ''}"
        match error.code:
            case code if code in _WAITING_HELPS:
                return Unavailable(f"the schema registry {self.url} cannot serve now ({told})")
            case 401 | 403:
                return ContractError(
                    f"the schema registry {self.url} refuses us ({told})",
                    hint="give user and password: auth=(user, password), or --auth, or TIDEGATE_REGISTRY_AUTH",
                )
            case 404 if _NOT_THERE.fullmatch(
                str(said.get("error_code"))
            ):  # 40401, 40402 …; a wrong address has no such code
                return NotThere(f"the schema registry {self.url} does not have it: {call} ({told})")
            case 409:
                return ContractError(f"the schema registry refuses the schema ({told})")
            case 422:
                return ContractError(f"the schema registry finds the schema invalid ({told})")
        hint = "is this the address of a schema registry? For Apicurio it ends in /apis/ccompat/v7"
        return ContractError(
            f"the schema registry {self.url} answered {call} with {told}", hint=hint if error.code == 404 else None
        )


def _body(schema: Schema) -> dict[str, Any]:
    if schema.form not in _TYPES:
        raise ContractError(
            f"{schema.name} is {schema.form}, which a registry does not hold", hint="register .avsc or .json files"
        )
    return {"schema": schema.text, "schemaType": _TYPES[schema.form]}


def _part(name: str) -> str:
    return quote(name, safe="")


def _words(reason: object) -> str:
    strerror = getattr(reason, "strerror", None)
    return str(strerror or reason).lower() if strerror else str(reason)
