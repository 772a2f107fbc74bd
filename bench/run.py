"""`make bench`: Tidegate beside Spark's own stateful operators, as ratios inside one run.

Steady state comes late – the JIT needs 15 batches and more, and a batch of ours still gains at the 40th – so a run has
80, or 40 where a batch takes long, and the first half is left out; the JSON has the course, ten batches by ten.
Each run has a process of its own, rounds alternate, and the median counts. `--ours` adds Spark's operators in a session
with our settings, `--rows` RocksDB with rows tracked, as Spark does by default. Figures are of this machine and this
run; `--quick` is a cold look, and says so.

    python bench/run.py [--only tumbling,hopping,session,visits,retraction,tiny] [--rounds N] [--batches N] [--ours]
                        [--rows]

`session` has 100 K keys that never rest: every session stays open, and grows. `visits` has keys that come and go:
a session ends for each one that begins.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))

from contestants import Outcome, apart, native, tidegate
from data import Shape

import tidegate as tg
from tidegate.triggers import Accumulation

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


def by_tens(outcome: Outcome) -> list[float]:
    """The median of each ten batches, from the first on: where the steady state begins."""
    seconds = outcome.seconds
    return [round(statistics.median(seconds[at : at + 10]), 2) for at in range(0, len(seconds), 10)]


def compare(name: str, shape: Shape, window: Any, group: Any, providers: list[str], rounds: int) -> dict[str, Any]:
    """Alternate the contestants `rounds` times; medians, ratios, and what each of them lost."""
    data = shape.write(OUT / "data")
    times: dict[str, list[float]] = {"tidegate": [], **{provider: [] for provider in providers}}
    course: dict[str, list[list[float]]] = {who: [] for who in times}
    kept: dict[str, Any] = {}
    for number in range(rounds):
        ours = apart(tidegate, data, OUT / "tidegate", window, shape.batches)
        times["tidegate"].append(steady(ours))
        course["tidegate"].append(by_tens(ours))
        kept["tidegate"] = {"accepted": ours.accepted, "dead_lettered": ours.dead_lettered}
        print(f"  {name} round {number + 1}: tidegate {steady(ours):.2f} s", end="", flush=True)
        for provider in providers:
            theirs = apart(native, data, OUT / provider, group, provider, shape.batches)
            times[provider].append(steady(theirs))
            course[provider].append(by_tens(theirs))
            kept[provider] = {"emitted": theirs.accepted}
            print(f", {provider} {steady(theirs):.2f} s", end="", flush=True)
        print()
    medians = {who: statistics.median(seconds) for who, seconds in times.items()}
    ratios = {provider: round(medians[provider] / medians["tidegate"], 2) for provider in providers}
    return {
        "workload": name,
        "events": shape.batches * shape.rows,
        "seconds_per_batch": medians,
        "rounds": times,
        "rounds_by_ten_batches": course,
        "events_per_second": {who: round(shape.rows / value) for who, value in medians.items()},
        "times_faster_than": ratios,
        "events_by_fate": kept,
    }


def tiny(rounds: int) -> dict[str, Any]:
    """Batches of 200 events: what a batch costs that does next to nothing, with and without a window to fire."""
    data = Shape("tiny", 40, 200, 20, 30, 0.0).write(OUT / "data")
    runs = [apart(tidegate, data, OUT / "tidegate", tg.Tumbling("1m"), 40) for _ in range(rounds)]
    return {
        "workload": "tiny batch (200 events)",
        "seconds_per_batch": {"tidegate": statistics.median(map(steady, runs))},
    }


CORRECTIONS: dict[str, tuple[str, Accumulation]] = {
    "late events refused": ("0s", "accumulating"),
    "late panes": ("12m", "accumulating"),
    "late panes, retracting": ("12m", "retracting"),
}


def corrections(name: str, shape: Shape, window: Any, rounds: int) -> dict[str, Any]:
    """What late panes cost, and what retraction adds: the same query and events, with 2 % that come late."""
    data = shape.write(OUT / "data")
    times: dict[str, list[float]] = {mode: [] for mode in CORRECTIONS}
    panes: dict[str, dict[str, int]] = {}
    for number in range(rounds):
        print(f"  {name} round {number + 1}:", end="", flush=True)
        for mode, (lateness, accumulation) in CORRECTIONS.items():
            ours = apart(tidegate, data, OUT / "tidegate", window, shape.batches, lateness, accumulation)
            times[mode].append(steady(ours))
            panes[mode] = {"dead_lettered": ours.dead_lettered, **ours.panes}
            print(f" {mode} {steady(ours):.2f} s;", end="", flush=True)
        print()
    medians = {mode: statistics.median(seconds) for mode, seconds in times.items()}
    refused, late, retracting = medians.values()
    return {
        "workload": name,
        "events": shape.batches * shape.rows,
        "seconds_per_batch": medians,
        "late_panes_add_percent": round(100 * (late / refused - 1)),
        "retraction_adds_percent": round(100 * (retracting / late - 1)),
        "events_by_fate": panes,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few small batches: cold figures, minutes less")
    parser.add_argument("--only", default="tiny,tumbling,hopping")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, help="of each run; if not given, 80 for tumbling windows, else 40")
    parser.add_argument("--ours", action="store_true", help="Spark's operators in our own session, too")
    parser.add_argument("--rows", action="store_true", help="RocksDB that tracks rows, as Spark ships it, too")
    options = parser.parse_args()
    wanted = options.only.split(",")
    batches, fast = (8, 8) if options.quick else (options.batches or 40, options.batches or 80)
    rounds = 1 if options.quick else options.rounds
    memory, rocksdb = ([kind, f"{kind}_ours"] if options.ours else [kind] for kind in ("memory", "rocksdb"))
    rocksdb += ["rocksdb_rows"] if options.rows else []
    results = []
    if "tiny" in wanted:
        results.append(tiny(rounds))
    if "tumbling" in wanted:
        shape = Shape("tumbling", fast, 2_000_000, 100_000, 130)  # 276 K groups in a batch that are not too late
        results.append(compare("tumbling 1 min", shape, tg.Tumbling("1m"), tumbling, [*memory, *rocksdb], rounds))
    if "session" in wanted:
        shape = Shape("session", batches, 1_000_000, 100_000, 60)
        results.append(compare("session, gap 5 min", shape, tg.Session("5m"), session, memory, rounds))
    if "visits" in wanted:
        shape = Shape("visits", batches, 1_000_000, 100_000, 60, turnover=10_000)
        results.append(compare("session, keys come and go", shape, tg.Session("5m"), session, memory, rounds))
    if "retraction" in wanted:
        fixed = Shape("tumbling", batches, 500_000, 50_000, 60)
        results.append(corrections("tumbling, corrected", fixed, tg.Tumbling("1m"), rounds))
        visits = Shape("visits", batches, 500_000, 50_000, 60, turnover=5_000)
        results.append(corrections("session, corrected", visits, tg.Session("5m"), rounds))
    if "hopping" in wanted:
        shape = Shape("hopping", batches, 1_000_000, 10_000, 60)
        results.append(compare("hopping 60 min by 1 min", shape, tg.Hopping("60m", "1m"), hopping, memory, 1))
    OUT.mkdir(exist_ok=True)
    report = {"steady": not options.quick, "results": results}
    (OUT / "results.json").write_text(json.dumps(report, indent=2))
    print(f"\n{'cold figures (--quick)' if options.quick else 'steady state'}, seconds per micro-batch:")
    for result in results:
        seconds = ", ".join(f"{who} {value:.2f}" for who, value in result["seconds_per_batch"].items())
        ratios = ", ".join(f"{ratio}x {who}" for who, ratio in result.get("times_faster_than", {}).items())
        print(f"  {result['workload']:28} {seconds}   {ratios}")
        if "retraction_adds_percent" in result:
            added = (result["late_panes_add_percent"], result["retraction_adds_percent"])
            print(f"    late panes add {added[0]} % to a batch, retraction {added[1]} % to that")
        for who, fate in result.get("events_by_fate", {}).items():
            print(f"    {who}: " + ", ".join(f"{name} {number:,}" for name, number in fate.items()))
    print(f"written to {OUT / 'results.json'}")


if __name__ == "__main__":
    main()
