"""`tidegate conformance`: play transcripts on the model, on Spark, or on both, and say which of them hold.

With `--draw` it judges nothing: each transcript becomes a picture of what happens in it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidegate.cli.output import print_json
from tidegate.errors import MachineError, TidegateError

if TYPE_CHECKING:
    from tidegate.testing import Executor, Result, Transcript, Unreadable


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path())
@click.option("--executor", type=click.Choice(["model", "spark", "both"]), default="both", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per transcript and executor.")
@click.option(
    "--draw",
    "pictures",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Compare nothing; write the time line of each transcript into DIR, as SVG.",
)
@click.pass_context
def conformance(
    context: click.Context, paths: tuple[str, ...], executor: str, as_json: bool, pictures: Path | None
) -> None:
    """Play transcripts on model and Spark.

    PATHs are files and folders. Exits with 0 only when all transcripts hold on every executor.
    """
    from tidegate.testing import collect, run_all

    if pictures is not None:
        context.exit(0 if _draw(collect(paths), pictures) else 1)
    passed = failed = 0
    for result in run_all(collect(paths), _executors(executor)):
        passed, failed = passed + result.passed, failed + (not result.passed)
        if as_json:
            print_json(asdict(result), indent=None)
        else:
            _print(result)
    click.echo(f"{passed} passed, {failed} failed")
    context.exit(1 if failed else 0)


def _draw(transcripts: Sequence[Transcript | Unreadable], folder: Path) -> bool:
    """Write a picture of each transcript, and say which; whether all of them could be drawn."""
    written: set[Path] = set()
    for transcript in transcripts:
        try:
            path = _draw_one(transcript, folder, written)
        except TidegateError as error:
            click.echo(f"FAILED {transcript.name}: {error}")
        except OSError as error:
            raise MachineError(f"cannot write drawings to {folder}: {error.strerror}") from error
        else:
            written.add(path)
            click.echo(f"drew   {path}")
    click.echo(f"{len(written)} drawn, {len(transcripts) - len(written)} failed")
    return len(written) == len(transcripts)


def _draw_one(transcript: Transcript | Unreadable, folder: Path, written: Set[Path]) -> Path:
    from tidegate.testing import TranscriptError, Unreadable
    from tidegate.testing.draw import draw

    if isinstance(transcript, Unreadable):
        raise TranscriptError(transcript.message)
    stem = transcript.path.stem if transcript.path else "transcript"
    name = re.sub(r"[^\w.-]+", "_", transcript.name)  # a name is free text, the name of a file is not
    path = folder / f"{stem}.{name}.svg"
    if path in written:
        raise TranscriptError(f"another transcript has been drawn as {path}", hint="give --draw fewer files at once")
    picture = draw(transcript)
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(picture, encoding="utf-8")
    return path


def _print(result: Result) -> None:
    click.echo(f"{'ok    ' if result.passed else 'FAILED'} {result.executor:5} {result.name}")
    if not result.passed:
        for line in ([result.error] if result.error else []) + result.mismatches:
            click.echo("       " + line.replace("\n", "\n       "))


def _executors(which: str) -> list[Executor]:
    from tidegate.testing import ModelExecutor

    executors: list[Executor] = [] if which == "spark" else [ModelExecutor()]
    if which != "model":
        executors.append(_spark())
    return executors


def _spark() -> Executor:
    try:
        from tidegate.testing.spark_executor import SparkExecutor
    except ModuleNotFoundError as error:
        raise MachineError(
            f"transcripts cannot be played on Spark here: {error}", hint="--executor model plays them without Spark"
        ) from error
    executor: Executor = SparkExecutor()
    return executor
