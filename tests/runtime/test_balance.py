"""The ledger is counted on both sides; when they differ the batch stops before its record, and nothing has happened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidegate as tg
from tidegate.errors import BalanceError, PipelineError
from tidegate.operators.path import walk
from tidegate.operators.route import Rows
from tidegate.runtime import operate
from tidegate.runtime.counting import Counter
from tidegate.runtime.engine import Batch
from tidegate.runtime.folded import Folded
from tidegate.runtime.ledger import Ledger, OperatorLine, PathLine, SourceLine
from tidegate.sources.base import Records
from tidegate.testing.feed import Feed
from tidegate.testing.harness import Harness, seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# -- the ledger itself ----------------------------------------------------------------------------------------------


def balanced() -> Ledger:
    return Ledger(
        sources={"events": SourceLine(read=20, passed=15, duplicates=2, dead={"MALFORMED": 3})},
        paths={
            "plain": PathLine(passed=15, filtered=5, arrived=10),
            "flat": PathLine(passed=15, filtered=1, unnested=14, elements=30, dropped=7, arrived=23, has_flat_map=True),
        },
        operators={"plain": OperatorLine(arrived=10, accepted=8, late=2), "flat": OperatorLine(23, 23, 0)},
    )


def test_a_balanced_ledger_says_nothing() -> None:
    ledger = balanced()
    assert ledger.differences() == []
    assert ledger.unaccounted() == 0
    ledger.balance()


NUMBERS: list[tuple[str, Callable[[Ledger, int], None]]] = [
    ("read", lambda ledger, by: _add(ledger.sources["events"], "read", by)),
    ("source passed", lambda ledger, by: _add(ledger.sources["events"], "passed", by)),
    ("duplicates", lambda ledger, by: _add(ledger.sources["events"], "duplicates", by)),
    ("dead letters", lambda ledger, by: ledger.sources["events"].dead.update(MALFORMED=3 + by)),
    ("path passed", lambda ledger, by: _add(ledger.paths["plain"], "passed", by)),
    ("filtered", lambda ledger, by: _add(ledger.paths["plain"], "filtered", by)),
    ("arrived on the path", lambda ledger, by: _add(ledger.paths["plain"], "arrived", by)),
    ("flat passed", lambda ledger, by: _add(ledger.paths["flat"], "passed", by)),
    ("unnested", lambda ledger, by: _add(ledger.paths["flat"], "unnested", by)),
    ("elements", lambda ledger, by: _add(ledger.paths["flat"], "elements", by)),
    ("dropped", lambda ledger, by: _add(ledger.paths["flat"], "dropped", by)),
    ("arrived at the operator", lambda ledger, by: _add(ledger.operators["plain"], "arrived", by)),
    ("accepted", lambda ledger, by: _add(ledger.operators["plain"], "accepted", by)),
    ("late", lambda ledger, by: _add(ledger.operators["plain"], "late", by)),
]


def _add(line: Any, name: str, by: int) -> None:
    setattr(line, name, getattr(line, name) + by)


@pytest.mark.parametrize("by", [1, -1])
@pytest.mark.parametrize(("name", "change"), NUMBERS, ids=[name for name, _ in NUMBERS])
def test_every_number_counts(name: str, change: Callable[[Ledger, int], None], by: int) -> None:
    ledger = balanced()
    change(ledger, by)
    assert len(ledger.differences()) == 1
    assert ledger.unaccounted() == 1
    with pytest.raises(BalanceError, match="nothing was decided"):
        ledger.balance()


def test_adding_ledgers_adds_every_line_and_keeps_the_balance() -> None:
    other = Ledger(
        sources={"more": SourceLine(1, 1), "events": SourceLine(2, 1, 0, {"FUTURE": 1})},
        operators={"plain": OperatorLine(1, 1, 0, panes={"late": 2})},
    )
    total = balanced().plus(other)
    assert total.sources["events"] == SourceLine(22, 16, 2, {"MALFORMED": 3, "FUTURE": 1})
    assert total.sources["more"] == SourceLine(1, 1)
    assert total.operators["plain"].panes == {"late": 2}
    assert total.paths["flat"].has_flat_map
    assert total.unaccounted() == 0
    assert Ledger.from_json(total.to_json()) == total


# -- a batch that does not balance ----------------------------------------------------------------------------------


def an_app(table: tg.Memory, *, transform: Callable[[DataFrame], DataFrame] | None = None) -> tg.App:
    app = tg.App("balance")
    contract = tg.Contract("k STRING, v BIGINT, at TIMESTAMP", required=["k"])
    stream = app.source("events", Feed(), contract=contract, event_time="at", watermark=tg.Watermark())
    if transform:
        stream = stream.transform(transform)
    counts = stream.where("v > 0").key_by("k").window("counts", tg.Tumbling("1m")).aggregate(n=tg.count())
    app.sink("table", counts, table)
    return app


ROWS: list[dict[str, Any]] = [
    {"k": "a", "v": 1, "at": "1970-01-01T00:00:10Z"},
    {"k": "a", "v": 0, "at": "1970-01-01T00:00:20Z"},
    {"k": None, "v": 1, "at": "1970-01-01T00:00:30Z"},
    {"k": "b", "v": 2, "at": "1970-01-01T00:01:10Z"},
]


@pytest.fixture
def harness(spark: SparkSession, tmp_path: Path) -> Harness:
    return Harness(spark, an_app(tg.Memory()), tmp_path / "checkpoint", clock=seconds(100))


def test_a_batch_that_was_decided_is_not_read_again(harness: Harness) -> None:
    """Its records may be gone by now: a driver died after the record, and retention went on."""
    harness.feed({"events": ROWS})

    def gone(_: frozenset[str]) -> dict[str, Records]:
        raise AssertionError("it was read")

    assert harness.engine.batch(Batch(harness.clock, offsets=harness.engine.last.offsets, read=gone)) is False


def also(fate: str) -> Callable[[Folded], None]:
    return lambda folded: folded.fates.update({fate: folded.fates.get(fate, 0) + 1})


WRONG: dict[str, Callable[[Folded], None]] = {
    "one accepted too many": also("slice"),
    "one filtered too many": also("filtered"),
    "one duplicate too many": also("duplicate"),
    "no dead letters": lambda folded: folded.dead.clear(),
}


@pytest.mark.spark
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_wrong_count_of_what_came_out_stops_the_batch_before_its_record(
    wrong: Callable[[Folded], None], harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, real = harness.engine.last, operate.account

    def miscount(folded: Folded) -> None:
        real(folded)
        wrong(folded)

    monkeypatch.setattr(operate, "account", miscount)
    with pytest.raises(BalanceError, match="the ledger of this batch does not balance; nothing was decided"):
        harness.feed({"events": ROWS})
    assert harness.engine.last is before
    assert harness.engine.checkpoint.sequences() == [1]
    assert harness.engine.state.files == {}

    monkeypatch.setattr(operate, "account", real)
    harness._fed = 0
    record = harness.feed({"events": ROWS}).record
    assert record is not None, "the same batch goes through when the count is right"
    assert record.ledger.sources["events"] == SourceLine(4, 3, 0, {"CONTRACT_VIOLATION": 1})
    assert record.ledger.paths["counts"] == PathLine(passed=3, filtered=1, arrived=2)
    assert record.ledger.operators["counts"].accepted == 2


@pytest.mark.spark
def test_a_stage_that_was_counted_twice_is_counted_again_before_giving_up(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark may run a stage twice, and its observation then says twice as much; the rows are right all the same."""
    real = Counter.result
    monkeypatch.setattr(Counter, "result", lambda self: {name: 2 * n for name, n in real(self).items()})
    record = harness.feed({"events": ROWS}).record
    assert record is not None
    assert record.ledger.sources["events"].read == 4
    assert record.ledger.unaccounted() == 0


