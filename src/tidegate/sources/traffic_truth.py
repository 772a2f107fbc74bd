"""The truth beside generated traffic: what really happened, however it arrived.

A pipeline that promises to lose nothing needs something to be held against. The generator knows,
for every line it writes, what that line is: an original, a repeat, or broken in one known way. From
this it writes ``truth/events.parquet``, one row per original valid payment, in the order of the
files, and ``truth/summary.json``, whose counts satisfy

    lines = originals + duplicates + malformed + null_event_time + contract_violations + future

The rows are counted by kind here and by line when the files are written, so the equation is a
statement about the files and not about this module.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from decimal import Decimal
from enum import IntEnum
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.time import SECOND

Ints = npt.NDArray[np.int64]

LATE_CANDIDATE_AFTER = 60 * SECOND
STATUSES = ("captured", "declined", "authorized")


class Kind(IntEnum):
    """What a line is. Every line is exactly one of these."""

    ORIGINAL = 0
    DUPLICATE = 1
    NULL_EVENT_TIME = 2
    CONTRACT_VIOLATION = 3
    FUTURE = 4
    TRUNCATED = 5
    WRONG_TYPE = 6
    MISSING_MERCHANT = 7
    INVALID_UTF8 = 8
    EMPTY_OBJECT = 9


MALFORMED = (Kind.TRUNCATED, Kind.WRONG_TYPE, Kind.MISSING_MERCHANT, Kind.INVALID_UTF8, Kind.EMPTY_OBJECT)


@dataclass(frozen=True)
class Payments:
    """Payments as columns of equal length; times are microseconds since the epoch."""

    number: npt.NDArray[np.uint64]
    kind: Ints
    partition: Ints
    merchant: Ints
    customer: Ints
    status: Ints
    cents: Ints
    latency_ms: Ints
    device: Ints
    paid_at: Ints
    arrival: Ints
    offline: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.number)

    def take(self, rows: npt.NDArray[np.int64] | npt.NDArray[np.bool_] | slice) -> Payments:
        return Payments(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


@dataclass(frozen=True)
class TrafficReport:
    """What was written, and where."""

    events_folder: Path
    truth_path: Path
    summary_path: Path
    files: int
    bytes_written: int
    lines: int
    lines_per_partition: Mapping[int, int]
    originals: int
    duplicates: int
    malformed: Mapping[str, int]
    null_event_time: int
    contract_violations: int
    future: int
    offline: int
    late_candidates: int

    @property
    def malformed_total(self) -> int:
        return sum(self.malformed.values())

    @property
    def balances(self) -> bool:
        """Whether the lines counted while writing are the sum of the kinds decided before."""
        broken = self.malformed_total + self.null_event_time + self.contract_violations + self.future
        return self.lines == sum(self.lines_per_partition.values()) == self.originals + self.duplicates + broken


def payment_ids(payments: Payments) -> list[str]:
    return [f"pay_{number:016x}" for number in _scatter(payments.number).tolist()]


def merchant_ids(payments: Payments) -> list[str]:
    return [f"m{merchant:04d}" for merchant in payments.merchant.tolist()]


def _scatter(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Distinct numbers to distinct numbers that look random (the finaliser of splitmix64, a bijection)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def behind_newest(originals: Payments) -> Ints:
    """How far each payment came behind the newest one of its partition so far, in microseconds.

    This is lateness as a watermark with no delay sees it. Rows must be in order of arrival.
    """
    behind = np.zeros(len(originals), dtype=np.int64)
    for partition in np.unique(originals.partition):
        rows = np.flatnonzero(originals.partition == partition)
        paid_at = originals.paid_at[rows]
        behind[rows] = np.maximum.accumulate(paid_at) - paid_at
    return behind


def truth_table(originals: Payments) -> pa.Table:
    """One row per original valid payment, in the order in which the files hold them."""
    instant = pa.timestamp("us", tz="UTC")
    behind = behind_newest(originals)
    # Arrow has no "cents to decimal" cast: widen to what an int64 needs, scale exactly, narrow again.
    amount = pc.multiply(pa.array(originals.cents).cast(pa.decimal128(19, 0)), pa.scalar(Decimal("0.01")))
    return pa.table(
        {
            "payment_id": pa.array(payment_ids(originals)),
            "merchant_id": pa.array(merchant_ids(originals)),
            "status": pa.array(np.array(STATUSES)[originals.status]),
            "amount": amount.cast(pa.decimal128(12, 2)),
            "latency_ms": pa.array(originals.latency_ms),
            "paid_at": pa.array(originals.paid_at).cast(instant),
            "arrival": pa.array(originals.arrival).cast(instant),
            "partition": pa.array(originals.partition),
            "behind_us": pa.array(behind),
            "is_late_candidate": pa.array(behind > LATE_CANDIDATE_AFTER),
        }
    )


def write_truth(
    folder: Path,
    payments: Payments,
    *,
    parameters: Mapping[str, object],
    events_folder: Path,
    files: int,
    bytes_written: int,
    lines_per_partition: Mapping[int, int],
) -> TrafficReport:
    """Write the truth of `payments`, and report it beside the counts taken while writing the files."""
    folder.mkdir(parents=True, exist_ok=True)
    truth = truth_table(payments.take(payments.kind == Kind.ORIGINAL))
    truth_path, summary_path = folder / "events.parquet", folder / "summary.json"
    pq.write_table(truth, truth_path)

    count = np.bincount(payments.kind, minlength=len(Kind)).tolist()
    report = TrafficReport(
        events_folder=events_folder,
        truth_path=truth_path,
        summary_path=summary_path,
        files=files,
        bytes_written=bytes_written,
        lines=sum(lines_per_partition.values()),
        lines_per_partition=dict(lines_per_partition),
        originals=count[Kind.ORIGINAL],
        duplicates=count[Kind.DUPLICATE],
        malformed={kind.name.lower(): count[kind] for kind in MALFORMED},
        null_event_time=count[Kind.NULL_EVENT_TIME],
        contract_violations=count[Kind.CONTRACT_VIOLATION],
        future=count[Kind.FUTURE],
        offline=int(np.count_nonzero(payments.offline & (payments.kind == Kind.ORIGINAL))),
        late_candidates=pc.sum(truth["is_late_candidate"]).as_py() or 0,
    )
    # Paths stay out of the summary: the same parameters give the same bytes in any folder.
    counts = {
        field.name: getattr(report, field.name)
        for field in fields(report)
        if not isinstance(getattr(report, field.name), Path)
    }
    summary_path.write_text(json.dumps({"parameters": dict(parameters), **counts}, indent=2) + "\n")
    return report
