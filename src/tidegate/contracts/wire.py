"""The wire: how the records of a source are written, when the contract says so and not the connector.

Avro is binary and cannot be read without the schema that it was written with. Either that is the contract's own, or
each record names it: the Confluent wire format puts a zero byte and the schema's id, four bytes, in front of the record
(or the same into a header), and a registry knows the schema of each id. So records of several versions stand side by
side in one topic, and each is read with the schema it was written with, *as* the reader's schema.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tidegate.contracts.incompatibility import Incompatibility

if TYPE_CHECKING:
    from tidegate.contracts.registry import Registry

HEADER = "__value_schema_id"
"""The header that newer producers put the schema's id into."""


@dataclass(frozen=True)
class Wire:
    """`reader` is the text of the reader's Avro schema, which stands alone; JSON needs none to be read."""

    form: Literal["avro", "json"]
    reader: str = field(default="", repr=False)
    registry: Registry | None = None

    @property
    def jars(self) -> tuple[str, ...]:
        """The groups of jars that reading it needs."""
        return ("avro",) if self.form == "avro" else ()


@dataclass(frozen=True)
class Writer:
    """A schema that records were written with. `keys` are the bytes by which a record names it.

    `trouble` is why the reader's schema may not be able to read it; with `hopeless` it never can, and must not try.
    """

    id: int
    keys: tuple[bytes, ...]
    schema: str = ""
    trouble: Incompatibility | None = None
    hopeless: bool = False