@pytest.mark.spark
def test_a_loss_between_the_source_and_an_operator_is_noticed(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step of our own that lost a row: it is counted on the way in and missing on the way out."""

    def lossy(*arguments: Any) -> Rows:
        rows = walk(*arguments)
        return replace(rows, relation=f"SELECT * FROM ({rows.relation}) WHERE v IS NULL OR v != 2")

    monkeypatch.setattr(operate, "walk", lossy)
    with pytest.raises(BalanceError, match="does not balance; nothing was decided"):
        harness.feed({"events": ROWS})
    assert harness.engine.checkpoint.sequences() == [1]


# -- transforms -----------------------------------------------------------------------------------------------------


def without_envelope(df: DataFrame) -> DataFrame:
    return df.select("k", "v", "at")


@pytest.mark.spark
def test_a_transform_that_loses_the_envelope_is_refused_before_anything_runs(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(PipelineError, match="transform without_envelope lost the column `_tg`") as refusal:
        Harness(spark, an_app(tg.Memory(), transform=without_envelope), tmp_path / "checkpoint")
    assert 'df.select("_tg", …)' in str(refusal.value.hint)


def with_each_row_twice(df: DataFrame) -> DataFrame:
    return df.unionAll(df)


@pytest.mark.spark
def test_a_transform_that_doubles_events_stops_the_batch_before_its_record(spark: SparkSession, tmp_path: Path) -> None:
    harness = Harness(spark, an_app(tg.Memory(), transform=with_each_row_twice), tmp_path / "checkpoint", seconds(100))
    with pytest.raises(BalanceError, match="returned an event 2 times"):
        harness.feed({"events": ROWS})
    assert harness.engine.checkpoint.sequences() == [1]


def positive_ones(df: DataFrame) -> DataFrame:
    return df.where("v > 1")


@pytest.mark.spark
def test_what_a_transform_drops_is_counted_as_filtered(spark: SparkSession, tmp_path: Path) -> None:
    harness = Harness(spark, an_app(tg.Memory(), transform=positive_ones), tmp_path / "checkpoint", seconds(100))
    record = harness.feed({"events": ROWS}).record
    assert record is not None
    assert record.ledger.paths["counts"] == PathLine(passed=3, filtered=2, arrived=1)
    assert record.ledger.sources["events"] == SourceLine(4, 3, 0, {"CONTRACT_VIOLATION": 1})
