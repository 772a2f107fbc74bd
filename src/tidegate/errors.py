"""The error tree: every mistake a user can make ends in one of these.

A message says what happened, with the value, why it matters, and what to do next. The command
line prints the message alone, never a Spark or Py4J stack trace.
"""

from __future__ import annotations


class TidegateError(Exception):
    """Base of all errors that Tidegate raises on purpose."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message}\n  hint: {hint}")
        self.message = message
        self.hint = hint


class PipelineError(TidegateError):
    """The declaration of a pipeline is wrong: a name, a window, a column."""


class ContractError(TidegateError):
    """A contract cannot be read, or does not say what the pipeline needs."""


class DataLossRisk(TidegateError):
    """Going on could lose or double events; the ways out are in the message."""


class BalanceError(DataLossRisk):
    """The ledger of a batch does not balance; the batch is not decided."""


class CheckpointError(TidegateError):
    """The checkpoint cannot be used: unwritable, damaged, of another pipeline."""


class Fenced(CheckpointError):
    """Another driver has claimed the checkpoint; this one must stop."""


class SourceError(TidegateError):
    """A source cannot be read: a folder that is missing, a format that does not fit."""


class SinkError(TidegateError):
    """A sink cannot be written, or is not in a state that delivery may continue from."""


class Unavailable(TidegateError):
    """A server cannot be reached now, or answers that it cannot serve now: waiting may help (`tidegate.patience`)."""


class MachineError(TidegateError):
    """The machine lacks something: Java, a package, a permission."""
