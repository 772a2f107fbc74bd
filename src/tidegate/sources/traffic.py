"""Payment traffic of a mobile shop, made up from a seed: files to look at, and the truth beside them.

Real streams are not late in a tidy way, and a pipeline shown only tidy ones proves nothing. This
traffic misbehaves as phones and networks do:

- the rate follows the time of day, ripples, and bursts (flash sales); few merchants get most of it;
- the network delays each payment by some seconds, so events come out of order;
- phones go offline for minutes to hours; what they queued comes in a clump, its event time kept;
- one partition lags by two minutes throughout, another falls silent for the last third;
- retries repeat a line byte for byte; clocks run days or a year ahead; amounts are negative;
- some records are broken: cut short, of a wrong type, without a merchant or a time, not UTF-8, empty.

Files are what *arrives*: ``events/partition=<p>/part-<k>.jsonl`` holds what reached partition ``p`` in
the k-th slot of arrival time, and its modification time is the end of that slot, in every partition
alike. A slot in which nothing arrived has no file. A customer stays on one partition, as with a keyed
topic. ``truth/`` says what was really there (see `tidegate.sources.traffic_truth`).

``Traffic(events=100_000).write(Path("traffic"))`` writes it and reports what it wrote. The same parameters
give the same bytes, as long as numpy and pyarrow stay the same.
"""

from __future__ import annotations

import os
import re
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tidegate.errors import PipelineError, SourceError
from tidegate.sources.traffic_truth import (
    MALFORMED,
    STATUSES,
    Ints,
    Kind,
    Payments,
    TrafficReport,
    merchant_ids,
    payment_ids,
    write_truth,
)
from tidegate.time import SECOND, Duration, micros, positive, show

Progress = Callable[[int, int], None]
"""Called after each file with the lines written so far and the lines in all."""

