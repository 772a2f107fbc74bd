"""The user's own steps with their ledger lines, duplicates across batches and restarts, and copies kept on request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.workbench import Bench, at

import tidegate as tg
from tidegate.errors import BalanceError
from tidegate.operators.sql import run
from tidegate.runtime.ledger import PathLine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

CONTRACT = "id STRING, k STRING, v BIGINT, tags ARRAY<STRING>, at TIMESTAMP"


def an_app(bench: Bench, *, event_id: str | None = None, **more: Any) -> tuple[tg.App, tg.Stream]:
    app = tg.App("paths")
    source = app.source(
        "events",
        tg.Files(str(bench.input)),
        contract=CONTRACT,
        event_time="at",
        event_id=event_id,
        watermark=tg.Watermark(delay="10s"),
        **more,
    )
    return app, source


def to_table(bench: Bench, app: tg.App, result: Any, table: str) -> None:
    app.sink(f"{table}_sink", result, tg.SQLite(str(bench.database), table=table))


def double(df: DataFrame) -> DataFrame:
    return df.withColumn("v", df["v"] * 2)


def small_ones(df: DataFrame) -> DataFrame:
    return df.where("v < 3")


EVENTS: list[dict[str, Any]] = [
    {"id": "e0", "k": "a", "v": 1, "tags": ["x", "y"], "at": at(0)},
    {"id": "e1", "k": "a", "v": 2, "tags": ["y"], "at": at(1)},
    {"id": "e2", "k": "b", "v": 3, "tags": [], "at": at(2)},
    {"id": "e3", "k": "b", "v": None, "tags": None, "at": at(3)},
    {"id": "e4", "k": "c", "v": 5, "tags": ["x", "x", None], "at": at(4)},
    {"id": "e5", "k": "c", "v": 6, "tags": ["z"], "at": at(70)},
]


def test_each_step_does_what_it_says_and_has_its_ledger_line(bench: Bench) -> None:
    lines: list[bytes | dict[str, Any]] = [*EVENTS, b"garbage"]
    bench.write("1.jsonl", lines)
    app, source = an_app(bench)
    minute = tg.Tumbling("1m")
    paths = {
        "plain": source.key_by("k"),
        "filtered": source.where("v >= 2").where("v < 6").key_by("k"),
        "selected": source.where("v > 1").select("k", w="v + 100").select("k", v="w * 10").key_by("k"),
        "transformed": source.transform(double).where("v > 2").key_by("k"),
        "dropped_by_transform": source.transform(small_ones).key_by("k"),
        "flat": source.flat_map(tag="tags").where("tag != 'y'").key_by(k="tag"),
        "filtered_flat": source.where("k != 'a'").flat_map(tag="tags").key_by(k="tag"),
        "flat_transformed": source.flat_map(tag="tags").transform(double).key_by(k="tag"),
    }
    for name, keyed in paths.items():
        result = keyed.window(name, minute).aggregate(n=tg.count(), total=tg.sum("v"))
        to_table(bench, app, result, f"{name}_t")
    totals = bench.run(app, "drain").totals

    def shown(name: str) -> dict[tuple[str, str], tuple[int, int]]:
        return {(row["k"], row["window_start"][14:16]): (row["n"], row["total"]) for row in bench.table(f"{name}_t")}

    assert shown("plain") == {("a", "00"): (2, 3), ("b", "00"): (2, 3), ("c", "00"): (1, 5), ("c", "01"): (1, 6)}
    assert shown("filtered") == {("a", "00"): (1, 2), ("b", "00"): (1, 3), ("c", "00"): (1, 5)}
    assert shown("selected") == {
        ("a", "00"): (1, 1020),
        ("b", "00"): (1, 1030),
        ("c", "00"): (1, 1050),
        ("c", "01"): (1, 1060),
    }
    assert shown("transformed") == {
        ("a", "00"): (1, 4),
        ("b", "00"): (1, 6),
        ("c", "00"): (1, 10),
        ("c", "01"): (1, 12),
    }
    assert shown("dropped_by_transform") == {("a", "00"): (2, 3)}
    assert shown("flat") == {("x", "00"): (3, 11), ("z", "01"): (1, 6)}
    assert shown("filtered_flat") == {("x", "00"): (2, 10), (None, "00"): (1, 5), ("z", "01"): (1, 6)}
    assert shown("flat_transformed") == {
        ("x", "00"): (3, 22),
        ("y", "00"): (2, 6),
        (None, "00"): (1, 10),
        ("z", "01"): (1, 12),
    }

    assert totals.sources["events"].passed == 6
    assert totals.paths == {
        "plain": PathLine(passed=6, arrived=6),
        "filtered": PathLine(passed=6, filtered=3, arrived=3),
        "selected": PathLine(passed=6, filtered=2, arrived=4),
        "transformed": PathLine(passed=6, filtered=2, arrived=4),
        "dropped_by_transform": PathLine(passed=6, filtered=4, arrived=2),
        "flat": PathLine(passed=6, unnested=6, elements=7, dropped=3, arrived=4, has_flat_map=True),
        "filtered_flat": PathLine(passed=6, filtered=2, unnested=4, elements=4, arrived=4, has_flat_map=True),
        "flat_transformed": PathLine(passed=6, unnested=6, elements=7, arrived=7, has_flat_map=True),
    }
    assert totals.unaccounted() == 0
    assert {name: line.accepted for name, line in totals.operators.items()} == {
        name: line.arrived for name, line in totals.paths.items()
    }


def test_late_elements_of_one_event_are_dead_letters_of_their_own(bench: Bench) -> None:
    """Also of nested flat_maps, where an element's number alone does not say which it is."""
    pairs = "transform(tags, t -> array(t, upper(t)))"
    bench.write("1.jsonl", [{"id": "e0", "k": "a", "v": 1, "tags": ["p"], "at": at(200)}])
    bench.write("2.jsonl", [{"id": "e1", "k": "a", "v": 1, "tags": ["p", "q"], "at": at(0)}])
    app, source = an_app(bench)
    for name, stream in {
        "once": source.flat_map(tag="tags"),
        "twice": source.flat_map(pair=pairs).flat_map(tag="pair"),
    }.items():
        result = stream.key_by("tag").window(name, tg.Tumbling("1m")).aggregate(n=tg.count())
        to_table(bench, app, result, f"{name}_t")
    totals = bench.run(app, "drain", max_batch=1).totals
    assert {name: line.late for name, line in totals.operators.items()} == {"once": 2, "twice": 4}
    assert {row["tag"] for row in bench.table("twice_t")} == {"p", "P"}
    letters = bench.dead_letters("LATE")
    assert len(letters) == len({letter["dlq_id"] for letter in letters}) == 6
    assert {json.loads(letter["raw"])["id"] for letter in letters} == {"e1"}


