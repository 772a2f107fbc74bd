"""Finding the app: a user's Python file is imported by path, and the one `App` in it is taken.

A file with several apps is addressed as ``file.py:name``. The file's folder is on the path while and after it is
imported, so that it can import its neighbours. What goes wrong in the user's file is told in terms of that file: a
stack trace through click and importlib would bury the one line that matters.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from tidegate.app import App
from tidegate.errors import PipelineError, TidegateError

_PACKAGE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Loaded:
    """An app and where it came from."""

    app: App
    path: Path
    module: ModuleType

    @property
    def checkpoint(self) -> Path:
        """Where its checkpoint is unless said otherwise: beside the file, whatever the current folder is."""
        return self.path.parent / ".tidegate" / self.app.name


def load_app(path: str | Path, name: str | None = None) -> App:
    """The app of a file: the one called `name`, or the only one."""
    return load(str(path) if name is None else f"{path}:{name}").app


def load(target: str) -> Loaded:
    """Load ``file.py`` or ``file.py:name``."""
    path, name = _split(target)
    module = _import(path)
    return Loaded(_choose(module, path, name), path, module)


def is_app(target: str) -> bool:
    """Whether `target` is meant as an app file, not as a checkpoint folder."""
    return _split(target)[0].suffix == ".py"


def _split(target: str) -> tuple[Path, str | None]:
    file, colon, name = target.rpartition(":")
    if colon and file.endswith(".py"):
        return Path(file).resolve(), name
    return Path(target).resolve(), None


def _import(path: Path) -> ModuleType:
    if path.is_dir() or not path.exists():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise PipelineError(f"app file {path} {what}", hint="name the Python file in which the App is declared")
    if path.suffix != ".py":
        raise PipelineError(f"app file {path} is not a Python file", hint="its name must end in .py")
    # A name of its own: a user's `queue.py` must not stand in for the standard library's.
    spec = importlib.util.spec_from_file_location(f"tidegate_app_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except TidegateError as error:
        raise type(error)(f"{error.message}\n{_lines_of(error, path)}".rstrip(), hint=error.hint) from error
    except SyntaxError as error:
        text = "".join(traceback.format_exception_only(error)).rstrip()
        raise PipelineError(f"the app file cannot be read as Python:\n{text}") from error
    except (Exception, SystemExit) as error:
        text = "".join(traceback.format_exception_only(error)).rstrip()
        raise PipelineError(
            f"{_lines_of(error, path)}{text}\nThe app file {path.name} raised this while it was being loaded."
        ) from error
    return module


def _lines_of(error: BaseException, path: Path) -> str:
    """The part of the stack trace that lies in the user's file or its neighbours, not in libraries."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_the_users(frame.filename, path)]
    return "".join(traceback.format_list(frames))


def _is_the_users(filename: str, path: Path) -> bool:
    file = Path(filename)
    ours = file.is_relative_to(_PACKAGE) or {"site-packages", "dist-packages"} & {*file.parts}
    return file.is_relative_to(path.parent) and not ours


def _choose(module: ModuleType, path: Path, name: str | None) -> App:
    apps = {variable: value for variable, value in vars(module).items() if isinstance(value, App)}
    names = ", ".join(apps)
    if name is not None:
        if name not in apps:
            raise PipelineError(
                f"{path.name} has no App called {name!r}", hint=f"it has {names}" if apps else "it has no App at all"
            )
        return apps[name]
    if not apps:
        raise PipelineError(
            f"{path.name} declares no App", hint='it must have a line such as app = tidegate.App("payments")'
        )
    if len({id(app) for app in apps.values()}) > 1:
        raise PipelineError(
            f"{path.name} declares several apps: {names}", hint=f"say which one: {path.name}:{next(iter(apps))}"
        )
    return next(iter(apps.values()))
