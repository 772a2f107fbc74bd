"""The example `payments`: Avro in three versions, damaged messages, windows, PostgreSQL and a dead-letter topic."""

from __future__ import annotations

import os

import psycopg
import pytest
from click.testing import CliRunner
from tests.examples.running import EXAMPLES, Example, new_database
from tests.servers import RunningServer, unique
from tests.workbench import Bench

from tidegate.cli import main

pytestmark = [pytest.mark.servers, pytest.mark.slow]


@pytest.fixture
def example(
    bench: Bench,
    kafka: RunningServer,
    registry: RunningServer,
    postgres: RunningServer,
    monkeypatch: pytest.MonkeyPatch,
) -> Example:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", kafka.address)
    monkeypatch.setenv("SCHEMA_REGISTRY_URL", registry.address)
    monkeypatch.setenv("DATABASE_URL", new_database(postgres))
    monkeypatch.setenv("PAYMENTS_TOPIC", unique("payments"))
    return Example("payments", bench)


def register_schemas() -> None:
    for version in (1, 2, 3):
        file = str(EXAMPLES / "payments" / "schemas" / f"payment-{version}.avsc")
        subject = f"{os.environ['PAYMENTS_TOPIC']}-value"
        command = ["schema", "register", file, "--registry", os.environ["SCHEMA_REGISTRY_URL"], "--subject", subject]
        done = CliRunner().invoke(main, command)
        assert done.exit_code == 0, done.output


def test_totals_and_dead_letters_are_as_the_truth_says(example: Example) -> None:
    register_schemas()
    example.script("generate.py")
    summary = example.run(max_batch=2200)
    assert summary.records >= 3, "the stragglers must meet windows that have spoken"
    printed = example.script("compare.py")
    assert "SCHEMA_UNKNOWN" in printed
    assert "LATE 7" in printed
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        corrected = connection.execute("SELECT count(*) FROM revenue WHERE pane_timing = 'late'").fetchone()
        assert corrected is not None
        assert corrected[0] > 0
        connection.execute("UPDATE revenue SET cents = cents + 1 WHERE window_start = '2024-05-01T10:00Z'")
    assert "revenue: " in example.complaint("compare.py")
