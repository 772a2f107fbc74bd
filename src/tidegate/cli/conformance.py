"""`tidegate conformance`: play transcripts on the model, on Spark, or on both, and say which of them hold."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from tidegate.cli.output import print_json
from tidegate.errors import MachineError

if TYPE_CHECKING:
    from tidegate.testing import Executor, Result


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path())
@click.option("--executor", type=click.Choice(["model", "spark", "both"]), default="both", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per transcript and executor.")
@click.pass_context
def conformance(context: click.Context, paths: tuple[str, ...], executor: str, as_json: bool) -> None:
    """Play transcripts on model and Spark.

    PATHs are files and folders. Exits with 0 only when all transcripts hold on every executor.
    """
    from tidegate.testing import collect, run_all

    passed = failed = 0
    for result in run_all(collect(paths), _executors(executor)):
        passed, failed = passed + result.passed, failed + (not result.passed)
        if as_json:
            print_json(asdict(result), indent=None)
        else:
            _print(result)
    click.echo(f"{passed} passed, {failed} failed")
    context.exit(1 if failed else 0)


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
