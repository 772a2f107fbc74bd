"""One operator over several sources: an event keeps its source, and the slowest source holds the watermark."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from tests.workbench import Bench, at

import tidegate as tg
from tidegate.errors import BalanceError, CheckpointError, PipelineError
from tidegate.runtime.checks import check
from tidegate.runtime.drivers import refuse_unsound
from tidegate.runtime.ledger import PathLine
from tidegate.runtime.signatures import reconcile, signature
from tidegate.stream import Stream, WindowNode
from tidegate.testing import ModelExecutor, parse, run_transcript
from tidegate.testing.feed import Feed
from tidegate.testing.harness import Harness
from tidegate.time import SECOND

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidegate.testing.trial import Start

WEB = "customer STRING, amount BIGINT, at TIMESTAMP"
MOBILE = "at TIMESTAMP, customer STRING, amount BIGINT"  # the same columns in another order


@dataclass(frozen=True)
class Keyed(Feed):
    """A feed of JSON whose records have a key beside their value, as those of Kafka do."""

    @property
    def encoding(self) -> str:
        return "json"

    @property
    def extra(self) -> Mapping[str, str]:
        return {"_key": "BINARY"}


def two(web: str = WEB, mobile: str = MOBILE, **more: Any) -> tuple[tg.App, Stream, Stream]:
    app = tg.App("shop")
    settings: dict[str, Any] = {"event_time": "at", "watermark": tg.Manual()} | more
    streams = [app.source(n, Feed(), contract=c, **settings) for n, c in (("web", web), ("mobile", mobile))]
    return app, streams[0], streams[1]


def finish(app: tg.App, stream: Stream, window: Any = None, **more: Any) -> tg.App:
    windowed = stream.key_by("customer").window("revenue", window or tg.Tumbling("10s"), **more)
    app.sink("out", windowed.aggregate(n=tg.count(), total=tg.sum("amount")), tg.Memory())
    return app


def row(second: float, amount: int = 1, customer: str = "ada", **more: Any) -> dict[str, Any]:
    return {"customer": customer, "amount": amount, "at": at(second)} | more


def noon(second: float) -> int:
    from tests.workbench import NOON

    return int(NOON.timestamp()) * SECOND + int(second * SECOND)


def shown(panes: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((p["customer"], int(p["window_start"].timestamp()) % 3600, p["n"], p["total"]) for p in panes)


# -- the declaration ------------------------------------------------------------------------------------------------


def test_steps_before_a_union_belong_to_their_branch_and_those_after_it_to_all() -> None:
    app, web, mobile = two()
    node = finish(app, web.where("amount > 1").union(mobile).where("amount < 9")).operators["revenue"]
    assert [(b.source.name, [str(step) for step in b.steps]) for b in node.branches] == [
        ("web", ["where amount > 1", "where amount < 9"]),
        ("mobile", ["where amount < 9"]),
    ]


def test_a_union_of_three_may_be_made_at_once_or_in_turn() -> None:
    app, web, mobile = two()
    store = app.source("store", Feed(), contract=WEB, event_time="at")
    assert web.union(mobile, store) == web.union(mobile).union(store)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda web, mobile: web.union(), "needs another stream"),
        (lambda web, mobile: web.union(two()[2]), "streams of two apps, 'shop' and 'shop'"),
        (lambda web, mobile: web.union(mobile.key_by("customer")), "was given KeyedStream, not a stream"),
        (lambda web, mobile: web.where("amount > 1").union(mobile, web), "'web' is in it twice"),
    ],
)
def test_what_cannot_be_united_is_refused_where_it_is_said(wrong: Callable[..., Any], message: str) -> None:
    _, web, mobile = two()
    with pytest.raises(PipelineError, match=message) as refusal:
        wrong(web, mobile)
    assert refusal.value.hint


def errors(app: tg.App) -> list[str]:
    return [f"{found.where}: {found.message}" for found in check(app) if found.level == "error"]


def test_columns_may_come_in_another_order_and_case() -> None:
    app, web, mobile = two(mobile="at TIMESTAMP, Customer STRING, AMOUNT BIGINT")
    assert check(finish(app, web.union(mobile))) == []


def test_a_union_of_different_columns_is_refused_with_the_columns_that_differ() -> None:
    app, web, mobile = two(web=f"{WEB}, agent STRING", mobile="at TIMESTAMP, customer STRING, amount BIGINT, os STRING")
    assert errors(finish(app, web.union(mobile))) == [
        "operator revenue: a union needs the same columns, but 'agent' of web is not among those of mobile",
        "operator revenue: a union needs the same columns, but 'os' of mobile is not among those of web",
    ]
    app, web, mobile = two(web=f"{WEB}, agent STRING")
    assert check(finish(app, web.select("customer", "amount").union(mobile.select("amount", "customer")))) == []


def test_an_unknown_column_is_told_with_the_source_that_lacks_it() -> None:
    app, web, mobile = two(mobile="at TIMESTAMP, who STRING, amount BIGINT")
    found = errors(finish(app, web.union(mobile)))
    assert "operator revenue from mobile: key customer: 'customer' is not a column here" in found
    assert not any(message.startswith("operator revenue from web") for message in found)


def test_results_of_an_operator_cannot_be_in_a_union() -> None:
    app, web, mobile = two()
    hourly = web.key_by("customer").window("hourly", tg.Tumbling("1h")).aggregate(amount=tg.sum("amount"))
    results = hourly.as_stream().select("customer", "amount", at="window_end")
    finish(app, mobile.union(results))
    assert any("takes the events of sources, and hourly is an operator" in message for message in errors(app))
    with pytest.raises(PipelineError, match="hourly is an operator"):
        refuse_unsound(app)


def test_the_page_about_several_sources_is_true() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "concepts" / "events-and-time.md").read_text()
    blocks = dict(re.findall(r"^```(python|yaml)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    declared: dict[str, Any] = {}
    exec(blocks["python"], declared)
    assert check(declared["app"]) == []
    assert declared["revenue"].node.is_union
    assert run_transcript(parse(yaml.safe_load(blocks["yaml"])), ModelExecutor()).passed


# -- the definition and its state -----------------------------------------------------------------------------------


def node(make: Callable[[Stream, Stream], Stream]) -> WindowNode:
    app, web, mobile = two()
    return finish(app, make(web, mobile)).operators["revenue"]


def test_a_union_is_the_same_definition_in_any_order() -> None:
    stored = signature(node(lambda web, mobile: web.where("amount > 1").union(mobile)), 1)
    assert reconcile(node(lambda web, mobile: mobile.union(web.where("amount > 1"))), stored, 9)["source"]
    with pytest.raises(CheckpointError, match="steps"):
        reconcile(node(lambda web, mobile: mobile.where("amount > 1").union(web)), stored, 9)


def test_one_source_has_the_definition_it_had_before_there_were_unions() -> None:
    alone = signature(node(lambda web, mobile: web.where("amount > 1")), 1)
    assert (alone["source"], alone["event_time"], alone["steps"]) == ("web", "at", ["where amount > 1"])


def test_a_source_that_joins_or_leaves_is_refused_with_both_definitions() -> None:
    def alone(web: Stream, mobile: Stream) -> Stream:
        return web

    def both(web: Stream, mobile: Stream) -> Stream:
        return web.union(mobile)

    for before, after in ((alone, both), (both, alone)):
        with pytest.raises(CheckpointError, match=r"source: .*→") as refusal:
            reconcile(node(after), signature(node(before), 1), 9)
        assert "rename the operator" in str(refusal.value)


# -- on Spark -------------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_columns_of_different_types_are_refused_before_anything_runs(spark: SparkSession, tmp_path: Path) -> None:
    app, web, mobile = two(mobile="at TIMESTAMP, customer STRING, amount DOUBLE")
    with pytest.raises(PipelineError, match="'amount' is bigint from web and double from mobile") as refusal:
        Harness(spark, finish(app, web.union(mobile)), tmp_path / "types")
    assert refusal.value.hint == 'convert one of them before the union: select(…, amount="CAST(amount AS bigint)")'

    def renamed(rows: DataFrame) -> DataFrame:
        return rows.withColumnRenamed("amount", "cents")

    app, web, mobile = two()
    assert errors(finish(app, web.union(mobile.transform(renamed)))) == []  # after a transform only Spark can tell
    with pytest.raises(PipelineError, match="'amount' comes from web and not from mobile"):
        Harness(spark, app, tmp_path / "transformed")


@pytest.mark.spark
def test_each_branch_has_its_own_steps_and_its_own_line_in_the_ledger(spark: SparkSession, tmp_path: Path) -> None:
    def doubled(rows: DataFrame) -> DataFrame:
        return rows.withColumn("amount", rows["amount"] * 2)

    app, web, mobile = two(mobile="at TIMESTAMP, customer STRING, basket ARRAY<BIGINT>")
    united = (
        web.where("amount > 1")
        .transform(doubled)
        .select("customer", "amount")
        .union(mobile.flat_map(amount="basket").select("amount", "customer"))
        .where("amount < 100")
    )
    alone = web.key_by("customer").window("of_web", tg.Tumbling("10s")).aggregate(n=tg.count())
    app.sink("of_web_out", alone, tg.Memory())
    harness = Harness(spark, finish(app, united), tmp_path / "checkpoint")
    try:
        outcome = harness.feed(
            {
                "web": [row(1, 1), row(2, 3), row(3, 60)],
                "mobile": [{"customer": "ada", "basket": [5, 7, 200], "at": at(4)}],
            }
        )
        assert outcome.record
        ledger = outcome.record.ledger
        assert ledger.paths == {
            "revenue from web": PathLine(passed=3, filtered=2, arrived=1),
            "revenue from mobile": PathLine(passed=1, unnested=1, elements=3, dropped=1, arrived=2, has_flat_map=True),
            "of_web": PathLine(passed=3, arrived=3),
        }
        line = ledger.operators["revenue"]
        assert (line.arrived, line.accepted, ledger.filtered("revenue"), ledger.filtered("of_web")) == (3, 3, 2, 0)
        assert {name: source.read for name, source in ledger.sources.items()} == {"web": 3, "mobile": 1}
        only_one = harness.feed({"mobile": [{"customer": "ada", "basket": [9], "at": at(5)}]})
        assert only_one.record
        assert list(only_one.record.ledger.paths) == ["revenue from mobile"]
        done = harness.move_watermark(["web", "mobile"], noon(10))
        assert shown(done.of("revenue")) == [("ada", 0, 4, 6 + 5 + 7 + 9)]
        assert [pane["n"] for pane in done.of("of_web")] == [3]
        ledger.paths["revenue from mobile"].arrived += 1
        with pytest.raises(BalanceError, match="path to revenue from mobile: elements 3 but dropped 1 \\+ in 3"):
            ledger.balance()
    finally:
        harness.close()


@pytest.mark.spark
def test_a_late_letter_names_its_source_and_the_watermark_that_judged_it(spark: SparkSession, tmp_path: Path) -> None:
    app, web, mobile = two()
    harness = Harness(spark, finish(app, web.union(mobile)), tmp_path / "checkpoint")
    try:
        harness.move_watermark("web", noon(60))
        harness.move_watermark("mobile", noon(10))
        assert harness.engine.last.watermarks == {"revenue": noon(10)}
        outcome = harness.feed({"web": [row(8), row(12)], "mobile": [row(9)]})
        letters = {letter["source"]: letter for letter in outcome.letters}
        assert len(outcome.letters) == 2
        assert {source: letter["late_by_ms"] for source, letter in letters.items()} == {"web": 2_000, "mobile": 1_000}
        assert all(letter["operator"] == "revenue" and letter["reason"] == "LATE" for letter in outcome.letters)
        assert {int(letter["watermark"].timestamp()) for letter in outcome.letters} == {noon(10) // SECOND}
        assert outcome.record
        line = outcome.record.ledger.operators["revenue"]
        assert (line.arrived, line.accepted, line.late) == (3, 1, 2)
    finally:
        harness.close()


@pytest.mark.spark
@pytest.mark.parametrize("cap", [None, "60s"])
def test_sessions_of_sources_that_differ_in_ids_and_in_what_a_letter_holds(
    spark: SparkSession, tmp_path: Path, cap: str | None
) -> None:
    """One source has ids, the other none but a key beside each record; one keeps duplicates; one name, two types."""
    app = tg.App("shop")
    settings: dict[str, Any] = {"event_time": "at", "watermark": tg.Manual()}
    plain = app.source("plain", Feed(), contract=f"{WEB}, id STRING, note STRING", **settings)
    named = app.source(
        "named", Keyed(), contract=f"id STRING, note BIGINT, {WEB}", event_id="id", keep_duplicates=True, **settings
    )
    united = plain.select("customer", "amount").union(named.select("amount", "customer"))
    harness = Harness(spark, finish(app, united, tg.Session("10s", cap)), tmp_path / "checkpoint")
    try:
        harness.move_watermark(["plain", "named"], noon(15))
        first = harness.feed(
            {
                "plain": [row(2, 1, id="x"), row(2, 2, id="x"), row(9, 4), row(1, 8, "ben", note="b")],
                "named": [row(2, 16, id="x"), row(2, 32, id="x"), row(3, 64, "ben", id="y", note=7)],
            }
        )
        refused = sorted((x["source"], x["reason"], json.loads(x["raw"])["amount"]) for x in first.letters)
        assert refused == [("named", "DUPLICATE", 32), ("named", "LATE", 64), ("plain", "LATE", 8)]
        notes = {x["source"]: json.loads(x["raw"]).get("note") for x in first.letters if x["reason"] == "LATE"}
        assert notes == {"plain": "b", "named": 7}
        harness.restart()
        second = harness.feed({"plain": [row(2, 128, id="x")], "named": [row(2, 256, id="x")]})
        assert [(x["source"], x["reason"]) for x in second.letters] == [("named", "DUPLICATE")]
        done = harness.move_watermark(["plain", "named"], noon(19))
        assert shown(done.of("revenue")) == [("ada", 2, 5, 1 + 2 + 4 + 16 + 128)]
        totals = harness.engine.last.totals
        assert totals.unaccounted() == 0
        line = totals.operators["revenue"]
        assert (line.arrived, line.accepted, line.late, line.duplicates) == (8, 5, 2, 1)
        assert totals.sources["named"].duplicates == 1
        assert not [file for file in harness.engine.state.files.values() if file.kind != "dead"]
    finally:
        harness.close()


@pytest.mark.spark
def test_a_union_may_feed_another_operator(spark: SparkSession, tmp_path: Path) -> None:
    app, web, mobile = two()
    windowed = web.union(mobile).key_by("customer").window("revenue", tg.Tumbling("10s"), allowed_lateness="10s")
    first = windowed.aggregate(n=tg.count(), total=tg.sum("amount"))
    assert any("without taking the old ones back" in message for message in errors(_peak(app, first)))

    app, web, mobile = two()
    settings: dict[str, Any] = {"allowed_lateness": "10s", "accumulation": "retracting"}
    windowed = web.union(mobile).key_by("customer").window("revenue", tg.Tumbling("10s"), **settings)
    app = _peak(app, windowed.aggregate(n=tg.count(), total=tg.sum("amount")))
    harness = Harness(spark, app, tmp_path / "checkpoint")
    try:
        harness.feed({"web": [row(1, 5)], "mobile": [row(2, 7)]})
        harness.move_watermark("web", noon(60))
        assert harness.engine.last.watermarks == {"revenue": None, "peak": None}
        harness.move_watermark("mobile", noon(10))
        harness.feed({"mobile": [row(3, 9)]})
        done = harness.drain()
        assert [(pane["n"], pane["total"]) for pane in done.of("peak")] == [(1, 21)]
    finally:
        harness.close()


def _peak(app: tg.App, first: Any) -> tg.App:
    peak = first.as_stream().key_by("customer").window("peak", tg.Tumbling("60s"))
    app.sink("peak_out", peak.aggregate(n=tg.count(), total=tg.max("total")), tg.Memory())
    return app


@pytest.mark.spark
def test_poison_in_one_source_leaves_the_other_alone(spark: SparkSession, tmp_path: Path) -> None:
    app, web, mobile = two()
    united = web.union(mobile.select("customer", amount="100 div amount", at="at"))
    harness = Harness(spark, finish(app, united), tmp_path / "checkpoint")
    try:
        outcome = harness.feed({"web": [row(1, 0), row(2, 1)], "mobile": [row(1, 0), row(2, 4)]})
        assert [(x["source"], x["reason"]) for x in outcome.letters] == [("mobile", "EXPRESSION_ERROR")]
        done = harness.move_watermark(["web", "mobile"], noon(10))
        assert shown(done.of("revenue")) == [("ada", 0, 3, 26)]
    finally:
        harness.close()


@pytest.mark.spark
def test_a_union_of_files_says_what_one_source_of_all_of_them_says(bench: Bench) -> None:
    """Two folders that are written differently, against one that holds everything: results, lateness, counts."""
    dice = random.Random(7)
    rows = [
        {"customer": dice.choice("abc"), "amount": dice.randrange(100), "status": dice.choice(["paid", "open"])}
        | {"at": at(second + dice.randrange(-20, 20))}
        for second in range(0, 600, 3)
    ]
    for number in range(4):
        some = rows[number * 50 : number * 50 + 50]
        bench.write(f"all/{number}.jsonl", some)
        bench.write(f"web/{number}.jsonl", [r for i, r in enumerate(some) if i % 3])
        other = [r for i, r in enumerate(some) if not i % 3]
        lines = [f"{r['at']};{r['status']};{r['customer']};{r['amount']}".encode() for r in other]
        bench.write(f"mobile/{number}.csv", lines)

    def app(united: bool) -> tg.App:
        app = tg.App("shop")
        settings: dict[str, Any] = {"event_time": "at", "watermark": tg.Watermark("60s")}
        contract = "customer STRING, amount BIGINT, status STRING, at TIMESTAMP"
        name = "web" if united else "all"
        stream = app.source(name, tg.Files(str(bench.input / name)), contract=contract, **settings)
        stream = stream.where("status = 'paid'").select("customer", "amount")
        if united:
            files = tg.Files(str(bench.input / "mobile"), format="csv", delimiter=";")
            mobile = app.source(
                "mobile", files, contract="at TIMESTAMP, state STRING, who STRING, cents BIGINT", **settings
            )
            stream = stream.union(mobile.where("state = 'paid'").select(amount="cents", customer="who"))
        result = (
            stream.key_by("customer")
            .window("revenue", tg.Hopping("2m", "1m"))
            .aggregate(n=tg.count(), total=tg.sum("amount"), largest=tg.max("amount"))
        )
        app.sink("out", result, tg.SQLite(str(bench.database), table="united" if united else "alone"))
        return app

    summaries = []
    for united in (False, True):
        bench.checkpoint = bench.folder / f"checkpoint-{united}"
        summaries.append(bench.run(app(united), "drain", max_batch=1).totals)
    assert bench.table("united") == bench.table("alone") != []
    alone, both = summaries
    assert both.operators["revenue"].accepted == alone.operators["revenue"].accepted
    assert both.filtered("revenue") == alone.filtered("revenue") > 0
    assert both.unaccounted() == alone.unaccounted() == 0
    assert sum(line.read for line in both.sources.values()) == 200
    watermarks = [record.watermarks["revenue"] for record in bench.records()[:-1] if record.watermarks]
    assert watermarks == sorted(watermarks, key=lambda w: w or 0)
    assert len(set(watermarks)) > 2, "the watermark hardly moved: the test shows nothing"


@pytest.mark.spark
def test_a_union_is_tried_with_the_fixture_like_any_other_app(pipeline: Start) -> None:
    app = tg.App("shop")
    web = app.source("web", tg.Files("web"), contract=WEB, event_time="at")
    mobile = app.source("mobile", tg.Files("mobile"), contract=MOBILE, event_time="at")
    run = pipeline(finish(app, web.union(mobile)))
    run.feed("web", [row(1, 5), row(25, 1)])
    assert run.panes("revenue") == []  # mobile has said nothing yet
    run.feed("mobile", [row(2, 7), row(12, 1)])
    assert [(pane["n"], pane["total"]) for pane in run.panes("revenue")] == [(2, 12)]
    run.feed("mobile", [row(3)])
    assert [letter["source"] for letter in run.dead_letters("LATE")] == ["mobile"]
