"""Records: the sequence of atomic decisions that is a pipeline's history.

``<checkpoint>/records/00000042.json`` is one decision: a *claim* (a driver takes over), a *batch* (an offset
range was folded) or a *tick* (no events, only the clock). A record is created atomically and never overwritten;
that moment is the commit point of the batch. Its sequence number is our own, not Spark's.

A record is a delta: the state files it adds and removes. Every so often, and at each claim, it carries a full
list as well, so loading reads a bounded number of records however long the history is. Records
that no load needs any more are folded into Parquet files under ``ledger/``.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, Literal

from tidegate import crash
from tidegate.errors import CheckpointError, Fenced
from tidegate.runtime.ledger import Ledger
from tidegate.storage.places import Place, place
from tidegate.storage.publish import prove, publish

FORMAT = 1
SNAPSHOT_EVERY = 50
KEEP_SNAPSHOTS = 3

Kind = Literal["claim", "batch", "tick"]


@dataclass(frozen=True)
class StateFile:
    """An immutable Parquet file of an operator: slices, panes, dead letters or ids.

    `low` and `high` bound the event times inside, so that firing reads only what is due.
    """

    path: str
    owner: str
    kind: str
    rows: int
    bytes: int
    low: int
    high: int
    sequence: int
    tier: int = 0


@dataclass(frozen=True)
class PartitionClock:
    """How far a source partition has come: its newest event time, and when it last brought something."""

    newest: int | None
    last_seen: int


@dataclass(frozen=True)
class SourceClock:
    """The watermark of a source and the partitions that make it.

    `unread` is how many records each partition of its system still held when the batch was read, where the system
    says so. `identity` is what that system calls the thing that was read (the id of a topic).
    """

    watermark: int | None = None
    partitions: dict[str, PartitionClock] = field(default_factory=dict)
    unread: dict[str, int] = field(default_factory=dict)
    identity: str | None = None


@dataclass(frozen=True)
class Offsets:
    """What a batch covers: Spark's query id and the offset log's lines before and at this batch."""

    query_id: str
    start: str | None
    end: str
    batch_id: int


@dataclass(frozen=True)
class Snapshot:
    """All live files, and the signature of every operator that has state."""

    files: tuple[StateFile, ...]
    signatures: dict[str, Any]


@dataclass(frozen=True)
class Outbox:
    """What the sinks must have applied before the next record: per operator, the staged pane files; per source, the
    files of its dead letters, when a sink takes them.

    A record without panes repeats the outbox of the record before it, so the last record always says what may be
    undelivered. `previous` is the outbox before: a sink that has not even that is behind, and cannot be caught up.
    """

    sequence: int = 0
    previous: int = 0
    files: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Reached:
    """How far a pipeline has come: where the next batch must begin, and what it is judged by.

    A batch that is folded has been reached, though it may not be decided yet.
    """

    sequence: int
    clock: int
    offsets: Offsets | None
    sources: Mapping[str, SourceClock]
    watermarks: Mapping[str, int | None]


@dataclass(frozen=True)
class Record:
    """One decision. `offsets` is how far the input is decided: of this batch, or of the last one before."""

    sequence: int
    kind: Kind
    claim: int
    attempt: str
    clock: int
    offsets: Offsets | None
    sources: dict[str, SourceClock]
    watermarks: dict[str, int | None]
    ledger: Ledger
    totals: Ledger
    added: tuple[StateFile, ...] = ()
    removed: tuple[str, ...] = ()
    outbox: Outbox = field(default_factory=Outbox)
    terminal: bool = False
    seconds: float = 0.0
    snapshot: Snapshot | None = None

    @property
    def reached(self) -> Reached:
        return Reached(self.sequence, self.clock, self.offsets, self.sources, self.watermarks)

    def to_json(self) -> bytes:
        data = asdict(self)
        data["format"] = FORMAT
        return json.dumps(data, separators=(",", ":")).encode()

    @staticmethod
    def from_json(text: bytes) -> Record:
        data = json.loads(text)
        if data.pop("format", None) != FORMAT:
            raise CheckpointError("a record of this checkpoint has a format this version does not know")
        return Record(
            **data
            | {
                "offsets": data["offsets"] and Offsets(**data["offsets"]),
                "sources": {name: _clock(clock) for name, clock in data["sources"].items()},
                "ledger": Ledger.from_json(data["ledger"]),
                "totals": Ledger.from_json(data["totals"]),
                "added": _files(data["added"]),
                "removed": tuple(data["removed"]),
                "outbox": Outbox(
                    data["outbox"]["sequence"],
                    data["outbox"]["previous"],
                    {name: tuple(paths) for name, paths in data["outbox"]["files"].items()},
                ),
                "snapshot": data["snapshot"]
                and Snapshot(_files(data["snapshot"]["files"]), data["snapshot"]["signatures"]),
            }
        )


def _clock(data: dict[str, Any]) -> SourceClock:
    partitions = {name: PartitionClock(**value) for name, value in data["partitions"].items()}
    return SourceClock(**data | {"partitions": partitions})


def _files(rows: list[dict[str, Any]]) -> tuple[StateFile, ...]:
    return tuple(StateFile(**row) for row in rows)


@dataclass(frozen=True)
class Position:
    """Where a checkpoint stands: its last record, the files that are live, and the operators' signatures."""

    last: Record
    files: dict[str, StateFile]
    signatures: dict[str, Any]


