"""`make bench`: Tidegate beside Spark's own stateful operators, as ratios inside one run.

Steady state comes late – the JIT needs 15 batches and more – so the first half of every run is left out. Rounds
alternate, and the median counts. Figures are of this machine and this run; `--quick` is a cold look, and says so.

    python bench/run.py [--quick] [--only tumbling,hopping,session,tiny] [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))

from contestants import Outcome, native, tidegate
from data import Shape

import tidegate as tg
from tidegate.runtime.session import make_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OUT = Path("bench-out")


def tumbling(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return rows.groupBy(F.window("ts", "1 minute"), "key").agg(F.count("*").alias("n"), F.sum("value").alias("total"))


def hopping(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    window = F.window("ts", "60 minutes", "1 minute")
    return rows.groupBy(window, "key").agg(F.count("*").alias("n"), F.sum("value").alias("total"))


def session(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    window = F.session_window("ts", "5 minutes")
    return rows.groupBy(window, "key").agg(F.count("*").alias("n"), F.sum("value").alias("total"))


def steady(outcome: Outcome) -> float:
    """The median batch of the second half."""
    return float(statistics.median(outcome.seconds[len(outcome.seconds) // 2 :]))


def compare(name: str, shape: Shape, window: Any, group: Any, providers: list[str], rounds: int) -> dict[str, Any]:
    """Alternate the contestants `rounds` times; medians, ratios, and what each of them lost."""
    spark = make_session("bench")
    data = shape.write(OUT / "data")
    times: dict[str, list[float]] = {"tidegate": [], **{provider: [] for provider in providers}}
    kept: dict[str, Any] = {}
    for number in range(rounds):
        ours = tidegate(spark, data, OUT / "tidegate", window, shape.batches)
        times["tidegate"].append(steady(ours))
        kept["tidegate"] = {"accepted": ours.accepted, "dead_lettered": ours.dead_lettered}
        print(f"  {name} round {number + 1}: tidegate {steady(ours):.2f} s", end="", flush=True)
        for provider in providers:
            theirs = native(spark, data, OUT / provider, group, provider, shape.batches)
            times[provider].append(steady(theirs))
            kept[provider] = {"emitted": theirs.accepted}
            print(f", {provider} {steady(theirs):.2f} s", end="", flush=True)
        print()
    medians = {who: statistics.median(seconds) for who, seconds in times.items()}
    ratios = {provider: round(medians[provider] / medians["tidegate"], 2) for provider in providers}
    return {
        "workload": name,
        "events": shape.batches * shape.rows,
        "seconds_per_batch": medians,
        "events_per_second": {who: round(shape.rows / value) for who, value in medians.items()},
        "times_faster_than": ratios,
        "events_by_fate": kept,
    }


def tiny(rounds: int) -> dict[str, Any]:
    """Batches of 200 events: what a batch costs that does next to nothing, with and without a window to fire."""
    spark = make_session("bench")
    data = Shape("tiny", 40, 200, 20, 30, 0.0).write(OUT / "data")
    runs = [tidegate(spark, data, OUT / "tidegate", tg.Tumbling("1m"), 40) for _ in range(rounds)]
    return {
        "workload": "tiny batch (200 events)",
        "seconds_per_batch": {"tidegate": statistics.median(map(steady, runs))},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few small batches: cold figures, minutes less")
    parser.add_argument("--only", default="tiny,tumbling,hopping")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    wanted = options.only.split(",")
    batches = 8 if options.quick else 30
    rounds = 1 if options.quick else options.rounds
    results = []
    if "tiny" in wanted:
        results.append(tiny(rounds))
    if "tumbling" in wanted:
        shape = Shape("tumbling", batches, 2_000_000, 100_000, 60)
        providers = ["memory", "rocksdb"]
        results.append(compare("tumbling 1 min", shape, tg.Tumbling("1m"), tumbling, providers, rounds))
    if "session" in wanted:
        shape = Shape("session", batches, 1_000_000, 100_000, 60)
        providers = ["memory", "rocksdb"]
        results.append(compare("session, gap 5 min", shape, tg.Session("5m"), session, providers, rounds))
    if "hopping" in wanted:
        shape = Shape("hopping", 6 if options.quick else 16, 500_000, 10_000, 60)
        results.append(compare("hopping 60 min by 1 min", shape, tg.Hopping("60m", "1m"), hopping, ["memory"], 1))
    OUT.mkdir(exist_ok=True)
    report = {"steady": not options.quick, "results": results}
    (OUT / "results.json").write_text(json.dumps(report, indent=2))
    print(f"\n{'cold figures (--quick)' if options.quick else 'steady state'}, seconds per micro-batch:")
    for result in results:
        seconds = ", ".join(f"{who} {value:.2f}" for who, value in result["seconds_per_batch"].items())
        ratios = ", ".join(f"{ratio}x {who}" for who, ratio in result.get("times_faster_than", {}).items())
        print(f"  {result['workload']:28} {seconds}   {ratios}")
        for who, fate in result.get("events_by_fate", {}).items():
            print(f"    {who}: " + ", ".join(f"{name} {number:,}" for name, number in fate.items()))
    print(f"written to {OUT / 'results.json'}")


if __name__ == "__main__":
    main()
