"""Poison: a record on which the user's expression throws, or a file that cannot be read.

ANSI mode is on, so ``x / 0`` or an overflow throws, and one such record would stop the pipeline for ever. When a
batch fails with an error *of data*, the culprits are found by bisection over the positions of the batch, marked, and
the batch is computed again: they become dead letters and the pipeline goes on. An error of code – a wrong column
name, a type that does not fit – fails the same for every row and is never mistaken for poison."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tidegate.errors import DataLossRisk

MOST_CULPRITS = 1_000
MOST_PROBES = 5_000

# Error conditions of Spark 4 that one record can cause while others are fine.
_DATA_ERRORS = (
    "DIVIDE_BY_ZERO",
    "REMAINDER_BY_ZERO",
    "ARITHMETIC_OVERFLOW",
    "BINARY_ARITHMETIC_OVERFLOW",
    "CAST_INVALID_INPUT",
    "CAST_OVERFLOW",
    "INVALID_ARRAY_INDEX",
    "INVALID_ARRAY_INDEX_IN_ELEMENT_AT",
    "INVALID_INDEX_OF_ZERO",
    "NUMERIC_VALUE_OUT_OF_RANGE",
    "NUMERIC_OUT_OF_SUPPORTED_RANGE",
    "CANNOT_PARSE_TIMESTAMP",
    "DATETIME_OVERFLOW",
    "INTERVAL_ARITHMETIC_OVERFLOW",
    "INTERVAL_DIVIDED_BY_ZERO",
    "MALFORMED_RECORD_IN_PARSING",
    "INVALID_FRACTION_OF_SECOND",
    "INVALID_DATETIME_PATTERN",
    "USER_RAISED_EXCEPTION",
    "DUPLICATED_MAP_KEY",
    "NULL_MAP_KEY",
    "COLLECTION_SIZE_LIMIT_EXCEEDED",
    "INVALID_PARAMETER_VALUE",
    "INVALID_URL",
    "INVALID_UTF8_STRING",
    "CONVERSION_INVALID_INPUT",
)
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+)(?:\.[A-Z0-9_]+)?\]")


@dataclass(frozen=True)
class Culprit:
    """A record that throws, or a file that cannot be read, and what Spark said."""

    position: int | None
    file: str | None
    error: str


def sentence(error: BaseException) -> str:
    """The first line of what Spark said, without the stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = next((line for line in lines if _CONDITION.search(line)), lines[0] if lines else type(error).__name__)
    said = re.sub(r" ?Did you mean one of the following\? \[(.*?)\]\.?", _suggestions, said)
    said = re.sub(r"; line \d+ pos \d+;?$", "", said)  # a place in SQL that we wrote, and nobody else can see
    return re.sub(r"^.*?(?=\[[A-Z])", "", said)[:300]


def _suggestions(match: re.Match[str]) -> str:
    """What Spark takes for the meant column, without the columns that are our own."""
    names = [name.strip() for name in match[1].split(",")]
    theirs = [name for name in names if not name.rpartition(".")[2].strip("`").startswith("_")]
    return f" Did you mean one of the following? [{', '.join(theirs)}]." if theirs else ""


def is_data_error(error: BaseException) -> bool:
    """Whether one record may be to blame: a known condition, raised while running, not while planning."""
    from pyspark.errors import AnalysisException

    if isinstance(error, AnalysisException):
        return False
    return any(condition in _DATA_ERRORS for condition in _CONDITION.findall(str(error)))


def corrupt_file(error: BaseException) -> str | None:
    """The file that Spark could not read, when that is what happened."""
    text = str(error)
    if "FAILED_READ_FILE" not in text:
        return None
    match = re.search(r"FAILED_READ_FILE[^\]]*\][^\n]*?((?:file:|/|[a-z0-9]+://)\S+?)[.,;]?(?:\s|$)", text)
    return match[1] if match else None


def isolate(probe: Callable[[int, int], BaseException | None], positions: list[int]) -> list[Culprit]:
    """Bisect `positions` (sorted) with `probe(low, high)`, which runs that range and returns the error or None."""
    culprits: list[Culprit] = []
    probes = 0
    pending = [(0, len(positions))]
    while pending:
        start, end = pending.pop()
        if start >= end:
            continue
        probes += 1
        if probes > MOST_PROBES or len(culprits) >= MOST_CULPRITS:
            raise DataLossRisk(
                f"more than {len(culprits)} records of one batch make an expression fail; the pipeline stops",
                hint="this looks like an error of the expression, not of records: correct it, or add an expectation",
            )
        error = probe(positions[start], positions[end - 1])
        if error is None:
            continue
        if not is_data_error(error):
            raise error
        if end - start == 1:
            culprits.append(Culprit(positions[start], None, sentence(error)))
            continue
        middle = (start + end) // 2
        pending += [(middle, end), (start, middle)]
    return culprits
