"""Which expected pane is which pane? A matching, because an expectation may fit several.

Taking the first fit would fail a right transcript: of `[{window: [0, 10]}, {values: [1]}]` the first
may take the pane that the second needs. Panes of one window must come in the order in which they are
expected; across windows order does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

from tidegate.testing.outcomes import EventOut, PaneOut
from tidegate.testing.steps import Expected

SEARCH_LIMIT = 20_000
"""Steps after which the search keeps the best matching so far; only contrived transcripts come near."""


def fits(expected: Expected, came: PaneOut | EventOut) -> bool:
    """Whether everything that is expected is so; what is not given is not compared."""
    return all(_equal(value, getattr(came, name)) for name, value in expected.fields)


def _equal(expected: Any, came: Any) -> bool:
    if isinstance(expected, tuple) and isinstance(came, tuple):
        return len(expected) == len(came) and all(map(_equal, expected, came))
    if isinstance(expected, float) or isinstance(came, float):
        # A sum of floating-point numbers depends on the order in which an executor adds them.
        return came is not None and math.isclose(expected, came, rel_tol=1e-9, abs_tol=1e-9)
    return bool(expected == came)


def match_in_order(edges: Sequence[Sequence[int]], groups: Sequence[Hashable]) -> list[int | None]:
    """For each expectation the position of its partner, or `None`; as many partners as possible.

    `edges[i]` are the positions that expectation i fits; partners in the same group must ascend.
    """
    unordered = _match(edges)
    if _is_in_order(unordered, groups):
        return unordered
    most = sum(partner is not None for partner in unordered)
    return _search(edges, groups, most)


def _match(edges: Sequence[Sequence[int]]) -> list[int | None]:
    """A largest matching without regard to order, by augmenting paths."""
    owner: dict[int, int] = {}

    def augment(i: int, seen: set[int]) -> bool:
        for position in edges[i]:
            if position not in seen:
                seen.add(position)
                if position not in owner or augment(owner[position], seen):
                    owner[position] = i
                    return True
        return False

    for i in range(len(edges)):
        augment(i, set())
    partner = {i: position for position, i in owner.items()}
    return [partner.get(i) for i in range(len(edges))]


def _is_in_order(matched: Sequence[int | None], groups: Sequence[Hashable]) -> bool:
    last: dict[Hashable, int] = {}
    for position in matched:
        if position is not None:
            if position < last.get(groups[position], -1):
                return False
            last[groups[position]] = position
    return True


def _search(edges: Sequence[Sequence[int]], groups: Sequence[Hashable], most: int) -> list[int | None]:
    """The largest matching in order, by trying; `most` is a size that none can exceed."""
    best: list[int | None] = [None] * len(edges)
    best_size, steps = 0, 0
    current: list[int | None] = []

    def go(i: int, last: dict[Hashable, int], size: int) -> None:
        nonlocal best, best_size, steps
        steps += 1
        if size > best_size:
            best, best_size = current + [None] * (len(edges) - i), size
        if i == len(edges) or best_size == most or size + len(edges) - i <= best_size or steps > SEARCH_LIMIT:
            return
        for position in edges[i]:
            if position > last.get(groups[position], -1):
                current.append(position)
                go(i + 1, {**last, groups[position]: position}, size + 1)
                current.pop()
        current.append(None)
        go(i + 1, last, size)
        current.pop()

    go(0, {}, 0)
    return best
