"""Poison: one record on which an expression throws, or one file that cannot be read, and the pipeline goes on."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.workbench import Bench, at

import tidegate as tg
from tidegate.contracts import Contract
from tidegate.errors import DataLossRisk, PipelineError
from tidegate.runtime import poison
from tidegate.runtime.drivers import _source_of
from tidegate.runtime.poison import corrupt_file, is_data_error, isolate, sentence

# -- bisection, in plain Python -------------------------------------------------------------------------------------


class Probes:
    """A stand-in for running part of a batch: fails when one of `bad` is in it."""

    def __init__(self, bad: set[int]) -> None:
        self.bad, self.count = bad, 0

    def __call__(self, low: int, high: int) -> BaseException | None:
        self.count += 1
        if any(low <= position <= high for position in self.bad):
            return RuntimeError("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n\tat org.apache.spark…")
        return None


@pytest.mark.parametrize("bad", [{0}, {4999}, {17, 18}, {0, 2500, 4999}, set(range(100, 120))], ids=str)
def test_bisection_finds_exactly_the_culprits_among_thousands(bad: set[int]) -> None:
    probes = Probes({3 * position for position in bad})
    found = isolate(probes, [3 * position for position in range(5000)])
    assert {culprit.position for culprit in found} == {3 * position for position in bad}
    assert {culprit.error for culprit in found} == {"[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012"}
    assert probes.count <= 2 * 13 * len(bad) + 1, "about log₂ of the batch per culprit, twice"


def test_bisection_of_a_batch_without_culprits_takes_one_probe() -> None:
    probes = Probes(set())
    assert isolate(probes, list(range(5000))) == []
    assert probes.count == 1


def test_too_many_culprits_are_an_error_of_the_expression_and_stop_the_pipeline() -> None:
    with pytest.raises(DataLossRisk, match="more than 1000 records") as refusal:
        isolate(Probes(set(range(5000))), list(range(5000)))
    assert "error of the expression" in str(refusal.value.hint)


def test_the_search_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poison, "MOST_PROBES", 20)
    with pytest.raises(DataLossRisk):
        isolate(Probes({5, 1000, 2000}), list(range(5000)))


def test_an_error_of_code_that_appears_while_searching_is_raised_as_it_is() -> None:
    error = RuntimeError("[UNRESOLVED_COLUMN.WITH_SUGGESTION] a column")

    with pytest.raises(RuntimeError) as raised:
        isolate(lambda low, high: error, list(range(10)))
    assert raised.value is error


def test_data_errors_are_told_from_others_by_their_condition() -> None:
    assert is_data_error(RuntimeError("x [CAST_INVALID_INPUT] The value 'a' …"))
    assert is_data_error(RuntimeError("[INVALID_ARRAY_INDEX_IN_ELEMENT_AT] …"))
    assert not is_data_error(RuntimeError("[UNRESOLVED_COLUMN.WITH_SUGGESTION] …"))
    assert not is_data_error(RuntimeError("java.lang.OutOfMemoryError: Java heap space"))
    assert not is_data_error(RuntimeError("No space left on device"))


def test_a_corrupt_file_is_named_as_spark_names_it() -> None:
    said = (
        "[FAILED_READ_FILE.CANNOT_READ_FILE_FOOTER] Encountered error while reading file "
        "file:///data/my%20folder/part=1/a.parquet. Could not read footer. SQLSTATE: KD001"
    )
    assert corrupt_file(RuntimeError(said)) == "file:///data/my%20folder/part=1/a.parquet"
    assert corrupt_file(RuntimeError("[DIVIDE_BY_ZERO] /not/a/file")) is None


def test_a_file_belongs_to_the_source_whose_folder_holds_it(spark: SparkSession) -> None:
    folders = {"in": "/data/in", "too": "/data/in too", "deep": "/data/in/deep"}
    contract = Contract("k STRING")
    readers = {name: tg.Files(folder).open(spark, contract, name, None) for name, folder in folders.items()}
    assert _source_of(readers, "file:///data/in/a.json") == "in"
    assert _source_of(readers, "file:///data/in%20too/a.json") == "too"
    assert _source_of(readers, "file:///data/in/deep/x/a.json") == "deep"
    assert not any(reader.holds("file:///data/other/a.json") for reader in readers.values())


def test_a_sentence_has_no_stack_in_it() -> None:
    text = (
        "An error occurred while calling o1.save.\n: org.apache.SparkX: [DIVIDE_BY_ZERO] Division by zero.\n\tat x.y(Z)"
    )
    assert sentence(RuntimeError(text)) == "[DIVIDE_BY_ZERO] Division by zero."


def test_a_suggestion_of_sparks_names_only_columns_of_the_user() -> None:
    said = "[UNRESOLVED_COLUMN] `amout` cannot be resolved. Did you mean one of the following? [{}]. SQLSTATE: 42703"
    assert "[`amount`, `at`]." in sentence(RuntimeError(said.format("`_alive`, `amount`, `e`.`_lead`, `at`")))
    assert "Did you mean" not in sentence(RuntimeError(said.format("`_alive`, `_lead`")))


def test_a_sentence_names_no_place_in_sql_that_the_user_never_wrote() -> None:
    said = "[UNRESOLVED_COLUMN] A column `x` cannot be resolved. SQLSTATE: 42703; line 1 pos 1579;"
    assert sentence(RuntimeError(said)) == "[UNRESOLVED_COLUMN] A column `x` cannot be resolved. SQLSTATE: 42703"


# -- on Spark -------------------------------------------------------------------------------------------------------

CONTRACT = "id STRING, k STRING, x BIGINT, y BIGINT, at TIMESTAMP"


def an_app(bench: Bench, *, where: str = "x / y >= 0", total: str = "x", **source: Any) -> tg.App:
    app = tg.App("poison")
    events = app.source(
        "events",
        tg.Files(str(bench.input), **source.pop("files", {})),
        contract=source.pop("contract", CONTRACT),
        event_time="at",
        watermark=tg.Watermark(delay="1h"),
        **source,
    )
    counts = events.where(where).key_by("k").window("counts", tg.Tumbling("1m"))
    app.sink("table", counts.aggregate(n=tg.count(), total=tg.sum(total)), tg.SQLite(str(bench.database), "results"))
    return app


def an_event(number: int, **more: Any) -> dict[str, Any]:
    return {"id": f"e{number}", "k": "ab"[number % 2], "x": number, "y": 1, "at": at(number % 60)} | more


def shown(bench: Bench) -> dict[str, tuple[int, int]]:
    return {row["k"]: (row["n"], row["total"]) for row in bench.table()}


@pytest.mark.spark
def test_records_that_divide_by_zero_among_thousands_become_dead_letters_and_the_rest_goes_on(bench: Bench) -> None:
    zeros = {777, 2345, 2346}
    events = [an_event(number, y=0 if number in zeros else 1) for number in range(3000)]
    bench.write("1.jsonl", events[:1500])
    bench.write("2.jsonl", events[1500:])
    totals = bench.run(an_app(bench), "drain").totals

    good = [event for event in events if event["y"]]
    assert shown(bench) == {
        k: (len(part), sum(event["x"] for event in part))
        for k in "ab"
        if (part := [event for event in good if event["k"] == k])
    }
    letters = bench.dead_letters()
    assert sorted(json.loads(letter["raw"])["id"] for letter in letters) == sorted(f"e{number}" for number in zeros)
    assert {(letter["reason"], letter["operator"]) for letter in letters} == {("EXPRESSION_ERROR", None)}
    assert all("DIVIDE_BY_ZERO" in letter["error"] for letter in letters)
    assert totals.sources["events"].dead == {"EXPRESSION_ERROR": 3}
    assert totals.unaccounted() == 0
    assert any("isolated 3 record(s)" in said for said in bench.watched.said)


@pytest.mark.spark
def test_poison_in_an_aggregate_a_key_an_event_time_and_an_expectation_is_found_too(bench: Bench) -> None:
    """Each expression of the user's may throw, wherever it stands."""
    app = tg.App("poison")
    events = app.source(
        "events",
        tg.Files(str(bench.input)),
        contract=tg.Contract("id STRING, k STRING, x BIGINT, y BIGINT, s STRING", expect=["100 / x > 0"]),
        event_time="timestamp_micros(CAST(s AS BIGINT))",
        watermark=tg.Watermark(delay="1h"),
    )
    keyed = events.key_by(k="10 / y").window("counts", tg.Tumbling("1m"))
    result = keyed.aggregate(n=tg.count(), total=tg.sum("CAST(k AS BIGINT)"))
    app.sink("table", result, tg.SQLite(str(bench.database), "results"))
    sound = {"k": "5", "x": 1, "y": 1, "s": "1709294400000000"}
    rows = [
        {"id": "good 1", **sound},
        {"id": "in the expectation", **sound, "x": 0},
        {"id": "in the key", **sound, "y": 0},
        {"id": "in the event time", **sound, "s": "soon"},
        {"id": "in the aggregate", **sound, "k": "many"},
        {"id": "good 2", **sound},
    ]
    bench.write("1.jsonl", rows)
    totals = bench.run(app, "drain").totals
    letters = {json.loads(letter["raw"])["id"]: letter["reason"] for letter in bench.dead_letters()}
    assert letters == dict.fromkeys(
        ["in the expectation", "in the key", "in the event time", "in the aggregate"], "EXPRESSION_ERROR"
    )
    assert [(row["n"], row["total"]) for row in bench.table()] == [(2, 10)]
    assert totals.unaccounted() == 0


