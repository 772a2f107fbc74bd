"""Exit codes and stderr, seen from outside: a real process for what only a real process shows."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import tidegate

Cli = Callable[..., Result]

SRC = Path(tidegate.__file__).parents[1]


def tidegate_process(*args: object, code: str | None = None) -> subprocess.CompletedProcess[str]:
    start = ["-c", code] if code else ["-m", "tidegate.cli"]
    env = os.environ | {"PYTHONPATH": str(SRC)}
    command = [sys.executable, *start, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=120, check=False)


def test_help_names_every_command() -> None:
    done = tidegate_process("--help")
    assert done.returncode == 0
    for command in ("init", "check", "explain", "run", "status", "dlq", "conformance", "demo", "doctor"):
        assert f"\n  {command} " in done.stdout
    assert tidegate_process("--version").stdout == f"tidegate {tidegate.__version__}\n"


@pytest.mark.parametrize(
    "args",
    [("frobnicate",), ("status",), ("explain", "x.py", "--format", "png"), ("run", "x.py", "--once", "--drain")],
)
def test_wrong_usage_exits_with_2(args: tuple[str, ...]) -> None:
    done = tidegate_process(*args)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Usage: tidegate" in done.stderr


def test_an_error_goes_to_stderr_and_exits_with_1(tmp_path: Path) -> None:
    done = tidegate_process("status", tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert "is not a Tidegate checkpoint" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_app_file_with_an_error_shows_no_trace_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.py"
    path.write_text("import tidegate as tg\nundefined_name\n")
    done = tidegate_process("check", path)
    assert done.returncode == 1
    assert "NameError: name 'undefined_name' is not defined" in done.stderr
    assert "line 2" in done.stderr
    assert "click" not in done.stderr


def test_a_bug_is_one_line_and_a_way_to_see_more(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(target: str) -> None:
        raise RuntimeError("first line\nat org.apache.spark.Something\nat py4j.Gateway")

    monkeypatch.setattr(importlib.import_module("tidegate.cli.status"), "locate", broken)
    done = cli("status", "anything")
    assert done.exit_code == 1
    assert done.stderr == ("internal error: RuntimeError: first line\nrun with TIDEGATE_DEBUG=1 for the stack trace\n")
    assert isinstance(cli("status", "anything", env={"TIDEGATE_DEBUG": "1"}).exception, RuntimeError)


def test_ctrl_c_is_not_an_error_with_a_trace(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(target: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib.import_module("tidegate.cli.status"), "locate", interrupted)
    done = cli("status", "anything")
    assert done.exit_code == 130
    assert done.stderr == "interrupted\n"


@pytest.mark.parametrize(
    "args", [("status", "{checkpoint}"), ("dlq", "list", "{checkpoint}"), ("check", "{app}"), ("explain", "{app}")]
)
def test_reading_commands_start_without_spark(args: tuple[str, ...], app_file: Path, checkpoint: Path) -> None:
    code = (
        "import sys; from tidegate.cli import main; main(standalone_mode=False); "
        "found = {'pyspark', 'rich'} & set(sys.modules); assert not found, found"
    )
    done = tidegate_process(*(arg.format(checkpoint=checkpoint, app=app_file) for arg in args), code=code)
    assert done.returncode == 0, done.stderr
