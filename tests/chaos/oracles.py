"""The oracles of the chaos tests: what a disturbed run must show, told in plain Python.

Three of them, always the same: conservation of event ids as multisets; equality of every sink with an undisturbed
run, row for row; and per key and window panes that follow each other without a gap. Each returns sentences, one per
thing that is wrong, and none when all is well. They have tests of their own (`test_oracles.py`): a loss, a duplicate,
a swap must not get past them.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

Row = Mapping[str, Any]


def plain(value: Any) -> Any:
    """A value as it can be compared and hashed, the same from SQLite's text and from Parquet's types."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, list):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    return str(value)


def _key(row: Row, columns: Sequence[str]) -> tuple[tuple[str, Any], ...]:
    return tuple((column, plain(row[column])) for column in columns)


def differences(expected: Iterable[Row], actual: Iterable[Row], columns: Sequence[str]) -> list[str]:
    """Compare rows as multisets, on these columns."""
    wanted = Counter(_key(row, columns) for row in expected)
    found = Counter(_key(row, columns) for row in actual)
    lost = [f"missing {count}×: {dict(row)}" for row, count in (wanted - found).items()]
    extra = [f"too many {count}×: {dict(row)}" for row, count in (found - wanted).items()]
    return lost + extra


def conservation(written: Iterable[bytes], accepted: Iterable[str], letters: Iterable[Row], filtered: int) -> list[str]:
    """Every line that was written is accepted, or a dead letter, exactly once – or among so many that were filtered.

    Lines are told apart by the event id in them, and by their bytes when they have none.
    """
    lines = Counter(name_of(line) for line in written)
    ends = Counter(accepted)
    for letter in letters:
        if letter["reason"] != "PARTIALLY_LATE":
            ends[name_of(letter["raw"])] += 1
    doubled = [f"{name}: written {lines[name]}×, ended {ends[name]}×" for name in ends - lines]
    unexplained = lines - ends
    if unexplained.total() != filtered:
        some = ", ".join(list(unexplained)[:5])
        return [*doubled, f"{unexplained.total()} lines ended nowhere, {filtered} were filtered: {some}"]
    return doubled


def name_of(raw: bytes) -> str:
    try:
        return str(json.loads(raw)["id"])
    except (ValueError, KeyError, TypeError):
        return repr(raw)


def pane_order(log: Iterable[Row], key: Sequence[str]) -> list[str]:
    """Per key and window: panes numbered 0, 1, 2 … in the order of their records."""
    panes: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for row in log:
        if row["pane_change"] == "upsert":
            panes[_key(row, (*key, "window_start"))].append((row["sequence"], row["pane_index"]))
    return [
        f"{dict(window)}: panes {[index for _, index in sorted(found)]}"
        for window, found in panes.items()
        if [index for _, index in sorted(found)] != list(range(len(found)))
    ]


def last_panes(log: Iterable[Row], key: Sequence[str]) -> list[Row]:
    """What an upsert sink must show, by the change log."""
    last: dict[Any, Row] = {}
    for row in sorted(log, key=lambda row: (row["sequence"], row["pane_index"])):
        last[_key(row, (*key, "window_start"))] = row
    return list(last.values())