DEVICES = ("ios", "android", "web")
CURRENCIES = ("EUR",) * 8 + ("USD", "GBP")
SLOW_PARTITION_LAG = 120 * SECOND
DAY = 86_400 * SECOND
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Traffic:
    """`events` payments over `span`; each share is of `events`, and repeats come on top of them."""

    events: int = 1_000_000
    seed: int = 7
    partitions: int = 4
    merchants: int = 500
    span: Duration = "2h"
    start: str = "2026-03-01T12:00:00Z"
    files_per_partition: int = 24
    offline_share: float = 0.02
    duplicate_share: float = 0.01
    malformed_share: float = 0.002
    null_event_time_share: float = 0.0005
    violation_share: float = 0.0005
    future_share: float = 0.0005

    def __post_init__(self) -> None:
        for name in ("events", "partitions", "merchants", "files_per_partition"):
            if getattr(self, name) < 1:
                raise PipelineError(f"traffic with {name}={getattr(self, name)} is none; {name} must be at least 1")
        shares = {name: value for name, value in asdict(self).items() if name.endswith("_share")}
        for name, value in shares.items():
            if not 0 <= value <= 1:
                raise PipelineError(f"traffic {name}={value} is not a share; it must be from 0 to 1")
        if sum(shares.values()) > 1:
            raise PipelineError(f"the shares of traffic sum to {sum(shares.values()):g}, which is more than all of it")
        positive(self.span, what="traffic span")
        _ = self.start_us

    @property
    def start_us(self) -> int:
        try:
            instant = datetime.fromisoformat(self.start)
        except ValueError as error:
            raise PipelineError(f"traffic start {self.start!r} is not an instant in ISO 8601") from error
        if instant.tzinfo is None:
            raise PipelineError(f"traffic start {self.start!r} has no time zone", hint="end it with Z for UTC")
        return (instant - _EPOCH) // timedelta(microseconds=1)

    @property
    def slow_partition(self) -> int | None:
        return 1 if self.partitions >= 2 else None

    @property
    def silent_partition(self) -> int | None:
        return self.partitions - 1 if self.partitions >= 3 else None

    @property
    def silent_from_us(self) -> int:
        """The instant after which nothing happens in the silent partition."""
        return self.start_us + micros(self.span) * 2 // 3

    def write(self, folder: Path, progress: Progress | None = None) -> TrafficReport:
        """Write the traffic and its truth; refuse a folder that holds some already."""
        events_folder = folder / "events"
        if events_folder.exists() and any(events_folder.iterdir()):
            raise SourceError(
                f"{events_folder} already holds files, and old ones among new would falsify the truth",
                hint="delete the folder or choose another",
            )
        payments = self._with_repeats(self._happen())
        length = self._slot_length(payments)
        slot = (payments.arrival - self.start_us) // length
        # By slot first: a folder being written fills up as it would in life, all partitions together.
        order = np.lexsort((payments.arrival, payments.partition, slot))
        payments, slot = payments.take(order), slot[order]
        starts = np.flatnonzero(np.diff(slot * self.partitions + payments.partition, prepend=-1)).tolist()
        lines_per_partition: Counter[int] = Counter(dict.fromkeys(range(self.partitions), 0))
        written = 0
        for first, end in zip(starts, [*starts[1:], len(payments)], strict=True):
            k, partition = int(slot[first]), int(payments.partition[first])
            lines = _render(payments.take(slice(first, end)))
            path = events_folder / f"partition={partition}" / f"part-{k:04d}.jsonl"
            written += _publish(path, lines, mtime_us=self.start_us + (k + 1) * length)
            lines_per_partition[partition] += len(lines)
            if progress is not None:
                progress(end, len(payments))
        return write_truth(
            folder / "truth",
            payments,
            parameters={**asdict(self), "span": show(micros(self.span))},
            events_folder=events_folder,
            files=len(starts),
            bytes_written=written,
            lines_per_partition=lines_per_partition,
        )

    def _happen(self) -> Payments:
        """Every payment once, as it happens and first arrives; offsets are from the start of the span."""
        rng = np.random.default_rng(self.seed)
        kind, n = self._kinds(), self.events
        offline = np.arange(n) >= n - self._count(self.offline_share)
        grid, done_by = self._rate(rng)
        quiet = self._quiet()
        share = np.interp(quiet, grid, done_by)

        # A silent partition gets fewer events, not the same ones in less time.
        partition = rng.choice(self.partitions, size=n, p=share / share.sum())
        customer = rng.integers(max(n // 6, 1), size=n) * self.partitions + partition
        paid_at = np.interp(rng.random(n) * share[partition], done_by, grid).astype(np.int64)
        arrival = paid_at + (50_000 + rng.gamma(1.5, 1.2 * SECOND, size=n)).astype(np.int64)
        device = rng.choice(len(DEVICES), size=n, p=(0.38, 0.47, 0.15))

        queued = int(np.count_nonzero(offline))
        if queued:
            # Each phone lends its payments one identity, one outage and one moment of return.
            phone = rng.integers(max(queued // 5, 1), size=queued)
            back = rng.random(queued)[phone] * quiet[partition[-queued:][phone]]
            longest = max(min(6 * 3600 * SECOND, micros(self.span)), 4)
            away = np.exp(rng.uniform(np.log(min(120 * SECOND, longest / 4)), np.log(longest), size=queued))[phone]
            began = np.maximum(back - away, 0)
            partition[-queued:] = partition[-queued:][phone]
            customer[-queued:] = customer[-queued:][phone]
            device[-queued:] = device[-queued:][phone] % 2
            paid_at[-queued:] = began + (back - began) * rng.random(queued)
            arrival[-queued:] = back + rng.exponential(2 * SECOND, size=queued)[phone] + rng.random(queued) * SECOND

        lag = np.where(np.arange(self.partitions) == self.slow_partition, SLOW_PARTITION_LAG, 0)
        arrival = arrival + lag[partition]
        ahead = np.where(kind == Kind.FUTURE, rng.choice([2, 5, 14, 365], size=n) * DAY, 0)
        popularity = 1 / (np.arange(self.merchants) + 2.0) ** 1.05
        rank = rng.choice(self.merchants, size=n, p=popularity / popularity.sum())
        merchant = rng.permutation(self.merchants)[rank]
        price = rng.normal(7.6, 0.7, size=self.merchants)[merchant]
        cents = np.clip(np.exp(rng.normal(price, 0.5)), 50, 900_000).astype(np.int64)
        return Payments(
            number=np.arange(n, dtype=np.uint64) + np.uint64(self.seed % 2**32 << 32),
            kind=kind,
            partition=partition,
            merchant=merchant,
            customer=customer,
            status=rng.choice(len(STATUSES), size=n, p=(0.86, 0.09, 0.05)),
            cents=np.where(kind == Kind.CONTRACT_VIOLATION, -cents, cents),
            latency_ms=np.clip(rng.lognormal(4.4, 0.5, size=n), 5, 30_000).astype(np.int64),
            device=device,
            paid_at=self.start_us + paid_at + ahead,
            arrival=self.start_us + arrival,
            offline=offline,
        )

    def _kinds(self) -> Ints:
        """Broken ones first, originals last: the offline ones, taken from the end, are all valid."""
        shares = (self.null_event_time_share, self.violation_share, self.future_share)
        kinds = (Kind.NULL_EVENT_TIME, Kind.CONTRACT_VIOLATION, Kind.FUTURE)
        malformed = np.resize(MALFORMED, self._count(self.malformed_share))
        broken = np.concatenate([malformed, np.repeat(kinds, [self._count(share) for share in shares])])
        return np.concatenate([broken, np.full(self.events - len(broken), Kind.ORIGINAL)]).astype(np.int64)

    def _count(self, share: float) -> int:
        return int(self.events * share)

    def _quiet(self) -> Ints:
        """Per partition, the offset at which its producers stop."""
        quiet = np.full(self.partitions, micros(self.span), dtype=np.int64)
        if self.silent_partition is not None:
            quiet[self.silent_partition] = self.silent_from_us - self.start_us
        return quiet

    def _rate(self, rng: np.random.Generator) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Offsets, and the share of all traffic that has happened by each of them."""
        span = micros(self.span)
        grid = np.linspace(0, span, min(max(span // SECOND, 60), 100_000) + 1)
        evening_peak = 1 + 0.5 * np.cos(2 * np.pi * (self.start_us + grid - 19 / 24 * DAY) / DAY)
        rate = evening_peak * (1 + 0.25 * np.sin(2 * np.pi * grid / (1200 * SECOND)))
        for begin in rng.random(min(2 + span // (1800 * SECOND), 500)) * span:
            rate[(grid >= begin) & (grid < begin + min(60 * SECOND, span / 20))] *= 4
        total = np.concatenate([[0.0], np.cumsum(rate[1:])])
        return grid, total / total[-1]

    def _with_repeats(self, once: Payments) -> Payments:
        """Some originals again, seconds to minutes after they came: the phone did not hear the answer."""
        rng = np.random.default_rng([self.seed, 1])
        rows = rng.choice(np.flatnonzero(once.kind == Kind.ORIGINAL), self._count(self.duplicate_share), replace=False)
        again = once.take(rows)
        at_once = again.arrival + rng.integers(SECOND, 5 * SECOND, size=len(rows))
        patient = again.arrival + (SECOND * np.exp(rng.uniform(0.7, 5.7, size=len(rows)))).astype(np.int64)
        # Nobody is patient past the end of the traffic: a silent partition must stay silent.
        arrival = np.where(patient > self.start_us + self._quiet()[again.partition], at_once, patient)
        again = replace(again, kind=np.full_like(again.kind, Kind.DUPLICATE), arrival=arrival)
        return Payments(**{name: np.concatenate([getattr(once, name), column]) for name, column in vars(again).items()})

    def _slot_length(self, payments: Payments) -> int:
        """So long that the slots hold all arrivals, in whole seconds: coarse file systems keep no less."""
        last = int(payments.arrival.max()) - self.start_us
        return SECOND * -(-(last + 1) // (self.files_per_partition * SECOND))


def _render(payments: Payments) -> list[bytes]:
    """The lines of one file, in the order of the rows."""
    columns = zip(
        payment_ids(payments),
        merchant_ids(payments),
        payments.merchant.tolist(),
        payments.customer.tolist(),
        payments.status.tolist(),
        payments.cents.tolist(),
        payments.latency_ms.tolist(),
        np.datetime_as_string(payments.paid_at.astype("datetime64[us]")).tolist(),
        payments.device.tolist(),
        strict=True,
    )
    lines = [
        (
            f'{{"payment_id": "{payment_id}", "merchant_id": "{merchant_id}", "customer_id": "c{customer:07d}", '
            f'"status": "{STATUSES[status]}", "amount": {"-" * (cents < 0)}{abs(cents) // 100}.{abs(cents) % 100:02d}, '
            f'"currency": "{CURRENCIES[merchant % len(CURRENCIES)]}", "latency_ms": {latency_ms}, '
            f'"paid_at": "{paid_at}Z", "device": "{DEVICES[device]}"}}'
        ).encode()
        for payment_id, merchant_id, merchant, customer, status, cents, latency_ms, paid_at, device in columns
    ]
    for row in np.flatnonzero(payments.kind >= Kind.NULL_EVENT_TIME).tolist():
        lines[row] = _break(lines[row], Kind(payments.kind[row]))
    return lines


def _break(line: bytes, kind: Kind) -> bytes:
    if kind is Kind.TRUNCATED:
        return line[: 1 + zlib.crc32(line) % (len(line) - 1)]
    if kind is Kind.EMPTY_OBJECT:
        return b"{}"
    broken = {
        Kind.NULL_EVENT_TIME: (rb'"paid_at": "[^"]*"', b'"paid_at": null'),
        Kind.WRONG_TYPE: (rb'"amount": [^,]*', b'"amount": "abc"'),
        Kind.MISSING_MERCHANT: (rb'"merchant_id": "[^"]*", ', b""),
        Kind.INVALID_UTF8: (rb'"customer_id": "c', b'"customer_id": "c\xff\xfe'),
    }
    # What is wrong with the other kinds is a value, and stands in the line already.
    return re.sub(*broken[kind], line) if kind in broken else line


def _publish(path: Path, lines: list[bytes], *, mtime_us: int) -> int:
    """Show the file whole and with its time set, for a pipeline may be watching the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = b"\n".join(lines) + b"\n"
    hidden = path.with_name(f".{path.name}.tmp")
    hidden.write_bytes(content)
    os.utime(hidden, ns=(mtime_us * 1000, mtime_us * 1000))
    hidden.rename(path)
    return len(content)
