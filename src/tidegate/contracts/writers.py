"""The writers' schemas of a source, as its registry knows them.

A producer registers its schema before it writes the first record with it. So once it is fixed which records a batch
has, the registry knows every schema that they can have been written with: it is asked then, once per batch, and only
what is new is fetched. An id that it still does not know belongs to no producer of this subject.
"""

from __future__ import annotations

from tidegate.contracts.avro import parse, schema_text
from tidegate.contracts.avro_rules import avro_incompatibilities
from tidegate.contracts.incompatibility import SILENT, Incompatibility
from tidegate.contracts.registry import NotThere
from tidegate.contracts.wire import Wire, Writer
from tidegate.errors import ContractError


class Writers:
    """The writers of one source, across batches."""

    def __init__(self, wire: Wire | None) -> None:
        self._wire = wire
        self._registry = wire.registry if wire else None
        self._client = self._registry.client() if self._registry else None
        self._reader = parse(wire.reader) if wire and wire.reader else None
        self._known: dict[int, Writer] = {}

    @property
    def known(self) -> tuple[Writer, ...]:
        return tuple(self._known.values())

    def refresh(self) -> tuple[Writer, ...]:
        """Ask the registry, and return the writers that are new to us. Raises `Unavailable` when it cannot be asked."""
        if self._client is None or self._registry is None:
            return ()
        subject = self._registry.subject
        versions = self._client.versions(subject, deleted=True)
        if not versions:
            raise ContractError(
                f"the registry {self._client.url} has no subject {subject!r}, but there are records",
                hint=f"correct the subject; there are {', '.join(self._client.subjects()[:20]) or 'none'}",
            )
        fresh: list[Writer] = []
        for version in versions:
            if version not in self._known:
                try:
                    self._known[version] = self._writer(subject, version)
                except NotThere:
                    continue  # deleted for good since the versions were listed
                fresh.append(self._known[version])
        return tuple(fresh)

    def _writer(self, subject: str, version: int) -> Writer:
        assert self._client is not None
        said = self._client.said(subject, version)
        id_ = int(said["id"])
        keys = [b"\x00" + id_.to_bytes(4, "big")]
        if said.get("guid"):  # newer registries; a header names the schema by it
            keys.append(b"\x01" + bytes.fromhex(str(said["guid"]).replace("-", "")))
        if self._reader is None:
            return Writer(id_, tuple(keys))
        try:
            schema = self._client.version(subject, version).schema
        except NotThere:
            raise
        except ContractError as error:  # one bad version must not stop what the others wrote
            return _unreadable(id_, keys, error.message)
        if schema.form != "avro":
            return _unreadable(id_, keys, "it is JSON Schema, and the contract is Avro")
        found = avro_incompatibilities(self._reader, schema.avro)
        silent = [item for item in found if item.kind in SILENT]
        trouble = next(iter(silent or found), None)
        return Writer(id_, tuple(keys), schema_text(schema.avro), trouble, bool(silent))


def _unreadable(id_: int, keys: list[bytes], why: str) -> Writer:
    return Writer(id_, tuple(keys), trouble=Incompatibility("NOT_COMPARABLE", "", why), hopeless=True)
