"""Runs an example as its README says, but in this process and on the servers of the tests."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from tests.servers import RunningServer, unique
from tests.workbench import Bench

from tidegate.cli.load import load_app
from tidegate.runtime.reports import RunSummary

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@dataclass
class Example:
    """An example and the folder in which somebody tries it; addresses and names are in the environment."""

    name: str
    bench: Bench

    def script(self, name: str, *arguments: str) -> str:
        """What a script of the example prints; it must end well."""
        done = self._python(name, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def complaint(self, name: str) -> str:
        """What a script says that must not end well."""
        done = self._python(name)
        assert done.returncode == 1, done.stdout + done.stderr
        return done.stderr

    def run(self, max_batch: int) -> RunSummary:
        summary = self.bench.run(load_app(EXAMPLES / self.name / "app.py"), max_batch=max_batch)
        assert summary.totals.unaccounted() == 0
        return summary

    def _python(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(EXAMPLES / self.name / name), *arguments],
            cwd=self.bench.folder,
            env=os.environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


def new_database(server: RunningServer) -> str:
    """The address of a database that is empty: the examples have fixed names for their tables."""
    name = unique("example")
    with psycopg.connect(server.address, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return urlsplit(server.address)._replace(path=f"/{name}").geturl()
