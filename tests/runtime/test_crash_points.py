"""A process dies where it was told to, and nowhere else; all that is killed in the chaos tests rests on this."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

PROCESS = """
from tidegate import crash

for record in (1, 2):
    for sink in ("table", "log"):
        with crash.working_for(sink):
            print(record, sink, flush=True)
            crash.point("mid_sink")
    crash.point("after_sinks")
"""


@pytest.mark.parametrize(
    ("crash_at", "last"),
    [
        ("mid_sink", "1 table"),
        ("mid_sink:3", "2 table"),
        ("log/mid_sink", "1 log"),
        ("log/mid_sink:2", "2 log"),
        ("table/mid_sink:2", "2 table"),
        ("after_sinks", "1 log"),
    ],
)
def test_a_process_dies_at_the_point_that_was_named(crash_at: str, last: str) -> None:
    died = run(crash_at)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert died.stdout.splitlines()[-1] == last


@pytest.mark.parametrize("crash_at", ["", "elsewhere", "mid_sink:5", "log/mid_sink:3", "log/after_sinks"])
def test_a_process_that_does_not_come_to_its_point_lives(crash_at: str) -> None:
    assert run(crash_at).returncode == 0


def run(crash_at: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"TIDEGATE_CRASH_AT": crash_at, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(
        [sys.executable, "-c", PROCESS], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
