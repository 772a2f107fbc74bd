"""Chain: the panes of one operator as the rows of the next.

A pane is an event at the last instant of its window. Its envelope says which operator it came from; its columns are
the key, the bounds of the window and the values.

Panes that are final simply arrive. Panes that may be corrected are held: per key and window the current one, until the
last window of the next operator that it belongs to has closed. What comes of them is folded anew when it is due, so
no aggregate needs an inverse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.operators.route import ENVELOPE, Rows, record_columns
from tidegate.operators.sql import Relation, Thresholds, quote, select, text
from tidegate.sources.base import ONLY_PARTITION
from tidegate.stream import PaneSource

if TYPE_CHECKING:
    from collections.abc import Mapping

LAST_INSTANT = "(unix_micros(window_end) - 1L)"


def pane_ddl(source: PaneSource, types: Mapping[str, str]) -> str:
    """The columns of staged pane files."""
    node = source.operator
    known = {name: types[name] for name in (*node.key_names, *node.value_names)}
    known |= dict.fromkeys(("window_start", "window_end"), "TIMESTAMP")
    shown = [f"{quote(name)} {known[name]}" for name in source.columns]
    return ", ".join([*shown, "pane_index INT", "pane_timing STRING", "pane_final BOOLEAN", "pane_change STRING"])


def rows_of_panes(source: PaneSource, panes: Relation, clock: int) -> Rows:
    """Panes (the current ones, nothing that was taken back) with an envelope, as a source's rows have one."""
    names, records = list(map(quote, source.columns)), record_columns(source)
    numbered = select(["monotonically_increasing_id() AS _row", *names], panes)
    envelope = dict.fromkeys(ENVELOPE, "CAST(NULL AS STRING)") | {
        "_tg_partition": text(ONLY_PARTITION),
        "_tg_origin": text(source.name),
        "_tg_position": "_row",
        "_tg_row": "_row",
        "_tg_arrival": Thresholds([clock], "_row")[0],
        "_tg_raw": "CAST(NULL AS BINARY)",
        "_tg_time": LAST_INSTANT,
    }
    columns = [f"{envelope[name]} AS {name}" for name in ENVELOPE]
    copies = [f"{name} AS {record}" for name, record in zip(names, records, strict=True)]
    return Rows(select([*columns, *copies, "true AS _alive", *names], numbered), source.columns, (*ENVELOPE, *records))


def current(source: PaneSource, held: Relation | None, changes: Relation | None) -> Relation:
    """The panes that stand after a batch: those held, without what the changes replace or take back, and the new."""
    names = list(map(quote, source.columns))
    if changes is None:
        assert held is not None
        return select(names, held)
    new = select(names, changes, "pane_change = 'upsert'")
    if held is None:
        return new
    identity = [*map(quote, source.operator.key_names), "window_start", "window_end"]
    same = " AND ".join(f"l.{name} <=> r.{name}" for name in identity)
    gone = select(identity, changes)
    kept = f"SELECT {', '.join(f'l.{name}' for name in names)} FROM ({select(names, held)}) l"
    return f"{kept} LEFT ANTI JOIN ({gone}) r ON {same} UNION ALL {new}"
