"""The fixture `pipeline`: the page about it is run as it stands, and what it does not show is tried here."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

import tidegate as tg
from tidegate.errors import PipelineError

if TYPE_CHECKING:
    from tidegate.testing.trial import Start

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "test-your-pipeline.md").read_text()
FILES = dict(re.findall(r"^```python\n# (\w+)\.py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
TESTS = re.findall(r"^def (test_\w+)", FILES["test_pipeline"], re.MULTILINE)


@pytest.mark.spark
@pytest.mark.parametrize("name", TESTS)
def test_the_page_is_true(name: str, pipeline: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (ModuleType("pipeline"), ModuleType("test_pipeline")):
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(FILES[module.__name__], module.__dict__)
    test: Callable[[Start], None] = sys.modules["test_pipeline"].__dict__[name]
    test(pipeline)


@pytest.mark.spark
def test_a_csv_source_with_a_manual_watermark(pipeline: Start) -> None:
    app = tg.App("meters")
    readings = app.source(
        "readings",
        tg.Files("inbox", format="csv", delimiter=";"),
        contract="meter STRING, note STRING, at TIMESTAMP",
        event_time="at",
    )
    counts = readings.key_by("meter").window("counts", tg.Tumbling("1m")).aggregate(n=tg.count())
    app.sink("out", counts, tg.SQLite("never-made.db", table="counts"))
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)

    run = pipeline(app, watermark="manual", clock="2026-03-01T12:10:00Z")
    run.feed("readings", [{"meter": "a", "note": "odd; but fine", "at": noon}, b"b;;2026-03-01T12:00:30Z"])
    assert run.panes("counts") == []
    outcome = run.watermark("2026-03-01T12:01:00Z")
    assert [(pane["meter"], pane["n"]) for pane in run.panes("counts")] == [("a", 1), ("b", 1)]
    assert len(outcome.of("counts")) == 2
    assert run.clock("2m").record.clock == int(noon.timestamp() + 12 * 60) * 1_000_000  # type: ignore[union-attr]
    assert not Path("never-made.db").exists()

    with pytest.raises(PipelineError, match=r"no source 'reading'.*\n?.*readings"):
        run.feed("reading", [])
    with pytest.raises(PipelineError, match="no operator 'count'"):
        run.panes("count")
    with pytest.raises(PipelineError, match="no reason 'TOO_LATE'"):
        run.dead_letters("TOO_LATE")  # type: ignore[arg-type]
    run.drain()
    with pytest.raises(PipelineError, match="nothing can follow"):
        run.feed("readings", [])


@pytest.mark.spark
def test_dead_letters_are_shown_and_sent_nowhere(pipeline: Start) -> None:
    app = tg.App("meters")
    readings = app.source(
        "readings", tg.Kafka("127.0.0.1:1", topic="readings"), contract="meter STRING, at TIMESTAMP", event_time="at"
    )
    counts = readings.key_by("meter").window("counts", tg.Tumbling("1m")).aggregate(n=tg.count())
    app.sink("out", counts, tg.KafkaTopic("127.0.0.1:1", "counts"))
    app.dead_letters(tg.KafkaDeadLetters("127.0.0.1:1"))
    run = pipeline(app)
    run.feed("readings", [b"garbage", {"meter": "a", "at": "2026-03-01T12:00:00Z"}])
    run.restart()
    assert [(letter["reason"], letter["raw"]) for letter in run.dead_letters()] == [("MALFORMED", b"garbage")]
    run.drain()
    assert [pane["n"] for pane in run.panes("counts")] == [1]
    assert app.letters is not None, "the app itself stays as it is"


def test_the_plugin_is_light() -> None:
    """pytest imports it in every project that has Tidegate installed."""
    import subprocess

    seen = "import sys, tidegate.testing.plugin; print(*{'pyspark', 'pyarrow', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", seen], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
