"""A dev server: how one is started, found again, and stopped, whatever it is. Each kind says the rest in its own file.

`state.json` names the process by its id **and** by when it was born: after a reboot the id may belong to another, which
must not be taken for ours, let alone stopped. Starting and stopping hold a lock, so two commands do not meet.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tidegate.errors import MachineError

HOST = "127.0.0.1"
_TAIL = 15


@dataclass(frozen=True)
class Status:
    """A server as it is now."""

    kind: str
    running: bool
    address: str | None
    environment: Mapping[str, str]
    pid: int | None
    log: Path


@dataclass(frozen=True)
class _State:
    pid: int
    born: str
    ports: list[int]


class Server(ABC):
    """One kind of server in its folder."""

    kind: ClassVar[str]
    ports: ClassVar[int] = 1
    patience: ClassVar[float] = 90.0
    """How many seconds it may take to answer."""
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"

    @abstractmethod
    def prepare(self, say: Callable[[str], None]) -> None:
        """Have the programs, and make the data folder when there is none. Raises MachineError."""

    @abstractmethod
    def command(self, ports: list[int]) -> list[str]:
        """What to run; it must stay in the foreground."""

    @abstractmethod
    def answers(self, port: int) -> bool:
        """Whether the server serves; may raise OSError."""

    @abstractmethod
    def address(self, port: int) -> str:
        """How clients name it."""

    @abstractmethod
    def environment(self, port: int) -> dict[str, str]:
        """The variables that clients look at."""

    def delete(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, say: Callable[[str], None]) -> str:
        """Start it unless it runs, and wait until it answers; its address."""
        with self._lock():
            state = self._running()
            if state is None:
                self.prepare(say)
                state = self._spawn(self._choose_ports())
            self._wait(state)
            return self.address(state.ports[0])

    def stop(self, *, delete: bool = False) -> bool:
        """Stop it in good order, or not in good order when it does not listen; whether it was running."""
        if not self.folder.exists():
            return False
        with self._lock():
            state = self._running()
            if state:
                _signal([state.pid], signal.SIGCONT)
                _signal([state.pid], self.stop_signal)
                if not _gone([state.pid], within=30):
                    self._end(state)
            if delete:
                self.delete()
            return state is not None

    def kill(self) -> None:
        self._end(self._need())

    def pause(self) -> None:
        """Make it stand still; when this returns, it does."""
        family = _family(self._need().pid)
        _signal(family, signal.SIGSTOP)
        until = time.monotonic() + 30
        while not all(map(_stands_still, family)):
            if time.monotonic() > until:
                raise MachineError(f"{self.kind} does not stand still")
            time.sleep(0.001)

    def resume(self) -> None:
        _signal(_family(self._need().pid), signal.SIGCONT)

    def status(self) -> Status:
        state = self._running()
        if state is None:
            return Status(self.kind, False, None, {}, None, self.log)
        port = state.ports[0]
        return Status(self.kind, True, self.address(port), self.environment(port), state.pid, self.log)

    def failure(self, what: str) -> MachineError:
        lines = self.log.read_text("utf-8", "replace").splitlines()[-_TAIL:] if self.log.exists() else []
        tail = "".join(f"\n  {line}" for line in lines)
        return MachineError(f"{self.kind} {what}; the end of {self.log}:{tail}")

    def run(self, command: list[str], what: str) -> None:
        """Run a helper of the server to its end, with its output in the log."""
        with self.log.open("ab") as log:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False)
        if done.returncode:
            raise self.failure(f"could not {what}")

    @contextmanager
    def _lock(self) -> Iterator[None]:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder.parent / f".{self.kind}.lock").open("w")
        except OSError as error:
            raise MachineError(
                f"{self.folder} cannot be used: {error.strerror}", hint="choose another --folder"
            ) from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _spawn(self, ports: list[int]) -> _State:
        command = self.command(ports)
        with self.log.open("ab") as log, open(os.devnull, "rb") as nothing:  # noqa: PTH123
            pid = os.posix_spawnp(
                command[0],
                command,
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, nothing.fileno(), 0),
                    (os.POSIX_SPAWN_DUP2, log.fileno(), 1),
                    (os.POSIX_SPAWN_DUP2, log.fileno(), 2),
                    *((os.POSIX_SPAWN_CLOSE, number) for number in _handed_down()),
                ],
                setsid=True,
            )
        state = _State(pid, _born(pid) or "", ports)
        draft = self.folder / ".state.json"
        draft.write_text(json.dumps({"pid": state.pid, "born": state.born, "ports": ports}))
        draft.replace(self.folder / "state.json")
        return state

    def _wait(self, state: _State) -> None:
        until = time.monotonic() + self.patience
        while time.monotonic() < until:
            if not _is_alive(state):
                raise self.failure("ended while it was starting")
            with suppress(OSError):
                if self.answers(state.ports[0]):
                    return
            time.sleep(0.1)
        self._end(state)
        raise self.failure(f"did not answer within {self.patience:.0f} s and was stopped")

    def _choose_ports(self) -> list[int]:
        """The ports it had when they are free, so that a server that comes again is found where it was."""
        known = self._state()
        if known and len(known.ports) == self.ports and all(map(_is_free, known.ports)):
            return known.ports
        with _reserved(self.ports) as ports:
            return ports

    def _state(self) -> _State | None:
        try:
            return _State(**json.loads((self.folder / "state.json").read_text("utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def _running(self) -> _State | None:
        state = self._state()
        return state if state and _is_alive(state) else None

    def _need(self) -> _State:
        if state := self._running():
            return state
        raise MachineError(f"{self.kind} is not running in {self.folder.parent}", hint=f"tidegate dev up {self.kind}")

    def _end(self, state: _State) -> None:
        # Children first stop, so that none is orphaned and none is born: a server may fork a process per connection.
        family = _family(state.pid)
        _signal(family, signal.SIGKILL)
        if not _gone(family, within=30):
            raise MachineError(f"{self.kind} (process {state.pid}) does not end even when killed")


def _is_alive(state: _State) -> bool:
    return _born(state.pid) == state.born


def _handed_down() -> list[int]:
    """Files that whoever started us left open for us: a lock among them would be held for as long as a server runs."""
    found = []
    for name in os.listdir("/dev/fd"):  # noqa: PTH208  # numbers, not files
        with suppress(OSError):
            if int(name) > 2 and os.get_inheritable(int(name)):
                found.append(int(name))
    return found


def _born(pid: int) -> str | None:
    """When a process was born; None when there is none, or only what is left of it."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)  # ours, and dead: let it go
    if Path("/proc/self/stat").exists():
        try:
            # The state, as 18th the number of threads, and as 20th the ticks since boot. A killed process shows as dead
            # as soon as its first thread is, while the others still hold its files and its port.
            fields = _stat(Path(f"/proc/{pid}"))
        except OSError:
            return None
        return None if fields[0] in "ZX" and int(fields[17]) <= 1 else fields[19]
    done = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, born = done.stdout.strip().partition(" ")
    return born.strip() if born and not state.startswith("Z") else None


