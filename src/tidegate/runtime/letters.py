"""Letters: the dead letters of an attempt, source by source.

The folds have staged what was refused; here it is completed with what is the same for the whole batch, written, and
kept with the files of the checkpoint. A sink that takes dead letters is given the same files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidegate.deadletter.write import FROM_FOLD, Circumstances, corrupt_file_letters, write_letters
from tidegate.runtime.folded import Folded
from tidegate.runtime.poison import Culprit
from tidegate.runtime.records import Reached
from tidegate.runtime.state import Change
from tidegate.storage.parquet import write_table
from tidegate.storage.places import Place

if TYPE_CHECKING:
    from tidegate.runtime.engine import Batch, Engine


class Letters:
    """Writes and keeps the letters of one attempt."""

    def __init__(self, engine: Engine, batch: Batch, reached: Reached, sequence: int) -> None:
        self.engine, self.batch, self.reached, self.sequence = engine, batch, reached, sequence

    def write(self, source: str, folds: Sequence[Folded], corrupt: Sequence[Culprit], folder: Place) -> list[Place]:
        """The refused rows of a source, from all folds that carry some, and its unreadable files, as dead letters."""
        refused = [folded.staged for folded in folds if folded.staged.of("dead", "copy")]
        files = []
        if refused:
            pieces = (rows for staged in refused for rows in staged.pieces("dead", "copy", columns=FROM_FOLD))
            write_letters(pieces, folder / "letters.parquet", self._about(source))
            files.append(folder / "letters.parquet")
        if corrupt:
            folder.mkdir(parents=True, exist_ok=True)
            paths = [culprit.file or "" for culprit in corrupt]
            letters = corrupt_file_letters(paths, [culprit.error for culprit in corrupt], self._about(source))
            write_table(letters, folder / "files.parquet", compression="zstd")
            files.append(folder / "files.parquet")
        return files

    def keep(self, source: str, files: Sequence[Place], change: Change) -> tuple[str, ...]:
        """Keep written letters in the checkpoint; those that a sink is to be given."""
        clock, state = self.batch.clock, self.engine.state
        change.added += [
            state.entry(path, source, "dead", low=clock, high=clock, sequence=self.sequence) for path in files
        ]
        wanted = self.engine.app.letters is not None and source in self.engine.sources
        return tuple(str(path.relative_to(state.folder)) for path in files) if wanted else ()

    def _about(self, source: str) -> Circumstances:
        names = [operation.node.name for operation in self.engine.fed_by(source)]
        before = self.reached.sources.get(source)
        return Circumstances(
            self.engine.app.name,
            source,
            self.sequence,
            self.batch.clock,
            before.watermark if before else None,
            {name: self.engine.operations[name].node.allowed_lateness for name in names},
            {name: self.reached.watermarks.get(name) for name in names},
        )
