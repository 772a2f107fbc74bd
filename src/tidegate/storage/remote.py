"""Remote paths: a file or folder on HDFS or S3, with as much of `pathlib.Path` as a checkpoint uses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from tidegate.storage.hadoop import file_system, hadoop_path, told

SCHEMES = ("hdfs", "s3a")
"""File systems that have a safe way to publish; see `publish`."""


@dataclass(frozen=True)
class RemoteStat:
    """What is known of a remote file without reading it."""

    st_size: int
    st_mtime: float


@dataclass(frozen=True, order=True)
class RemotePath:
    """A path such as ``hdfs://namenode:8020/pipelines/revenue``; its text is what Spark reads and writes by."""

    uri: str

    def __str__(self) -> str:
        return self.uri

    def __truediv__(self, part: str) -> RemotePath:
        return RemotePath(f"{self.uri}/{part}")

    @property
    def scheme(self) -> str:
        return self.uri.split("://", 1)[0].lower()

    @property
    def name(self) -> str:
        return self.uri.rpartition("/")[2]

    @property
    def stem(self) -> str:
        return PurePosixPath(self.name).stem

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.name).suffix

    @property
    def parent(self) -> RemotePath:
        return RemotePath(self.uri.rpartition("/")[0])

    def relative_to(self, other: RemotePath) -> PurePosixPath:
        if not self.uri.startswith(f"{other.uri}/"):
            raise ValueError(f"{self} is not inside {other}")
        return PurePosixPath(self.uri.removeprefix(f"{other.uri}/"))

    def exists(self) -> bool:
        with self._at() as (system, path):
            return bool(system.exists(path))

    def is_dir(self) -> bool:
        status = self._status()
        return status is not None and bool(status.isDirectory())

    def is_file(self) -> bool:
        status = self._status()
        return status is not None and bool(status.isFile())

    def stat(self) -> RemoteStat:
        with self._at() as (system, path):
            status = system.getFileStatus(path)
            return RemoteStat(int(status.getLen()), status.getModificationTime() / 1000)

    def iterdir(self) -> Iterator[RemotePath]:
        with self._at() as (system, path):
            names = [status.getPath().getName() for status in system.listStatus(path)]
        return (self / name for name in names)

    def glob(self, pattern: str) -> Iterator[RemotePath]:
        """What is in a folder under names like `pattern`; nothing when there is no folder."""
        try:
            found = list(self.iterdir())
        except FileNotFoundError:
            found = []
        return (path for path in found if fnmatchcase(path.name, pattern))

    def rglob(self, pattern: str) -> Iterator[RemotePath]:
        """The files in a folder and the folders in it, under names like `pattern`."""
        found = []
        try:
            with self._at() as (system, path):
                listing, base = system.listFiles(path, True), system.makeQualified(path).toString()
                while listing.hasNext():
                    within = listing.next().getPath().toString().removeprefix(f"{base}/")
                    found.append(self / within)
        except FileNotFoundError:
            pass
        return (path for path in found if fnmatchcase(path.name, pattern))

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Make the folder, and those that it is in."""
        with self._at() as (system, path):
            system.mkdirs(path)

    def rmdir(self) -> None:
        with self._at() as (system, path):
            system.delete(path, False)

    def unlink(self, missing_ok: bool = False) -> None:
        with self._at() as (system, path):
            if not system.delete(path, False) and not missing_ok:
                raise FileNotFoundError(self.uri)

    def remove_tree(self) -> None:
        # What is left is deleted with the orphans, by the next driver.
        with suppress(OSError), self._at() as (system, path):
            system.delete(path, True)

    def read_bytes(self) -> bytes:
        with self._at() as (system, path):
            stream = system.open(path)
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

    def read_text(self) -> str:
        return self.read_bytes().decode()

    def fetch(self, target: Path) -> None:
        """Copy the file to a local one."""
        with self._at() as (system, path):
            system.copyToLocalFile(False, path, hadoop_path(f"file://{target}", beside=self.uri), True)

    def bring(self, source: Path) -> None:
        """Copy a local file here, over what is there."""
        with self._at() as (system, path):
            system.copyFromLocalFile(False, hadoop_path(f"file://{source}", beside=self.uri), path)

    def _status(self) -> Any:
        try:
            with self._at() as (system, path):
                return system.getFileStatus(path)
        except FileNotFoundError:
            return None

    @contextmanager
    def _at(self) -> Iterator[tuple[Any, Any]]:
        """Hadoop's file system and path, with errors as Python has them."""
        with told(self.uri):
            yield file_system(self.uri), hadoop_path(self.uri)