def test_an_event_of_which_some_elements_of_a_nested_flat_map_arrive_is_not_called_filtered(bench: Bench) -> None:
    bench.write("1.jsonl", [{"id": "e1", "k": "a", "v": 1, "tags": ["p", "q", "r"], "at": at(0)}])
    app, source = an_app(bench)
    twice = source.flat_map(tag="tags").where("tag != 'p'").flat_map(half="array(tag, upper(tag))").where("half != 'Q'")
    result = twice.key_by("half").window("halves", tg.Tumbling("1m")).aggregate(n=tg.count())
    to_table(bench, app, result, "halves_t")
    totals = bench.run(app, "drain").totals
    assert {row["half"]: row["n"] for row in bench.table("halves_t")} == {"q": 1, "r": 1, "R": 1}
    line = totals.paths["halves"]
    assert (line.passed, line.filtered, line.unnested, line.arrived) == (1, 0, 1, 3)
    assert line.elements == line.dropped + 3


def keeping_app(bench: Bench, folder: Path, **more: Any) -> tg.App:
    app, source = an_app(bench, event_id="id", **more)
    result = source.key_by("k").window("hops", tg.Hopping("2m", "1m")).aggregate(n=tg.count(), ids=tg.collect("id"))
    app.sink("sink", result, tg.SQLite(str(folder / "out.db"), table="results"))
    return app


