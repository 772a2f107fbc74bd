"""`tidegate schema`: may a schema follow those before it, what changed, and registering it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidegate.cli.output import print_json, table
from tidegate.contracts.compatibility import DEFAULT, MODES, Mode, Violation, incompatibilities, violations
from tidegate.contracts.schema import Schema, form_of, read_schema
from tidegate.errors import ContractError

if TYPE_CHECKING:
    from tidegate.contracts.registry_client import RegistryClient

_SIDES = {
    "backward": "the new schema cannot read what was written with {}",
    "forward": "who still uses {} cannot read what is written with the new schema",
}


@click.group()
def schema() -> None:
    """Check, compare and register schemas."""


def _registry_options(command: Callable[..., Any]) -> Callable[..., Any]:
    options = (
        click.option("--registry", metavar="URL", envvar="TIDEGATE_REGISTRY", help="A schema registry."),
        click.option("--subject", metavar="NAME", help="The subject there, such as payments-value."),
        click.option(
            "--auth",
            metavar="USER:PASSWORD",
            envvar="TIDEGATE_REGISTRY_AUTH",
            help="For the registry; better given as TIDEGATE_REGISTRY_AUTH.",
        ),
        click.option("--ca", metavar="FILE", help="The authority of the registry's certificate (PEM)."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@schema.command()
@click.argument("new", metavar="FILE")
@click.option("--against", multiple=True, metavar="OLD", help="An earlier schema; several: oldest first.")
@click.option("--git", "ref", metavar="REF", help="Against the same file as it is at REF, such as origin/main or v1.2.")
@_registry_options
@click.option("--mode", type=click.Choice(MODES, case_sensitive=False), help="[default: the registry's, or BACKWARD]")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@click.pass_context
def check(
    context: click.Context,
    new: str,
    against: tuple[str, ...],
    ref: str | None,
    registry: str | None,
    subject: str | None,
    auth: str | None,
    ca: str | None,
    mode: Mode | None,
    as_json: bool,
) -> None:
    """May this schema follow those that were released before it?

    FILE is .avsc (Avro), .json (JSON Schema), .ddl or .sql (Spark DDL). Exits with 1 when it may not. A mode that ends
    in _TRANSITIVE compares with all earlier schemas, else with the last one; under --git these are all that the history
    of REF has of the file.
    """
    use_registry = subject is not None
    if (bool(against) + (ref is not None) + use_registry) != 1:
        raise click.UsageError(
            "say what to compare with: --against OLD, or --git REF, or --registry URL --subject NAME"
        )
    fresh = read_schema(new)
    objections: list[str] = []
    if use_registry:
        client = _client(registry, auth, ca)
        assert subject is not None
        mode = mode or client.level(subject)
        earlier = [found.schema for found in client.history(subject)]
        if mode != "NONE" and mode == client.level(subject):
            objections = client.objections(subject, fresh)
    elif ref is not None:
        earlier = _released(new, ref, all_of_them=(mode or DEFAULT).endswith("_TRANSITIVE"))
    else:
        earlier = [read_schema(path) for path in against]
    mode = mode or DEFAULT
    found = violations(fresh, earlier, mode)
    good = not found and not objections
    if as_json:
        print_json(
            {
                "schema": new,
                "mode": mode,
                "compatible": good,
                "compared_with": [old.name for old in _compared(earlier, mode)],
                "violations": [
                    {"direction": item.direction, "against": item.against, **asdict(item.incompatibility)}
                    for item in found
                ],
                "registry_says": objections,
            }
        )
    else:
        _tell(found, objections)
        click.echo(_verdict(new, mode, [old.name for old in _compared(earlier, mode)], good))
    context.exit(0 if good else 1)


@schema.command()
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def diff(old: str, new: str, as_json: bool) -> None:
    """Show what changed between two schemas, and what that means for readers and writers."""
    from tidegate.contracts.difference import differences

    before, after = read_schema(old), read_schema(new)
    changes = differences(before, after)
    backward, forward = incompatibilities(after, before), incompatibilities(before, after)
    if as_json:
        print_json(
            {
                "changes": [asdict(change) for change in changes],
                "new_reads_old": {"compatible": not backward, "because": [asdict(item) for item in backward]},
                "old_reads_new": {"compatible": not forward, "because": [asdict(item) for item in forward]},
            }
        )
        return
    if not changes:
        click.echo("no field differs")
    else:
        rows = [(c.what, c.path or "(the whole)", c.before or "–", c.after or "–") for c in changes]
        click.echo(table(("change", "field", "before", "after"), rows, indent=""))
    for title, found in (
        ("readers with NEW, data written with OLD (BACKWARD)", backward),
        ("readers with OLD, data written with NEW (FORWARD)", forward),
    ):
        click.echo(f"\n{title}: {'good' if not found else 'not readable'}")
        for item in found:
            click.echo(f"  {item}")


@schema.command()
@click.argument("file", metavar="FILE")
@_registry_options
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@click.pass_context
def register(
    context: click.Context,
    file: str,
    registry: str | None,
    subject: str | None,
    auth: str | None,
    ca: str | None,
    as_json: bool,
) -> None:
    """Register a schema as the next version of a subject, after checking it at the registry's level.

    A schema that is registered already keeps its id and version.
    """
    if subject is None:
        raise click.UsageError("name the subject: --subject payments-value")
    fresh, client = read_schema(file), _client(registry, auth, ca)
    known = client.find(subject, fresh)
    if known is None:
        mode = client.level(subject)
        found = violations(fresh, [item.schema for item in client.history(subject)], mode)
        if found:
            _tell(found, [])
            click.echo(f"{file}: not registered; {subject} demands {mode}", err=True)
            context.exit(1)
    done = known or client.register(subject, fresh)
    if as_json:
        print_json({"subject": subject, "id": done.id, "version": done.version, "new": known is None})
    else:
        how = "registered" if known is None else "was registered already"
        click.echo(f"{file}: {how} as {subject} version {done.version}, id {done.id}")


def _client(registry: str | None, auth: str | None, ca: str | None) -> RegistryClient:
    from tidegate.contracts.registry import Tls
    from tidegate.contracts.registry_client import RegistryClient

    if registry is None:
        raise click.UsageError("give the address of the registry: --registry URL, or TIDEGATE_REGISTRY")
    user, colon, password = (auth or "").partition(":")
    credentials = ((user, password) if colon else auth) if auth else None
    return RegistryClient(registry, credentials, Tls(ca=ca) if ca else None)


def _compared(earlier: list[Schema], mode: Mode) -> list[Schema]:
    if mode == "NONE":
        return []
    return earlier if mode.endswith("_TRANSITIVE") else earlier[-1:]


def _tell(found: list[Violation], objections: list[str]) -> None:
    last = None
    for item in found:
        if (item.direction, item.against) != last:
            click.echo(_SIDES[item.direction].format(item.against) + ":")
            last = (item.direction, item.against)
        click.echo(f"  {item.incompatibility}")
    if objections and not found:
        click.echo("the registry objects:")
        for said in objections:
            click.echo(f"  {said}")


def _verdict(new: str, mode: Mode, compared: list[str], good: bool) -> str:
    if not compared:
        why = "the mode is NONE" if mode == "NONE" else "there is no earlier schema"
        return f"{new}: good ({why})" if good else f"{new}: not compatible ({mode})"
    with_ = compared[0] if len(compared) == 1 else f"{len(compared)} earlier schemas"
    return f"{new}: {'good' if good else 'not compatible'} ({mode}, against {with_})"


def _released(path: str, ref: str, *, all_of_them: bool) -> list[Schema]:
    """The file as it is at `ref`, and with `all_of_them` as it was before; oldest first, nothing when it is new."""
    file, form = Path(path).resolve(), form_of(path)

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", *words], cwd=file.parent, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise ContractError("--git needs git, which is not installed") from None
        return done.stdout if done.returncode == 0 else None

    if git("rev-parse", "--show-toplevel") is None:
        raise ContractError(f"{path} is not in a git repository", hint="compare with a file: --against OLD")
    if git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}") is None:
        raise ContractError(
            f"git does not know {ref!r} here", hint="in CI, fetch it first: git fetch --tags origin main"
        )
    now = git("show", f"{ref}:./{file.name}")
    if now is None:
        return []
    found = [Schema.of(form, now, f"{path} at {ref}")]
    if all_of_them:
        commits = (git("log", "--format=%H", ref, "--", file.name) or "").split()
        texts = {commit: git("show", f"{commit}:./{file.name}") for commit in commits[1:]}
        found += [Schema.of(form, text, f"{path} at {commit[:10]}") for commit, text in texts.items() if text]
    return found[::-1]
