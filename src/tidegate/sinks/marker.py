"""The marker: what a sink has applied, and who may apply more. The two judgements that every sink makes about it.

A marker holds the number of the last record applied and the claim of the writer that may apply the next. Each sink
keeps it in the place and in the transaction of its rows; these functions only judge what was found there. A sink whose
server cannot look and write in one go looks first (`LookFirst`), and makes the write itself refuse what has changed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from tidegate.errors import Fenced, SinkError
from tidegate.sinks.base import Delivery, SinkTarget


class LookFirst(ABC):
    """A writer that looks at its marker before each record; what was applied before is not applied again."""

    _known: int | None
    """The last record that was seen confirmed."""

    def confirmed(self) -> int | None:
        return self._look()

    def deliver(self, delivery: Delivery) -> int:
        self._known = self._look()
        if self._known is not None and self._known >= delivery.sequence:
            return 0
        return self._write(delivery)

    @abstractmethod
    def _look(self) -> int | None:
        """The last record applied, as the marker says; refused when the marker is not ours to write on."""

    @abstractmethod
    def _write(self, delivery: Delivery) -> int:
        """Apply a record that was not applied before, and move the marker; how many rows it changed."""


def refuse_if_fenced(target: SinkTarget, claim: int) -> None:
    """A claim newer than ours stands beside the marker: we are the zombie."""
    if claim > target.claim:
        raise Fenced(
            f"sink {target.sink!r} is held by claim {claim}, newer than ours ({target.claim}): "
            "another driver has taken over this pipeline",
            hint="stop this driver; the other one goes on from what was decided",
        )


def refuse_if_gone_back(target: SinkTarget, known: int | None, found: int | None) -> None:
    """The marker stands before a record that this writer saw confirmed: the server has lost what it had promised.

    A database restored from a backup, or replaced by a replica that had not heard the last commits, would otherwise be
    written on, with a hole that nobody sees.
    """
    if known is not None and (found is None or found < known):
        stands = "has vanished" if found is None else f"has gone back to record {found}"
        raise SinkError(
            f"the marker of sink {target.sink!r} {stands}, though record {known} was confirmed: "
            "the server has lost what it had stored, and the rows of that time with it",
            hint="restore the server with all it had confirmed, or give the sink a new target and replay",
        )


def vanished(target: SinkTarget, place: str) -> SinkError:
    """There is no marker, though this writer put one there when it was opened."""
    return SinkError(
        f"the marker of sink {target.sink!r} has vanished from {place} while the pipeline ran; "
        "without it nobody knows what was applied",
        hint="restore the server, or give the sink a new target and replay",
    )