def an_event(name: str, seconds: float) -> dict[str, Any]:
    return {"id": name, "k": "a", "v": 1, "tags": [], "at": at(seconds)}


def counts(bench: Bench) -> dict[str, int]:
    return {row["window_start"][11:16]: row["n"] for row in bench.table()}


def test_duplicates_are_found_within_a_batch_across_batches_and_after_a_restart(bench: Bench) -> None:
    bench.build = lambda: keeping_app(bench, bench.folder)
    bench.write("1.jsonl", [an_event("e1", 0), an_event("e1", 0), an_event("e2", 1)])
    bench.write("2.jsonl", [an_event("e1", 0), an_event("e3", 2), an_event("e2", 1)])
    first = bench.run(mode="once", max_batch=1)
    assert first.totals.sources["events"].duplicates == 3
    bench.write("3.jsonl", [an_event("e3", 2), an_event("e4", 3), an_event("e1", 0)])
    second = bench.run(mode="drain")
    assert second.totals.sources["events"].duplicates == 5
    assert second.totals.sources["events"].read == 9
    assert counts(bench) == {"11:59": 4, "12:00": 4}
    assert bench.dead_letters() == [], "duplicates are counted; copies are kept only when asked for"


def test_the_same_id_at_another_time_is_another_event_and_no_id_is_none_s_duplicate(bench: Bench) -> None:
    bench.build = lambda: keeping_app(bench, bench.folder)
    nameless = an_event("x", 5) | {"id": None}
    bench.write("1.jsonl", [an_event("e1", 0), an_event("e1", 1), nameless, nameless])
    totals = bench.run(mode="drain").totals
    assert totals.sources["events"].duplicates == 0
    assert counts(bench) == {"11:59": 4, "12:00": 4}


def test_kept_duplicates_are_letters_and_are_counted_once(bench: Bench) -> None:
    bench.build = lambda: keeping_app(bench, bench.folder, keep_duplicates=True)
    bench.write("1.jsonl", [an_event("e1", 0), an_event("e1", 0)])
    bench.write("2.jsonl", [an_event("e1", 0)])
    totals = bench.run(mode="drain", max_batch=1).totals
    line = totals.sources["events"]
    assert (line.read, line.passed, line.duplicates, line.dead) == (3, 1, 2, {})
    letters = bench.dead_letters("DUPLICATE")
    assert [json.loads(letter["raw"]) for letter in letters] == [an_event("e1", 0)] * 2
    assert len({letter["dlq_id"] for letter in letters}) == 2


def test_a_refused_event_is_not_remembered_and_makes_no_duplicate(bench: Bench) -> None:
    """The first e1 breaks the contract, so the second one is the first that counts."""
    app = tg.App("paths")
    contract = tg.Contract(CONTRACT, expect=["v > 0"])
    source = app.source("events", tg.Files(str(bench.input)), contract=contract, event_time="at", event_id="id")
    result = source.key_by("k").window("hops", tg.Tumbling("2m")).aggregate(n=tg.count())
    to_table(bench, app, result, "results")
    bench.write("1.jsonl", [an_event("e1", 0) | {"v": -1}, an_event("e1", 0)])
    bench.write("2.jsonl", [an_event("e2", 0) | {"v": -1}])
    bench.write("3.jsonl", [an_event("e2", 0)])
    totals = bench.run(app, "drain", max_batch=1).totals
    line = totals.sources["events"]
    assert (line.passed, line.duplicates, line.dead) == (2, 0, {"CONTRACT_VIOLATION": 2})
    assert counts(bench) == {"12:00": 2}


