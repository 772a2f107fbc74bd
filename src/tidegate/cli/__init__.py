"""The command line: a face of the library, with no logic of its own.

One file per command. Nothing heavy (rich, PySpark, pyarrow) is imported before a command needs it, so the
commands that only read start at once.
"""

from __future__ import annotations

import click

from tidegate import __version__
from tidegate.cli.check import check
from tidegate.cli.conformance import conformance
from tidegate.cli.demo import demo
from tidegate.cli.dev import dev
from tidegate.cli.dlq import dlq
from tidegate.cli.doctor import doctor
from tidegate.cli.explain import explain
from tidegate.cli.failures import CarefulGroup
from tidegate.cli.init import init
from tidegate.cli.run import run
from tidegate.cli.schema import schema
from tidegate.cli.status import status

__all__ = ["main"]


@click.group(cls=CarefulGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, message="tidegate %(version)s")
def main() -> None:
    """Event-time pipelines on Apache Spark that never silently lose an event."""


for command in (init, check, explain, run, status, dlq, schema, conformance, demo, dev, doctor):
    main.add_command(command)
