"""Benchmark input: Parquet files, one per micro-batch, with skewed keys and stragglers; made once and reused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

START = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z in µs


@dataclass(frozen=True)
class Shape:
    """`batches` files of `rows` events; each covers `span_s` seconds of event time.

    `late_share` come up to 10 min late. `turnover` keys leave with each batch and as many new ones come, so that
    sessions end; with 0 the keys stay the same.
    """

    name: str
    batches: int
    rows: int
    keys: int
    span_s: int
    late_share: float = 0.02
    turnover: int = 0

    def write(self, folder: Path) -> Path:
        target = folder / f"{self.name}-{self.batches}x{self.rows}-{self.keys}-{self.span_s}-{self.turnover}"
        if (target / "_complete").exists():
            return target
        target.mkdir(parents=True, exist_ok=True)
        for number in range(self.batches):
            random = np.random.default_rng([7, number])
            span = self.span_s * 1_000_000
            time = START + number * span + random.integers(0, span, self.rows)
            late = random.random(self.rows) < self.late_share
            time = time - np.where(late, random.integers(60_000_000, 660_000_000, self.rows), 0)
            key = (random.random(self.rows) ** 3 * self.keys).astype(np.int64) + number * self.turnover
            table = pa.table(
                {
                    "ts": pa.array(time, pa.timestamp("us", tz="UTC")),
                    "key": key,
                    "value": random.random(self.rows) * 100,
                }
            )
            pq.write_table(table, target / f"batch-{number:04d}.parquet", row_group_size=self.rows // 2 + 1)
        (target / "_complete").touch()
        return target
