"""Open operation: an operator that keeps a table of its open windows (see `operators.open`).

Towards the engine it is an `Operation` like any other. Its state is one set of files of kind ``open``, written anew
in each batch that changes it and replacing the set before; the slices of the batch are only its input. Closed windows
are not in the table, so state is bounded by what is open.

A batch that can change nothing runs no job: without new events, a window whose trigger looks at no clock stays as it
is until the watermark reaches the first end in the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from tidegate.operators.fold import STATE_FATES
from tidegate.operators.open import Shape, ask, gather_fixed, gather_rolling, tell
from tidegate.operators.session import gather_sessions, refused, take_back
from tidegate.operators.session_cap import gather_cut_sessions, take_back_once
from tidegate.operators.sql import Relation, quote, run, select, text
from tidegate.operators.trigger import Turn
from tidegate.runtime.folded import Fed, Fired, Folded, Folds, Judged, Routed
from tidegate.runtime.moment import Moment
from tidegate.runtime.operate import Operation, count_panes, floor
from tidegate.runtime.records import StateFile
from tidegate.runtime.staging import Staged, stage
from tidegate.runtime.state import Change
from tidegate.storage.parquet import read_table, rows_in, write_table
from tidegate.storage.places import Place
from tidegate.windows import Rolling, Session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType


FEW = 100_000
"""Candidates up to this number are looked up by one task."""


class OpenOperation(Operation):
    """One operator with open windows across batches."""

    def _prepare(self, samples: Mapping[str, Routed]) -> None:
        self.shape = Shape(self.node, self._merging(), self.pane_types)

    def keep(self, folded: Folded, sequence: int) -> list[StateFile]:
        """Slices are input here, not state – unless windows that are yet to come reach back to them."""
        return super().keep(folded, sequence) if self._has_history else []

    def fire(self, fed: Fed, moment: Moment, folder: Place) -> Fired:
        """Ask every open window; stage its panes, what stays open, and the events that turned out late."""
        kept, folds = self.state.of(self.node.name, "open"), fed.folds
        slices = {source: paths for source, folded in folds.items() if (paths := folded.staged.of(*STATE_FATES))}
        candidates = {source: paths for source, folded in folds.items() if (paths := folded.staged.of("candidate"))}
        turn = self._turn(moment)
        if not slices and not candidates and self._nothing_changes(kept, turn):
            return Fired()
        history = self.state.of(self.node.name, *STATE_FATES) if slices else []
        result = self._result(slices, candidates, kept, history, turn)
        if result is None:
            return Fired()
        staged = self._stage(result, folder)
        change = Change(self._entries(staged, moment), [file.path for file in kept])
        judged = None
        if folds and isinstance(self.node.window, Session):
            letters = self._refuse(candidates, staged.of("late"), folder.parent / "refused")
            judged = self._settle(folds, staged, letters)
        return Fired(staged.of("pane"), count_panes(staged, "pane"), change, judged)

    def keep_panes(self, paths: list[Place], sequence: int) -> list[StateFile]:
        """What was said is in the open rows."""
        return []

    def upkeep(self, after: int | None, folder: Place, sequence: int) -> Change:
        """The table is written anew as a whole: only a history has something to expire and to compact."""
        return super().upkeep(after, folder, sequence) if self._has_history else Change()

    def open_windows(self, watermark: int | None) -> int:
        """The rows of the table; of sessions with a cap, their parts."""
        return sum(file.rows for file in self.state.of(self.node.name, "open"))

    def held_ids(self, source: str, spark: SparkSession) -> DataFrame | None:
        """The ids of the events of a source in open sessions."""
        kept = self.state.of(self.node.name, "open")
        if not kept or not self.shape.keeps_ids:
            return None
        rows = self.read(kept, f"_ids {self.shape.columns['_ids']}", spark)
        mine = f"source = {text(source)}" if self.shape.mixes_sources else None
        ids = select(["id AS _id", "time AS _time"], select(["inline(_ids)"], "{kept}"), mine)
        return run(spark, ids, {"kept": rows})

    # -- parts ------------------------------------------------------------------------------------------------------

    @property
    def _has_history(self) -> bool:
        return isinstance(self.node.window, Rolling)

    def _turn(self, moment: Moment) -> Turn:
        return Turn(
            floor(moment.before),
            floor(moment.after),
            self.closed(moment.before),
            self.closed(moment.after),
            moment.clock_before,
            moment.clock,
        )

    def _nothing_changes(self, kept: list[StateFile], turn: Turn) -> bool:
        """Whether a batch without events can be left out: no clock is crossed and no end is reached."""
        if not kept:
            return True
        if any(self.shape.question.flags(turn)):
            return False
        return turn.before == turn.after or min(file.low for file in kept) > turn.after

    def _result(
        self,
        slices: Mapping[str, list[Place]],
        candidates: Mapping[str, list[Place]],
        kept: list[StateFile],
        history: list[StateFile],
        turn: Turn,
    ) -> DataFrame | None:
        frames: dict[str, DataFrame] = {}
        if not (self.shape.is_cut or self.shape.keeps_ids):  # then they are rows like others, and one scan reads all
            sources = [*slices, *[source for source in candidates if source not in slices]]
            slices = {source: [*slices.get(source, []), *candidates.get(source, [])] for source in sources}
            candidates = {}
        if slices:
            frames["fresh"] = self._input(slices)
        if candidates:
            frames["candidates"] = self._input(candidates)
        if kept:
            frames["kept"] = self._kept(kept)
        if not frames:
            return None
        if history:
            frames["history"] = self.slices(history)
        given = {name: f"{{{name}}}" for name in frames}
        return run(self.spark, self._relation(given, turn), frames)

    def _relation(self, given: dict[str, Relation], turn: Turn) -> Relation:
        fresh, candidates, kept = given.get("fresh"), given.get("candidates"), given.get("kept")
        shape = self.shape
        if self._has_history:
            asked = ask(shape, gather_rolling(shape, fresh, given.get("history"), kept), turn)
        elif shape.session is None:
            asked = ask(shape, gather_fixed(shape, fresh, kept, turn), turn)
        elif shape.is_cut:
            asked = ask(shape, gather_cut_sessions(shape, fresh, candidates, kept, turn), turn)
        else:
            asked = ask(shape, gather_sessions(shape, fresh, candidates, kept, turn), turn)
        if shape.keeps_said:
            asked = take_back_once(shape, asked) if shape.is_cut else take_back(asked)
        return tell(shape, asked)

    def _input(self, staged: Mapping[str, list[Place]]) -> DataFrame:
        """Staged rows, by source; where sessions mix them, each says whose it is."""
        types = self._input_types()
        if not self.shape.mixes_sources:
            return self._staged(types, [path for paths in staged.values() for path in paths])
        parts, frames = [], {}
        for number, (source, paths) in enumerate(staged.items()):
            columns = {name: name for name in (*types, "_dead")}
            if "_ids" in types:
                ids = f"coalesce(_ids, CAST(array() AS {types['_ids']}))"
                named = f"named_struct('id', i.id, 'time', i.time, 'source', {text(source)})"
                columns["_ids"] = f"transform({ids}, i -> {named}) AS _ids"
            frames[f"of{number}"] = self._staged(types, paths)
            parts.append(select(columns.values(), f"{{of{number}}}"))
        return run(self.spark, " UNION ALL ".join(parts), frames)

    def _staged(self, types: Mapping[str, str], paths: list[Place], letter: DataType | None = None) -> DataFrame:
        """Staged rows; of a letter, where its event came from, or all when its type is given."""
        from pyspark.sql.types import StructType

        schema = StructType.fromDDL(", ".join(f"{name} {type_}" for name, type_ in types.items()))
        assert isinstance(schema, StructType)
        if self.shape.session:
            schema.add("_dead", letter or StructType.fromDDL("arrival BIGINT, origin STRING, position BIGINT"))
        return self.spark.read.schema(schema).parquet(*map(str, paths))

    def _input_types(self) -> dict[str, str]:
        shape = self.shape
        names = [*shape.keys, "_slice", *shape.partials, "_n"]
        names += ["_partition", "_first", "_last"] if shape.session else []
        names += ["_ids"] if shape.keeps_ids else []
        return {name: shape.merging.types[name.strip("`")] for name in names}

    def _kept(self, files: list[StateFile]) -> DataFrame:
        rows = self.read(files, self.shape.ddl)
        if not self.added:
            return rows
        # Files from before an aggregate was added do not say so themselves; the next ones will.
        columns = {name: name for name in self.shape.columns}
        for alias, since in self.added.items():
            name, older = quote(f"_before_{alias}"), str(files[0].sequence < since).lower()
            columns[name] = f"coalesce({name}, {older}) AS {name}"
        return run(self.spark, select(columns.values(), "{rows}"), {"rows": rows})

    def _stage(self, result: DataFrame, folder: Place) -> Staged:
        staged = stage(result, folder, "_kind", small=self._fires_small)
        self._fires_small = staged.is_small()
        return staged

    def _entries(self, staged: Staged, moment: Moment) -> list[StateFile]:
        """The new table. `low` and `high` are the first and last end in it."""
        entries = []
        window = self.node.window
        column, gap = ("_end", 0)
        if isinstance(window, Session) and not self.shape.keeps_bounds:
            column, gap = "_last", window.gap
        for path in staged.of("open"):
            ends = read_table(path, [column])[column]
            low, high = pc.min(ends).as_py() + gap, pc.max(ends).as_py() + gap
            entries.append(self.state.entry(path, self.node.name, "open", low=low, high=high, sequence=moment.sequence))
        return entries

    def _refuse(
        self, candidates: Mapping[str, list[Place]], late: list[Place], folder: Place
    ) -> dict[str, list[Place]]:
        """Stage the letters of the candidates that the sessions did not take in; mostly there are none to look for."""
        if not candidates or not (late or self.shape.keeps_ids):
            return {}
        letters = {}
        for source, paths in candidates.items():
            frames = {"candidates": self._staged(self._input_types(), paths, self.letter_types[source])}
            if late:
                frames["late"] = self.spark.read.schema(self.shape.ddl).parquet(*map(str, late))
            few = sum(map(rows_in, paths)) <= FEW
            if few:  # then one task looks them up, without a shuffle
                frames = {name: frame.coalesce(1) for name, frame in frames.items()}
            relation = refused(self.shape, self.node.of(source), "{candidates}", "{late}" if late else None)
            letters[source] = stage(run(self.spark, relation, frames), folder / source, small=few).of("")
        return letters

    def _settle(self, folds: Folds, staged: Staged, letters: Mapping[str, list[Place]]) -> Judged:
        """Candidates are judged now: who was accepted is counted on the sessions, who is late goes back to its source.

        Of a repeat there is a letter only when its source keeps duplicates.
        """
        counted = staged.table("pane", "open", columns=["_arrived"])
        accepted = (pc.sum(counted["_arrived"]).as_py() or 0) if counted is not None else 0
        late = repeated = 0
        for source, paths in letters.items():
            for path in paths:
                rows = read_table(path)
                is_repeat = pc.equal(pc.struct_field(rows["_dead"], "reason"), "DUPLICATE")
                repeats = pc.sum(is_repeat).as_py() or 0
                late, repeated = late + rows.num_rows - repeats, repeated + repeats
                if repeats and not self.node.of(source).source.keep_duplicates:
                    write_table(rows.filter(pc.invert(is_repeat)), path, compression="zstd")
            files = folds[source].staged.files
            files["dead"] = [*files.get("dead", []), *paths]
        for path in staged.of("late"):  # nobody needs them any more
            path.unlink()
        return Judged(accepted, late, repeated)
