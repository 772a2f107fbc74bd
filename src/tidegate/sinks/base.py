"""What a sink is to the engine: something that applies decided panes, idempotently, and confirms.

A batch is *decided* by record *n* before any sink sees it. `deliver` gets the Parquet files that the
record names and applies them under the marker (checkpoint, sink, *n*) **in one transaction**: from any
confirmed m < n it moves to n, else it does nothing. After a crash the same delivery comes again, with
the same files; nothing may be applied twice and nothing may be left out. The claim number stands beside the
marker: a writer whose claim is older than the one in the sink is a zombie and must be refused (`Fenced`).

Staged pane files have these columns:

- the key columns, under the user's names;
- ``window_start`` and ``window_end``, timestamps in UTC (NULL for the global window);
- the value columns, under the user's names;
- ``pane_index`` (int, from 0 per key and window), ``pane_timing`` (early | on_time | late),
  ``pane_final`` (bool: nothing can follow), ``pane_change``:

  - ``upsert``: this is now the result of (key, window);
  - ``retract``: the row of (key, window) with these values is taken back;
  - ``replaced``: (key, window) no longer exists, because a session was merged away. An upsert sink deletes it;
    a change log leaves it out, for in this mode its readers were promised no retractions.

Within one record and (key, window), what is taken back comes before what replaces it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tidegate.storage.places import Place

PANE_COLUMNS = ("window_start", "window_end", "pane_index", "pane_timing", "pane_final", "pane_change")


@dataclass(frozen=True)
class SinkTarget:
    """Who writes: the identity under which a sink keeps its marker, and the shape of what comes."""

    pipeline: str
    checkpoint_id: str
    sink: str
    claim: int
    key: tuple[str, ...]
    values: tuple[str, ...]
    operator: str


@dataclass(frozen=True)
class Delivery:
    """Record `sequence` for one sink: the staged pane files, which may be none."""

    sequence: int
    files: tuple[Place, ...]


class SinkWriter(Protocol):
    """An open sink. It belongs to one driver and one claim."""

    def confirmed(self) -> int | None:
        """The last record this sink has applied for this checkpoint; None when it never has."""
        ...

    def deliver(self, delivery: Delivery) -> int:
        """Apply a record and its marker in one transaction; how many rows it changed (0 when already applied).

        Raises `Unavailable` when the server is away: the engine waits, and calls it again with the same delivery.
        Then it connects anew, and judges by the marker whether the transaction that broke off was committed.
        """
        ...

    def close(self) -> None:
        """Let go of connections; what was not delivered stays undelivered."""
        ...


class Sink(Protocol):
    """What a user declares: a frozen value that can be described, checked and opened."""

    def describe(self) -> str:
        """One line for `explain`, without secrets."""
        ...

    def problems(self) -> list[str]:
        """What `check` can find wrong without connecting to anything."""
        ...

    def open(self, target: SinkTarget) -> SinkWriter:
        """Connect, create or check the table, take the claim. Raises SinkError or Fenced."""
        ...
