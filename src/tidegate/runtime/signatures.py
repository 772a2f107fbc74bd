"""Signatures: what an operator's state was made by, so that a changed definition is noticed on resume.

A change is resumed when it is sound – an aggregate added (NULL for windows that have older slices) or dropped, a
shorter allowed lateness – and refused otherwise, with both signatures and the ways out. A source that joins a union,
or leaves it, is a changed path: refused."""

from __future__ import annotations

from typing import Any

from tidegate.errors import CheckpointError
from tidegate.stream import WindowNode


def signature(node: WindowNode, sequence: int) -> dict[str, Any]:
    """What the state of `node` depends on. `since` is the record from which an aggregate has been folded."""
    branches = sorted(node.branches, key=lambda branch: branch.source.name)  # a union is the same in any order
    each = [
        {
            "source": branch.source.name,
            "event_time": branch.source.event_time,
            "steps": [str(step) for step in branch.steps],
        }
        for branch in branches
    ]
    return {
        **(each[0] if len(each) == 1 else {what: [branch[what] for branch in each] for what in each[0]}),
        "keys": [list(pair) for pair in node.keys],
        "window": str(node.window),
        "trigger": str(node.trigger),
        "accumulation": node.accumulation,
        "on_time": node.on_time,
        "allowed_lateness": node.allowed_lateness,
        "aggregates": {
            alias: {"partial": [list(pair) for pair in aggregate.partial], "since": sequence}
            for alias, aggregate in node.aggregates
        },
    }


_MUST_MATCH = ("source", "event_time", "steps", "keys", "window", "trigger", "accumulation", "on_time")


def reconcile(node: WindowNode, stored: dict[str, Any] | None, sequence: int) -> dict[str, Any]:
    """The signature to go on with, or a refusal."""
    fresh = signature(node, sequence)
    if stored is None:
        return fresh | {"aggregates": {a: v | {"since": 0} for a, v in fresh["aggregates"].items()}}
    changed = [f"{what}: {stored[what]!r} → {fresh[what]!r}" for what in _MUST_MATCH if stored[what] != fresh[what]]
    if fresh["allowed_lateness"] > stored["allowed_lateness"]:
        changed.append(
            f"allowed_lateness: {stored['allowed_lateness']} → {fresh['allowed_lateness']} µs (closed windows are gone)"
        )
    for alias, value in fresh["aggregates"].items():
        before = stored["aggregates"].get(alias)
        if before is None:
            continue
        if before["partial"] != value["partial"]:
            changed.append(f"aggregate {alias}: {before['partial']} → {value['partial']}")
        value["since"] = before["since"]
    if changed:
        raise CheckpointError(
            f"operator {node.name!r} has state of another definition:\n  " + "\n  ".join(changed),
            hint=(
                f"rename the operator (its state starts empty), or replay into a new --checkpoint, or restore the old "
                f"definition of {node.name!r}"
            ),
        )
    return fresh


def added_aggregates(stored: dict[str, Any]) -> dict[str, int]:
    """Aggregates that were added to state that already existed: alias → the first record that has them."""
    return {alias: value["since"] for alias, value in stored["aggregates"].items() if value["since"] > 0}
