"""Many transcripts on several executors: what `tidegate conformance` does, without the command line.

Nothing is skipped: a path that does not exist, a file that does not parse, a transcript that names
something unknown are failed results with their reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tidegate.testing.checker import Executor, Result, run_transcript
from tidegate.testing.transcripts import Transcript, Unreadable, read_file

SUFFIXES = (".yaml", ".yml")


def collect(paths: Iterable[str | Path]) -> list[Transcript | Unreadable]:
    """All transcripts of files and folders (recursively), in the order of their paths."""
    return [found for path in paths for found in _collect(Path(path))]


def _collect(path: Path) -> list[Transcript | Unreadable]:
    if not path.is_dir():
        return read_file(path)
    files = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
    if not files:
        return [Unreadable(str(path), "holds no transcripts (*.yaml, *.yml)", path)]
    return [found for file in files for found in read_file(file)]


def run_all(transcripts: Iterable[Transcript | Unreadable], executors: Sequence[Executor]) -> Iterator[Result]:
    """One result per transcript and executor, as they come."""
    for transcript in transcripts:
        for executor in executors:
            if isinstance(transcript, Unreadable):
                yield Result(transcript.name, executor.name, False, error=transcript.message)
            else:
                yield run_transcript(transcript, executor)
