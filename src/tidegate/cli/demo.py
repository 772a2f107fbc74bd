"""`tidegate demo`: the same traffic through Tidegate and through plain Spark, and what each of them lost."""

from __future__ import annotations

from pathlib import Path

import click

from tidegate.cli.watch import PlainLines


@click.command()
@click.option("--events", type=click.IntRange(min=1_000), default=1_000_000, show_default=True, help="How many events.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("demo-out"),
    show_default=True,
    help="Where traffic, results and the picture go.",
)
def demo(events: int, folder: Path) -> None:
    """See what is lost, and what is not.

    Generates mobile-commerce traffic, runs it, and compares with plain Spark and with the truth.
    """
    from tidegate.demo import run_demo

    run_demo(folder, events, PlainLines())