def _stat(process: Path) -> list[str]:
    """What Linux tells of a process or a thread, after its name in brackets, which may hold anything."""
    return (process / "stat").read_text().rpartition(")")[2].split()


def _stands_still(pid: int) -> bool:
    """Whether a process has stopped, or gone: each of its threads, for a signal takes a while to reach them all."""
    if not Path("/proc/self/stat").exists():
        state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
        return not state.stdout.strip() or state.stdout.startswith("T")
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return True
    states = []
    for thread in threads:
        with suppress(OSError):  # it has ended meanwhile
            states.append(_stat(thread)[0])
    return all(state in "TtZX" for state in states)


def _family(pid: int) -> list[int]:
    """A process and all its descendants."""
    done = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)
    parents = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    family = [pid]
    for member in family:  # grows while it is walked
        family += [child for child, parent in parents if parent == member]
    return family


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _gone(pids: list[int], within: float) -> bool:
    until = time.monotonic() + within
    while any(_born(pid) for pid in pids):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


PORTS = range(10_000, 32_000)
"""Below the ports that systems give to outgoing connections: one of those may sit on a port while its server is away,
and the server would come again elsewhere."""


@contextmanager
def _reserved(count: int) -> Iterator[list[int]]:
    """Free ports, all different: they are held until all are known."""
    held: list[socket.socket] = []
    try:
        for port in random.SystemRandom().sample(PORTS, 1000):
            one = socket.socket()
            try:
                one.bind((HOST, port))
            except OSError:
                one.close()
                continue
            held.append(one)
            if len(held) == count:
                break
        yield [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


def install(package: str, program: str, say: Callable[[str], None]) -> None:
    """Install a package of Debian or Ubuntu, when we may; `program` is what is missing."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise MachineError(
            f"{program} is not on this machine",
            hint=f"install it (Debian and Ubuntu: apt-get install {package}; macOS: brew install {program})",
        )
    say(f"{program} is missing: installing {package} with apt-get")
    # With this run level the package does not start a server of its own.
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    patient = ["-o", "DPkg::Lock::Timeout=300"]
    with (Path(tempfile.gettempdir()) / "tidegate-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process of ours may be installing the same: it is waited for
        for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *patient, package]):
            done = subprocess.run(["apt-get", *command], env=quiet, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MachineError(f"apt-get install {package} failed: {done.stderr.strip()[-500:]}")
