"""PostgreSQL, of the system's packages, in a cluster of its own; everybody on this machine may log in.

It refuses to run as root, so there it runs as the user `postgres`, who must be able to reach the data: when a folder
above it is closed to other users, the data lie in the system's folder for temporary files instead.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from tidegate.dev.server import HOST, Server, install
from tidegate.errors import MachineError

_USER = "postgres"


class Postgres(Server):
    kind = "postgres"
    stop_signal = signal.SIGINT  # "fast": SIGTERM would wait for every client to leave

    def prepare(self, say: Callable[[str], None]) -> None:
        if programs() is None:
            install("postgresql", "postgresql", say)
        data = self._data()
        if (data / "PG_VERSION").exists():
            return
        shutil.rmtree(data, ignore_errors=True)  # what an initdb that was interrupted has left
        data.mkdir(mode=0o700, parents=True)
        if os.geteuid() == 0:
            shutil.chown(data, _USER)
        options = ["-D", str(data), "-U", _USER, "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-instructions"]
        # initdb syncs the empty cluster to disk for a second; the server itself syncs all it is told.
        self.run([*_as_user(), self._program("initdb"), *options, "--no-sync"], "make its data folder")

    def command(self, ports: list[int]) -> list[str]:
        settings = {
            "port": ports[0],
            "listen_addresses": HOST,
            "unix_socket_directories": "",
            "wal_level": "logical",  # change data capture can be tried too
            "max_connections": 100,
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [*_as_user(), self._program("postgres"), "-D", str(self._data()), *options]

    def answers(self, port: int) -> bool:
        command = [self._program("pg_isready"), "-q", "-h", HOST, "-p", str(port), "-t", "5"]
        return subprocess.run(command, check=False).returncode == 0

    def address(self, port: int) -> str:
        return f"postgresql://{_USER}@{HOST}:{port}/postgres"

    def environment(self, port: int) -> dict[str, str]:
        return {"DATABASE_URL": self.address(port)}

    def delete(self) -> None:
        shutil.rmtree(self._data(), ignore_errors=True)
        super().delete()

    def _data(self) -> Path:
        if os.geteuid() != 0 or all(parent.stat().st_mode & 0o001 for parent in self.folder.parents):
            return self.folder / "data"
        name = hashlib.sha256(str(self.folder).encode()).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"tidegate-dev-postgres-{name}"

    def _program(self, name: str) -> str:
        found = programs()
        if found is None:
            raise MachineError("PostgreSQL's programs have vanished", hint="install the package postgresql again")
        return str(found / name)


def programs() -> Path | None:
    """The folder of the newest server's programs; Debian does not put them on PATH."""
    folders = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    newest = max(folders, key=lambda folder: float(folder.parent.name), default=None)
    on_path = shutil.which("initdb")
    return newest or (Path(on_path).resolve().parent if on_path else None)


def _as_user() -> list[str]:
    if os.geteuid() != 0:
        return []
    try:
        user = pwd.getpwnam(_USER)
    except KeyError as error:
        raise MachineError(
            f"PostgreSQL refuses to run as root, and there is no user {_USER!r}",
            hint="run `tidegate dev` as another user, or install PostgreSQL from your system's packages",
        ) from error
    setpriv = shutil.which("setpriv")
    if not setpriv:
        raise MachineError("PostgreSQL refuses to run as root, and setpriv (of util-linux) is missing")
    return [setpriv, f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
