"""The documents are true: every command and every piece of code in them runs, in order, in an empty folder.

- A ``python`` block whose first line is a comment with a file name is written to that file; others are run.
- An ``sh`` block is run by bash, as a reader would type it; only lines that begin with ``make`` are left out.
- A ``text`` block right after it shows what was printed: each of its lines must be there, in that order. ``…``
  stands for anything, and runs of spaces or of ─ are all the same.
- The README of an example is read in a copy of its folder.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tidegate import dev

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs" / "tutorial").glob("*.md"))]
DOCUMENTS += [ROOT / "docs" / "how-to" / "test-your-pipeline.md"]
WITH_SERVERS = [
    ROOT / "docs" / "how-to" / name
    for name in ("checkpoints-on-hdfs-or-s3.md", "dev-servers.md", "kafka.md", "write-to-kafka.md")
]
WITH_SERVERS += [ROOT / "docs" / "reference" / "sinks.md"]
EXAMPLES = sorted((ROOT / "examples").glob("*/README.md"))
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE_NAME = re.compile(r"# ([\w/]+\.py)\n")
_LONGEST = 600


@dataclass
class Block:
    """A fenced block: its language, its text, and whether only blank lines lie between it and the block before."""

    language: str
    text: str
    follows: bool


def blocks_of(document: str) -> list[Block]:
    found, end = [], None
    for match in _BLOCK.finditer(document):
        follows = end is not None and not document[end : match.start()].strip()
        found.append(Block(match[1], match[2], follows))
        end = match.end()
    return found


class Reader:
    """Someone who types what the document says, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "reader"
        self.folder.mkdir()
        commands = folder / "commands"
        commands.mkdir()
        for name, call in (("tidegate", "-m tidegate.cli"), ("python", ""), ("python3", ""), ("pytest", "-m pytest")):
            (commands / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {call} "$@"\n')
            (commands / name).chmod(0o755)
        self._environment = os.environ | {
            "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
            "COLUMNS": "200",
            "TIDEGATE_BRIEF": "yes",
        }

    def type(self, script: str) -> str:
        """Run a script where the one before has ended; a `cd` lasts, as it does in a terminal."""
        place = self.folder.parent / "place"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f"{script}\npwd > '{place}'"],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_LONGEST,
            check=False,
        )
        assert done.returncode == 0, f"this failed with {done.returncode}:\n{script}\n{done.stdout}"
        self.folder = Path(place.read_text().strip())
        return done.stdout

    def read(self, block: Block, output: str) -> str:
        """Do what a block says; what was printed."""
        if block.language == "python":
            if name := _FILE_NAME.match(block.text):
                (self.folder / name[1]).write_text(block.text)
                return ""
            (self.folder / "_block.py").write_text(block.text)
            return self.type("python _block.py\nrm _block.py")  # with && bash would not end at a failure
        if block.language == "sh":
            return self.type("".join(line for line in block.text.splitlines(True) if not line.startswith("make ")))
        if block.language == "text" and block.follows:
            expect_lines(block.text, output)
        return output


def expect_lines(expected: str, output: str) -> None:
    """Each expected line in its order; other lines may lie between."""
    printed = [_plain(line) for line in output.splitlines()]
    place = 0
    for line in filter(None, map(_plain, expected.splitlines())):
        pattern = ".*".join(map(re.escape, line.split("…")))
        found = next((i for i in range(place, len(printed)) if re.fullmatch(pattern, printed[i])), None)
        assert found is not None, f"the document says\n  {line}\nbut what was printed is\n{output}"
        place = found + 1


def _plain(line: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"─+", "─", line)).strip()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_everything_in_the_document_runs(path: Path, tmp_path: Path) -> None:
    reader, output = Reader(tmp_path), ""
    if path in EXAMPLES:  # it is read in its own folder
        leftovers = shutil.ignore_patterns(".*", "truth.json")
        shutil.copytree(path.parent, reader.folder, dirs_exist_ok=True, ignore=leftovers)
    for block in blocks_of(path.read_text()):
        output = reader.read(block, output)


@pytest.mark.servers
@pytest.mark.slow
@pytest.mark.parametrize("path", WITH_SERVERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_everything_in_the_document_runs_with_servers(path: Path, tmp_path: Path) -> None:
    try:
        test_everything_in_the_document_runs(path, tmp_path)
    finally:
        for folder in tmp_path.rglob(".tidegate-dev"):
            dev.stop(folder, delete=True)


@pytest.mark.servers
@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_everything_in_the_example_runs(path: Path, tmp_path: Path) -> None:
    """What the pipeline of an example computes is tested in `tests/examples`, in less time."""
    test_everything_in_the_document_runs_with_servers(path, tmp_path)


@pytest.mark.parametrize(
    "block", [Block("python", "raise SystemExit(3)\n", False), Block("sh", "false\ntrue\n", False)]
)
def test_a_block_that_fails_is_noticed(block: Block, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="this failed with"):
        Reader(tmp_path).read(block, "")


def test_a_line_that_was_not_printed_is_noticed() -> None:
    expect_lines("a  1\n… 3", "a 1\nb\nc 3\n")
    with pytest.raises(AssertionError, match="the document says"):
        expect_lines("c 3\na 1", "a 1\nc 3\n")


LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)(#[^)]*)?\)|<img[^>]* src=\"([^\"]+)\"")


@pytest.mark.parametrize(
    "path",
    [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *EXAMPLES],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_links_between_documents_lead_somewhere(path: Path) -> None:
    for match in LINK.finditer(path.read_text()):
        target = match[1] or match[3]
        assert (path.parent / target).exists(), f"{path.name} links to {target}, which is not there"
