"""`tidegate schema` on files and under git; with a registry see tests/contracts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

Cli = Callable[..., Result]

ID = {"name": "id", "type": "string"}
AMOUNT = {"name": "amount", "type": "int"}
CURRENCY = {"name": "currency", "type": "string"}


def avro(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Payment", "fields": list(fields)})


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "v1.avsc").write_text(avro(ID, AMOUNT))
    (tmp_path / "v2.avsc").write_text(avro(ID, AMOUNT | {"type": "long"}, CURRENCY | {"default": "EUR"}))
    (tmp_path / "bad.avsc").write_text(avro(ID, AMOUNT | {"type": "string"}, CURRENCY))
    return tmp_path


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


def test_a_schema_that_may_follow_is_good(cli: Cli, files: Path) -> None:
    done = cli("schema", "check", files / "v2.avsc", "--against", files / "v1.avsc")
    assert (done.exit_code, done.output) == (
        0,
        f"{files / 'v2.avsc'}: good (BACKWARD, against {files / 'v1.avsc'})\n",
    )


def test_one_that_may_not_is_told_with_path_and_reason(cli: Cli, files: Path) -> None:
    done = cli("schema", "check", files / "bad.avsc", "--against", files / "v1.avsc", "--mode", "full")
    assert done.exit_code == 1
    assert f"the new schema cannot read what was written with {files / 'v1.avsc'}:" in done.output
    assert "  amount: int cannot be read as string [TYPE_CHANGED]" in done.output
    assert "  currency: the reader needs this field, the writer does not have it, and it has no default" in done.output
    assert f"who still uses {files / 'v1.avsc'} cannot read what is written with the new schema:" in done.output
    assert "  amount: string cannot be read as int [TYPE_CHANGED]" in done.output
    assert "not compatible (FULL, against" in done.output


def test_json_says_the_same_to_a_machine(cli: Cli, files: Path) -> None:
    old, new = files / "v1.avsc", files / "bad.avsc"
    done = cli("schema", "check", new, "--against", old, "--json")
    said = json.loads(done.output)
    assert (done.exit_code, said["compatible"], said["mode"], said["compared_with"]) == (
        1,
        False,
        "BACKWARD",
        [str(old)],
    )
    assert said["violations"][0] == {
        "direction": "backward",
        "against": str(old),
        "kind": "TYPE_CHANGED",
        "path": "amount",
        "message": "int cannot be read as string",
    }


def test_a_transitive_mode_looks_further_back(cli: Cli, files: Path) -> None:
    (files / "v3.avsc").write_text(avro(ID, AMOUNT | {"type": "long"}, CURRENCY))
    earlier = ("--against", files / "v1.avsc", "--against", files / "v2.avsc")
    assert cli("schema", "check", files / "v3.avsc", *earlier).exit_code == 0
    done = cli("schema", "check", files / "v3.avsc", *earlier, "--mode", "BACKWARD_TRANSITIVE")
    assert done.exit_code == 1
    assert "against 2 earlier schemas" in done.output


def test_under_git_it_compares_with_the_released_file(cli: Cli, files: Path) -> None:
    file = files / "schemas" / "payment.avsc"
    file.parent.mkdir()
    git(files, "init", "-q", "-b", "main")
    (files / "readme").write_text("")
    git(files, "add", "readme")
    git(files, "commit", "-qm", "start")
    file.write_text((files / "v1.avsc").read_text())
    assert "good (there is no earlier schema)" in cli("schema", "check", file, "--git", "HEAD").output
    for version in ("v1", "v2"):
        file.write_text((files / f"{version}.avsc").read_text())
        git(files, "add", "schemas")
        git(files, "commit", "-qm", version)
        git(files, "tag", version)
    file.write_text(avro(ID, AMOUNT | {"type": "long"}, CURRENCY))
    assert cli("schema", "check", file, "--git", "v2").exit_code == 0
    assert cli("schema", "check", file, "--git", "v1").exit_code == 1
    whole = cli("schema", "check", file, "--git", "v2", "--mode", "BACKWARD_TRANSITIVE")
    assert whole.exit_code == 1
    assert "payment.avsc at " in whole.output
    unknown = cli("schema", "check", file, "--git", "v9")
    assert unknown.exit_code == 1
    assert "git does not know 'v9' here" in unknown.stderr


def test_without_a_repository_git_is_refused(cli: Cli, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(files.parent))
    done = cli("schema", "check", files / "v1.avsc", "--git", "HEAD")
    assert done.exit_code == 1
    assert "is not in a git repository" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--against", "x.avsc", "--git", "HEAD"),
        ("--registry", "http://localhost"),
        ("--subject", "payments-value"),
        ("--against", "x.avsc", "--mode", "SIDEWAYS"),
    ],
)
def test_wrong_usage_exits_with_2(cli: Cli, files: Path, words: tuple[str, ...]) -> None:
    assert cli("schema", "check", files / "v1.avsc", *words).exit_code == 2


def test_a_broken_schema_is_said_and_not_compared(cli: Cli, files: Path) -> None:
    (files / "x.avsc").write_text(avro({"name": "id", "type": "text"}))
    done = cli("schema", "check", files / "x.avsc", "--against", files / "v1.avsc")
    assert done.exit_code == 1
    assert "x.avsc: Avro schema, id: the type 'text' is not known" in done.stderr
    assert "cannot be read: No such file" in cli("schema", "check", "gone.avsc", "--against", files / "v1.avsc").stderr
    assert "a schema file ends in .avsc" in cli("schema", "check", "a.proto", "--against", files / "v1.avsc").stderr


def test_json_schema_and_ddl_are_checked_too(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"type": "object", "properties": {"n": {"type": "integer"}}}')
    (tmp_path / "b.json").write_text('{"type": "object", "properties": {"n": {"type": "string"}}}')
    (tmp_path / "a.ddl").write_text("id STRING NOT NULL,\n n INT -- how many\n")
    (tmp_path / "b.ddl").write_text("id STRING, n BIGINT")
    check = ("schema", "check")
    assert (
        "n: integer cannot be read as string"
        in cli(*check, tmp_path / "b.json", "--against", tmp_path / "a.json").output
    )
    assert cli(*check, tmp_path / "b.ddl", "--against", tmp_path / "a.ddl").exit_code == 0
    assert "it may be missing in" in cli(*check, tmp_path / "a.ddl", "--against", tmp_path / "b.ddl").output


def test_diff_shows_fields_and_what_they_mean(cli: Cli, files: Path) -> None:
    done = cli("schema", "diff", files / "v1.avsc", files / "v2.avsc")
    lines = [" ".join(line.split()) for line in done.output.splitlines()]
    assert done.exit_code == 0
    assert "changed amount int long" in lines
    assert "added currency – string, default 'EUR'" in lines
    assert "readers with NEW, data written with OLD (BACKWARD): good" in lines
    assert "readers with OLD, data written with NEW (FORWARD): not readable" in lines
    assert "amount: long cannot be read as int [TYPE_CHANGED]" in lines


def test_diff_goes_into_nested_fields_of_every_form(cli: Cli, tmp_path: Path) -> None:
    pairs = {
        "ddl": ("a ARRAY<STRUCT<x: INT>>", "a ARRAY<STRUCT<x: INT, y: INT>>", "a[].y"),
        "json": (
            '{"properties": {"o": {"type": "object", "properties": {}}}}',
            '{"properties": {"o": {"type": "object", "properties": {"p": {"type": "string"}}}}}',
            "o.p",
        ),
        "avsc": (
            avro({"name": "n", "type": {"type": "array", "items": {"type": "record", "name": "N", "fields": [ID]}}}),
            avro(
                {
                    "name": "n",
                    "type": {"type": "array", "items": {"type": "record", "name": "N", "fields": [ID, AMOUNT]}},
                }
            ),
            "n[].amount",
        ),
    }
    for form, (old, new, path) in pairs.items():
        (tmp_path / f"old.{form}").write_text(old)
        (tmp_path / f"new.{form}").write_text(new)
        said = json.loads(cli("schema", "diff", tmp_path / f"old.{form}", tmp_path / f"new.{form}", "--json").output)
        assert [(c["what"], c["path"]) for c in said["changes"] if c["what"] == "added"] == [("added", path)]


def test_a_schema_that_contains_itself_is_shown_once(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "tree.avsc").write_text(avro(ID, {"name": "next", "type": ["null", "Payment"]}))
    done = cli("schema", "diff", tmp_path / "tree.avsc", tmp_path / "tree.avsc")
    assert "no field differs" in done.output


def test_it_loads_nothing_heavy() -> None:
    heavy = ("pyspark", "pyarrow", "rich", "numpy")
    code = f"import sys, tidegate.cli.schema; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
