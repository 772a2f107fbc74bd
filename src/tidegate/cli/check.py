"""`tidegate check`: what is wrong or risky in an app, told before it runs and without Spark."""

from __future__ import annotations

from dataclasses import asdict

import click

from tidegate.cli.load import load
from tidegate.cli.output import print_json
from tidegate.runtime import checks


@click.command()
@click.argument("app", metavar="APP")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@click.pass_context
def check(context: click.Context, app: str, as_json: bool) -> None:
    """Find what is wrong or risky in an app.

    APP is file.py, or file.py:name. Exits with 1 when there are errors.
    """
    loaded = load(app)
    findings = checks.check(loaded.app)
    errors = sum(finding.level == "error" for finding in findings)
    if as_json:
        print_json({"app": loaded.app.name, "errors": errors, "findings": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            click.echo(f"{finding.level}: {finding.where}: {finding.message}")
            if finding.hint:
                click.echo(f"  hint: {finding.hint}")
        click.echo(_verdict(loaded.app.name, errors, len(findings) - errors))
    context.exit(1 if errors else 0)


def _verdict(name: str, errors: int, warnings: int) -> str:
    if not errors and not warnings:
        return f"{name}: good"

    def some(count: int, what: str) -> str:
        return f"{count} {what}{'' if count == 1 else 's'}"

    return f"{name}: {some(errors, 'error')}, {some(warnings, 'warning')}"