def test_a_partially_late_event_is_accepted_for_its_open_windows_and_copied_when_asked(
    bench: Bench,
) -> None:
    bench.build = lambda: keeping_app(bench, bench.folder, keep_partially_late=True)
    bench.write("1.jsonl", [an_event("e1", 50), an_event("e2", 75)])  # watermark 65 s: [11:59, 12:01) is closed
    bench.write("2.jsonl", [an_event("e3", 55)])
    totals = bench.run(mode="drain", max_batch=1).totals
    assert counts(bench) == {"11:59": 1, "12:00": 3, "12:01": 1}
    line = totals.operators["hops"]
    assert (line.arrived, line.accepted, line.late, line.partially_late) == (3, 3, 0, 1)
    (letter,) = bench.dead_letters()
    assert (letter["reason"], letter["operator"]) == ("PARTIALLY_LATE", "hops")
    assert json.loads(letter["raw"])["id"] == "e3"
    assert totals.unaccounted() == 0


def test_null_keys_are_a_key_like_any_other(bench: Bench) -> None:
    app, source = an_app(bench)
    grouped = source.key_by("k", "v").window("pairs", tg.Tumbling("1m"), allowed_lateness="5m")
    to_table(bench, app, grouped.aggregate(n=tg.count()), "results")
    nobody: dict[str, Any] = {"id": "e", "k": None, "v": None, "tags": [], "at": at(0)}
    bench.write("1.jsonl", [nobody, nobody | {"k": "a"}])
    bench.write("2.jsonl", [nobody | {"at": at(100)}])
    bench.write("3.jsonl", [nobody, nobody | {"k": "a"}])
    bench.run(app, "drain", max_batch=1)
    assert [(row["k"], row["v"], row["n"], row["pane_index"]) for row in bench.table()] == [
        ("a", None, 2, 1),
        (None, None, 2, 1),
        (None, None, 1, 0),
    ]


def some_twice(df: DataFrame) -> DataFrame:
    return df.unionByName(df.where("v = 2")).where("v != 1")


def test_a_transform_that_makes_two_of_an_event_stops_the_batch_even_when_it_drops_another(bench: Bench) -> None:
    """The number of rows is right; the rows are not."""
    bench.write("1.jsonl", EVENTS)
    app, source = an_app(bench)
    result = source.transform(some_twice).key_by("k").window("doubled", tg.Tumbling("1m")).aggregate(n=tg.count())
    to_table(bench, app, result, "results")
    with pytest.raises(BalanceError, match=r"returned an event 2 times; nothing was decided") as refusal:
        bench.run(app, "drain")
    assert "flat_map" in str(refusal.value.hint)
    assert [record.kind for record in bench.records()] == ["claim"]


def elements_twice(df: DataFrame) -> DataFrame:
    return df.unionByName(df.where("tag = 'y'"))


def test_a_transform_that_makes_two_of_an_element_stops_the_batch(bench: Bench) -> None:
    bench.write("1.jsonl", EVENTS)
    app, source = an_app(bench)
    keyed = source.flat_map(tag="tags").transform(elements_twice).key_by("tag")
    to_table(bench, app, keyed.window("doubled", tg.Tumbling("1m")).aggregate(n=tg.count()), "results")
    with pytest.raises(BalanceError, match=r"returned an event 2 times"):
        bench.run(app, "drain")
    assert [record.kind for record in bench.records()] == ["claim"]


def test_rows_that_are_kept_in_memory_are_read_from_there(spark: SparkSession) -> None:
    """However often they go into SQL: a view that is dropped takes what is kept under its plan with it."""
    kept = run(spark, "SELECT id * 2 AS id FROM {ids}", {"ids": spark.range(8)}).persist()
    try:
        for _ in range(2):
            read = run(spark, "SELECT * FROM {kept} WHERE id > 4", {"kept": kept})
            assert "InMemoryRelation" in read._jdf.queryExecution().optimizedPlan().toString()
            assert read.count() == 5
    finally:
        kept.unpersist()
