"""Open windows: one row per window that has elements and is not closed, asked once in every batch whether it speaks.

The default trigger on fixed windows needs nothing of this: a window speaks when it is complete, and its slices are
enough (`fire`). Every other trigger asks what a window remembers, and a session does not even know its own bounds
before its events have come. So these operators keep a table of what is open. A batch

1. *gathers* the open rows and its own slices into windows (`gather_fixed`, `gather_rolling`, `session`, `session_cap`),
2. *asks* the trigger, per window,
3. *tells* what follows: panes, what they take back, the rows that stay open, and (sessions) the stretches of time
   whose events turned out late –

all in one relation, told apart by ``_kind``: ``pane``, ``open`` or ``late``.

A window's row holds its merged partials – of everything so far, or in discarding mode of what no pane has shown –,
the number of elements no pane has shown (``_news``), the index of its next pane, what it has said and not taken back
(``_said``), and what its trigger remembers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tidegate.operators.assign import Assignment
from tidegate.operators.fire import Merging, merged_partials, windows_of
from tidegate.operators.fold import key_columns
from tidegate.operators.rolling import rolling_windows
from tidegate.operators.sql import END_OF_TIME, Relation, Thresholds, quote, select, user
from tidegate.operators.trigger import Question, Turn, question
from tidegate.triggers import Default, FinalOnly
from tidegate.windows import Rolling, Session

if TYPE_CHECKING:
    from tidegate.stream import WindowNode


def needs_open_state(node: WindowNode) -> bool:
    """Whether an operator keeps a table of open windows; the others find all they need in slices and panes."""
    if isinstance(node.window, Session):
        return True
    if isinstance(node.window, Rolling) and isinstance(node.trigger, Default) and node.allowed_lateness > 0:
        return True  # a late event is a new window, and news for those that reach back to it
    return not isinstance(node.trigger, Default | FinalOnly) or node.on_time != "always"


@dataclass(frozen=True)
class Shape:
    """What an operator keeps per open window: the columns of its table, and how rows of one window become one."""

    node: WindowNode
    merging: Merging
    values: Mapping[str, str]
    """The type of each finished value."""

    @cached_property
    def question(self) -> Question:
        return question(self.node.trigger, self.node.on_time)

    @property
    def session(self) -> Session | None:
        return self.node.window if isinstance(self.node.window, Session) else None

    @property
    def is_cut(self) -> bool:
        """Sessions with a cap can be cut anew, so their slices are kept apart; all else is one row per window."""
        return self.session is not None and self.session.max_length is not None

    @property
    def keeps_said(self) -> bool:
        """Sessions change their bounds, and then what stands under the old ones must go, in every mode."""
        takes_back = self.session is not None or self.node.accumulation == "retracting"
        return takes_back and not self.speaks_last

    @property
    def speaks_last(self) -> bool:
        """Whether a window says nothing before it closes, so that none that is open has anything to take back."""
        return self.node.speaks_once

    @property
    def keeps_bounds(self) -> bool:
        """The bounds of a session that has said nothing are those of its events, and nobody asks what they were."""
        return self.session is None or self.is_cut or not self.speaks_last

    @property
    def keeps_ids(self) -> bool:
        """A session remembers the ids of its events itself: when they may be forgotten is known to nobody else."""
        return self.session is not None and any(branch.source.event_id is not None for branch in self.node.branches)

    @property
    def mixes_sources(self) -> bool:
        """Sessions hold events of several sources: then each id names its source."""
        return self.session is not None and self.node.is_union

    @property
    def said_type(self) -> str:
        fields = ["lo: BIGINT", "hi: BIGINT", "idx: INT", "timing: STRING", "final: BOOLEAN"]
        if self.node.accumulation == "retracting":
            fields += [f"{quote(f'v_{alias}')}: {self.values[alias]}" for alias in self.node.value_names]
        return f"STRUCT<{', '.join(fields)}>"

    @property
    def keys(self) -> list[str]:
        return key_columns(self.node)

    @cached_property
    def partials(self) -> list[str]:
        names = [column for alias, aggregate in self.node.aggregates for column in aggregate.partial_sql(alias)]
        return [quote(name) for name in names]

    @property
    def befores(self) -> list[str]:
        """Per aggregate that was added later: has the window elements from before it?"""
        return [quote(f"_before_{alias}") for alias in self.merging.added]

    @cached_property
    def columns(self) -> dict[str, str]:
        """The table of open windows: column → type."""
        types = self.merging.types
        found = {key: types[key.strip("`")] for key in self.keys}
        found |= {"_start": "BIGINT", "_end": "BIGINT"} if self.keeps_bounds else {}
        found |= {partial: types[partial.strip("`")] for partial in self.partials}
        found |= dict.fromkeys(self.befores, "BOOLEAN") | {"_news": "BIGINT", "_index": "INT"}
        if self.keeps_said:
            found["_said"] = f"ARRAY<{self.said_type}>"
        found |= {memory.column: memory.type for memory in self.question.memory}
        if self.session is not None:
            found |= {"_first": "BIGINT", "_last": "BIGINT"}
        if self.keeps_ids:
            found["_ids"] = f"ARRAY<STRUCT<id: STRING, time: BIGINT{', source: STRING' if self.mixes_sources else ''}>>"
        if self.is_cut:
            found |= {"_slice": "BIGINT", "_n": "BIGINT", "_shown": "BOOLEAN"}
        return found

    @property
    def ddl(self) -> str:
        return ", ".join(f"{name} {type_}" for name, type_ in self.columns.items())

    def fresh(self, given: Mapping[str, str]) -> list[str]:
        """The columns of an open row for something new: what `given` says, and nothing remembered."""
        known = {memory.column: memory.initial for memory in self.question.memory} | {"_index": "0"}
        known |= dict.fromkeys(self.befores, "false") | {name: name for name in (*self.keys, *self.partials)}
        known |= dict(given)
        return [f"{known.get(name, f'CAST(NULL AS {type_})')} AS {name}" for name, type_ in self.columns.items()]

    def merged_partials(self) -> list[str]:
        befores = [f"coalesce(bool_or({name}), false) AS {name}" for name in self.befores]
        return [*merged_partials(self.node, self.merging), *befores]


def gather_fixed(shape: Shape, fresh: Relation | None, kept: Relation | None, turn: Turn) -> Relation:
    """Windows that stand before their events come: each new slice joins those of its windows that are still open."""
    rows = []
    if fresh is not None:
        windows = windows_of(shape.node, fresh, (turn.closed_before, END_OF_TIME))
        rows.append(select(shape.fresh({"_start": "_start", "_news": "_n"}), windows))
    if kept is not None:
        rows.append(select(shape.columns, kept))
    return _joined(shape, rows)


def gather_rolling(shape: Shape, fresh: Relation | None, history: Relation | None, kept: Relation | None) -> Relation:
    """Each new slice is a window over what came before it, and joins the open windows that reach back to it."""
    rows, node = [], shape.node
    given = {"_start": "_start", "_news": "_n"}
    if fresh is not None:
        new = select([*shape.keys, "_slice AS _at"], fresh)
        every = new if kept is None else f"{new} UNION ALL {select([*shape.keys, '_end AS _at'], kept)}"
        rows.append(select(shape.fresh(given), rolling_windows(node, fresh, every)))
        if history is not None:
            if kept is not None:
                same = " AND ".join(f"l.{key} <=> r.{key}" for key in shape.keys)
                there = select([*shape.keys, "_end"], kept)
                new = f"SELECT l.* FROM ({new}) l LEFT ANTI JOIN ({there}) r ON {same} AND l._at = r._end"
            rows.append(select(shape.fresh(given), rolling_windows(node, history, new)))
    if kept is not None:
        rows.append(select(shape.columns, kept))
    return _joined(shape, rows)


def _joined(shape: Shape, rows: list[Relation]) -> Relation:
    """Rows of the same key and window as one."""
    merged = [*shape.keys, "_start", *shape.merged_partials(), "sum(_news) AS _news", "max(_index) AS _index"]
    if shape.keeps_said:
        merged.append("flatten(collect_list(_said)) AS _said")
    merged += [f"{memory.merged(memory.column)} AS {memory.column}" for memory in shape.question.memory]
    grouped = select(merged, " UNION ALL ".join(rows)) + f" GROUP BY {', '.join([*shape.keys, '_start'])}"
    return select(["*", f"{Assignment(shape.node.window).end('_start')} AS _end", "false AS _late"], grouped)


def ask(shape: Shape, windows: Relation, turn: Turn) -> Relation:
    """Each window with the answer of its trigger, ``_speaks``, and what it says if it does."""
    now, node = shape.question, shape.node
    limit = Thresholds([turn.before, turn.after, turn.closed, *now.flags(turn)], "_start")
    flags = [
        f"_end <= {limit[0]} AS _is_late",
        f"_end > {limit[0]} AND _end <= {limit[1]} AS _is_on_time",
        f"_end <= {limit[2]} AS _closing",
        *[f"{limit[3 + i]} = 1 AS _crossed_{i}" for i in range(len(now.intervals))],
    ]
    moment = select(["*", *flags], windows)
    closes = "(_closing AND _news > 0)"
    due = f"({now.fires}) AND (_news > 0 OR ({now.on_time}))"
    speaks = f"NOT _late AND {closes if shape.speaks_last else f'(({due}) OR {closes})'} AS _speaks"
    timing = "CASE WHEN _is_late THEN 'late' WHEN _is_on_time THEN 'on_time' ELSE 'early' END AS _timing"
    asked = select(["*", speaks, timing], moment)
    values = []
    for alias, aggregate in node.aggregates:
        guard = "_speaks" + (f" AND NOT {quote(f'_before_{alias}')}" if alias in shape.merging.added else "")
        values.append(f"CASE WHEN {guard} THEN {user(aggregate.finish_sql(alias))} END AS {quote(f'v_{alias}')}")
    return select(["*", *values], asked)


def tell(shape: Shape, asked: Relation) -> Relation:
    """What comes of the windows: panes, rows that stay open, and (sessions) stretches that are late.

    `asked` has ``_back``, the panes to take back, when the operator keeps what it has said.
    """
    stays = "CASE WHEN _late THEN 'late' WHEN NOT _closing THEN 'open' END"
    if shape.speaks_last and not shape.is_cut:
        # What speaks has closed, so each window is one thing only.
        kinds = ["*", f"CASE WHEN _speaks THEN 'pane' ELSE {stays} END AS _kind", "'upsert' AS _change"]
        told = select(["*", "true AS _counts"], select(kinds, asked), "_kind IS NOT NULL")
    else:
        told = _told_apart(shape, asked, stays)
    columns = [
        "_kind",
        *_pane_columns(shape),
        *[f"CASE WHEN _kind != 'pane' THEN {sql} END AS {name}" for name, sql in _open_columns(shape).items()],
    ]
    if shape.session is not None:
        # One row of each session tells how many events of this batch it took in: the output side of the ledger.
        columns.append("CASE WHEN _counts AND NOT _late THEN _arrived ELSE 0L END AS _arrived")
    return select(columns, told)


def _told_apart(shape: Shape, asked: Relation, stays: str) -> Relation:
    """Several things may come of a window: a row for each."""
    outputs, pane = [], "'pane'"
    if shape.keeps_said:
        change, back = "retract", "_back"
        if shape.node.accumulation != "retracting":
            # Readers were promised no retractions, but a table must let go of windows that no longer exist.
            change, back = "replaced", "filter(_back, s -> s.lo != _start OR s.hi != _end)"
        outputs.append(f"transform({back}, s -> {_output(shape, pane, change=change, said='s')})")
    says = _output(shape, pane, change="upsert", counts="true")
    outputs.append(f"CASE WHEN _speaks THEN array({says}) ELSE array() END")
    if shape.is_cut:
        # Of the rows of a cut session, the first counts.
        row = _output(shape, stays, row="r", counts="NOT _speaks AND r._first = _start")
        rows = f"transform(_rows, r -> {row})"
    else:
        # A session that got new events speaks or stays open.
        rows = f"array({_output(shape, stays, counts='NOT _speaks')})"
    outputs.append(f"CASE WHEN _late OR NOT _closing THEN {rows} ELSE array() END")
    exploded = select(["*", f"explode(concat({', '.join(outputs)})) AS _o"], asked)
    return select(["*", "_o.kind AS _kind", "_o.change AS _change", "_o.counts AS _counts"], exploded)


def _output(shape: Shape, kind: str, *, change: str = "", said: str = "", row: str = "", counts: str = "false") -> str:
    """One thing that comes of a window, as a struct; all have the same fields."""
    fields = [f"'kind', {kind}", f"'change', '{change}'", f"'counts', {counts}"]
    if shape.keeps_said:
        fields.append(f"'said', {said or f'CAST(NULL AS {shape.said_type})'}")
    if shape.is_cut:
        fields.append(f"'row', {row or 'CASE WHEN false THEN get(_rows, 0) END'}")
    return f"named_struct({', '.join(fields)})"


def _pane_columns(shape: Shape) -> list[str]:
    node = shape.node
    is_pane = "_kind = 'pane'"

    def of(now: str, said: str) -> str:
        if not shape.keeps_said:
            return f"CASE WHEN {is_pane} THEN {now} END"
        return f"CASE WHEN _change = 'upsert' THEN {now} WHEN {is_pane} THEN {said} END"

    retracts = node.accumulation == "retracting"
    values = [(quote(alias), quote(f"v_{alias}")) for alias in node.value_names]
    keys = zip(node.key_names, shape.keys, strict=True)
    return [
        *[f"CASE WHEN {is_pane} THEN {key} END AS {quote(name)}" for name, key in keys],
        f"CASE WHEN _end < {END_OF_TIME}L THEN timestamp_micros({of('_start', '_o.said.lo')}) END AS window_start",
        f"CASE WHEN _end < {END_OF_TIME}L THEN timestamp_micros({of('_end', '_o.said.hi')}) END AS window_end",
        *[f"{of(value, f'_o.said.{value}' if retracts else 'NULL')} AS {name}" for name, value in values],
        f"{of('_index', '_o.said.idx')} AS pane_index",
        f"{of('_timing', '_o.said.timing')} AS pane_timing",
        f"{of('_closing', '_o.said.final')} AS pane_final",
        f"CASE WHEN {is_pane} THEN _change END AS pane_change",
    ]


def _open_columns(shape: Shape) -> dict[str, str]:
    """The row that stays open, after what has been said in this batch; of what is late, its extent matters."""
    discards = shape.node.accumulation == "discarding"
    own = "_o.row." if shape.is_cut else ""
    news = f"CASE WHEN _anew THEN {own}_n ELSE {own}_news END" if shape.is_cut else "_news"
    columns = {name: name for name in shape.columns}
    columns |= {name: f"{own}{name}" for name in (*shape.partials, *shape.befores)}
    if discards:
        columns |= {name: f"CASE WHEN NOT _speaks THEN {own}{name} END" for name in shape.partials}
    columns |= {"_news": f"CASE WHEN _speaks THEN 0L ELSE {news} END"}
    columns |= {"_index": "_index + CAST(_speaks AS INT)"}
    columns |= {memory.column: memory.settled() for memory in shape.question.memory}
    if shape.keeps_said:
        columns["_said"] = f"CASE WHEN _speaks THEN array({_now(shape)}) ELSE _said END"
    if shape.is_cut:
        columns |= {name: f"_o.row.{name}" for name in ("_slice", "_first", "_last", "_n")}
        columns["_shown"] = "_speaks OR _all_n > _news"
    if shape.keeps_ids:
        columns["_ids"] = f"{own}_ids"
    return columns


def _now(shape: Shape) -> str:
    """What the window says now, as it will have to be taken back."""
    fields = ["'lo', _start", "'hi', _end", "'idx', _index", "'timing', _timing", "'final', _closing"]
    if shape.node.accumulation == "retracting":
        names = [quote(f"v_{alias}") for alias in shape.node.value_names]
        fields += [f"'{name.strip('`')}', {name}" for name in names]
    return f"named_struct({', '.join(fields)})"
