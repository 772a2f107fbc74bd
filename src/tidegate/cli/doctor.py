"""`tidegate doctor`: whether this machine has what a pipeline needs, and the remedy for what it lacks.

No Spark session is started: the versions are asked of the files that Spark would use.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click

from tidegate import jars
from tidegate.cli.output import print_json, size
from tidegate.java import OLDEST_JAVA, java_command, java_release

_MEMORY = 2_000_000_000
_DISK = 1_000_000_000


@dataclass(frozen=True)
class Sign:
    """One thing that was looked at. `needed`: without it nothing runs."""

    what: str
    found: str
    ok: bool
    remedy: str | None = None
    needed: bool = True


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@click.pass_context
def doctor(context: click.Context, as_json: bool) -> None:
    """Check what this machine has.

    Python, Java, PySpark, memory, disk, time zone; jars of connectors, programs of dev servers. Exits with 1 when
    something needed is missing.
    """
    signs = list(examine())
    healthy = all(sign.ok or not sign.needed for sign in signs)
    if as_json:
        print_json({"ok": healthy, "signs": [asdict(sign) for sign in signs]})
    else:
        for sign in signs:
            mark = "ok     " if sign.ok else "PROBLEM" if sign.needed else "note   "
            click.echo(f"{mark}  {sign.what:13} {sign.found}")
            if sign.remedy and not sign.ok:
                click.echo(f"           → {sign.remedy}")
        click.echo("everything needed is there" if healthy else "something needed is missing")
    context.exit(0 if healthy else 1)


def examine() -> Iterator[Sign]:
    yield _python()
    yield _java()
    yield from (_package("pyspark", "4.2"), _package("pyarrow", "18"))
    yield from (_memory(), _cores(), _disk(), _temporary(), _time_zone())
    yield from map(_jars, jars.groups())
    yield from (_program("postgres", _postgres), _program("redis", lambda: shutil.which("redis-server")))


def _python() -> Sign:
    found = ".".join(map(str, sys.version_info[:3]))
    return Sign("Python", found, sys.version_info >= (3, 11), "use Python 3.11 or newer")


def _java() -> Sign:
    command = java_command()
    where = "JAVA_HOME" if os.environ.get("JAVA_HOME") else "PATH"
    release = java_release(command)
    if release is not None and release >= OLDEST_JAVA:
        return Sign("Java", f"{release} ({command}, from {where})", True)
    found = f"none at {command}" if release is None else f"{release} ({command}, from {where})"
    others = sorted(Path("/usr/lib/jvm").glob("*/bin/java"))
    fitting = next((other for other in others if (java_release(other) or 0) >= OLDEST_JAVA), None)
    remedy = (
        f"export JAVA_HOME={fitting.parents[1]}"
        if fitting
        else f"install Java {OLDEST_JAVA} or newer (Debian: openjdk-{OLDEST_JAVA}-jre-headless) or set JAVA_HOME"
    )
    return Sign("Java", found, False, remedy)


def _package(name: str, at_least: str) -> Sign:
    try:
        found = version(name)
    except PackageNotFoundError:
        return Sign(name, "not installed", False, f'pip install "{name}>={at_least}"')
    return Sign(name, found, _numbers(found) >= _numbers(at_least), f'pip install --upgrade "{name}>={at_least}"')


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])


def _memory() -> Sign:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    remedy = f"Spark and Python want about {size(_MEMORY)}; close other programs or use a larger machine"
    return Sign("memory", size(total), total >= _MEMORY, remedy, needed=False)


def _cores() -> Sign:
    cores = os.cpu_count() or 1
    return Sign("cores", str(cores), cores > 1, "one core works, slowly", needed=False)


def _disk() -> Sign:
    free = shutil.disk_usage(Path.cwd()).free
    return Sign(
        "disk", f"{size(free)} free here", free >= _DISK, "make room: state and dead letters need it", needed=False
    )


def _temporary() -> Sign:
    try:
        with tempfile.NamedTemporaryFile() as file:
            return Sign("temp", str(Path(file.name).parent), True)
    except OSError as error:
        return Sign("temp", f"cannot be written: {error}", False, "point TMPDIR at a writable folder with free space")


def _jars(group: str) -> Sign:
    """Whether a group of jars is at hand; they are fetched when something first needs them."""
    total, missing = len(jars.of([group])), len(jars.missing([group]))
    found = f"{total - missing} of {total} in {jars.folder()}"
    remedy = (
        "put the missing files there, or unset TIDEGATE_JARS"
        if os.environ.get("TIDEGATE_JARS")
        else f"fetched when first needed; or now: tidegate dev jars {group}"
    )
    return Sign(f"jars {group}", found, not missing, remedy, needed=False)


def _program(server: str, find: Callable[[], str | Path | None]) -> Sign:
    found = find()
    remedy = f"`tidegate dev up {server}` installs it as root on Debian and Ubuntu; else install it yourself"
    return Sign(server, str(found or "not installed"), found is not None, remedy, needed=False)


def _postgres() -> Path | None:
    from tidegate.dev.postgres import programs

    return programs()


def _time_zone() -> Sign:
    return Sign("time zone", f"{time.tzname[0]}; pipelines count in UTC wherever they run", True)
