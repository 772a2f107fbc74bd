"""The oracles must notice what they are there for: a loss, a duplicate, a swap."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from tests.chaos.oracles import conservation, differences, last_panes, pane_order

COLUMNS = ("k", "n", "total")
ROWS: list[dict[str, Any]] = [
    {"k": "a", "n": 1, "total": Decimal("1.50")},
    {"k": "a", "n": 1, "total": Decimal("1.50")},
    {"k": "b", "n": 2, "total": None},
]


def test_equal_rows_in_any_order_and_of_either_sink_are_equal() -> None:
    as_text = [row | {"total": row["total"] and str(row["total"])} for row in ROWS]
    assert differences(ROWS, as_text[::-1], COLUMNS) == []
    instant = {"k": datetime(2024, 3, 1, 12, tzinfo=UTC), "n": [1, "x"], "total": 0.5}
    assert differences([instant], [{"k": "2024-03-01T12:00:00.000000Z", "n": '[1,"x"]', "total": 0.5}], COLUMNS) == []


def test_a_lost_row_is_noticed_even_when_another_like_it_is_there() -> None:
    assert differences(ROWS, ROWS[1:], COLUMNS) == ["missing 1×: {'k': 'a', 'n': 1, 'total': '1.50'}"]


def test_a_doubled_row_is_noticed() -> None:
    assert differences(ROWS, [*ROWS, ROWS[2]], COLUMNS) == ["too many 1×: {'k': 'b', 'n': 2, 'total': None}"]


def test_values_that_have_been_swapped_between_rows_are_noticed() -> None:
    swapped = [ROWS[0], ROWS[1] | {"n": 2}, ROWS[2] | {"n": 1}]
    assert len(differences(ROWS, swapped, COLUMNS)) == 4


def test_a_zero_is_not_a_null_and_a_number_is_not_a_text() -> None:
    for wrong in (0, "None", ""):
        assert len(differences([ROWS[2]], [ROWS[2] | {"total": wrong}], COLUMNS)) == 2
    assert len(differences([ROWS[0]], [ROWS[0] | {"n": "1"}], COLUMNS)) == 2


WRITTEN = [b'{"id": "e1"}', b'{"id": "e2"}', b'{"id": "e2"}', b"\xff broken", b'{"id": "e3"}']


def letter(raw: bytes, reason: str = "LATE") -> dict[str, Any]:
    return {"raw": raw, "reason": reason}


def test_conservation_holds_when_every_line_ends_once() -> None:
    letters = [letter(WRITTEN[2], "DUPLICATE"), letter(WRITTEN[3], "MALFORMED")]
    assert conservation(WRITTEN, ["e1", "e2", "e3"], letters, filtered=0) == []
    assert conservation(WRITTEN, ["e1", "e2"], letters, filtered=1) == []


def test_a_copy_of_a_partially_late_event_is_not_an_end_of_its_own() -> None:
    letters = [letter(WRITTEN[0], "PARTIALLY_LATE"), *(letter(raw) for raw in WRITTEN[1:])]
    assert conservation(WRITTEN, ["e1"], letters, filtered=0) == []


def test_a_lost_event_breaks_conservation() -> None:
    letters = [letter(WRITTEN[2]), letter(WRITTEN[3])]
    assert conservation(WRITTEN, ["e1", "e2"], letters, filtered=0) == ["1 lines ended nowhere, 0 were filtered: e3"]


def test_a_lost_dead_letter_breaks_conservation() -> None:
    assert conservation(WRITTEN, ["e1", "e2", "e3"], [letter(WRITTEN[2])], filtered=0) != []


def test_an_event_that_was_accepted_twice_breaks_conservation() -> None:
    letters = [letter(WRITTEN[2]), letter(WRITTEN[3])]
    assert conservation(WRITTEN, ["e1", "e1", "e2", "e3"], letters, filtered=0) == ["e1: written 1×, ended 2×"]


def test_a_loss_and_a_duplicate_do_not_cancel_out() -> None:
    """The count is right and everything else is wrong: the reason not to compare `distinct` or totals."""
    letters = [letter(WRITTEN[2]), letter(WRITTEN[3])]
    assert conservation(WRITTEN, ["e1", "e1", "e2"], letters, filtered=0) != []


def test_events_that_were_swapped_for_others_break_conservation() -> None:
    letters = [letter(WRITTEN[2]), letter(WRITTEN[3])]
    assert conservation(WRITTEN, ["e1", "e2", "e4"], letters, filtered=0) != []


def pane(sequence: int, index: int, change: str = "upsert", n: int = 0) -> dict[str, Any]:
    return {"k": "a", "window_start": None, "sequence": sequence, "pane_index": index, "pane_change": change, "n": n}


def test_panes_that_follow_each_other_are_in_order() -> None:
    assert pane_order([pane(4, 1), pane(2, 0), pane(4, 0, "retract"), pane(9, 2)], ["k"]) == []


def test_a_missing_a_doubled_and_a_swapped_pane_are_noticed() -> None:
    assert pane_order([pane(2, 0), pane(4, 2)], ["k"]) == ["{'k': 'a', 'window_start': None}: panes [0, 2]"]
    assert pane_order([pane(2, 0), pane(4, 0)], ["k"]) != []
    assert pane_order([pane(2, 1), pane(4, 0)], ["k"]) != []


def test_the_last_pane_of_a_window_is_what_counts() -> None:
    assert last_panes([pane(9, 1, n=7), pane(2, 0, n=5)], ["k"]) == [pane(9, 1, n=7)]
