"""Publishing: create a small file atomically, exactly once, so that of two writers one knows it lost.

"Create if absent" is not atomic everywhere (Hadoop's local file system let two writers win 145 times in 1,000),
so each file system has its own way, and one that has no safe way is refused:

- local: write a temporary file, fsync it, then `os.link` it to its name – link fails when the name exists.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from tidegate import crash
from tidegate.errors import CheckpointError


def publish(path: Path, content: bytes, *, crash_point: str = "") -> bool:
    """Create `path` with `content`; False when it already exists. Never overwrites, never leaves half a file."""
    draft = path.parent / f".{path.name}.{uuid.uuid4().hex}"
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if crash_point:
            crash.point(crash_point)
        try:
            os.link(draft, path)  # a link, unlike a rename, fails when the name is taken
        except FileExistsError:
            return False
        sync(path.parent)
        return True
    finally:
        draft.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Make the content of a file, or the names in a folder, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def local_folder(location: str) -> Path:
    """The folder behind a checkpoint location; file systems without a safe create are refused."""
    if location.startswith("file:"):
        location = location.removeprefix("file://").removeprefix("file:")
    if "://" in location:
        scheme = location.split("://", 1)[0]
        raise CheckpointError(
            f"checkpoint on {scheme}:// is not supported",
            hint="records must be created atomically; use a folder on a local or mounted POSIX file system",
        )
    return Path(location).resolve()
