"""Places: what a checkpoint asks of a file system.

A local place is a `pathlib.Path`, as it is. A remote one is a `RemotePath`, which has as much of a `Path` as is asked
for here; so whoever works on a place need not know where it is.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any, Protocol

from tidegate.errors import CheckpointError
from tidegate.storage.remote import SCHEMES, RemotePath


class Stat(Protocol):
    """What is known of a file without reading it."""

    @property
    def st_size(self) -> int: ...

    @property
    def st_mtime(self) -> float: ...


class Place(Protocol):
    """A file or a folder; the methods are those of `pathlib.Path`."""

    @property
    def name(self) -> str: ...

    @property
    def stem(self) -> str: ...

    @property
    def suffix(self) -> str: ...

    @property
    def parent(self) -> Place: ...

    def __truediv__(self, part: str, /) -> Place: ...

    def __lt__(self, other: Any, /) -> bool: ...

    def relative_to(self, other: Any, /) -> PurePath: ...

    def exists(self) -> bool: ...

    def is_dir(self) -> bool: ...

    def is_file(self) -> bool: ...

    def stat(self) -> Stat: ...

    def iterdir(self) -> Iterator[Place]: ...

    def glob(self, pattern: str, /) -> Iterator[Place]: ...

    def rglob(self, pattern: str, /) -> Iterator[Place]: ...

    def mkdir(self, *, parents: bool = ..., exist_ok: bool = ...) -> None: ...

    def rmdir(self) -> None: ...

    def unlink(self, missing_ok: bool = ...) -> None: ...

    def read_bytes(self) -> bytes: ...

    def read_text(self) -> str: ...


def place(location: str) -> Place:
    """The folder behind a checkpoint location; a file system without a safe way to publish is refused."""
    if location.startswith("file:"):
        location = location.removeprefix("file://").removeprefix("file:")
    scheme = scheme_of(location)
    if scheme is None:
        return Path(location).resolve()
    if scheme not in SCHEMES:
        known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise CheckpointError(
            f"checkpoint on {scheme}:// is not supported",
            hint=f"records must be created atomically; use {known}, or a folder on a local or mounted POSIX file system"
            + ("; S3 is s3a:// to Hadoop" if scheme in ("s3", "s3n") else ""),
        )
    return RemotePath(location.rstrip("/"))


def scheme_of(location: str) -> str | None:
    """The scheme of a location that is not a local one."""
    return location.split("://", 1)[0].lower() if "://" in location and not location.startswith("file:") else None


def remove_tree(folder: Place) -> None:
    """Delete a folder with all that is in it, as far as that can be done."""
    if isinstance(folder, Path):
        shutil.rmtree(folder, ignore_errors=True)
    elif isinstance(folder, RemotePath):
        folder.remove_tree()
