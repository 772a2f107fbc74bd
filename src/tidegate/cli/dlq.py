"""`tidegate dlq`: look at dead letters, and take them elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from tidegate.cli.locate import locate
from tidegate.cli.output import number, print_json, table
from tidegate.deadletter.letter import Reason

if TYPE_CHECKING:
    from tidegate.deadletter.export import Format
    from tidegate.deadletter.store import DeadLetters, Filter

_LISTED = ("dlq_id", "failed_at", "reason", "source", "operator", "partition", "position", "event_time", "late_by_ms")
_STATS = ("reason", "source", "operator", "partition")


class _Instant(click.ParamType[datetime]):
    name = "instant"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        from tidegate.deadletter.store import instant

        try:
            return instant(str(value))
        except ValueError:
            self.fail(f"{value!r} is not an instant; write it as 2026-03-01T12:00:00 (UTC)", param, ctx)


def _filters(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say which letters are meant."""
    options = (
        click.option("--reason", type=click.Choice(get_args(Reason), case_sensitive=False), help="Only this reason."),
        click.option("--source", metavar="NAME", help="Only of this source."),
        click.option("--operator", metavar="NAME", help="Only those that this operator refused."),
        click.option("--since", type=_Instant(), help="Failed at or after this time (UTC)."),
        click.option("--until", type=_Instant(), help="Failed before this time (UTC)."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _open(target: str) -> DeadLetters:
    from tidegate.deadletter.store import DeadLetters

    found = locate(target)
    files = (file for file in found.position.files.values() if file.kind == "dead")
    newest_first = sorted(files, key=lambda file: (-file.sequence, file.path))
    return DeadLetters([found.checkpoint.folder / file.path for file in newest_first])


def _filter(choice: dict[str, Any]) -> Filter:
    from tidegate.deadletter.store import Filter

    return Filter(**choice)


@click.group()
def dlq() -> None:
    """Look at dead letters, or export them."""


@dlq.command("list")
@click.argument("target", metavar="CHECKPOINT|APP")
@_filters
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most this many.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per letter.")
def list_letters(target: str, limit: int, as_json: bool, **choice: Any) -> None:
    """List dead letters, those of the newest record first."""
    from tidegate.deadletter.export import readable
    from tidegate.deadletter.store import WITHOUT_RAW

    letters, which = _open(target), _filter(choice)
    rows = [readable(letter) for letter in letters.letters(which, limit=limit, columns=WITHOUT_RAW)]
    if as_json:
        for row in rows:
            print_json(row, indent=None)
        return
    if not rows:
        click.echo("no dead letters" + (" like that" if any(choice.values()) else ""))
        return
    click.echo(table(_LISTED, [[_cell(row[name]) for name in _LISTED] for row in rows], indent=""))
    total = sum(letters.counts(which, "reason").values())
    if total > len(rows):
        click.echo(f"… {number(total - len(rows))} more; see --limit")


@dlq.command()
@click.argument("target", metavar="CHECKPOINT|APP")
@click.argument("dlq_id", metavar="DLQ_ID")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def show(target: str, dlq_id: str, as_json: bool) -> None:
    """Show one dead letter with its raw record; the first characters of its id are enough."""
    from tidegate.deadletter.export import readable

    letter = _open(target).find(dlq_id)
    fields = readable(letter)
    if as_json:
        print_json(fields)
        return
    encoding, raw = fields.pop("raw_encoding"), fields.pop("raw")
    for name, value in fields.items():
        if value is not None:
            click.echo(f"{name:20} {value}")
    if encoding is None:
        click.echo("raw                  – (the source hands out typed columns, not bytes)")
    else:
        click.echo(f"raw ({'utf-8' if encoding == 'utf-8' else 'hex'}):")
        click.echo(raw if encoding == "utf-8" else letter["raw"].hex(" "))


@dlq.command()
@click.argument("target", metavar="CHECKPOINT|APP")
@_filters
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def stats(target: str, as_json: bool, **choice: Any) -> None:
    """Count dead letters by reason, source, operator and partition."""
    letters, which = _open(target), _filter(choice)
    counts = {by: letters.counts(which, by) for by in _STATS}
    total, span = sum(counts["reason"].values()), letters.span(which)
    if as_json:
        # JSON has no null keys; a letter without an operator was refused by its source
        named = {by: {name or "": count for name, count in found.items()} for by, found in counts.items()}
        print_json({"total": total, "first": span and span[0], "last": span and span[1], **named})
        return
    click.echo(f"{number(total)} dead letters" + (f", {span[0]:%F %T} to {span[1]:%F %T} UTC" if span else ""))
    for by, found in counts.items() if total else ():
        rows = [("–" if name is None else name, count, f"{count / total:.1%}") for name, count in found.items()]
        click.echo("\n" + table((by, "letters", "share"), rows, indent=""))


@dlq.command()
@click.argument("target", metavar="CHECKPOINT|APP")
@_filters
@click.option("--format", "form", type=click.Choice(["jsonl", "csv", "parquet"]), default="jsonl", show_default=True)
@click.option(
    "--raw", "only_raw", is_flag=True, help="The raw records alone, byte for byte, one per line, for a replay."
)
@click.option("-o", "--output", required=True, metavar="FILE", help="Where to; - is stdout.")
def export(target: str, form: Format, only_raw: bool, output: str, **choice: Any) -> None:
    """Write dead letters to a file."""
    from tidegate.deadletter.export import whole_file

    letters, which = _open(target), _filter(choice)
    if output == "-":
        message = _write(letters, which, form, only_raw, sys.stdout.buffer)
    else:
        with whole_file(Path(output)) as file:
            message = _write(letters, which, form, only_raw, file)
    click.echo(f"{message} to {'stdout' if output == '-' else output}", err=True)


def _write(letters: DeadLetters, which: Filter, form: Format, only_raw: bool, out: Any) -> str:
    from tidegate.deadletter.export import export as write
    from tidegate.deadletter.export import export_raw

    if not only_raw:
        return f"{number(write(letters, which, form, out))} dead letters"
    written, without = export_raw(letters, which, out)
    return f"{number(written)} raw records" + (f" ({number(without)} letters have none)" if without else "")


def _cell(value: object) -> object:
    return "–" if value is None else value