@pytest.mark.spark
def test_poison_in_the_event_id_is_found_too(bench: Bench) -> None:
    bench.write("1.jsonl", [an_event(1), an_event(2, y=0), an_event(3), an_event(1)])
    totals = bench.run(an_app(bench, where="true", event_id="x / y"), "drain").totals
    assert [json.loads(letter["raw"])["id"] for letter in bench.dead_letters()] == ["e2"]
    assert totals.sources["events"].dead == {"EXPRESSION_ERROR": 1}
    assert totals.sources["events"].duplicates == 1


@pytest.mark.spark
def test_poison_inside_a_transform_is_found_too(bench: Bench) -> None:
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    def ratio(df: DataFrame) -> DataFrame:
        return df.withColumn("x", F.expr("CAST(x / y AS BIGINT)"))

    app = tg.App("poison")
    events = app.source("events", tg.Files(str(bench.input)), contract=CONTRACT, event_time="at")
    counts = events.transform(ratio).key_by("k").window("counts", tg.Tumbling("1m"))
    app.sink("table", counts.aggregate(n=tg.count(), total=tg.sum("x")), tg.SQLite(str(bench.database), "results"))
    bench.write("1.jsonl", [an_event(1), an_event(2, y=0), an_event(3)])
    totals = bench.run(app, "drain").totals
    assert totals.sources["events"].dead == {"EXPRESSION_ERROR": 1}
    assert shown(bench) == {"b": (2, 4)}


