"""Java: which one Spark and the servers of `tidegate dev` would start, and a sentence that helps when it is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidegate.errors import MachineError

OLDEST_JAVA = 17


def java_command() -> Path:
    """The Java that Spark would start: of JAVA_HOME when that is set, else the one on PATH."""
    home = os.environ.get("JAVA_HOME")
    return Path(home, "bin", "java") if home else Path(shutil.which("java") or "java")


def java_release(command: Path) -> int | None:
    """The feature release of a `java` command (8, 17, 21); None when it does not run."""
    try:
        done = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(match[1]) if match else None


def need_java(who: str = "Spark") -> Path:
    """The command, or a sentence that helps, before `who` would fail with a stack trace."""
    command = java_command()
    release = java_release(command)
    if release is None or release < OLDEST_JAVA:
        found = f"none runs at {command}" if release is None else f"{command} is Java {release}"
        raise MachineError(
            f"{who} needs Java {OLDEST_JAVA} or newer; {found}",
            hint="install it (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME; see `tidegate doctor`",
        )
    return command


@contextmanager
def quiet_launch() -> Iterator[None]:
    """Keep the JVM's chatter out of the user's terminal: its stderr is what ours is while it starts."""
    if "TIDEGATE_DEBUG" in os.environ:
        yield
        return
    sys.stderr.flush()
    ours = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)
        os.close(nowhere)
