"""Which files a micro-batch has taken, from the log that Spark's file source keeps.

Spark numbers the steps of a file source; each step is a small file of JSON lines under ``sources/<name>/``, and older
steps are compacted. A batch covers the steps after its start offset up to its end offset."""

from __future__ import annotations

import json

from tidegate.errors import CheckpointError
from tidegate.storage.places import Place


def files_between(folder: Place, start: str | None, end: str) -> list[str]:
    """The files between two offsets ``{"logOffset":7}``, from Spark's list of files in `folder`."""
    first, last = -1 if start is None else _step(start), _step(end)
    paths: dict[str, None] = {}
    for step in range(first + 1, last + 1):
        for line in _log(folder, step).read_text().splitlines()[1:]:
            entry = json.loads(line)
            if entry["batchId"] == step:
                paths[entry["path"]] = None
    return list(paths)


def _log(folder: Place, step: int) -> Place:
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


def _step(offset: str) -> int:
    try:
        return int(json.loads(offset)["logOffset"])
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"Spark's log has the offset {offset!r}, which is not that of a source of files",
            hint="a source that was of another kind needs another name, or a new --checkpoint",
        ) from error
