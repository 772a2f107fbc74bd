"""Several processes as one: when one of them ends, all do, and a SIGTERM to this one ends them in good order.

A server that consists of two programs is started through this file (not as a module: it needs nothing of the package).
Its arguments are the commands, with `--` between them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence


def run(commands: Sequence[Sequence[str]]) -> int:
    """Run commands side by side until one ends, end the others, and say how the first one ended."""
    children: list[subprocess.Popen[bytes]] = []

    def end(*_: object) -> None:
        for child in children:
            child.terminate()
            child.send_signal(signal.SIGCONT)  # one that was paused would not hear it

    signal.signal(signal.SIGTERM, end)
    for command in commands:
        children.append(subprocess.Popen(command))  # one by one: `end` must know those that run
    _, status = os.wait()
    end()
    for child in children:
        child.wait()
    return abs(os.waitstatus_to_exitcode(status))


def split(arguments: Sequence[str]) -> list[list[str]]:
    """The commands between the `--`."""
    commands: list[list[str]] = [[]]
    for argument in arguments:
        if argument == "--":
            commands.append([])
        else:
            commands[-1].append(argument)
    return commands


if __name__ == "__main__":
    sys.exit(run(split(sys.argv[1:])))
