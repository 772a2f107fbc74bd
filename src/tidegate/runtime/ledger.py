"""The ledger: where every event that was read ended up, with both sides counted independently.

One side is counted where the events come in (by the query's own metrics), the other where they ended
(rows of the staged files: folded counts, dead letters). Three lines must balance for every batch:

- per source:    ``read = passed + skipped + duplicates + dead letters`` (skipped: what the source was told to leave
  out, such as the tombstones of a topic)
- per path:      ``passed = filtered + in`` (with a flat_map: ``passed = filtered + unnested``,
  ``elements = dropped + in``)
- per operator:  ``in = accepted + late`` (and ``+ duplicates`` that a session found among events it had to judge first)

An operator that is fed by results which may be corrected has a line for them: what it holds after the batch is
``before + came − taken back − over``.

If one does not, the batch fails loudly and nothing is decided.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tidegate.errors import BalanceError


@dataclass
class SourceLine:
    """What became of a source's events."""

    read: int = 0
    passed: int = 0
    duplicates: int = 0
    dead: dict[str, int] = field(default_factory=dict)
    skipped: int = 0


@dataclass
class PathLine:
    """What became of the passed events on their way to an operator."""

    passed: int = 0
    filtered: int = 0
    unnested: int = 0
    elements: int = 0
    dropped: int = 0
    arrived: int = 0
    has_flat_map: bool = False


@dataclass
class OperatorLine:
    """What an operator did with what reached it."""

    arrived: int = 0
    accepted: int = 0
    late: int = 0
    partially_late: int = 0
    duplicates: int = 0
    panes: dict[str, int] = field(default_factory=dict)


@dataclass
class PaneLine:
    """The results of another operator that an operator holds, because they may yet be corrected."""

    before: int = 0
    came: int = 0
    taken_back: int = 0
    over: int = 0
    after: int = 0

    @property
    def difference(self) -> int:
        return self.before + self.came - self.taken_back - self.over - self.after


def path_name(operator: str, source: str, *, union: bool) -> str:
    """How the line of a path is called: like its operator, and where several lead there, by its source too."""
    return f"{operator} from {source}" if union else operator


@dataclass
class Ledger:
    """The lines of one batch, or of all batches so far."""

    sources: dict[str, SourceLine] = field(default_factory=dict)
    paths: dict[str, PathLine] = field(default_factory=dict)
    operators: dict[str, OperatorLine] = field(default_factory=dict)
    panes: dict[str, PaneLine] = field(default_factory=dict)

    def differences(self) -> list[str]:
        """The lines that do not balance, in words; empty when every event is accounted for."""
        found = []
        for name, line in self.sources.items():
            right = line.passed + line.skipped + line.duplicates + sum(line.dead.values())
            if line.read != right:
                found.append(
                    f"source {name}: read {line.read} but passed {line.passed} + skipped {line.skipped}"
                    f" + duplicates {line.duplicates}"
                    f" + dead letters {sum(line.dead.values())} = {right}"
                )
        for name, path in self.paths.items():
            if path.has_flat_map:
                if path.passed != path.filtered + path.unnested:
                    found.append(
                        f"path to {name}: passed {path.passed} but filtered {path.filtered} + unnested {path.unnested}"
                    )
                if path.elements != path.dropped + path.arrived:
                    found.append(
                        f"path to {name}: elements {path.elements} but dropped {path.dropped} + in {path.arrived}"
                    )
            elif path.passed != path.filtered + path.arrived:
                found.append(f"path to {name}: passed {path.passed} but filtered {path.filtered} + in {path.arrived}")
        for name, operator in self.operators.items():
            if operator.arrived != operator.accepted + operator.late + operator.duplicates:
                found.append(
                    f"operator {name}: in {operator.arrived} but accepted {operator.accepted} + late {operator.late}"
                    f" + duplicates {operator.duplicates}"
                )
        for name, line_ in self.panes.items():
            if line_.difference:
                found.append(
                    f"operator {name}: held {line_.before} + came {line_.came} − taken back {line_.taken_back}"
                    f" − over {line_.over}, but holds {line_.after}"
                )
        return found

    def unaccounted(self) -> int:
        """How many events the lines cannot explain; 0 when it balances."""
        total = 0
        for line in self.sources.values():
            total += abs(line.read - line.passed - line.skipped - line.duplicates - sum(line.dead.values()))
        for path in self.paths.values():
            if path.has_flat_map:
                total += abs(path.passed - path.filtered - path.unnested)
                total += abs(path.elements - path.dropped - path.arrived)
            else:
                total += abs(path.passed - path.filtered - path.arrived)
        for operator in self.operators.values():
            total += abs(operator.arrived - operator.accepted - operator.late - operator.duplicates)
        return total + sum(abs(line.difference) for line in self.panes.values())

    def balance(self) -> None:
        """Raise BalanceError unless every line balances."""
        differences = self.differences()
        if differences:
            raise BalanceError(
                "the ledger of this batch does not balance; nothing was decided:\n  " + "\n  ".join(differences),
                hint="a transform() must keep `_tg` and each row at most once; otherwise this is a bug in Tidegate",
            )

    def plus(self, other: Ledger) -> Ledger:
        """The sum of two ledgers, line by line."""
        both = Ledger.from_json(_add(self.to_json(), other.to_json()))
        # What is held is no flow: it begins with the first batch and ends with the last.
        for name, line in both.panes.items():
            line.before = (self.panes.get(name) or other.panes[name]).before
            line.after = (other.panes.get(name) or self.panes[name]).after
        return both

    def filtered(self, operator: str) -> int:
        """How many events were filtered on all paths to an operator."""
        paths = self.paths.items()
        return sum(line.filtered for name, line in paths if name == operator or name.startswith(f"{operator} from "))

    def dead_letters(self) -> dict[str, int]:
        """Dead letters by reason, over all sources and operators; LATE is the operators' word."""
        reasons: dict[str, int] = {}
        for line in self.sources.values():
            for reason, number in line.dead.items():
                reasons[reason] = reasons.get(reason, 0) + number
        late = sum(operator.late for operator in self.operators.values())
        return reasons | ({"LATE": late} if late else {})

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Ledger:
        return Ledger(
            sources={name: SourceLine(**line) for name, line in data["sources"].items()},
            paths={name: PathLine(**line) for name, line in data["paths"].items()},
            operators={name: OperatorLine(**line) for name, line in data["operators"].items()},
            panes={name: PaneLine(**line) for name, line in data.get("panes", {}).items()},
        )


def _add(left: Any, right: Any) -> Any:
    if isinstance(left, bool) or isinstance(right, bool):
        return left or right
    if isinstance(left, dict):
        return {
            name: _add(left[name], right[name]) if name in left and name in right else left.get(name, right.get(name))
            for name in {**left, **right}
        }
    return left + right
