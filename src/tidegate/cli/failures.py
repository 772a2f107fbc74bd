"""How commands fail: one clear message on stderr and the right exit code, never a stack trace of the engine.

0 is good, 1 means that the pipeline or the check failed, 2 wrong usage (click's own). What Tidegate raises on purpose
is a `TidegateError` and is printed as it stands. An error in the user's own app file is shown with the lines of their
file only. Anything else is a bug of ours: one line, and the stack trace only for who asks for it.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import click

from tidegate.errors import TidegateError

INTERRUPTED = 128 + signal.SIGINT
_LONGEST = 300


class CarefulGroup(click.Group):
    """A click group that lists commands in the order they were added, and turns exceptions into messages."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except TidegateError as error:
            click.echo(f"error: {error}", err=True)
            ctx.exit(1)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            # `tidegate dlq list … | head`: the reader has seen enough; Python must not complain at exit either
            sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115
            ctx.exit(0)
        except Exception as error:
            if os.environ.get("TIDEGATE_DEBUG"):
                raise
            click.echo(f"internal error: {in_one_line(error)}", err=True)
            click.echo("run with TIDEGATE_DEBUG=1 for the stack trace", err=True)
            ctx.exit(1)


def in_one_line(error: BaseException) -> str:
    """The class and the first line of the message; those of Spark and Py4J go on for pages."""
    lines = str(error).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0].strip()}" if lines else type(error).__name__
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
