"""What the demo found, as numbers and as a table for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from tidegate.demo.truth import Shortfall


@dataclass(frozen=True)
class DemoReport:
    """Where every event went, and how both results stand against the truth."""

    lines: int
    read: int
    accepted: int
    accepted_late: int
    late_panes: int
    filtered: int
    duplicates: int
    dead: Mapping[str, int]
    unaccounted: int
    orders: int
    revenue: Decimal
    windows: int
    tidegate: Shortfall
    """Before the dead letters are counted back in."""
    missed: int
    """LATE dead letters that are orders; the other LATE ones repeat an order that was accepted."""
    equals_truth: bool
    plain: Shortfall
    plain_admitted: int
    seconds: Mapping[str, float]

    @property
    def balances(self) -> bool:
        """Whether what was read is what was written, and all of it is somewhere."""
        somewhere = self.accepted + self.filtered + self.duplicates + sum(self.dead.values())
        return self.lines == self.read == somewhere and self.unaccounted == 0


def ledger_table(report: DemoReport) -> str:
    """Where the events went."""
    dead = sorted(report.dead.items(), key=lambda item: -item[1])
    rows = [
        ("read", report.read),
        ("accepted", report.accepted),
        (f"  of these late, correcting {report.late_panes:,} results", report.accepted_late),
        ("filtered by the query (not captured)", report.filtered),
        ("duplicates", report.duplicates),
        ("dead letters", sum(report.dead.values())),
        *((f"  {reason}", number) for reason, number in dead),
        ("unaccounted", report.unaccounted),
    ]
    return _table(("where every event went", "events"), [(name, f"{number:,}") for name, number in rows])


def truth_table(report: DemoReport) -> str:
    """Both results beside the truth."""
    ours, plain = report.tidegate, report.plain

    def orders(short: Shortfall) -> str:
        return f"{report.orders - short.orders + short.surplus:,}"

    rows = [
        (f"orders (truth: {report.orders:,})", orders(ours), orders(plain)),
        ("orders missing from the result", f"{ours.orders:,}", f"{plain.orders:,}"),
        ("revenue missing", f"{ours.revenue:,}", f"{plain.revenue:,}"),
        (f"results that are too low, of {report.windows:,}", f"{ours.wrong:,}", f"{plain.wrong:,}"),
        ("missing orders kept as dead letters", f"{report.missed:,}", "0"),
        ("dropped rows that Spark's own counter admits", "–", f"{report.plain_admitted:,}"),
        ("result + dead letters = truth, to the cent", "yes" if report.equals_truth else "NO", "–"),
    ]
    if ours.surplus or plain.surplus:
        rows.insert(2, ("orders too many in the result", f"{ours.surplus:,}", f"{plain.surplus:,}"))
    return _table(("the result against the truth", "Tidegate", "plain Spark"), rows)


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns, numbers to the right."""
    widths = [max(len(row[i]) for row in (headers, *rows)) for i in range(len(headers))]

    def line(cells: Sequence[str]) -> str:
        first, *others = cells
        placed = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
        return "  ".join(placed).rstrip()

    rule = "─" * len(line(headers))
    return "\n".join([line(headers), rule, *map(line, rows)])
