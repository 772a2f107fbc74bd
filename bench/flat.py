"""`python bench/flat.py [batches]`: does anything grow with history? 500 batches at a steady rate, and what they cost.

State, records and time per batch must be the same at the end as at the beginning. Seconds are printed, as the medians
of the second and of the last fifth (the first is warm-up); what is counted – live files, state rows, records and
files on disk – is printed beside them."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import tidegate as tg
from tidegate.runtime.session import make_session
from tidegate.testing.feed import Feed
from tidegate.testing.harness import Harness, seconds


def main() -> None:
    batches = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    app = tg.App("flat")
    events = app.source(
        "events",
        Feed(),
        contract=tg.Contract("t BIGINT, key STRING, value DOUBLE, id STRING"),
        event_time="timestamp_micros(t)",
        event_id="id",
        watermark=tg.Watermark(delay="5s", max_future=None),
    )
    windows = events.key_by("key").window("windows", tg.Tumbling("10s"), allowed_lateness="30s")
    app.sink("out", windows.aggregate(n=tg.count(), total=tg.sum("value")), tg.Memory())
    with tempfile.TemporaryDirectory() as folder:
        harness = Harness(make_session("flat"), app, Path(folder) / "checkpoint")
        took, live, rows = [], [], []
        for batch in range(batches):
            harness.clock = seconds(batch)
            events_now = [
                {
                    "t": seconds(batch + i / 50 - (20 if i % 25 == 0 else 0)),
                    "key": f"k{i % 10}",
                    "value": i,
                    "id": f"{batch}-{i}",
                }
                for i in range(50)
            ]
            began = time.monotonic()
            harness.feed({"events": events_now})
            took.append(time.monotonic() - began)
            state = harness.engine.state.files.values()
            live.append(len(state))
            rows.append(sum(file.rows for file in state if file.kind != "dead"))
        fifth = batches // 5
        on_disk = sum(1 for path in (Path(folder) / "checkpoint").rglob("*") if path.is_file())
        records = len(harness.engine.checkpoint.sequences())
        for what, measured, digits in (
            ("seconds per batch", took, 3),
            ("live files", live, 0),
            ("state rows", rows, 0),
        ):
            early, late = statistics.median(measured[fifth : 2 * fifth]), statistics.median(measured[-fifth:])
            print(f"{what + ':':19} {early:.{digits}f} early, {late:.{digits}f} late")
        print(f"on disk at the end: {on_disk} files, of them {records} records")
        harness.close()


if __name__ == "__main__":
    main()
