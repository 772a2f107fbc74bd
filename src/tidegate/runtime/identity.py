"""Identity: is a batch new, done, or not ours?

A batch is known by Spark's query id and its offset range, not by Spark's batch number, which restarts at 0 with a new
checkpoint and can be rolled back. The range starts where the last decided one ended: go on. It is that one: done.
Anything else means that Spark's own log and our records have come apart, and going on would lose or double events.
"""

from __future__ import annotations

import json
from enum import Enum

from tidegate.errors import CheckpointError, DataLossRisk
from tidegate.runtime.records import Checkpoint, Offsets
from tidegate.storage.places import Place


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


def offsets_of(spark_folder: Place, batch_id: int) -> tuple[Offsets, int]:
    """The offset range of a running batch from Spark's log, and its clock in µs."""
    end, clock = _entry(spark_folder, batch_id)
    start = _entry(spark_folder, batch_id - 1)[0] if batch_id > 0 else None
    return Offsets(_query_id(spark_folder), start, end, batch_id), clock


def offset_of(lines: str | None, source: str) -> str | None:
    """The offset of a source in the lines ``name:offset`` of an entry of the log; None when it is not there (yet)."""
    for line in (lines or "").splitlines():
        name, _, offset = line.partition(":")
        if name == source:
            return None if offset in ("", "-") else offset
    return None


def check_log(spark_folder: Place, decided: Offsets | None, checkpoint: Checkpoint) -> None:
    """Before anything starts: Spark's log must end with the last decided batch, or a little later.

    Spark commits a batch when it is folded, so the last one that it committed may not be decided yet; and one more may
    have begun.
    """
    number = max(_numbers(spark_folder / "offsets"), default=-1)
    committed = last_committed(spark_folder)
    known = -1 if decided is None else decided.batch_id
    if committed > known + 1:
        raise _apart(
            checkpoint, f"Spark's batch {committed - 1} is committed, but was never decided: records are missing"
        )
    if decided is None:
        return
    if not (spark_folder / "metadata").exists():
        raise _apart(checkpoint, "Spark's log is missing")
    query_id = _query_id(spark_folder)
    if query_id != decided.query_id:
        raise _apart(
            checkpoint,
            f"Spark's log is of another query ({query_id}, not {decided.query_id}): it was deleted or replaced",
        )
    if number < decided.batch_id:
        raise _apart(
            checkpoint,
            f"Spark's log ends at batch {number}, but batch {decided.batch_id} was decided: it was rolled back",
        )
    if _entry(spark_folder, decided.batch_id)[0] != decided.end or number > max(committed, known) + 1:
        raise _apart(checkpoint, f"Spark's batch {decided.batch_id} is not the one that was decided")


def last_committed(spark_folder: Place) -> int:
    """The last batch that Spark has committed; -1 when there is none."""
    return max(_numbers(spark_folder / "commits"), default=-1)


def _numbers(folder: Place) -> list[int]:
    return [int(path.name) for path in folder.glob("*") if path.name.isdigit()]


def _query_id(spark_folder: Place) -> str:
    path = spark_folder / "metadata"
    try:
        return str(json.loads(path.read_text())["id"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _unreadable(path) from error


def _entry(spark_folder: Place, batch_id: int) -> tuple[str, int]:
    """An entry of the offset log: the lines of its sources, and its clock."""
    path = spark_folder / "offsets" / str(batch_id)
    try:
        lines = path.read_text().splitlines()
        clock = json.loads(lines[1])["batchTimestampMs"] * 1000
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise _unreadable(path) from error
    return "\n".join(lines[2:]), clock


def _unreadable(path: Place) -> CheckpointError:
    return CheckpointError(f"Spark's log entry {path} cannot be read", hint="restore the checkpoint from a copy")
