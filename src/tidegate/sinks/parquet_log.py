"""ParquetLog: the whole change log as Parquet files, with a manifest per record.

An upsert sink shows what is true now; a log shows all that was ever said, pane by pane. ``retract`` rows stay
in it, ``replaced`` rows do not: they exist for upsert sinks alone.

    <path>/data/<sink>/00000042/<attempt>-0.parquet   the rows of record 42, in files of this attempt's own
    <path>/_manifests/<sink>/00000042.json            names these files; created atomically, never overwritten
    <path>/_claims/<sink>/00000007.json               writer 7 has taken over; the highest claim may write

A record is in the log when its manifest is, and the highest manifest is the marker. A writer that is killed
leaves files that no manifest names; readers never see them, and they are deleted as soon as the record has a
manifest, for from then on nobody can ever name them.

Data is hard-linked from the engine's staged files where the file system allows it and copied elsewhere: the engine
may delete its own name of a file at any time.

A zombie is refused by the claims. Should it be stopped between that look and its manifest, it can only publish
a record that was decided, and that its successor will then find applied: the same rows, once.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate import crash
from tidegate.errors import SinkError
from tidegate.sinks.base import Delivery, SinkTarget
from tidegate.sinks.marker import refuse_if_fenced
from tidegate.sinks.panes import read_panes
from tidegate.storage.parquet import reading
from tidegate.storage.places import Place
from tidegate.storage.publish import publish, sync


@dataclass(frozen=True)
class ParquetLog:
    """The change log in a local folder, to be read with `read_log`.

    >>> ParquetLog("out/revenue").describe()
    'Parquet change log in out/revenue'
    """

    path: str | Path

    def describe(self) -> str:
        return f"Parquet change log in {self.path}"

    def problems(self) -> list[str]:
        path = Path(self.path)
        if "://" in str(self.path):
            return [f"ParquetLog path {self.path} is not local; its manifests need a file system with atomic links"]
        if path.exists() and not path.is_dir():
            return [f"ParquetLog path {path} is a file; name a folder"]
        return []

    def open(self, target: SinkTarget) -> ParquetLogWriter:
        if problems := self.problems():
            raise SinkError("; ".join(problems))
        if "sequence" in (*target.key, *target.values):
            raise SinkError(
                "the column name 'sequence' is taken in a change log: it says which record a row came with",
                hint="rename the column in the pipeline",
            )
        return ParquetLogWriter(Path(self.path), target)


class ParquetLogWriter:
    """A `SinkWriter` that publishes manifests."""

    def __init__(self, path: Path, target: SinkTarget) -> None:
        self._path, self._target = path, target
        folder = _folder_name(target.sink)
        self._data, self._manifests, self._claims = (path / part / folder for part in ("data", "_manifests", "_claims"))
        with _explained(path):
            for directory in (self._data, self._manifests, self._claims):
                directory.mkdir(parents=True, exist_ok=True)
            self._take_claim()

    def confirmed(self) -> int | None:
        with _explained(self._path):
            return max(_numbers(self._manifests), default=None)

    def deliver(self, delivery: Delivery) -> int:
        with _explained(self._path):
            self._refuse_if_fenced()
            confirmed = self.confirmed()
            if confirmed is not None and confirmed >= delivery.sequence:
                self._delete_leftovers(delivery.sequence)
                return 0
            files = self._take_in(delivery)
            crash.point("mid_sink")
            rows = sum(file["rows"] for file in files)
            manifest = self._whoami() | {"sequence": delivery.sequence, "rows": rows, "files": files}
            published = publish(self._manifest(delivery.sequence), _json(manifest))
            self._delete_leftovers(delivery.sequence)
            return rows if published else 0

    def close(self) -> None:
        """Nothing is held open between deliveries."""

    def _take_in(self, delivery: Delivery) -> list[dict[str, Any]]:
        """Give the staged rows names inside the log; what the manifest will say of them."""
        folder, attempt = self._data / f"{delivery.sequence:08d}", uuid4().hex
        taken = []
        for number, staged in enumerate(delivery.files):
            panes = read_panes([staged], self._target)
            kept = panes.filter(pc.not_equal(panes["pane_change"], "replaced")) if panes.num_rows else panes
            if not kept.num_rows:
                continue
            folder.mkdir(exist_ok=True)
            file = folder / f"{attempt}-{number}.parquet"
            if kept.num_rows == panes.num_rows:
                _link_or_copy(staged, file)
            else:
                pq.write_table(kept, file)
            sync(file)
            taken.append({"path": file.relative_to(self._path).as_posix(), "rows": kept.num_rows})
        if taken:
            # The names must survive a power cut no less than the rows.
            sync(folder)
            sync(self._data)
        return taken

    def _delete_leftovers(self, sequence: int) -> None:
        folder, manifest = self._data / f"{sequence:08d}", self._manifest(sequence)
        # A record that is skipped, because the log went from m past it, has no manifest and nothing to keep.
        if not folder.exists() or not manifest.exists():
            return
        named = {self._path / file["path"] for file in json.loads(manifest.read_text("utf-8"))["files"]}
        for file in folder.iterdir():
            if file not in named:
                file.unlink(missing_ok=True)

    def _manifest(self, sequence: int) -> Path:
        return self._manifests / f"{sequence:08d}.json"

    def _whoami(self) -> dict[str, Any]:
        target = self._target
        return {
            "checkpoint_id": target.checkpoint_id,
            "pipeline": target.pipeline,
            "sink": target.sink,
            "operator": target.operator,
            "claim": target.claim,
            "written_at": datetime.now(UTC).isoformat(timespec="microseconds"),
        }

    def _take_claim(self) -> None:
        self._refuse_if_fenced()
        if claims := _numbers(self._claims):
            last = json.loads((self._claims / f"{max(claims):08d}.json").read_text("utf-8"))
            if last["checkpoint_id"] != self._target.checkpoint_id:
                raise SinkError(
                    f"the log {self._path} of sink {self._target.sink!r} was written from another checkpoint "
                    f"({last['checkpoint_id']} of pipeline {last['pipeline']}); its record numbers mean other records",
                    hint="give the sink a new folder, or delete this one to write the log anew",
                )
        publish(self._claims / f"{self._target.claim:08d}.json", _json(self._whoami()))

    def _refuse_if_fenced(self) -> None:
        refuse_if_fenced(self._target, max(_numbers(self._claims), default=self._target.claim))


def read_log(path: str | Path, sink: str | None = None) -> pa.Table:
    """All rows that manifests name, in the order of their records, with the record's number as `sequence`.

    `sink` may be left out when the folder holds the log of one sink only.
    """
    root = Path(path)
    with _explained(root):
        manifests = root / "_manifests"
        sinks = sorted(unquote(folder.name) for folder in manifests.iterdir()) if manifests.is_dir() else []
        if sink is None and len(sinks) == 1:
            sink = sinks[0]
        if sink is None or sink not in sinks:
            raise SinkError(
                f"{root} holds no log of sink {sink!r}"
                if sink
                else f"{root} does not hold the log of exactly one sink",
                hint=f"name one of: {', '.join(sinks)}" if sinks else "nothing has been written there yet",
            )
        tables = [pa.table({"sequence": pa.array([], pa.int64())})]
        folder = manifests / _folder_name(sink)
        for number in sorted(_numbers(folder)):
            for file in json.loads((folder / f"{number:08d}.json").read_text("utf-8"))["files"]:
                with pq.ParquetFile(root / file["path"], coerce_int96_timestamp_unit="us") as parquet:
                    rows = parquet.read()
                tables.append(rows.add_column(0, "sequence", pa.array([number] * rows.num_rows, pa.int64())))
        return pa.concat_tables(tables, promote_options="permissive")


def _numbers(folder: Path) -> list[int]:
    return [int(file.stem) for file in folder.iterdir() if file.suffix == ".json"]


def _folder_name(sink: str) -> str:
    """A folder for any name a user may give; dots too, so that no name leads out of the log."""
    return quote(sink, safe="").replace(".", "%2E")


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(content, indent=1).encode()


def _link_or_copy(source: Place, destination: Path) -> None:
    with reading(source) as file:
        try:
            os.link(file, destination)
        except OSError:
            # Another file system, or one without hard links. A real trouble such as a full disk shows in the copy.
            shutil.copyfile(file, destination)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise SinkError(
            f"the change log in {path} cannot be used: {error}",
            hint="check that the folder exists, is writable by this user, and that the disk has room",
        ) from error
