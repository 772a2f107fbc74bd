"""Jars: the Java parts that connectors and dev servers need, the very ones that were tested together.

`jars.lock` lists each of them with its SHA-256, in groups. `fetch` brings a group from a Maven repository into a cache
folder, once, and hands out files whose hash was checked. It uses Apache Ivy, which lies inside PySpark, and nothing is
left for Ivy to resolve: a file is on the list, or it does not come.

- ``TIDEGATE_CACHE`` is the folder of the cache, default ``~/.cache/tidegate/jars``.
- ``TIDEGATE_MAVEN`` is the address of the repository. Without it, the mirror of Maven Central in
  ``~/.m2/settings.xml`` is used where there is one, with its user and password, else Maven Central.
- ``TIDEGATE_JARS`` is a folder that already holds the jars: they are taken from there, and nothing is ever fetched.
  That is the way for machines without access to any repository; there the jars are taken as they are.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import uuid
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from tidegate.errors import MachineError
from tidegate.maven import retrieve, where


@dataclass(frozen=True)
class Jar:
    """One line of the lock: a Maven coordinate ``group:artifact:version[:extension:classifier]`` and its hash."""

    group: str
    coordinate: str
    sha256: str

    @property
    def file(self) -> str:
        """The file's name, the same in a repository, in the cache and in TIDEGATE_JARS."""
        _, artifact, version, *rest = self.coordinate.split(":")
        extension, classifier = rest or ("jar", "")
        return f"{artifact}-{version}{f'-{classifier}' if classifier else ''}.{extension}"


@cache
def locked() -> tuple[Jar, ...]:
    """All lines of the lock."""
    lines = files("tidegate").joinpath("jars.lock").read_text("utf-8").splitlines()
    return tuple(Jar(*line.split()) for line in lines if line and not line.startswith("#"))


def groups() -> tuple[str, ...]:
    return tuple(dict.fromkeys(jar.group for jar in locked()))


def of(wanted: Iterable[str]) -> list[Jar]:
    """The jars of some groups, each file once."""
    wanted = tuple(wanted)
    if unknown := [group for group in wanted if group not in groups()]:
        raise MachineError(f"there is no group of jars called {unknown[0]!r}", hint=f"choose of {', '.join(groups())}")
    return list({jar.file: jar for jar in locked() if jar.group in wanted}.values())


def folder() -> Path:
    """Where jars are: TIDEGATE_JARS, else the cache."""
    return _given_folder() or _cache_folder()


def missing(wanted: Iterable[str]) -> list[Jar]:
    """What `fetch` would have to fetch, or could not find in TIDEGATE_JARS."""
    place = folder()
    return [jar for jar in of(wanted) if not (place / jar.file).is_file()]


def fetch(wanted: Iterable[str]) -> list[Path]:
    """The files of some groups, fetched where they are not in the cache yet. Two processes may do so at once."""
    jars = of(wanted)
    if given := _given_folder():
        if absent := [jar for jar in jars if not (given / jar.file).is_file()]:
            raise MachineError(
                f"TIDEGATE_JARS is {given}, which lacks {', '.join(jar.file for jar in absent)}",
                hint=f"put {absent[0].coordinate} there, or unset TIDEGATE_JARS to have it fetched",
            )
        return [given / jar.file for jar in jars]
    place = _cache_folder()
    try:
        place.mkdir(parents=True, exist_ok=True)
        if absent := [jar for jar in jars if not _is_there(jar, place)]:
            _fetch_into(place, absent)
    except OSError as error:
        raise MachineError(
            f"jars cannot be kept in {place}: {error}", hint="set TIDEGATE_CACHE to a folder that you may write to"
        ) from error
    return [place / jar.file for jar in jars]


def unpacked(archive: Path) -> Path:
    """The folder in the cache that holds the content of a fetched zip, unpacked once."""
    place = _cache_folder() / archive.stem
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        draft = place.with_name(f".{place.name}.{uuid.uuid4().hex}")
        with zipfile.ZipFile(archive) as content:
            content.extractall(draft)
        try:
            draft.rename(place)
        except OSError:
            shutil.rmtree(draft)
            if not place.is_dir():
                raise  # else another process was first, with the same content
    return place


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch_into(place: Path, jars: list[Jar]) -> None:
    """Fetch into a folder of our own, and move what is right to its name: nobody ever sees half a file."""
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=place) as scratch:
        found = retrieve([jar.coordinate for jar in jars], Path(scratch))
        for jar in jars:
            draft = found / jar.file
            if not draft.is_file():
                raise MachineError(
                    f"{jar.coordinate} cannot be had from {where()}",
                    hint="set TIDEGATE_MAVEN to a Maven repository that has it, or TIDEGATE_JARS to a folder that "
                    f"holds {jar.file}",
                )
            if (hashed := sha256(draft)) != jar.sha256:
                raise MachineError(
                    f"{jar.file} from {where()} is not the file that was locked: its SHA-256 is {hashed}, "
                    f"not {jar.sha256}",
                    hint="ask who runs that repository; or get the file elsewhere and set TIDEGATE_JARS to its folder",
                )
            draft.replace(place / jar.file)


def _is_there(jar: Jar, place: Path) -> bool:
    path = place / jar.file
    return path.is_file() and sha256(path) == jar.sha256


def _cache_folder() -> Path:
    return Path(os.environ.get("TIDEGATE_CACHE") or Path.home() / ".cache" / "tidegate" / "jars")


def _given_folder() -> Path | None:
    given = os.environ.get("TIDEGATE_JARS")
    return Path(given) if given else None
