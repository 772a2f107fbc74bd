"""Identity: is a batch new, done, or not ours?

A batch is known by Spark's query id and its offset range, not by Spark's batch number, which restarts at 0 with a new
checkpoint and can be rolled back. The range starts where the last decided one ended: go on. It is that one: done.
Anything else means that Spark's own log and our records have come apart, and going on would lose or double events.
"""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path

from tidegate.errors import DataLossRisk
from tidegate.runtime.records import Checkpoint, Offsets


class Fate(Enum):
    """What to do with a batch."""

    NEW = "new"
    DONE = "done"


def compare(offered: Offsets, decided: Offsets | None, checkpoint: Checkpoint) -> Fate:
    """Compare an offered batch with what was decided last; raise DataLossRisk when they do not fit together."""
    if decided is None:
        if offered.start is None:
            return Fate.NEW
        raise _apart(checkpoint, "Spark's log is past its beginning, but no batch was ever decided here")
    if offered.query_id != decided.query_id:
        raise _apart(
            checkpoint,
            f"Spark's log is of another query ({offered.query_id}, not {decided.query_id}): it was deleted or replaced",
        )
    if offered == decided or (offered.start, offered.end) == (decided.start, decided.end):
        return Fate.DONE
    if offered.start == decided.end:
        return Fate.NEW
    raise _apart(
        checkpoint,
        f"batch {offered.batch_id} does not start where the last decided one (batch {decided.batch_id}) ended",
    )


def _apart(checkpoint: Checkpoint, what: str) -> DataLossRisk:
    return DataLossRisk(
        f"Spark's offset log and the records of {checkpoint.folder} do not fit together: {what}; "
        "going on would lose or double events",
        hint=(
            "restore the checkpoint folder as a whole from a copy (its `spark` and `records` belong together), "
            "or start again with a new --checkpoint and a new sink target, which reads the sources from the beginning"
        ),
    )


def offsets_of(spark_folder: Path, batch_id: int) -> tuple[Offsets, int, list[str]]:
    """The offset range of a running batch from Spark's log, its clock in µs, and the end offsets per source."""
    query_id = json.loads((spark_folder / "metadata").read_text())["id"]
    end, clock = _entry(spark_folder, batch_id)
    start = _entry(spark_folder, batch_id - 1)[0] if batch_id > 0 else None
    return Offsets(query_id, None if start is None else "\n".join(start), "\n".join(end), batch_id), clock, end


def last_offsets(spark_folder: Path) -> tuple[str | None, str | None, int]:
    """The query id of Spark's log and its last entry, without Spark; (None, None, -1) when there is none."""
    metadata = spark_folder / "metadata"
    if not metadata.exists():
        return None, None, -1
    numbers = [int(path.name) for path in (spark_folder / "offsets").glob("*") if path.name.isdigit()]
    query_id = json.loads(metadata.read_text())["id"]
    if not numbers:
        return query_id, None, -1
    return query_id, "\n".join(_entry(spark_folder, max(numbers))[0]), max(numbers)


def check_log(spark_folder: Path, decided: Offsets | None, checkpoint: Checkpoint) -> None:
    """Before anything starts: Spark's log must hold the last decided batch, as its last or last but one entry."""
    query_id, last, number = last_offsets(spark_folder)
    if decided is None:
        return
    if query_id is None:
        raise _apart(checkpoint, "Spark's log is missing")
    if query_id != decided.query_id:
        raise _apart(
            checkpoint,
            f"Spark's log is of another query ({query_id}, not {decided.query_id}): it was deleted or replaced",
        )
    if last is None or number < decided.batch_id:
        raise _apart(
            checkpoint,
            f"Spark's log ends at batch {number}, but batch {decided.batch_id} was decided: it was rolled back",
        )
    known = last if number == decided.batch_id else "\n".join(_entry(spark_folder, decided.batch_id)[0])
    if known != decided.end or number > decided.batch_id + 1:
        raise _apart(checkpoint, f"Spark's batch {decided.batch_id} is not the one that was decided")


def _entry(spark_folder: Path, batch_id: int) -> tuple[list[str], int]:
    lines = (spark_folder / "offsets" / str(batch_id)).read_text().splitlines()
    clock = json.loads(lines[1])["batchTimestampMs"] * 1000
    return lines[2:], clock
