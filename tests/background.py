"""A continuous run in a thread of its own, which a test watches, troubles and stops as a signal would."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from tests.workbench import Bench, Watched

from tidegate.app import App
from tidegate.runtime import drivers
from tidegate.runtime.reports import RunOptions


class Background:
    """The run of an app on the checkpoint of a bench."""

    def __init__(self, bench: Bench, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
        self.watched, self.stop = Watched(), threading.Event()
        self.failure: BaseException | None = None
        monkeypatch.setattr(drivers, "_stop_signals", lambda: _Given(self.stop))
        self.app, self.options = app, RunOptions(str(bench.checkpoint), interval=0.2, cores="2")
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            drivers.run(self.app, self.options, self.watched)
        except BaseException as error:
            self.failure = error

    def until(self, reached: Callable[[], bool], seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while not reached():
            assert self.thread.is_alive(), f"the run ended: {self.failure!r}"
            assert time.monotonic() < deadline, f"not within {seconds} s; it said {self.watched.said}"
            time.sleep(0.1)

    def until_said(self, begins: str, after: int = 0) -> None:
        """Wait for a message that begins so, among those after the first `after`."""
        self.until(lambda: any(said.startswith(begins) for said in self.watched.said[after:]))

    def read(self) -> int:
        """How many records all sources together have brought."""
        reports = self.watched.reports
        return sum(line.read for line in reports[-1].totals.sources.values()) if reports else 0

    def end(self) -> None:
        self.give_up()
        assert not self.thread.is_alive()
        assert self.failure is None

    def give_up(self) -> None:
        """Stop it, whatever came of it."""
        self.stop.set()
        self.thread.join(120)


class _Given:
    def __init__(self, stop: threading.Event) -> None:
        self.stop = stop

    def __enter__(self) -> threading.Event:
        return self.stop

    def __exit__(self, *_: object) -> None: ...
