"""An incompatibility: one reason why what one schema writes cannot be read with another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "NAME_CHANGED",
    "TYPE_CHANGED",
    "FIELD_MISSING",
    "FIELD_REMOVED",
    "BRANCH_MISSING",
    "SYMBOLS_MISSING",
    "SIZE_CHANGED",
    "DECIMAL_CHANGED",
    "MEANING_CHANGED",
    "REQUIRED_ADDED",
    "BOUND_NARROWED",
    "VALUES_NARROWED",
    "CLOSED",
    "NOT_COMPARABLE",
]

SILENT: tuple[Kind, ...] = ("DECIMAL_CHANGED", "MEANING_CHANGED")
"""Changes that a decoder does not notice: it would read other values, and no error."""


@dataclass(frozen=True)
class Incompatibility:
    """What is wrong, where (``items[].price``; empty is the whole), and a sentence that says why."""

    kind: Kind
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path or '(the whole)'}: {self.message} [{self.kind}]"


def below(path: str, name: str) -> str:
    """The path of a field inside `path`."""
    return f"{path}.{name}" if path else name
