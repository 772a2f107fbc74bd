"""A checkpoint on HDFS or S3, from the command line: run, killed, run again, looked at."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chaos.drivers import Pipeline
from tests.servers import unique
from tests.stores import STORES, Store

pytestmark = [pytest.mark.usefixtures("jvm_alone"), pytest.mark.parametrize("store", STORES, indirect=True)]


@pytest.fixture
def pipeline(tmp_path: Path, store: Store) -> Iterator[Pipeline]:
    made = Pipeline.make(tmp_path, location=store.location(unique("run")))
    yield made
    made.close()


def tidegate(pipeline: Pipeline, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidegate.cli", *arguments]
    return subprocess.run(command, cwd=pipeline.folder, capture_output=True, text=True, timeout=120, check=False)


def test_a_pipeline_is_killed_and_goes_on_and_can_be_looked_at(pipeline: Pipeline) -> None:
    killed = pipeline.run("--drain", *pipeline.bounded(4), crash_at="mid_record:3")
    assert killed.code == -signal.SIGKILL, killed.err
    assert pipeline.sequence() == 2
    pipeline.finish(*pipeline.bounded(4))
    assert pipeline.troubles() == []
    assert not list(pipeline.folder.glob("checkpoint*")), "nothing of the checkpoint is local"

    status = tidegate(pipeline, "status", pipeline.location, "--json")
    assert status.returncode == 0, status.stderr
    told = json.loads(status.stdout)
    assert told["checkpoint"] == pipeline.location
    assert told["unaccounted"] == 0
    listed = tidegate(pipeline, "dlq", "list", pipeline.location, "--json")
    assert listed.returncode == 0, listed.stderr
    assert listed.stderr == ""
    letters = {letter["reason"] for letter in map(json.loads, listed.stdout.splitlines())}
    assert "LATE" in letters


def test_what_is_wrong_with_a_location_is_said_in_a_sentence(pipeline: Pipeline, store: Store) -> None:
    absent = tidegate(pipeline, "status", store.location(unique("absent")))
    assert absent.returncode == 1
    assert "is not a Tidegate checkpoint" in absent.stderr
    assert "Traceback" not in absent.stderr
    other = pipeline.run("--once")
    assert other.code == 0, other.err
    (pipeline.folder / "other.py").write_text((pipeline.folder / "app.py").read_text().replace('"chaos"', '"other"'))
    taken = tidegate(pipeline, "run", "other.py", "--once", "--checkpoint", pipeline.location)
    assert taken.returncode == 1
    assert "is the checkpoint of pipeline 'chaos'" in taken.stderr
