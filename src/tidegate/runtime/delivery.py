"""Delivery: the decided panes to every sink, exactly once, while the next batch is already being folded.

A record's panes are delivered from the files it names. Record n+1 is not published before every sink has confirmed n,
so after a crash only the last outbox can be undelivered, and it is delivered again: sinks apply a record at most
once. A sink whose server is away is waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from tidegate import crash
from tidegate.app import DEAD_LETTERS, App
from tidegate.errors import SinkError
from tidegate.patience import patiently
from tidegate.runtime.records import Outbox
from tidegate.sinks.base import Delivery, Sink, SinkTarget, SinkWriter
from tidegate.storage.places import Place


class Deliverer:
    """The open sinks of a driver, and the one delivery that may be under way."""

    def __init__(
        self, app: App, folder: Place, checkpoint_id: str, claim: int, outbox: Outbox, say: Callable[[str], None]
    ) -> None:
        self._folder, self._say = folder, say
        self._closing = threading.Event()
        # Whose files each sink is given: panes of its operator, or the letters of all sources.
        self._owners: dict[str, tuple[str, ...]] = {n: (sink.operator.name,) for n, sink in app.sinks.items()}
        self._writers: dict[str, SinkWriter] = {}
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tidegate-deliver")
        self._pending: Future[None] | None = None
        self.behind = False
        """Whether a sink had not yet confirmed the outbox when it was opened."""
        try:
            for name, sink in app.sinks.items():
                target = SinkTarget(
                    pipeline=app.name,
                    checkpoint_id=checkpoint_id,
                    sink=name,
                    claim=claim,
                    key=sink.operator.key_names,
                    values=sink.operator.value_names,
                    operator=sink.operator.name,
                )
                self._open(sink.connector, target, outbox)
            if app.letters is not None:
                self._owners[DEAD_LETTERS] = tuple(app.sources)
                self._open(app.letters, SinkTarget(app.name, checkpoint_id, DEAD_LETTERS, claim, (), (), ""), outbox)
        except BaseException:
            self.close()
            raise

    def _open(self, connector: Sink, target: SinkTarget, outbox: Outbox) -> None:
        writer = self._writers[target.sink] = connector.open(target)
        confirmed = writer.confirmed()
        _check_marker(target.sink, confirmed, outbox, self._say)
        self.behind = self.behind or (outbox.sequence > 0 and confirmed != outbox.sequence)

    def start(self, outbox: Outbox) -> None:
        """Deliver in the background; `finish` waits for it."""
        self.finish()
        self._pending = self._pool.submit(self._deliver, outbox)

    def finish(self) -> None:
        """Wait until every sink has confirmed; raise what went wrong."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def give_up(self) -> None:
        """Stop waiting for a sink that is away."""
        self._closing.set()

    def close(self) -> None:
        self.give_up()
        self._pool.shutdown(wait=True)
        for writer in self._writers.values():
            writer.close()

    def _deliver(self, outbox: Outbox) -> None:
        for number, (name, writer) in enumerate(self._writers.items()):
            paths = [path for owner in self._owners[name] for path in outbox.files.get(owner, ())]
            delivery = Delivery(outbox.sequence, tuple(self._folder / path for path in paths))
            with crash.working_for(name):
                if number:
                    crash.point("between_sinks")
                patiently(partial(writer.deliver, delivery), self._say, self._closing)
        crash.point("after_sinks")


def _check_marker(name: str, confirmed: int | None, outbox: Outbox, say: Callable[[str], None]) -> None:
    """A sink must be at the last outbox, or at the one before it: anything else cannot be continued."""
    if confirmed is None:
        if outbox.previous:
            say(
                f"sink {name} has nothing of this checkpoint yet: it will hold results from record {outbox.sequence} on"
            )
        return
    ways_out = (
        "restore the checkpoint that belongs to it, or give the sink a new target, or run with a new --checkpoint"
    )
    if confirmed > outbox.sequence:
        raise SinkError(
            f"sink {name!r} is ahead: it has record {confirmed}, the checkpoint {outbox.sequence}", hint=ways_out
        )
    if confirmed < outbox.previous:
        raise SinkError(
            f"sink {name!r} is behind: it has record {confirmed}, but panes up to record {outbox.previous} are gone",
            hint=ways_out,
        )
