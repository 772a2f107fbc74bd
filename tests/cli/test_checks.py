"""`tidegate check`: what is found, with the remedy, and what is not mistaken for a mistake."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import tidegate as tg
from tidegate.runtime.checks import Finding, check
from tidegate.runtime.expressions import certain_columns, only_column, possible_columns
from tidegate.stream import Stream
from tidegate.windows import Window

Cli = Callable[..., Result]

CONTRACT = (
    "id STRING NOT NULL, merchant STRING, amount DECIMAL(12,2), items ARRAY<STRING>, paid_at TIMESTAMP, ms BIGINT"
)


def payments(app: tg.App, **changes: Any) -> Stream:
    settings: dict[str, Any] = {"contract": CONTRACT, "event_time": "paid_at", "event_id": "id"} | changes
    return app.source("payments", tg.Files("data"), **settings)


def finish(
    app: tg.App,
    stream: Stream,
    *,
    key: str = "merchant",
    window: Window | None = None,
    value: tg.Aggregate | None = None,
    **more: Any,
) -> list[Finding]:
    """Complete the app with an operator and a sink, and check it."""
    windowed = stream.key_by(key).window("revenue", window or tg.Tumbling("5m"), **more)
    app.sink("out", windowed.aggregate(total=value or tg.sum("amount")), tg.Memory())
    return check(app)


def texts(findings: list[Finding]) -> str:
    return "\n".join(f"{f.level}: {f.where}: {f.message} ({f.hint})" for f in findings)


def test_a_good_app_has_no_findings() -> None:
    app = tg.App("shop")
    assert finish(app, payments(app).where("amount > 0 AND merchant IS NOT NULL")) == []


@pytest.mark.parametrize(
    ("changes", "message", "hint"),
    [
        ({"event_time": "payed_at"}, "event_time: 'payed_at' is not a column here", "did you mean 'paid_at'?"),
        ({"event_id": "`number`"}, "event_id: 'number' is not a column here", "there are id, merchant"),
        ({"event_time": "ms"}, "event_time 'ms' is BIGINT in the contract, not TIMESTAMP", "timestamp_millis(ms)"),
    ],
)
def test_source_columns_are_checked(changes: dict[str, str], message: str, hint: str) -> None:
    app = tg.App("shop")
    (finding,) = finish(app, payments(app, **changes))
    assert finding.level == "error"
    assert finding.where == "source payments"
    assert message in finding.message
    assert hint in (finding.hint or "")


def test_column_names_are_compared_as_spark_does() -> None:
    app = tg.App("shop")
    assert finish(app, payments(app, event_time="PAID_AT").where("AMOUNT > 0")) == []


def test_keys_and_aggregates_are_checked() -> None:
    app = tg.App("shop")
    found = texts(finish(app, payments(app), key="merchnt", value=tg.avg("amuont")))
    assert "error: operator revenue: key merchnt: 'merchnt' is not a column here (did you mean 'merchant'?)" in found
    assert "'amuont' is not a column here (did you mean 'amount'?)" in found


def test_columns_are_followed_through_select_and_flat_map() -> None:
    app = tg.App("shop")
    stream = payments(app).flat_map(item="items").select("item", "merchant", cents="amount * 100")
    found = texts(finish(app, stream.where("`amount` > 0"), value=tg.sum("cents")))
    assert found == "error: operator revenue: where: 'amount' is not a column here (there are item, merchant, cents)"


def test_nothing_is_said_of_columns_after_a_transform() -> None:
    app = tg.App("shop")
    assert finish(app, payments(app).transform(lambda df: df), key="whatever", value=tg.sum("anything")) == []


def test_an_unknown_word_within_an_expression_is_only_a_warning() -> None:
    app = tg.App("shop")
    (finding,) = finish(app, payments(app).where("amuont > 0 AND merchant <> 'amuont'"))
    assert finding.level == "warning"
    assert finding.hint == "did you mean 'amount'?"


def test_what_goes_nowhere_is_an_error() -> None:
    app = tg.App("shop")
    payments(app)
    other = app.source("clicks", tg.Files("clicks"), contract="at TIMESTAMP, user STRING", event_time="at")
    other.key_by("user").window("visits", tg.Tumbling("1h")).aggregate(n=tg.count())
    found = texts(check(app))
    assert "error: source payments: no operator reads it" in found
    assert "error: operator visits: no sink takes its results" in found
    assert "has no source" in texts(check(tg.App("empty")))


def test_two_sinks_may_not_share_a_table() -> None:
    app = tg.App("shop")
    keyed = payments(app).key_by("merchant")
    one = keyed.window("one", tg.Tumbling("5m")).aggregate(n=tg.count())
    two = keyed.window("two", tg.Tumbling("1h")).aggregate(n=tg.count())
    app.sink("first", one, tg.SQLite("shop.db", table="revenue"))
    app.sink("second", two, tg.SQLite("./shop.db", table="Revenue"))
    app.sink("third", two, tg.SQLite("shop.db", table="other"))
    (finding,) = check(app)
    assert finding.where == "sink second"
    assert "the same place as sink first" in finding.message


@pytest.mark.parametrize(
    ("window", "more", "level", "message"),
    [
        (tg.Session("30m"), {}, "warning", "a key that never rests"),
        (tg.Session("30m", max_length="12h"), {}, None, ""),
        (tg.Tumbling("5m"), {"allowed_lateness": "forever"}, "warning", "no window ever closes"),
        (tg.Tumbling("5m"), {"allowed_lateness": "forever", "trigger": tg.FinalOnly()}, "error", "FinalOnly waits"),
        (tg.Tumbling("1m"), {"allowed_lateness": "7d"}, "warning", "10,080 complete windows per key"),
        (tg.Global(), {}, "warning", "only when the input ends"),
        (tg.Global(), {"trigger": tg.Count(10)}, None, ""),
        (tg.Hopping("1h", "1m"), {"trigger": tg.AfterWatermark(early=tg.Count(5))}, "warning", "60 pane rows per key"),
    ],
)
def test_windows_that_surprise_are_told(window: Window, more: dict[str, Any], level: str | None, message: str) -> None:
    app = tg.App("shop")
    found = finish(app, payments(app), window=window, **more)
    assert (found[0].level if found else None) == level
    assert message in texts(found)


def test_a_value_may_not_be_called_like_a_column_of_the_pane() -> None:
    app = tg.App("shop")
    result = payments(app).key_by("merchant").window("r", tg.Tumbling("5m")).aggregate(window_end=tg.count())
    app.sink("out", result, tg.Memory())
    assert "'window_end' is taken" in texts(check(app))


@pytest.mark.parametrize(
    "aggregate",
    [
        tg.count(),
        tg.count("amount"),
        tg.stddev("amount"),
        tg.first("merchant"),
        tg.collect("merchant"),
        tg.quantile("ms", 0.5),
        tg.approx_distinct("merchant"),
        tg.top_k("merchant", 3),
        tg.min("amount"),
        tg.sum("CASE WHEN ms > 10 THEN amount ELSE 0 END"),
        tg.max("aggregate(transform(items, x -> length(x)), 0, (total, y) -> total + y)"),
        tg.sum("CAST(date_trunc('MINUTE', paid_at) AS BIGINT)"),
        tg.max("paid_at - INTERVAL 5 MINUTES"),
    ],
    ids=str,
)
def test_the_aggregates_of_the_library_raise_no_false_alarm(aggregate: tg.Aggregate) -> None:
    app = tg.App("shop")
    assert finish(app, payments(app), value=aggregate) == []


def test_columns_in_sql_text() -> None:
    assert only_column(" `paid at` ") == "paid at"
    assert only_column("a + b") is None
    assert certain_columns("`a`.`b` + f(c) + g(d, e)") == {"a", "c"}
    assert possible_columns("x.y = 10L AND DATE'2026-01-01' < z -- not this") == {"x", "z"}
    assert possible_columns("name BETWEEN 'a' AND \"b\"") == {"name"}


def test_the_command_prints_findings_and_exits_with_1(cli: Cli, app_file: Path) -> None:
    assert cli("check", app_file).output == "shop: good\n"
    app_file.write_text(app_file.read_text().replace('"merchant"', '"mercant"'))
    done = cli("check", app_file)
    assert done.exit_code == 1
    assert "error: operator revenue: key mercant: 'mercant' is not a column here\n  hint: did you mean" in done.output
    assert done.output.endswith("shop: 1 error, 0 warnings\n")
    data = json.loads(cli("check", app_file, "--json").output)
    assert data["errors"] == 1
    assert data["findings"][0]["where"] == "operator revenue"