@pytest.mark.spark
@pytest.mark.parametrize("where", ["no_such_column > 1", "no_such_function(x) > 1", "x +", "at > 5"])
def test_an_error_of_code_is_not_mistaken_for_poison(bench: Bench, where: str) -> None:
    bench.write("1.jsonl", [an_event(1)])
    with pytest.raises(PipelineError) as refusal:
        bench.run(an_app(bench, where=where), "drain")
    assert "Traceback" not in str(refusal.value)
    assert "at org.apache" not in str(refusal.value)
    assert bench.database.exists() is False or bench.table() == []


@pytest.mark.spark
def test_an_expression_that_fails_for_every_record_stops_the_pipeline_and_decides_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poison, "MOST_CULPRITS", 5)
    bench.write("1.jsonl", [an_event(number, y=0) for number in range(40)])
    with pytest.raises(DataLossRisk, match="make an expression fail; the pipeline stops"):
        bench.run(an_app(bench), "drain")
    assert [record.kind for record in bench.records()] == ["claim"]


# -- files that cannot be read --------------------------------------------------------------------------------------


@pytest.mark.spark
def test_a_truncated_gzip_file_is_a_dead_letter_that_names_it_and_the_rest_goes_on(bench: Bench) -> None:
    whole = b"".join(json.dumps(an_event(number)).encode() + b"\n" for number in range(2000))
    bench.write("1.jsonl", [an_event(1)])
    bench.publish(bench.input / "2.jsonl.gz", lambda hidden: hidden.write_bytes(gzip.compress(whole)[:-4000]))
    bench.write("3.jsonl", [an_event(3)])
    totals = bench.run(an_app(bench), "drain").totals
    (letter,) = bench.dead_letters()
    assert letter["reason"] == "CORRUPT_FILE"
    assert letter["origin"] == (bench.input / "2.jsonl.gz").as_uri()
    assert totals.sources["events"].dead == {"CORRUPT_FILE": 1}
    assert totals.unaccounted() == 0
    assert shown(bench) == {"b": (2, 4)}


