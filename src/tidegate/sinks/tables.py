"""What a sink that keeps a table checks before it writes there: that it is ours, that names can be told apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidegate.errors import SinkError
from tidegate.sinks.panes import PANE, WINDOW


def refuse_foreign_table(table: str, columns: Sequence[str], key: Sequence[str]) -> None:
    """A table that is there must have been made for this key; its key columns are those before the window."""
    if missing := [name for name in (*WINDOW, *PANE) if name not in columns]:
        raise SinkError(
            f"table {table!r} exists, but was not made by Tidegate: it has no column {', '.join(missing)}",
            hint="give the sink a table of its own",
        )
    there = columns[: columns.index(WINDOW[0])]
    if set(there) != set(key):
        raise SinkError(
            f"table {table!r} is keyed by ({', '.join(there)}), "
            f"but the pipeline's key is ({', '.join(key)}); rows would no longer find each other",
            hint="give the sink a new table, or drop this one and replay",
        )


def refuse_equal_names(table: str, names: Iterable[str], who: str) -> None:
    """Most databases do not tell upper from lower case in the names of columns."""
    names = list(names)
    if len({name.lower() for name in names}) < len(names):
        raise SinkError(
            f"table {table!r} would have two columns of the same name among {', '.join(names)}; "
            f"{who} does not tell upper from lower case",
            hint="rename one of them in the pipeline",
        )