class Checkpoint:
    """A checkpoint folder: its identity and its records. Reading needs no Spark and changes nothing."""

    def __init__(self, folder: Place, identity: str, pipeline: str) -> None:
        self.folder = folder
        self.identity = identity
        self.pipeline = pipeline

    @staticmethod
    def create_or_open(location: str, pipeline: str) -> Checkpoint:
        """Open the checkpoint of `pipeline`, or make a new one in an empty or absent folder."""
        folder = place(location)
        try:
            if not (folder / "checkpoint.json").exists():
                _make(folder, pipeline)
        except OSError as error:
            raise CheckpointError(f"cannot make the checkpoint {folder}: {error.strerror}") from error
        found = Checkpoint.open(location)
        if found.pipeline != pipeline:
            raise CheckpointError(
                f"{folder} is the checkpoint of pipeline {found.pipeline!r}, not {pipeline!r}",
                hint="give each pipeline its own --checkpoint",
            )
        return found

    @staticmethod
    def open(location: str) -> Checkpoint:
        """Open an existing checkpoint for reading."""
        folder = place(location)
        try:
            data = json.loads((folder / "checkpoint.json").read_bytes())
        except FileNotFoundError as error:
            raise CheckpointError(
                f"{folder} is not a Tidegate checkpoint",
                hint="give --checkpoint the folder of a run, or run the app first",
            ) from error
        except (OSError, ValueError) as error:
            raise CheckpointError(f"cannot read {folder / 'checkpoint.json'}: {error}") from error
        return Checkpoint(folder, data["id"], data["pipeline"])

    def path(self, sequence: int) -> Place:
        return self.folder / "records" / f"{sequence:08d}.json"

    def sequences(self) -> list[int]:
        try:
            names = [path.name for path in (self.folder / "records").iterdir()]
        except OSError as error:
            raise CheckpointError(f"cannot read {self.folder / 'records'}: {error.strerror}") from error
        return sorted(int(match[1]) for name in names if (match := re.fullmatch(r"(\d{8,})\.json", name)))

    def read(self, sequence: int) -> Record:
        path = self.path(sequence)
        try:
            return Record.from_json(path.read_bytes())
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"record {path} cannot be read: {error}", hint="restore the checkpoint from a copy"
            ) from error

    def records(self) -> Iterator[Record]:
        """The records that are still kept one by one, oldest first."""
        for sequence in self.sequences():
            yield self.read(sequence)

    def position(self) -> Position | None:
        """Load where the checkpoint stands: back to the nearest full list, then forward. None when it is new."""
        sequences = self.sequences()
        if not sequences:
            return None
        trail: list[Record] = []
        for sequence in reversed(sequences):
            trail.append(self.read(sequence))
            if trail[-1].snapshot is not None:
                break
        else:
            raise CheckpointError(f"{self.folder}/records has no full list of files", hint="restore it from a copy")
        trail.reverse()
        gaps = [b.sequence for a, b in pairwise(trail) if b.sequence != a.sequence + 1]
        if gaps:
            raise CheckpointError(f"record {gaps[0] - 1} of {self.folder} is missing", hint="restore it from a copy")
        snapshot = trail[0].snapshot
        assert snapshot is not None
        files = {file.path: file for file in snapshot.files}
        for record in trail[1:]:
            for path in record.removed:
                files.pop(path, None)
            files.update({file.path: file for file in record.added})
        return Position(trail[-1], files, snapshot.signatures)

    def publish(self, record: Record) -> None:
        """The commit point. Losing the race means another driver has claimed the checkpoint."""
        crash.point("before_record")
        if not _create(self.path(record.sequence), record.to_json(), crash_point="mid_record"):
            raise Fenced(
                f"record {record.sequence} already exists: another driver has taken over {self.folder}",
                hint="this driver stops; its unpublished batch is not lost, the other driver reads the same events",
            )
        crash.point("after_record")

    def fold_history(self, keep: int) -> None:
        """Fold records that no load needs any more into one Parquet file of the ledger, then delete them."""
        folder = self.folder / "ledger"
        folded = max((int(path.stem.partition("-")[2]) for path in folder.glob("[0-9]*.parquet")), default=0)
        old = self.sequences()[:-keep]
        for sequence in old:
            if sequence <= folded:  # a driver died between folding and deleting
                self.path(sequence).unlink(missing_ok=True)
        old = [sequence for sequence in old if sequence > folded]
        if len(old) < SNAPSHOT_EVERY:
            return
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = [self.read(sequence) for sequence in old]
        table = pa.table(
            {
                "sequence": [record.sequence for record in rows],
                "kind": [record.kind for record in rows],
                "claim": [record.claim for record in rows],
                "clock": pa.array([record.clock for record in rows], pa.timestamp("us", tz="UTC")),
                "seconds": [record.seconds for record in rows],
                "watermarks": [json.dumps(record.watermarks) for record in rows],
                "ledger": [json.dumps(record.ledger.to_json()) for record in rows],
            }
        )
        folder.mkdir(exist_ok=True)
        content = pa.BufferOutputStream()
        pq.write_table(table, content, compression="zstd")
        _create(folder / f"{old[0]:08d}-{old[-1]:08d}.parquet", content.getvalue().to_pybytes())
        for sequence in old:
            self.path(sequence).unlink(missing_ok=True)


def _make(folder: Place, pipeline: str) -> None:
    """A new checkpoint, in a folder where there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(not found.name.startswith(".") and found.name not in ("records", "data") for found in folder.iterdir()):
        raise CheckpointError(
            f"{folder} is not empty and not a Tidegate checkpoint", hint="give --checkpoint a folder of its own"
        )
    (folder / "records").mkdir(exist_ok=True)
    (folder / "data").mkdir(exist_ok=True)
    prove(folder)
    identity = {"format": FORMAT, "id": uuid.uuid4().hex, "pipeline": pipeline}
    _create(folder / "checkpoint.json", json.dumps(identity).encode())


def _create(path: Place, content: bytes, *, crash_point: str = "") -> bool:
    try:
        return publish(path, content, crash_point=crash_point)
    except OSError as error:
        raise CheckpointError(
            f"cannot write {path}: {error.strerror}",
            hint="the checkpoint must be a writable folder with free space, on a file system with hard links",
        ) from error
