"""`doctor`, `init`, `conformance` and `demo`: the commands around a pipeline."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import Result

from tidegate.java import java_release

Cli = Callable[..., Result]

TRANSCRIPT = """
name: {name}
window: {{tumbling: 10}}
steps:
  - batch: [1, 2]
  - watermark: 10
  - expect: [{{window: [0, 10], values: [{values}]}}]
"""


def fake_java(folder: Path, version: str) -> Path:
    command = folder / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    command.chmod(0o755)
    return command


def test_doctor_reports_each_thing(cli: Cli, tmp_path: Path) -> None:
    fake_java(tmp_path, "21.0.2")
    done = cli("doctor", env={"JAVA_HOME": str(tmp_path)})
    assert done.exit_code == 0, done.output
    for what in ("Python", "Java", "pyspark", "memory", "cores", "disk", "temp", "time zone"):
        assert f"  {what} " in done.output
    assert done.output.endswith("everything needed is there\n")


def test_doctor_fails_when_java_is_too_old(cli: Cli, tmp_path: Path) -> None:
    fake_java(tmp_path, "1.8.0_392")
    done = cli("doctor", "--json", env={"JAVA_HOME": str(tmp_path)})
    assert done.exit_code == 1
    data = json.loads(done.output)
    (java,) = (sign for sign in data["signs"] if sign["what"] == "Java")
    assert not data["ok"]
    assert java["found"].startswith("8 (")
    assert "JAVA_HOME" in java["remedy"]


def test_a_java_that_does_not_run_has_no_release(tmp_path: Path) -> None:
    assert java_release(tmp_path / "none") is None
    assert java_release(fake_java(tmp_path, "17.0.15")) == 17


def test_init_makes_a_project_that_passes_check(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "project"
    done = cli("init", folder)
    assert done.exit_code == 0, done.output
    assert done.output.endswith(f"next: tidegate run {folder / 'pipeline.py'} --once\n")
    assert cli("check", folder / "pipeline.py").output == "orders: good\n"
    lines = [line for path in sorted(folder.glob("data/*.jsonl")) for line in path.read_text().splitlines()]
    assert len(lines) == 243
    assert len(lines) - len(set(lines)) == 1


def test_init_overwrites_nothing(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    done = cli("init", tmp_path)
    assert done.exit_code == 1
    assert "already exists; nothing was written" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]


def test_conformance_has_a_line_per_transcript_and_counts(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(TRANSCRIPT.format(name="holds", values="1, 2"))
    done = cli("conformance", tmp_path, "--executor", "model")
    assert done.output == "ok     model holds\n1 passed, 0 failed\n"
    assert done.exit_code == 0
    (tmp_path / "b.yaml").write_text(TRANSCRIPT.format(name="does_not", values="1, 3"))
    (tmp_path / "c.yaml").write_text("no: transcript")
    done = cli("conformance", tmp_path, "--executor", "model")
    assert "\nFAILED model does_not\n" in done.output
    assert done.output.endswith("\n1 passed, 2 failed\n")
    assert done.exit_code == 1


def test_conformance_json_is_an_object_per_line_and_the_count(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(TRANSCRIPT.format(name="holds", values="1, 2"))
    first, last = cli("conformance", tmp_path, "--executor", "model", "--json").output.splitlines()
    assert json.loads(first)["passed"] is True
    assert last == "1 passed, 0 failed"


def test_a_path_without_transcripts_fails(cli: Cli, tmp_path: Path) -> None:
    done = cli("conformance", tmp_path / "absent", "--executor", "model")
    assert done.exit_code == 1
    assert done.output.endswith("0 passed, 1 failed\n")


def test_demo_hands_its_options_on(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[object] = []
    module = ModuleType("tidegate.demo")
    module.__dict__["run_demo"] = lambda folder, events, watcher: called.extend((folder, events))
    monkeypatch.setitem(sys.modules, "tidegate.demo", module)
    assert cli("demo", "--events", "5000", "--folder", tmp_path).exit_code == 0
    assert called == [tmp_path, 5_000]
