"""Memory and Console: sinks for tests and first looks. They keep no promise beyond the life of the process.

`Memory` keeps what an upsert sink would show (`rows`) and what a change log would hold (`log`). The contents
live in this module, by (pipeline, sink), so that a pipeline that is stopped and started again in one test goes on
where it was – as long as it comes with the same checkpoint. A new checkpoint starts empty: tests that use the
same names do not see each other's rows.

`Console` prints each record's panes once. Both know in the process what they have applied, and nothing after it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate import crash
from tidegate.errors import SinkError
from tidegate.sinks.base import Delivery, SinkTarget
from tidegate.sinks.marker import refuse_if_fenced
from tidegate.sinks.panes import WINDOW, encode, read_panes, reduce_panes

Row = dict[str, Any]


@dataclass
class _Store:
    """What one sink of one checkpoint has been given."""

    claim: int
    sequence: int | None = None
    # Rows stay in Arrow, and the table says where: a million Python rows would take a quarter of a minute to make.
    upserts: list[pa.Table] = field(default_factory=list)
    table: dict[tuple[Any, ...], tuple[int, int]] = field(default_factory=dict)
    log: list[pa.Table] = field(default_factory=list)


_stores: dict[tuple[str, str], tuple[str, _Store]] = {}


def _store(kind: str, target: SinkTarget) -> _Store:
    """The store of a target, with its claim taken."""
    place = (f"{kind} {target.pipeline}", target.sink)
    checkpoint, store = _stores.get(place, (None, None))
    if store is None or checkpoint != target.checkpoint_id:
        store = _Store(target.claim)
        _stores[place] = (target.checkpoint_id, store)
    refuse_if_fenced(target, store.claim)
    store.claim = target.claim
    return store


@dataclass(frozen=True, eq=False)
class Memory:
    """Collects results in this process, for tests.

    >>> Memory().rows()
    []
    """

    # What was opened through this declaration; a frozen value cannot learn its own name in any other way.
    _opened: dict[tuple[str, str], _Store] = field(default_factory=dict, init=False, repr=False)

    def describe(self) -> str:
        return "memory of this process"

    def problems(self) -> list[str]:
        return []

    def open(self, target: SinkTarget) -> _Writer:
        store = _store("memory", target)
        self._opened[target.pipeline, target.sink] = store
        return _Writer(store, target, lambda panes, sequence: _remember(store, target, panes, sequence))

    def rows(self) -> list[Row]:
        """The current table: one row per (key, window), as an upsert sink would show it."""
        store = self._only()
        places: dict[int, list[int]] = defaultdict(list)
        for part, row in store.table.values():
            places[part].append(row)
        return [row for part, rows in sorted(places.items()) for row in store.upserts[part].take(rows).to_pylist()]

    def log(self) -> list[Row]:
        """The change log: every upsert and retraction in order, with the record's `sequence`."""
        return [row for table in self._only().log for row in table.to_pylist()]

    def _only(self) -> _Store:
        if len(self._opened) > 1:
            names = ", ".join(f"{pipeline}/{sink}" for pipeline, sink in self._opened)
            raise SinkError(
                f"one Memory() was given to several sinks ({names}), so its rows are not one table",
                hint="give each sink a Memory() of its own",
            )
        return next(iter(self._opened.values()), _Store(claim=0))


def _remember(store: _Store, target: SinkTarget, panes: pa.Table, sequence: int) -> Callable[[], int]:
    """Work out what a record changes; the change itself is one step, so that an error leaves nothing half done."""
    changes = reduce_panes(panes, target.key)
    logged = panes.filter(pc.not_equal(panes["pane_change"], "replaced"))
    logged = logged.add_column(0, "sequence", pa.array([sequence] * logged.num_rows, pa.int64()))
    identity = (*target.key, *WINDOW)
    gone = _identities(changes.deletes, identity)
    current = _identities(changes.upserts, identity)

    def apply() -> int:
        deleted = sum(store.table.pop(row, None) is not None for row in gone)
        store.table.update((row, (len(store.upserts), place)) for place, row in enumerate(current))
        store.upserts.append(changes.upserts.drop_columns(["pane_change"]))
        store.log.append(logged)
        return deleted + len(current)

    return apply


def _identities(table: pa.Table, identity: tuple[str, ...]) -> list[tuple[Any, ...]]:
    return list(zip(*(encode(name, table[name]) for name in identity), strict=True))


@dataclass(frozen=True)
class Console:
    """Prints each record's panes, at most `limit` rows of them. After a restart the last record is printed again."""

    limit: int = 20

    def describe(self) -> str:
        return f"console, at most {self.limit} rows per batch"

    def problems(self) -> list[str]:
        return [] if self.limit > 0 else [f"Console(limit={self.limit}) would print nothing; limit must be at least 1"]

    def open(self, target: SinkTarget) -> _Writer:
        if problems := self.problems():
            raise SinkError("; ".join(problems))
        store = _store("console", target)
        return _Writer(store, target, lambda panes, sequence: lambda: self._print(target, panes, sequence))

    def _print(self, target: SinkTarget, panes: pa.Table, sequence: int) -> int:
        shown = panes.slice(0, self.limit)
        columns = [[name, *map(_cell, encode(name, shown[name]))] for name in shown.column_names]
        widths = [max(map(len, column)) for column in columns]
        print(f"-- {target.sink}, record {sequence}: {panes.num_rows:,} rows")
        for row in zip(*columns, strict=True):
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        if panes.num_rows > self.limit:
            print(f"   … and {panes.num_rows - self.limit:,} more")
        rows: int = panes.num_rows
        return rows


def _cell(value: Any) -> str:
    return "NULL" if value is None else str(value)


class _Writer:
    """A `SinkWriter` over a store: `prepare` turns a record's panes into the step that applies them."""

    def __init__(
        self, store: _Store, target: SinkTarget, prepare: Callable[[pa.Table, int], Callable[[], int]]
    ) -> None:
        self._store, self._target, self._prepare = store, target, prepare

    def confirmed(self) -> int | None:
        return self._store.sequence

    def deliver(self, delivery: Delivery) -> int:
        refuse_if_fenced(self._target, self._store.claim)
        if self._store.sequence is not None and self._store.sequence >= delivery.sequence:
            return 0
        panes = read_panes(delivery.files, self._target)
        changed = self._prepare(panes, delivery.sequence)() if panes.num_rows else 0
        crash.point("mid_sink")
        self._store.sequence = delivery.sequence
        return changed

    def close(self) -> None:
        """The store stays: it belongs to the process."""
