"""`tidegate status`: where a pipeline stands, from its records alone."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from click.testing import Result
from rich.console import Console

from tidegate.cli.clocks import held_by
from tidegate.cli.live import LiveView
from tidegate.cli.load import load_app
from tidegate.runtime.ledger import Ledger
from tidegate.runtime.records import Checkpoint, SourceClock
from tidegate.runtime.reports import BatchReport
from tidegate.time import FOREVER

Cli = Callable[..., Result]

REFUNDS = """
refunds = app.source(
    "refunds",
    tg.Files("refunds"),
    contract="id STRING, merchant STRING, region STRING, amount DECIMAL(12,2), status STRING, paid_at TIMESTAMP",
    event_time="paid_at",
)
"""


def squeezed(text: str) -> str:
    """The text without its alignment."""
    return "\n".join(" ".join(line.split()) for line in text.splitlines())


def test_it_tells_totals_watermarks_and_state(cli: Cli, checkpoint: Path) -> None:
    done = cli("status", checkpoint)
    assert done.exit_code == 0
    text = squeezed(done.output)
    assert "pipeline shop, checkpoint" in text
    assert "last record 3 (batch), 2026-03-01T12:01:00Z," in text
    assert "unaccounted events: 0" in text
    assert "payments 1,000 996 2 2 MALFORMED 2" in text
    assert "revenue 20 976 975 1 0 on_time 14" in text
    assert "revenue slices 1 42 12.3 kB" in text
    assert "payments dead 2 4" in text


def test_a_partitions_own_watermark_needs_the_app(cli: Cli, app_file: Path, checkpoint: Path) -> None:
    assert "partition south 2026-03-01T11:56:00Z – " in squeezed(cli("status", checkpoint).output)
    through_app = squeezed(cli("status", app_file).output)
    assert "partition south 2026-03-01T11:56:00Z 2026-03-01T11:55:30Z " in through_app


def test_of_a_union_it_tells_who_holds_the_watermark() -> None:
    def at(web: int | None, mobile: int | None) -> str:
        return held_by(("web", "mobile"), {"web": SourceClock(web), "mobile": SourceClock(mobile)})

    assert at(20, 10) == "held by mobile"
    assert at(20, None) == "held by mobile"
    assert at(None, None) == "held by web, mobile"
    assert at(10, 10) == ""
    assert held_by((), {"web": SourceClock(1)}) == ""
    assert held_by(("web", "mobile"), {"web": SourceClock(1)}) == "held by mobile"


def test_the_holder_is_shown_where_the_app_is_at_hand(cli: Cli, app_file: Path, checkpoint: Path) -> None:
    app_file.write_text(
        app_file.read_text().replace("revenue = (\n    payments", REFUNDS + "revenue = (\n    payments.union(refunds)")
    )
    assert "revenue 2026-03-01T12:00:00Z " in squeezed(cli("status", checkpoint).output)
    assert "held by" not in cli("status", checkpoint).output
    assert " held by refunds" in squeezed(cli("status", app_file).output)
    position = Checkpoint.open(str(checkpoint)).position()
    assert position is not None
    clock = position.last.sources["payments"]
    report = BatchReport(
        sequence=4,
        kind="tick",
        seconds=0.1,
        clock=clock.watermark or 0,
        ledger=Ledger(),
        totals=Ledger(),
        sources={"payments": clock, "refunds": SourceClock()},
        watermarks={"revenue": None},
        state_rows=0,
        state_bytes=0,
    )
    out = io.StringIO()
    with LiveView(load_app(app_file), Console(file=out, force_terminal=True, width=120, color_system=None)) as view:
        view.batch(report)
    assert "revenue   held by refunds" in out.getvalue()


def test_json_has_the_same(cli: Cli, checkpoint: Path) -> None:
    data = json.loads(cli("status", checkpoint, "--json").output)
    assert data["last_record"]["sequence"] == 3
    assert data["unaccounted"] == 0
    assert data["dead_letters"] == {"MALFORMED": 2, "LATE": 1}
    assert data["totals"]["sources"]["payments"]["read"] == 1_000
    assert {"owner": "revenue", "kind": "slices", "files": 1, "rows": 42, "bytes": 12_345} in data["state"]
    assert [p["name"] for p in data["sources"][0]["partitions"]] == ["north", "south"]


def test_an_app_that_never_ran_is_told_so(cli: Cli, app_file: Path) -> None:
    done = cli("status", app_file)
    assert done.exit_code == 1
    assert "is not a Tidegate checkpoint" in done.stderr


def test_a_damaged_record_is_an_error_not_a_trace(cli: Cli, checkpoint: Path) -> None:
    (checkpoint / "records" / "00000003.json").write_text("{half")
    done = cli("status", checkpoint)
    assert done.exit_code == 1
    assert "cannot be read" in done.stderr


def test_the_end_of_the_input_has_no_lag(cli: Cli, checkpoint: Path) -> None:
    opened = Checkpoint.open(str(checkpoint))
    last = opened.read(3)
    ended = SourceClock(FOREVER, last.sources["payments"].partitions)
    opened.publish(
        replace(
            last,
            sequence=4,
            kind="tick",
            added=(),
            sources={"payments": ended},
            watermarks={"revenue": FOREVER},
            terminal=True,
        )
    )
    text = squeezed(cli("status", checkpoint).output)
    assert "the input has ended; this checkpoint is closed" in text
    assert "\nrevenue end of time\n" in text
