"""`tidegate dev`: real servers on this machine, to try an example or run a test against."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from tidegate.cli.output import print_json, size, table

KINDS = ("kafka", "postgres", "redis", "registry", "hdfs", "s3")


def _which(command: Callable[..., Any]) -> Callable[..., Any]:
    """The arguments that say which servers are meant, and where they live."""
    names = " ".join(f"[{kind}]" for kind in KINDS)
    kinds = click.argument("kinds", metavar=names, nargs=-1, type=click.Choice(KINDS))
    folder = click.option(
        "--folder",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path(".tidegate-dev"),
        show_default=True,
        help="Where their data, logs and addresses are.",
    )
    return kinds(folder(command))


@click.group()
def dev() -> None:
    """Start real servers to try things with."""


@dev.command()
@_which
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def up(kinds: tuple[str, ...], folder: Path, as_json: bool) -> None:
    """Start servers and wait until they answer: kafka, postgres, redis and registry, unless you name some.

    They listen on 127.0.0.1, on free ports that they keep, and run until `tidegate dev down`.
    """
    from tidegate import dev as servers

    chosen = kinds or servers.DEFAULT_KINDS
    before = {status.kind for status in servers.status(folder, chosen) if status.running}
    servers.start(folder, chosen, say=lambda message: click.echo(message, err=as_json))
    found = servers.status(folder, chosen)
    if as_json:
        _print_json(found)
        return
    for status in found:
        how = "was running" if status.kind in before else "started"
        click.echo(f"{status.kind:9} {how:12} {status.address}")
    click.echo()
    _print_exports(found)


@dev.command()
@_which
@click.option("--export", is_flag=True, help='Only the variables, for eval "$(tidegate dev status --export)".')
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def status(kinds: tuple[str, ...], folder: Path, export: bool, as_json: bool) -> None:
    """Say which servers run, and where."""
    from tidegate import dev as servers

    found = servers.status(folder, kinds or KINDS)
    if as_json:
        _print_json(found)
    elif export:
        _print_exports(found)
    else:
        rows = [[one.kind, "running" if one.running else "stopped", one.address or "", one.pid or ""] for one in found]
        click.echo(table(["server", "state", "address", "process"], [[str(c) for c in row] for row in rows], indent=""))


@dev.command()
@_which
@click.option("--delete", is_flag=True, help="Delete their data too.")
def down(kinds: tuple[str, ...], folder: Path, delete: bool) -> None:
    """Stop servers; their data stay, and they come back on the same ports."""
    from tidegate import dev as servers

    stopped = servers.stop(folder, kinds or KINDS, delete=delete)
    what = f"stopped {', '.join(stopped)}" if stopped else "nothing was running"
    click.echo(f"{what}; data deleted" if delete else what)


@dev.command()
@click.argument("groups", metavar="[GROUP]...", nargs=-1)
def jars(groups: tuple[str, ...]) -> None:
    """Fetch jars ahead of their first use.

    GROUPs are kafka, avro, delta, s3a (connectors), broker, registry, hdfs and s3 (servers); all of them, unless you
    name some. A copy of the folder can serve a machine that reaches no Maven repository: set TIDEGATE_JARS to it there.
    """
    from tidegate import jars as locked

    for group in groups or locked.groups():
        files = locked.fetch([group])
        click.echo(f"{group:9} {len(files):2} files, {size(sum(file.stat().st_size for file in files))}")
    click.echo(f"in {locked.folder()}")


def _print_json(found: Iterable[Any]) -> None:
    print_json({status.kind: asdict(status) for status in found})


def _print_exports(found: Iterable[Any]) -> None:
    for status in found:
        for name, value in status.environment.items():
            click.echo(f"export {name}={value}")
