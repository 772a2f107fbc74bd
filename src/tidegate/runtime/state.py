"""State: the immutable Parquet files that are live, and their upkeep.

A batch appends files; it never changes one. A file leaves the live list when all its windows have closed. Many small
files of one kind are compacted into one, tier by tier, so that the list stays short and each row is rewritten only a
few times. What is no longer live is deleted a while later – by the driver that holds the claim, and nobody else."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from tidegate import crash
from tidegate.runtime.records import StateFile
from tidegate.storage.parquet import rows_in
from tidegate.storage.places import Place, remove_tree

FAN_IN = 12
"""So many files of one tier become one of the next."""
LARGEST = 128 << 20
"""Bytes beyond which a file is not compacted any further."""
LARGEST_CONCATENATED = 1 << 20
"""The same for files that are only joined, which saves nothing but their number."""
GRACE_RECORDS = 10
"""For so many records a removed file stays on disk, for readers that are still looking at it."""
ORPHAN_SECONDS = 600


@dataclass
class Change:
    """What a record does to the live list."""

    added: list[StateFile] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


class State:
    """The live files of a checkpoint, in memory; the records are the truth, this follows them."""

    def __init__(self, folder: Place, files: dict[str, StateFile]) -> None:
        self.folder = folder
        self.files = dict(files)
        self._doomed: deque[tuple[int, str]] = deque()

    def of(self, owner: str, *kinds: str) -> list[StateFile]:
        return [file for file in self.files.values() if file.owner == owner and file.kind in kinds]

    def paths(self, files: Iterable[StateFile]) -> list[str]:
        return [str(self.folder / file.path) for file in files]

    def entry(
        self, path: Place, owner: str, kind: str, *, low: int, high: int, sequence: int, tier: int = 0
    ) -> StateFile:
        """Describe a staged file for the record."""
        rows = rows_in(path)
        relative = str(path.relative_to(self.folder))
        return StateFile(relative, owner, kind, rows, path.stat().st_size, low, high, sequence, tier)

    def expired(self, owner: str, kinds: tuple[str, ...], closed: int) -> list[str]:
        """Files all of whose windows have closed: nothing that can still come will read them."""
        return [file.path for file in self.of(owner, *kinds) if file.high <= closed]

    def crowded(self, owner: str, kinds: tuple[str, ...], largest: int = LARGEST) -> list[StateFile]:
        """The files of the lowest tier that has become crowded; empty when none has. Large ones are left alone."""
        tiers: dict[int, list[StateFile]] = {}
        for file in self.of(owner, *kinds):
            if file.bytes < largest:
                tiers.setdefault(file.tier, []).append(file)
        for tier in sorted(tiers):
            if len(tiers[tier]) >= FAN_IN:
                return tiers[tier]
        return []

    def apply(self, change: Change, sequence: int) -> None:
        """Follow a record that was published."""
        for path in change.removed:
            if self.files.pop(path, None) is not None:
                self._doomed.append((sequence, path))
        self.files.update({file.path: file for file in change.added})

    def discard(self, paths: Iterable[str], sequence: int) -> None:
        """Files that were never live – pane files without late panes – go the same way once they are delivered."""
        self._doomed.extend((sequence, path) for path in paths)

    def sweep(self, sequence: int, undelivered: Collection[str] = ()) -> None:
        """Delete what left the live list long enough ago, but nothing that the last outbox names."""
        while self._doomed and self._doomed[0][0] + GRACE_RECORDS <= sequence:
            _, path = self._doomed.popleft()
            if path in self.files or path in undelivered:
                continue
            crash.point("mid_garbage_collection")
            target = self.folder / path
            target.unlink(missing_ok=True)
            for parent in (target.parent, target.parent.parent):
                if parent.is_dir() and parent != self.folder / "data" and not any(parent.iterdir()):
                    parent.rmdir()

    def sweep_orphans(self, kept: Iterable[str]) -> int:
        """After a claim: delete what attempts that never published have left. Young files may belong to a zombie.

        They wait.
        """
        named = set(self.files) | set(kept)
        deleted = 0
        attempts = [path for owner in (self.folder / "data").glob("*") for path in owner.glob("*")]
        for attempt in attempts:
            files = [path for path in attempt.rglob("*") if path.is_file()]
            if any(str(path.relative_to(self.folder)) in named for path in files):
                orphans = [p for p in files if p.suffix == ".parquet" and str(p.relative_to(self.folder)) not in named]
                for path in orphans:
                    if _old(path):
                        path.unlink(missing_ok=True)
                        deleted += 1
            elif all(_old(path) for path in files):
                remove_tree(attempt)
                deleted += len(files)
        return deleted


def _old(path: Place) -> bool:
    try:
        return time.time() - path.stat().st_mtime > ORPHAN_SECONDS
    except OSError:
        return False
