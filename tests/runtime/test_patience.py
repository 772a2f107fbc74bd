"""A server that is away is waited for; anything else is raised at once."""

from __future__ import annotations

import threading

import pytest

from tidegate.errors import SinkError, Unavailable
from tidegate.patience import patiently


def failing(*errors: Exception) -> tuple[list[Exception], object]:
    left = list(errors)

    def action() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return left, action


def test_a_server_that_comes_back_is_waited_for_and_both_are_said() -> None:
    said: list[str] = []
    _, action = failing(Unavailable("the server is away"))
    assert patiently(action, said.append) == "done"  # type: ignore[arg-type]
    assert said[0] == "waiting: the server is away"
    assert said[1].startswith("going on after")


def test_the_same_trouble_is_said_once() -> None:
    said: list[str] = []
    _, action = failing(Unavailable("away"), Unavailable("away"))
    patiently(action, said.append, longest_wait=0.01)  # type: ignore[arg-type]
    assert [line for line in said if line.startswith("waiting")] == ["waiting: away"]


def test_what_waiting_does_not_mend_is_raised_at_once() -> None:
    left, action = failing(SinkError("no such table"), SinkError("again"))
    with pytest.raises(SinkError, match="no such table"):
        patiently(action, lambda _: None)  # type: ignore[arg-type]
    assert len(left) == 1


def test_who_is_told_to_stop_waits_no_longer() -> None:
    stop = threading.Event()
    stop.set()
    _, action = failing(Unavailable("away"), Unavailable("away"))
    with pytest.raises(Unavailable, match="away"):
        patiently(action, lambda _: None, stop)  # type: ignore[arg-type]


def test_work_that_does_not_fail_says_nothing() -> None:
    said: list[str] = []
    assert patiently(lambda: 7, said.append) == 7
    assert said == []
