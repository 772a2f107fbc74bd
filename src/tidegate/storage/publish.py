"""Publishing: create a small file atomically, exactly once, so that of two writers one knows it lost.

"Create if absent" is not atomic everywhere (Hadoop's local file system let two writers win 145 times in 1,000), so each
file system has its own way, and one that has no safe way is refused:

- local: write a temporary file, fsync it, then `os.link` it to its name – link fails when the name exists;
- HDFS: write a temporary file, hsync it, then rename it – the name node refuses when the name exists;
- S3: one conditional PUT (``If-None-Match: *``) – the store refuses when the name exists.

An answer that is lost on a network makes the client ask again, and the second answer is that the name is taken – by
itself. So a remote publisher that was refused, or is told of an error, looks what is there: contents are unique to
their writers.
"""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from pathlib import Path

from tidegate import crash
from tidegate.errors import CheckpointError
from tidegate.storage.hadoop import file_system, hadoop_path, told
from tidegate.storage.places import Place
from tidegate.storage.remote import RemotePath

_CONDITION = "fs.option.create.conditional.overwrite"


def publish(place: Place, content: bytes, *, crash_point: str = "") -> bool:
    """Create `place` with `content`; False when it already exists. Never overwrites, never leaves half a file."""
    if isinstance(place, Path):
        return _by_link(place, content, crash_point)
    assert isinstance(place, RemotePath)
    create = {"hdfs": _by_rename, "s3a": _by_condition}[place.scheme]
    try:
        if create(place, content, crash_point):
            return True
    except OSError:
        if not place.exists():
            raise
    return place.read_bytes() == content


def prove(folder: Place) -> None:
    """Try whether of two writers one loses: there are stores that take a condition and do not look at it."""
    if isinstance(folder, Path):
        return  # that links fail where a name exists is part of POSIX
    probe = folder / f".probe-{uuid.uuid4().hex}"
    try:
        created = [publish(probe, b"one"), publish(probe, b"another")]
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)
    if created != [True, False]:
        raise CheckpointError(
            f"{folder} let two writers create the same file: a record could be overwritten by another driver",
            hint="the store must refuse a PUT with If-None-Match: * where there is an object, as Amazon's S3 does",
        )


def sync(path: Path) -> None:
    """Make the content of a local file, or the names in a local folder, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _by_link(path: Path, content: bytes, crash_point: str) -> bool:
    draft = path.parent / _draft(path.name)
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


def _by_rename(path: RemotePath, content: bytes, crash_point: str) -> bool:
    draft = path.parent / _draft(path.name)
    renamed = False
    try:
        with told(path.uri):
            system, source = file_system(path.uri), hadoop_path(draft.uri)
            stream = system.create(source, False)
            try:
                stream.write(content)
                stream.hsync()
            finally:
                stream.close()
            if crash_point:
                crash.point(crash_point)
            renamed = bool(system.rename(source, hadoop_path(path.uri)))
            return renamed
    finally:
        if not renamed:
            with suppress(OSError):
                draft.unlink(missing_ok=True)


def _by_condition(path: RemotePath, content: bytes, crash_point: str) -> bool:
    with told(path.uri):
        system = file_system(path.uri)
        if not system.hasPathCapability(hadoop_path(path.uri), _CONDITION):
            raise CheckpointError(
                f"{path.parent} cannot be written to on condition: fs.s3a.create.conditional.enabled is false, or "
                "hadoop-aws is too old",
                hint="conditional creation came with Hadoop 3.4.2; without it no record is safe from a second driver",
            )
        stream = system.createFile(hadoop_path(path.uri)).must(_CONDITION, True).build()
        stream.write(content)
        if crash_point:
            crash.point(crash_point)
        stream.close()  # here it is sent, and refused where there is an object
    return True


def _draft(name: str) -> str:
    return f".{name}.{uuid.uuid4().hex}"
