"""Which files a micro-batch has taken, from the log that Spark's file source keeps.

Spark numbers the steps of a file source; each step is a small file of JSON lines under ``sources/<name>/``, and older
steps are compacted. A batch covers the steps after its start offset up to its end offset."""

from __future__ import annotations

import json
from pathlib import Path

from tidegate.errors import CheckpointError
from tidegate.runtime.records import Offsets


def files_of(spark_folder: Path, source: str, offsets: Offsets) -> list[str]:
    """The files of the source of that name in the offset range; empty when it is not a file source."""
    last = _step(offsets.end, source)
    if last is None:
        return []
    first = _step(offsets.start or "", source)
    folder = spark_folder / "sources" / source
    paths: dict[str, None] = {}
    for step in range(0 if first is None else first + 1, last + 1):
        for line in _log(folder, step).read_text().splitlines()[1:]:
            entry = json.loads(line)
            if entry["batchId"] == step:
                paths[entry["path"]] = None
    return list(paths)


def _log(folder: Path, step: int) -> Path:
    """Where a step is written: in a file of its own, or in the next compacted one, which holds all before it."""
    if (folder / str(step)).exists():
        return folder / str(step)
    compacted = sorted(int(path.stem) for path in folder.glob("*.compact") if path.stem.isdigit())
    for number in compacted:
        if number >= step:
            return folder / f"{number}.compact"
    raise CheckpointError(
        f"Spark's list of files {folder / str(step)} is missing", hint="restore the checkpoint from a copy"
    )


def _step(offsets: str, source: str) -> int | None:
    """The step of a source in the lines ``name:{"logOffset":7}`` of an entry of Spark's offset log."""
    for line in offsets.splitlines():
        name, _, offset = line.partition(":")
        if name == source:
            try:
                return int(json.loads(offset)["logOffset"])
            except (ValueError, KeyError, TypeError):
                return None
    return None
