"""Two programs that are one server: neither is left when the other is gone."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from tidegate.dev import together

START = [sys.executable, "-I", together.__file__]


def until_told(file: Path) -> list[str]:
    """A command that makes a file, waits for SIGTERM, and deletes it: what is left was not ended in good order."""
    code = f"import pathlib, signal; file = pathlib.Path({str(file)!r}); signal.pthread_sigmask(0, [15]); "
    return [sys.executable, "-c", code + "file.touch(); signal.sigwait([15]); file.unlink()"]


def await_files(folder: Path, count: int) -> None:
    until = time.monotonic() + 30
    while len(list(folder.iterdir())) < count:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_when_one_ends_the_other_is_ended_and_its_code_is_told(tmp_path: Path) -> None:
    until_there = f"import pathlib, time\nwhile not pathlib.Path({str(tmp_path / 'a')!r}).exists(): time.sleep(0.01)"
    ends = [sys.executable, "-c", f"{until_there}\nraise SystemExit(7)"]
    done = subprocess.run([*START, *until_told(tmp_path / "a"), "--", *ends], timeout=60, check=False)
    assert done.returncode == 7
    assert list(tmp_path.iterdir()) == []


def test_both_are_ended_in_good_order_when_it_is(tmp_path: Path) -> None:
    process = subprocess.Popen([*START, *until_told(tmp_path / "a"), "--", *until_told(tmp_path / "b")])
    await_files(tmp_path, 2)
    process.send_signal(signal.SIGTERM)
    process.wait(60)
    assert list(tmp_path.iterdir()) == []
