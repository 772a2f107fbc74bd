"""`tidegate run`: run an app and show what it does, record by record."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager
from typing import get_args

import click

from tidegate.app import App
from tidegate.cli.load import Loaded, load
from tidegate.cli.watch import JsonLines, PlainLines, summary_json, summary_line
from tidegate.runtime.reports import Mode, RunOptions, Watcher


@click.command()
@click.argument("app", metavar="APP")
@click.option("--once", is_flag=True, help="Take what is there now, keep the watermark, and stop.")
@click.option("--drain", is_flag=True, help="Take what is there, then close every window: the end of the input.")
@click.option("--batch", is_flag=True, help="Read the whole input as one bounded batch.")
@click.option(
    "--checkpoint",
    metavar="DIR",
    help="Where state and records live: a folder, hdfs:// or s3a:// [default: .tidegate/<app> beside APP].",
)
@click.option(
    "--max-batch", type=click.IntRange(min=1), metavar="N", help="At most N files (records of Kafka) per micro-batch."
)
@click.option(
    "--interval",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Pause between micro-batches.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per record, and one at the end.")
def run(
    app: str,
    once: bool,
    drain: bool,
    batch: bool,
    checkpoint: str | None,
    max_batch: int | None,
    interval: float,
    as_json: bool,
) -> None:
    """Run an app.

    APP is file.py, or file.py:name. It runs until Ctrl-C, or as --once, --drain or --batch say. Ctrl-C stops after
    the running batch; running again goes on where it stopped.
    """
    mode = _mode(once=once, drain=drain, batch=batch)
    loaded = load(app)
    options = RunOptions(
        checkpoint=checkpoint or str(loaded.checkpoint),
        mode=mode,
        max_batch=max_batch,
        interval=interval,
    )
    _let_workers_import(loaded)
    # Imported here: it brings PySpark, and a mistake in the app should be told before that second has passed.
    from tidegate.runtime.drivers import run as run_app

    with _watcher(loaded.app, as_json) as watcher:
        summary = run_app(loaded.app, options, watcher)
    click.echo(summary_json(summary) if as_json else summary_line(summary))


def _mode(**chosen: bool) -> Mode:
    """The one that was chosen. Of two, none may win in silence: what is drained cannot be taken back."""
    found: list[Mode] = [mode for mode in get_args(Mode) if chosen.get(mode)]
    if len(found) > 1:
        raise click.UsageError(f"{' and '.join(f'--{mode}' for mode in found)} exclude each other; choose one")
    return found[0] if found else "continuous"


def _watcher(app: App, as_json: bool) -> AbstractContextManager[Watcher]:
    if as_json:
        return JsonLines()
    if sys.stdout.isatty():
        from tidegate.cli.live import LiveView

        return LiveView(app)
    return PlainLines()


def _let_workers_import(loaded: Loaded) -> None:
    """A Python function in the app runs in Spark's worker processes, which do not know the app's folder.

    The app's own module is sent by value, for its name exists only in this process; its neighbours are found by path.
    """
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(loaded.module)  # type: ignore[no-untyped-call]
    known = os.environ.get("PYTHONPATH")
    folder = str(loaded.path.parent)
    os.environ["PYTHONPATH"] = f"{folder}{os.pathsep}{known}" if known else folder
