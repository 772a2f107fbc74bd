"""Parquet files, wherever they are. Files of a checkpoint are written once and never changed under their name.

A remote file is written to a local one first, and then brought to its place; to be read, it is fetched. What was
written or read last is kept nearby, for most files that a driver reads are those that it has just written.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
import uuid
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.storage.places import Place
from tidegate.storage.remote import RemotePath

if TYPE_CHECKING:
    import pyarrow as pa

MOST_NEARBY = 256 << 20
"""Bytes of remote files that are kept in a local folder."""


@contextmanager
def reading(place: Place) -> Iterator[Path]:
    """The file as a local one, for as long as it is read."""
    if isinstance(place, Path):
        yield place
        return
    assert isinstance(place, RemotePath)
    with _nearby().reading(place) as file:
        yield file


@contextmanager
def writing(place: Place) -> Iterator[Path]:
    """A local file to write, which then is the file at `place`."""
    if isinstance(place, Path):
        yield place
        return
    assert isinstance(place, RemotePath)
    with _nearby().writing(place) as file:
        yield file


def read_table(place: Place, columns: Sequence[str] | None = None, **how: Any) -> pa.Table:
    import pyarrow.parquet as pq

    with reading(place) as file:
        # Not mapped: a remote file's copy may be gone before the table is.
        return pq.read_table(file, columns=None if columns is None else list(columns), **how)


def write_table(table: pa.Table, place: Place, **how: Any) -> None:
    import pyarrow.parquet as pq

    with writing(place) as file:
        pq.write_table(table, file, **how)


def rows_in(place: Place) -> int:
    import pyarrow.parquet as pq

    with reading(place) as file:
        return int(pq.read_metadata(file).num_rows)


def schema_of(place: Place) -> pa.Schema:
    import pyarrow.parquet as pq

    with reading(place) as file:
        return pq.read_schema(file)


class Nearby:
    """Local copies of remote files, those used last, in a folder of this process."""

    def __init__(self, folder: Path, most: int = MOST_NEARBY) -> None:
        self._folder, self._most = folder, most
        self._lock, self._fetching = threading.Lock(), threading.Lock()
        self._copies: OrderedDict[str, Path] = OrderedDict()
        self._readers: Counter[Path] = Counter()

    @contextmanager
    def reading(self, place: RemotePath) -> Iterator[Path]:
        with self._fetching:
            copy = self._found(place) or self._fetched(place)
        try:
            yield copy
        finally:
            with self._lock:
                self._readers[copy] -= 1
                self._make_room()

    @contextmanager
    def writing(self, place: RemotePath) -> Iterator[Path]:
        copy = self._draft()
        try:
            yield copy
            place.bring(copy)
        except BaseException:
            copy.unlink(missing_ok=True)
            raise
        self._keep(place, copy)

    def _draft(self) -> Path:
        return self._folder / uuid.uuid4().hex

    def _found(self, place: RemotePath) -> Path | None:
        """The copy that is there, for one reader more."""
        with self._lock:
            if (copy := self._copies.get(place.uri)) is not None:
                self._copies.move_to_end(place.uri)
                self._readers[copy] += 1
            return copy

    def _fetched(self, place: RemotePath) -> Path:
        """A new copy, for its first reader."""
        copy = self._draft()
        try:
            place.fetch(copy)
        except BaseException:
            copy.unlink(missing_ok=True)
            raise
        self._keep(place, copy, readers=1)
        return copy

    def _keep(self, place: RemotePath, copy: Path, readers: int = 0) -> None:
        with self._lock:
            older = self._copies.pop(place.uri, None)
            self._copies[place.uri] = copy
            self._readers[copy] = readers
            if older is not None:
                older.unlink(missing_ok=True)
            self._make_room()

    def _make_room(self) -> None:
        kept = sum(copy.stat().st_size for copy in self._copies.values())
        for uri, copy in list(self._copies.items()):
            if kept <= self._most:
                break
            if not self._readers[copy]:
                kept -= copy.stat().st_size
                copy.unlink()
                del self._copies[uri], self._readers[copy]


@cache
def _nearby() -> Nearby:
    """The folder of this process; those of processes that were killed are removed."""
    common = Path(tempfile.gettempdir())
    for folder in common.glob("tidegate-nearby-*"):
        number = folder.name.split("-")[2]
        if number.isdigit() and not _runs(int(number)):
            shutil.rmtree(folder, ignore_errors=True)
    own = Path(tempfile.mkdtemp(prefix=f"tidegate-nearby-{os.getpid()}-"))
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return Nearby(own)


def _runs(process: int) -> bool:
    with suppress(PermissionError):  # then it runs, as somebody else's
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
    return True