@pytest.mark.spark
@pytest.mark.parametrize("max_batch", [1, 10])
def test_truncated_parquet_files_are_dead_letters_even_when_they_are_a_batch_of_their_own(
    bench: Bench, max_batch: int
) -> None:
    """In a folder with a space in its name, which Spark writes as %20, and with letters that mean a pattern to it."""
    folder = bench.input / "my files {old} [1]"
    folder.mkdir()

    def table(number: int) -> pa.Table:
        rows = pa.Table.from_pylist([an_event(number + 2 * n) for n in range(50)])
        times = pa.array([1_709_294_400_000_000] * 50, pa.timestamp("us", "UTC"))
        return rows.set_column(rows.column_names.index("at"), "at", times)

    def cut(hidden: Path, number: int, keep: float) -> None:
        pq.write_table(table(number), hidden)
        content = hidden.read_bytes()
        hidden.write_bytes(content[: int(len(content) * keep)])

    for number, keep in enumerate([1.0, 0.5, 0.9, 1.0]):
        bench.publish(folder / f"{number}.parquet", lambda hidden, n=number, k=keep: cut(hidden, n, k))  # type: ignore[misc]
    app = an_app(bench, files={"format": "parquet"})
    totals = bench.run(app, "drain", max_batch=max_batch).totals
    letters = bench.dead_letters()
    assert Counter(letter["reason"] for letter in letters) == {"CORRUPT_FILE": 2}
    assert {letter["origin"] for letter in letters} == {(folder / f"{n}.parquet").as_uri() for n in (1, 2)}
    assert totals.sources["events"].dead == {"CORRUPT_FILE": 2}
    assert {k: n for k, (n, _) in shown(bench).items()} == {"a": 50, "b": 50}


@pytest.mark.spark
def test_a_corrupt_file_of_one_source_is_counted_there_and_not_at_another(bench: Bench) -> None:
    """One folder's name begins with the other's: the letter must not go astray."""
    app = tg.App("poison")
    for name in ("in", "in_too"):
        events = app.source(name, tg.Files(str(bench.input / name)), contract=CONTRACT, event_time="at")
        counts = events.key_by("k").window(f"{name}_w", tg.Tumbling("1m")).aggregate(n=tg.count(), total=tg.sum("x"))
        app.sink(f"{name}_s", counts, tg.SQLite(str(bench.database), name))
    bench.write("in/1.jsonl", [an_event(1)])
    bench.write("in_too/1.jsonl", [an_event(1)])
    zipped = gzip.compress(b"".join(json.dumps(an_event(n)).encode() + b"\n" for n in range(2000)))
    bench.publish(bench.input / "in_too" / "2.jsonl.gz", lambda hidden: hidden.write_bytes(zipped[:-3000]))
    totals = bench.run(app, "drain").totals
    assert {name: (line.read, line.dead) for name, line in totals.sources.items()} == {
        "in": (1, {}),
        "in_too": (2, {"CORRUPT_FILE": 1}),
    }
    assert [letter["source"] for letter in bench.dead_letters()] == ["in_too"]


@pytest.mark.spark
def test_corrupt_files_and_poison_in_one_batch_are_both_isolated_in_batch_mode(bench: Bench) -> None:
    zipped = gzip.compress(b"".join(json.dumps(an_event(n)).encode() + b"\n" for n in range(2000)))
    bench.publish(bench.input / "1.jsonl.gz", lambda hidden: hidden.write_bytes(zipped[:-3000]))
    bench.write("2.jsonl", [an_event(1), an_event(2, y=0), an_event(3)])
    totals = bench.run(an_app(bench), "batch").totals
    assert totals.sources["events"].dead == {"CORRUPT_FILE": 1, "EXPRESSION_ERROR": 1}
    assert shown(bench) == {"b": (2, 4)}
    assert totals.unaccounted() == 0
