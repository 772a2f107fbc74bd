"""From what the user names – a checkpoint folder, or the app it belongs to – to an open checkpoint."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.app import App
from tidegate.cli.load import is_app, load
from tidegate.errors import CheckpointError
from tidegate.runtime.records import Checkpoint, Position


@dataclass(frozen=True)
class Found:
    """A checkpoint that has at least one record; `app` when it was found through one."""

    checkpoint: Checkpoint
    position: Position
    app: App | None


def locate(target: str) -> Found:
    """Open the checkpoint behind `target`; the app's own default one when `target` is an app file."""
    app = None
    if is_app(target):
        loaded = load(target)
        app, folder = loaded.app, str(loaded.checkpoint)
    else:
        folder = target
    checkpoint = Checkpoint.open(folder)
    position = checkpoint.position()
    if position is None:
        raise CheckpointError(f"{checkpoint.folder} has no records yet", hint="run the pipeline first")
    return Found(checkpoint, position, app)
