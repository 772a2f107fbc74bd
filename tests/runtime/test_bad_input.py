"""What goes wrong around a pipeline, as a user meets it on the command line: one message, exit code 1, no trace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import tidegate

SOURCES = Path(tidegate.__file__).resolve().parents[1]

APP = """
import tidegate as tg

app = tg.App("shop")
events = app.source(
    "events",
    tg.Files("input"),
    contract="id STRING, k STRING, v BIGINT, at TIMESTAMP",
    event_time="at",
)
counts = events.where("WHERE").key_by("k").window("counts", tg.Tumbling("1m")).aggregate(n=tg.count())
app.sink("table", counts, tg.SQLite("out.db", table="counts"))
"""


@dataclass
class Ended:
    code: int
    out: str
    err: str

    def says(self, *texts: str) -> None:
        """It failed, with these words and without a stack of any kind."""
        assert self.code == 1, f"exit code {self.code}\n{self.out}\n{self.err}"
        for text in texts:
            assert text in self.err, f"{text!r} is not in:\n{self.err}"
        for trace in ("Traceback", "Py4J", "at org.apache", "at java.", "pyspark.errors", "SQLQueryContextLogger"):
            assert trace not in self.out + self.err, f"{trace!r} is in:\n{self.err}"


@dataclass
class Shell:
    """A project folder, and the command line in it."""

    folder: Path

    def app(self, text: str = APP, where: str = "v > 0") -> Shell:
        (self.folder / "app.py").write_text(text.replace("WHERE", where))
        return self

    def events(self, *lines: object) -> Shell:
        (self.folder / "input").mkdir(exist_ok=True)
        content = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
        (self.folder / "input" / "1.jsonl").write_text(content)
        return self

    def run(self, *options: str, **environment: str) -> Ended:
        full = os.environ | {"PYTHONPATH": str(SOURCES), "TIDEGATE_BRIEF": "1"} | environment
        full.pop("TIDEGATE_DEBUG", None)
        command = [sys.executable, "-m", "tidegate.cli", "run", "app.py", "--drain", *options]
        done = subprocess.run(
            command, cwd=self.folder, env=full, capture_output=True, text=True, timeout=240, check=False
        )
        return Ended(done.returncode, done.stdout, done.stderr)


EVENT = {"id": "e1", "k": "a", "v": 1, "at": "2024-03-01T12:00:00Z"}


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path).app().events(EVENT)


# -- told before Spark is started -----------------------------------------------------------------------------------


def test_a_missing_folder(shell: Shell) -> None:
    (shell.folder / "input" / "1.jsonl").unlink()
    (shell.folder / "input").rmdir()
    shell.run().says("source folder 'input' does not exist", "hint:")
    assert not (shell.folder / ".tidegate").exists(), "nothing was begun"


def test_a_file_in_place_of_the_folder(shell: Shell) -> None:
    shell.app(APP.replace('"input"', '"app.py"')).run().says("source folder 'app.py' is not a folder")


def test_a_checkpoint_where_a_file_is(shell: Shell) -> None:
    (shell.folder / "taken").write_text("mine")
    shell.run("--checkpoint", "taken").says("cannot make the checkpoint", "taken")
    assert (shell.folder / "taken").read_text() == "mine"


def test_a_checkpoint_below_a_file(shell: Shell) -> None:
    (shell.folder / "taken").write_text("mine")
    shell.run("--checkpoint", "taken/deeper").says("cannot make the checkpoint")


@pytest.mark.skipif(not Path("/proc/version").exists(), reason="needs a file system that nobody can write to")
def test_a_checkpoint_that_cannot_be_written(shell: Shell) -> None:
    shell.run("--checkpoint", "/proc/tidegate").says("cannot make the checkpoint /proc/tidegate")


def test_a_checkpoint_on_a_file_system_without_atomic_create(shell: Shell) -> None:
    shell.run("--checkpoint", "gs://bucket/x").says("checkpoint on gs:// is not supported", "hint:")


def test_a_folder_of_something_else_as_checkpoint(shell: Shell) -> None:
    shell.run("--checkpoint", ".").says("is not empty and not a Tidegate checkpoint")


def test_no_java(shell: Shell) -> None:
    ended = shell.run(PATH="/nonexistent", JAVA_HOME="")
    ended.says("Spark needs Java 17 or newer", "hint:", "openjdk-17")


def test_a_java_home_that_is_wrong(shell: Shell) -> None:
    shell.run(JAVA_HOME="/nonexistent").says("Spark needs Java 17 or newer", "/nonexistent/bin/java")


def test_an_app_with_a_syntax_error(shell: Shell) -> None:
    shell.app(APP + "\ndef revenue(:\n").run().says("cannot be read as Python", "def revenue(:", "app.py")


def test_an_app_that_raises(shell: Shell) -> None:
    ended = shell.app(APP + "\nprices = {}\nprices['gone']\n").run()
    ended.says("KeyError: 'gone'", "prices['gone']", "while it was being loaded")


def test_a_column_that_is_not_there(shell: Shell) -> None:
    shell.app(where="`vv` > 0").run().says("'vv' is not a column", "did you mean 'v'?")
    shell.app(APP.replace('key_by("k")', 'key_by("kk")')).run().says("'kk' is not a column")


def test_an_app_without_a_sink(shell: Shell) -> None:
    shell.app(APP.partition("app.sink")[0]).run().says("no sink takes its results")


def test_a_sink_that_cannot_be_written_is_told_before_anything_is_read(shell: Shell) -> None:
    (shell.folder / "out.db").mkdir()
    shell.run().says("SQLite path out.db is a folder")


# -- told by Spark, in our words ------------------------------------------------------------------------------------


@pytest.mark.spark
def test_a_word_that_only_spark_can_judge(shell: Shell) -> None:
    """`check` is not sure of bare words in longer expressions; Spark is, before any event is read."""
    ended = shell.app(where="v + nonsense > 0").run()
    ended.says("Spark cannot plan app 'shop'", "nonsense", "hint:")


@pytest.mark.spark
def test_a_contract_that_spark_cannot_read(shell: Shell) -> None:
    shell.app(APP.replace("v BIGINT", "v BIGNUMBER")).run().says("BIGNUMBER", "hint:")


@pytest.mark.spark
def test_records_that_throw_leave_no_trace_on_the_terminal(shell: Shell) -> None:
    """Poison is isolated by letting it throw; Spark reports each throw at length, and that is not for the user."""
    shell.app(where="1 / v > 0").events(EVENT, EVENT | {"v": 0}, "garbage", "\\xff")
    ended = shell.run()
    assert ended.code == 0, ended.err
    assert "dead letters 3 (MALFORMED 2, EXPRESSION_ERROR 1), unaccounted 0" in ended.out
    for trace in ("Traceback", "Py4J", "at org.apache", "SQLQueryContextLogger"):
        assert trace not in ended.out + ended.err, ended.err[:2000]


@pytest.mark.spark
def test_a_function_of_the_users_that_raises_is_shown_with_its_own_error(shell: Shell) -> None:
    text = APP.replace('events.where("WHERE")', "events.transform(wrong)").replace(
        "app = tg.App", "def wrong(df):\n    return df.no_such_method()\n\napp = tg.App"
    )
    shell.app(text).run().says("no_such_method")
