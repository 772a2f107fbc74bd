"""Claims: a driver's first act, a record that makes the next publish of any other driver fail.

Of two drivers on one checkpoint the later one wins: the earlier one, a zombie that was only paused, finds its next
record taken and stops. The claim's number also goes to the sinks, so that a zombie's delivery is refused there."""

from __future__ import annotations

import uuid
from typing import Any

from tidegate import crash
from tidegate.app import App
from tidegate.errors import CheckpointError
from tidegate.runtime import clock as clocks
from tidegate.runtime.delivery import Deliverer
from tidegate.runtime.ledger import Ledger
from tidegate.runtime.records import Checkpoint, Outbox, Position, Record, Snapshot
from tidegate.runtime.reports import Watcher


def claim(checkpoint: Checkpoint, position: Position | None, now: int, signatures: dict[str, Any]) -> Record:
    """Take the checkpoint over, at the position that was loaded. The time it was down makes no partition idle."""
    last = position.last if position else None
    number = last.sequence + 1 if last else 1
    sources = {name: clocks.resume(clock, now - last.clock) for name, clock in last.sources.items()} if last else {}
    record = Record(
        sequence=number,
        kind="claim",
        claim=number,
        attempt=uuid.uuid4().hex,
        clock=max(now, last.clock) if last else now,
        offsets=last.offsets if last else None,
        sources=sources,
        watermarks=last.watermarks if last else {},
        ledger=Ledger(),
        totals=last.totals if last else Ledger(),
        outbox=last.outbox if last else Outbox(),
        terminal=last.terminal if last else False,
        snapshot=Snapshot(tuple(position.files.values()) if position else (), signatures),
    )
    crash.point("at_claim")
    checkpoint.publish(record)
    return record


def finish_ended(app: App, checkpoint: Checkpoint, position: Position, now: int, watcher: Watcher) -> Record:
    """A checkpoint whose input has ended: deliver what a crash has left undelivered.

    Otherwise there is nothing to do.
    """
    outbox = position.last.outbox
    deliverer = Deliverer(app, checkpoint.folder, checkpoint.identity, position.last.claim, outbox, watcher.say)
    behind = deliverer.behind
    deliverer.close()
    if not behind:
        raise CheckpointError(
            f"{checkpoint.folder} was drained: its input was declared to be over and every window has closed",
            hint="run with a new --checkpoint (and a new sink target) to read the sources again from the beginning",
        )
    watcher.say(f"the input had ended, but record {outbox.sequence} was not delivered everywhere: delivering it")
    record = claim(checkpoint, position, now, position.signatures)
    deliverer = Deliverer(app, checkpoint.folder, checkpoint.identity, record.claim, outbox, watcher.say)
    try:
        deliverer.start(outbox)
        deliverer.finish()
    finally:
        deliverer.close()
    return record
