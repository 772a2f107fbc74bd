"""A batch is concluded (fired, balanced, recorded) while the next one is folded; the result does not depend on it."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from tests.workbench import Bench, at

import tidegate as tg
from tidegate.errors import BalanceError
from tidegate.runtime.attempt import Attempt
from tidegate.runtime.engine import Engine

pytestmark = pytest.mark.spark

FILES = 4
PATIENCE = 60.0


def an_app(bench: Bench, event_id: str | None = None) -> tg.App:
    app = tg.App("overlap")
    source = app.source(
        "events",
        tg.Files(str(bench.input)),
        contract="id STRING, at TIMESTAMP",
        event_time="at",
        event_id=event_id,
        watermark=tg.Watermark(delay="0s"),
    )
    result = source.key_by(k="'all'").window("counts", tg.Tumbling("10s")).aggregate(n=tg.count(), ids=tg.collect("id"))
    app.sink("table", result, tg.SQLite(str(bench.database), table="results"))
    return app


@pytest.fixture
def filled(bench: Bench) -> Bench:
    bench.build = lambda: an_app(bench)
    for number in range(FILES):
        bench.write(f"{number}.jsonl", [{"id": f"e{number}-{n}", "at": at(20 * number + n)} for n in range(3)])
    return bench


def as_it_should_be(bench: Bench) -> None:
    totals = bench.records()[-1].totals
    assert (totals.sources["events"].read, totals.operators["counts"].accepted) == (3 * FILES, 3 * FILES)
    assert totals.unaccounted() == 0
    assert [row["ids"] for row in bench.table()] == [f'["e{f}-0","e{f}-1","e{f}-2"]' for f in range(FILES)]
    batches = [record.offsets.batch_id for record in bench.records() if record.kind == "batch" and record.offsets]
    assert batches == list(range(FILES))


def test_the_next_batch_is_folded_before_the_one_before_it_is_decided(
    filled: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every batch waits with firing until the next is being folded: without overlap, it would wait in vain."""
    begun = {number: threading.Event() for number in range(2, FILES + 2)}
    fold, fire, in_vain = Attempt.fold, Attempt.fire, []

    def begin(self: Attempt) -> None:
        begun[self.sequence].set()
        fold(self)

    def wait(self: Attempt, after: Any) -> None:
        is_last = self.sequence == FILES + 1
        if not is_last and not begun[self.sequence + 1].wait(PATIENCE):
            in_vain.append(self.sequence)
        fire(self, after)

    monkeypatch.setattr(Attempt, "fold", begin)
    monkeypatch.setattr(Attempt, "fire", wait)
    filled.run(mode="once", max_batch=1)
    assert in_vain == []
    monkeypatch.undo()
    filled.run(mode="drain")
    as_it_should_be(filled)


def test_a_source_with_ids_is_folded_when_the_ids_before_are_decided(
    filled: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    fold, behind = Attempt.fold, []

    def look(self: Attempt) -> None:
        if self.engine.last.sequence != self.sequence - 1:
            behind.append(self.sequence)
        fold(self)

    monkeypatch.setattr(Attempt, "fold", look)
    filled.run(an_app(filled, event_id="id"), mode="drain", max_batch=1)
    assert behind == []
    as_it_should_be(filled)


def test_a_batch_that_cannot_be_concluded_stops_the_run_and_is_taken_by_the_next(
    filled: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark has committed it by then, and will not offer it again."""
    balance = Attempt.balance

    def refuse(self: Attempt) -> None:
        if self.sequence == 3:
            raise BalanceError("told to fail")
        balance(self)

    monkeypatch.setattr(Attempt, "balance", refuse)
    with pytest.raises(BalanceError, match="told to fail"):
        filled.run(mode="once", max_batch=1)
    assert [record.sequence for record in filled.records()] == [1, 2]
    assert (filled.checkpoint / "spark" / "commits" / "1").exists()
    monkeypatch.undo()
    filled.run(mode="drain", max_batch=1)
    as_it_should_be(filled)


def test_the_last_batch_of_a_run_that_cannot_be_concluded_fails_the_run(
    filled: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No batch comes after it that could tell."""

    def refuse(self: Attempt) -> None:
        raise BalanceError("told to fail")

    monkeypatch.setattr(Attempt, "balance", refuse)
    with pytest.raises(BalanceError, match="told to fail"):
        filled.run(mode="once")
    monkeypatch.undo()
    filled.run(mode="drain", max_batch=1)
    totals = filled.records()[-1].totals
    assert (totals.operators["counts"].accepted, totals.unaccounted()) == (3 * FILES, 0)


def test_the_time_of_a_record_is_what_it_has_added(filled: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that overlap do not both count the time that they share."""
    fire = Attempt.fire

    def slowly(self: Attempt, after: Any) -> None:
        time.sleep(2)
        fire(self, after)

    monkeypatch.setattr(Attempt, "fire", slowly)
    summary = filled.run(mode="once", max_batch=1)
    assert sum(record.seconds for record in filled.records()) <= summary.seconds


def test_what_is_reached_is_what_was_folded_and_after_the_end_what_was_decided(
    filled: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    batch = Engine.batch

    def look(self: Engine, given: Any) -> bool:
        done = batch(self, given)
        seen.append((self.reached.sequence, self.last.sequence))
        return done

    monkeypatch.setattr(Engine, "batch", look)
    filled.run(mode="once", max_batch=1)
    assert [reached for reached, _ in seen] == list(range(2, FILES + 2))
    assert all(reached - 1 <= last <= reached for reached, last in seen)
