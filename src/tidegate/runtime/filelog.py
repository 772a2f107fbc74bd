"""Which files a micro-batch has taken, from the log that Spark's file source keeps.

Spark numbers the steps of a file source; each step is a small file of JSON lines under ``sources/<i>/``, and older
steps are compacted. A batch covers the steps after its start offset up to its end offset."""

from __future__ import annotations

import json
from pathlib import Path


def files_of(spark_folder: Path, source: int, start: str, end: str) -> list[str]:
    """The files of source number `source` in the offset range; empty when it is not a file source."""
    last = _step(end)
    if last is None:
        return []
    first = _step(start)
    folder = spark_folder / "sources" / str(source)
    paths: dict[str, None] = {}
    for step in range(0 if first is None else first + 1, last + 1):
        log = folder / str(step)
        if not log.exists():
            log = folder / f"{step}.compact"
        for line in log.read_text().splitlines()[1:] if log.exists() else ():
            entry = json.loads(line)
            if entry["batchId"] == step:
                paths[entry["path"]] = None
    return list(paths)


def _step(offset: str) -> int | None:
    try:
        step = json.loads(offset)["logOffset"]
    except (ValueError, KeyError, TypeError):
        return None
    return int(step)
