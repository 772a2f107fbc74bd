"""Running a transcript on an executor and comparing what comes out.

An `Executor` is anything that can play a transcript: the reference model, the Spark engine. It hands
back steps made of neutral values (`PaneOut`, `EventOut`), and the checker compares them with what the
transcript expects. All panes and all refused events of a step count: one that nobody expected is as
wrong as one that did not come.

Only the fields that are given are compared, so an expectation may fit several panes. The checker
therefore looks for a matching, not for the first fit, and reports only what no matching can explain.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, assert_never

from tidegate.testing.flow import show_event, show_expected, show_pane, show_seconds
from tidegate.testing.matching import fits, match_in_order
from tidegate.testing.outcomes import EventOut, Step
from tidegate.testing.steps import (
    REFUSALS,
    Batch,
    Check,
    EventIn,
    ExpectEvents,
    ExpectPanes,
    ExpectWatermark,
    MoveClock,
    MoveWatermark,
    Restart,
    Scene,
)
from tidegate.testing.transcripts import Transcript


class Run(Protocol):
    """A pipeline that was started for one transcript. Each method is one micro-batch, but for `close`."""

    def batch(self, events: Sequence[EventIn]) -> Step: ...

    def watermark(self, us: int, source: str | None = None) -> Step: ...

    def clock(self, us: int) -> Step: ...

    def restart(self) -> Step:
        """Stop and resume from the checkpoint. What comes out of that belongs to this step."""
        ...

    def close(self) -> None: ...


class Executor(Protocol):
    """Starts a pipeline as the header of a transcript describes it."""

    @property
    def name(self) -> str: ...

    def start(self, transcript: Transcript) -> Run: ...


@dataclass(frozen=True)
class Result:
    """How one transcript went on one executor. `error`: why it could not be judged at all."""

    name: str
    executor: str
    passed: bool
    mismatches: list[str] = field(default_factory=list)
    error: str | None = None


def run_transcript(transcript: Transcript, executor: Executor) -> Result:
    """Play a transcript and judge it. An executor that raises makes a failed result, never a crash."""
    try:
        mismatches = _play(transcript, executor)
    except Exception as error:
        return Result(transcript.name, executor.name, False, error=f"{type(error).__name__}: {error}")
    if transcript.must_fail is None:
        return Result(transcript.name, executor.name, not mismatches, mismatches)
    if any(re.search(transcript.must_fail, line) for line in mismatches):
        return Result(transcript.name, executor.name, True, mismatches)
    found = "none" if not mismatches else "only others"
    reason = f"must_fail: expected a mismatch that matches {transcript.must_fail!r}, but there were {found}"
    return Result(transcript.name, executor.name, False, mismatches, reason)


def _play(transcript: Transcript, executor: Executor) -> list[str]:
    run = executor.start(transcript)
    try:
        return [line for scene in transcript.scenes for line in compare(_act(run, scene), scene.checks)]
    finally:
        run.close()


def _act(run: Run, scene: Scene) -> Step:
    match scene.action:
        case Batch(events=events):
            return run.batch(events)
        case MoveWatermark(to=to, source=source):
            return run.watermark(to, source)
        case MoveClock(to=to):
            return run.clock(to)
        case Restart():
            return run.restart()
        case _:  # pragma: no cover
            assert_never(scene.action)


def compare(step: Step, checks: Sequence[Check]) -> list[str]:
    """The mismatches between a step and what is said about it, in the words of the format."""
    said: list[Check] = list(checks)
    # What nobody mentions must not have happened.
    if not any(isinstance(check, ExpectPanes) for check in said):
        said.append(ExpectPanes(()))
    mentioned = {check.kind for check in said if isinstance(check, ExpectEvents)}
    said += [ExpectEvents(kind, ()) for kind in REFUSALS if kind not in mentioned]
    return [line for check in said for line in _compare(step, check)]


def _compare(step: Step, check: Check) -> list[str]:
    match check:
        case ExpectPanes(panes=panes):
            # Order counts within a window, and a window is one of a key.
            groups = [(pane.key, pane.window) for pane in step.panes]
            edges = [[i for i, pane in enumerate(step.panes) if fits(expected, pane)] for expected in panes]
            return _report("pane", map(show_expected, panes), map(show_pane, step.panes), edges, groups)
        case ExpectEvents(kind=kind, events=events):
            came: tuple[EventOut, ...] = getattr(step, kind)
            edges = [[i for i, event in enumerate(came) if fits(expected, event)] for expected in events]
            noun = kind.replace("_", " ").removesuffix("s") + " event"
            return _report(noun, map(show_expected, events), map(show_event, came), edges, list(range(len(came))))
        case ExpectWatermark(us=us):
            if step.watermark == us:
                return []
            return [f"watermark is {show_seconds(step.watermark)}, expected {show_seconds(us)}"]
        case _:  # pragma: no cover
            assert_never(check)


def _report(
    noun: str,
    expected: Iterable[str],
    came: Iterable[str],
    edges: Sequence[Sequence[int]],
    groups: Sequence[Hashable],
) -> list[str]:
    matched = match_in_order(edges, groups)
    lines = [f"missing {noun}: {line}" for line, partner in zip(expected, matched, strict=True) if partner is None]
    return lines + [f"unexpected {noun}: {line}" for i, line in enumerate(came) if i not in matched]
