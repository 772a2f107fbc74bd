"""Results against the truth, per merchant and window, to the cent.

The truth is what the generator knows (``truth/events.parquet``); nothing of the engine is used to compute it. A
result is held against it window by window. For Tidegate the dead letters with the reason LATE are then counted back
in, from their raw JSON: result and letters together must be the truth, exactly.

One thing has to be seen on the way: a repeat of an accepted payment that comes after its window has closed is a LATE
letter too, and no order that is missing. All lines of a payment are the same, byte for byte; so when fewer of them
are letters than were sent, one was accepted, and its letters stay out.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.deadletter.store import DeadLetters, Filter
from tidegate.demo.pipeline import OPERATOR, WINDOW
from tidegate.observe.lateness_plot import Arrival
from tidegate.runtime.records import Checkpoint
from tidegate.time import micros

_SIZE = timedelta(microseconds=micros(WINDOW))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Cell:
    """What is said of one merchant and window."""

    orders: int
    revenue: Decimal


Cells = dict[tuple[str, datetime], Cell]
"""Per merchant and start of the window."""


@dataclass(frozen=True)
class Shortfall:
    """How a result differs from the truth: what is missing, what is too much, and in how many windows."""

    orders: int
    revenue: Decimal
    surplus: int
    wrong: int

    @property
    def is_none(self) -> bool:
        return self.wrong == 0


def captured(truth: Path) -> pa.Table:
    """The payments that the pipeline is asked for: one row each, with its window."""
    payments = pq.read_table(truth)
    payments = payments.filter(pc.equal(payments["status"], "captured"))
    start = pc.floor_temporal(payments["paid_at"], multiple=_SIZE // timedelta(minutes=1), unit="minute")
    return payments.append_column("window_start", start)


def true_cells(payments: pa.Table) -> Cells:
    totals = payments.group_by(["merchant_id", "window_start"]).aggregate([("amount", "count"), ("amount", "sum")])
    return _cells(totals.to_pylist(), "amount_count", "amount_sum")


def sqlite_cells(database: Path) -> Cells:
    connection = sqlite3.connect(database)
    try:
        rows = connection.execute(f"SELECT merchant_id, window_start, orders, revenue FROM {OPERATOR}").fetchall()
    finally:
        connection.close()
    return {
        (merchant, datetime.fromisoformat(start)): Cell(orders, Decimal(revenue))
        for merchant, start, orders, revenue in rows
    }


def parquet_cells(folder: Path) -> Cells:
    table = pq.read_table(folder, columns=["merchant_id", "window_start", "orders", "revenue"])
    starts = table["window_start"].cast(pa.timestamp("us", "UTC"))
    return _cells(table.set_column(1, "window_start", starts).to_pylist(), "orders", "revenue")


def _cells(rows: Iterable[Mapping[str, Any]], orders: str, revenue: str) -> Cells:
    return {(row["merchant_id"], row["window_start"]): Cell(row[orders], row[revenue]) for row in rows}


def shortfall(result: Cells, truth: Cells) -> Shortfall:
    nothing = Cell(0, Decimal(0))
    pairs = [(result.get(key, nothing), truth.get(key, nothing)) for key in result.keys() | truth.keys()]
    return Shortfall(
        orders=sum(max(true.orders - said.orders, 0) for said, true in pairs),
        revenue=sum((true.revenue - said.revenue for said, true in pairs), Decimal(0)),
        surplus=sum(max(said.orders - true.orders, 0) for said, true in pairs),
        wrong=sum(said != true for said, true in pairs),
    )


def late_letters(checkpoint: Path) -> list[dict[str, Any]]:
    """The raw records of the LATE dead letters, parsed."""
    position = Checkpoint.open(str(checkpoint)).position()
    files = position.files.values() if position else ()
    letters = DeadLetters([checkpoint / file.path for file in files if file.kind == "dead"])
    raws = (letter["raw"] for letter in letters.letters(Filter(reason="LATE"), columns=["raw"]))
    return [json.loads(raw, parse_float=Decimal) for raw in raws]


def missed(letters: Sequence[Mapping[str, Any]], events: Path) -> list[Mapping[str, Any]]:
    """Of the LATE letters, one per payment that was never accepted."""
    as_letter = Counter(letter["payment_id"] for letter in letters)
    as_line = Counter[str]()
    for file in events.glob("*/*.jsonl"):
        for line in file.read_bytes().splitlines():
            parts = line.split(b'"', 4)
            if len(parts) == 5 and (payment_id := parts[3].decode("ascii", "replace")) in as_letter:
                as_line[payment_id] += 1
    first = {letter["payment_id"]: letter for letter in letters}
    return [letter for payment_id, letter in first.items() if as_letter[payment_id] == as_line[payment_id]]


def counted_back(result: Cells, letters: Iterable[Mapping[str, Any]]) -> Cells:
    """The result with one order more for each of these letters."""
    cells = dict(result)
    for letter in letters:
        paid_at = datetime.fromisoformat(letter["paid_at"])
        key = (letter["merchant_id"], paid_at - (paid_at - _EPOCH) % _SIZE)
        before = cells.get(key, Cell(0, Decimal(0)))
        cells[key] = Cell(before.orders + 1, before.revenue + letter["amount"])
    return cells


def fates(
    payments: pa.Table, missed_ids: set[str], slot_ends: Sequence[int], judged_by: Sequence[int | None]
) -> list[Arrival]:
    """What became of each captured payment, for the picture.

    A payment that arrived in slot k was judged by the watermark before that batch: when its window was complete by
    then, it was accepted late.
    """
    arrival = payments["arrival"].cast(pa.int64()).to_numpy()
    ends = payments["window_start"].cast(pa.int64()).to_numpy() + micros(WINDOW)
    before = np.array([np.iinfo(np.int64).min if at is None else at for at in judged_by])
    late = ends <= before[np.searchsorted(np.array(slot_ends), arrival, side="right")]
    dead = pc.is_in(payments["payment_id"], pa.array(sorted(missed_ids), pa.string())).to_numpy()
    fate = np.where(dead, "dead_lettered", np.where(late, "accepted_late", "on_time"))
    return list(zip(arrival.tolist(), payments["behind_us"].to_pylist(), fate.tolist(), strict=True))
