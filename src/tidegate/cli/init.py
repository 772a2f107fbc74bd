"""`tidegate init`: a small project that runs at once – a pipeline, its data, and a page that explains it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import click

from tidegate.errors import PipelineError

_PIPELINE = '''\
"""Revenue per shop and five minutes, from files of orders."""

from pathlib import Path

import tidegate as tg

here = Path(__file__).parent

app = tg.App("orders")

orders = app.source(
    "orders",
    tg.Files(str(here / "data"), format="jsonl", partition="column:region"),
    contract=tg.Contract(
        "order_id STRING NOT NULL, shop STRING NOT NULL, region STRING, amount DECIMAL(12,2), "
        "status STRING, ordered_at TIMESTAMP",
        expect=["amount >= 0"],
    ),
    event_time="ordered_at",
    event_id="order_id",
    watermark=tg.Watermark(delay="1m", idle_after="5m"),
)

revenue = (
    orders.where("status = 'paid'")
    .key_by("shop")
    .window("shop_revenue", tg.Tumbling("5m"), allowed_lateness="10m")
    .aggregate(orders=tg.count(), revenue=tg.sum("amount"))
)

app.sink("results", revenue, tg.SQLite(str(here / "results.db"), table="shop_revenue"))
'''

_README = """\
# orders

Revenue per shop and five minutes, from the files in `data/`.

    tidegate check pipeline.py          is anything wrong or risky?
    tidegate explain pipeline.py        the dataflow
    tidegate run pipeline.py --once     take what is there, then stop
    tidegate status pipeline.py         where it stands, and that every event is accounted for
    tidegate dlq list pipeline.py       what was refused, and why

`run` without `--once` keeps running and takes new files as they appear in `data/` (write a file elsewhere, then move
it there). `--drain` says that no more will come, and closes every window.

Results are in `results.db`:

    sqlite3 results.db "SELECT * FROM shop_revenue ORDER BY window_start, shop"

The sample holds what real data holds: orders out of order, one that was sent twice, one that is not JSON, one with a
negative amount. The last three end as a duplicate and as dead letters; none of them just disappears.
"""

_IGNORED = ".tidegate/\nresults.db*\n__pycache__/\n"


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
def init(folder: Path) -> None:
    """Make a small project that runs at once."""
    files = {"pipeline.py": _PIPELINE, "README.md": _README, ".gitignore": _IGNORED, **_sample()}
    present = [name for name in files if (folder / name).exists()]
    if present:
        raise PipelineError(
            f"{folder / present[0]} already exists; nothing was written", hint="choose an empty or a new folder"
        )
    try:
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
    except OSError as error:
        raise PipelineError(f"cannot write to {folder}: {error.strerror}") from error
    click.echo(f"made {', '.join(files)} in {folder}")
    click.echo(f"next: tidegate run {folder / 'pipeline.py'} --once")


def _sample() -> dict[str, str]:
    """Two files of orders over half an hour, always the same ones."""
    random = Random(7)
    start = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
    lines = []
    for index in range(240):
        # up to half a minute out of order: within the watermark's delay of a minute
        at = start + timedelta(seconds=index * 7.5 + random.uniform(-30, 0))
        order = {
            "order_id": f"o{index:04d}",
            "shop": random.choice(("Ahoy", "Brine", "Cove")),
            "region": ("north", "south")[index % 2],
            "amount": round(random.uniform(3, 90), 2),
            "status": "paid" if random.random() < 0.9 else "cancelled",
            "ordered_at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }
        lines.append(json.dumps(order))
    lines.insert(60, lines[55])
    lines.insert(90, '{"order_id": "o9001", "shop": "Ahoy", "amount": 12.')
    lines.insert(150, lines[150].replace('"amount": ', '"amount": -').replace('"o0', '"o8'))
    half = len(lines) // 2
    return {
        "data/orders-1.jsonl": "\n".join(lines[:half]) + "\n",
        "data/orders-2.jsonl": "\n".join(lines[half:]) + "\n",
    }
