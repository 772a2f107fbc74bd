"""The pytest plugin: a fixture that runs your own app in a test.

It is there as soon as Tidegate is installed. pytest imports this file in every project that has it, so it imports
nothing that takes time; Spark starts with the first test that asks for `pipeline`, once for all of them.

    def test_a_late_order_is_a_dead_letter(pipeline):
        run = pipeline(app)
        run.feed("orders", [{"order_id": "o1", "ordered_at": "2026-03-01T12:00:00Z"}])
        assert run.dead_letters() == []
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.app import App
    from tidegate.testing.trial import Start, Trial


@pytest.fixture(scope="session")
def tidegate_spark() -> Iterator[SparkSession]:
    """One Spark session for all tests; one that runs already is used, and then left running."""
    from pyspark.sql import SparkSession

    from tidegate.runtime.session import make_session

    is_ours = SparkSession.getActiveSession() is None
    session = make_session("tests", "2", brief=True)
    yield session
    if is_ours:
        session.stop()


@pytest.fixture
def pipeline(tidegate_spark: SparkSession, tmp_path: Path) -> Iterator[Start]:
    """Start an app for this test: ``run = pipeline(app)``. See `tidegate.testing.trial.Trial` for what it can do."""
    from tidegate.testing.trial import Trial

    trials: list[Trial] = []

    def start(app: App, **options: Any) -> Trial:
        trials.append(Trial(tidegate_spark, app, tmp_path / f"tidegate-{len(trials)}", **options))
        return trials[-1]

    yield start
    for trial in trials:
        trial.close()
