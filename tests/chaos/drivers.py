"""A pipeline in a folder, and real driver processes that run it, are killed, and run it again.

The app's file also lowers the engine's housekeeping constants, so that a run of a few batches compacts and collects
garbage. All pipelines have a table and a change log, in files; `targets` adds sinks on servers.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.inputs import RECORDS_OF_A_FILE, make_input, truth, write_files, write_topic
from tests.chaos.oracles import conservation, differences, last_panes, pane_order
from tests.servers import RunningServer
from tests.workbench import read_table

import tidegate
from tidegate.deadletter.store import DeadLetters, Filter
from tidegate.runtime.records import Checkpoint, Position
from tidegate.sinks.parquet_log import read_log
from tidegate.storage.places import Place, place

SOURCES = Path(tidegate.__file__).resolve().parents[1]

APP = """
import tidegate as tg
from tidegate.runtime import engine, state

state.FAN_IN, state.GRACE_RECORDS, engine.SNAPSHOT_EVERY = 2, 1, 3

app = tg.App("chaos")
events = app.source(
    "events",
    {source},
    contract="id STRING, k STRING, v BIGINT, d DECIMAL(12,2), x DOUBLE, at TIMESTAMP",
    event_time="at",
    watermark=tg.Watermark(delay="10s"),
    {memory}
)
counts = (
    events.where("v >= 0")
    .key_by("k")
    .window("counts", tg.Tumbling("30s"), allowed_lateness="1m")
    .aggregate(
        n=tg.count(), total=tg.sum("v"), money=tg.sum("d"), ids=tg.collect("id"),
        doubles=tg.sum("x"), middle=tg.quantile("x", 0.5),
    )
)
app.sink("table", counts, tg.SQLite("out.db", table="counts"))
app.sink("log", counts, tg.ParquetLog("log"))
{more_sinks}
"""

MEMORY = 'event_id="id", keep_duplicates=True'

EXACT = ("k", "window_start", "window_end", "n", "total", "money", "ids", "pane_index", "pane_timing", "pane_final")
ALL = (*EXACT, "doubles", "middle")


@dataclass
class Pipeline:
    """A folder with the app, its input, its checkpoint and its sinks."""

    folder: Path
    written: list[bytes] = field(default_factory=list)
    java: str = ""
    records_per_file: int = 1
    location: str = ""
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    @staticmethod
    def make(
        folder: Path,
        java: str = "",
        kafka: RunningServer | None = None,
        more_sinks: str = "",
        ids: bool = True,
        location: str = "",
        **input_options: Any,
    ) -> Pipeline:
        """On files, or on a topic of the given broker; `more_sinks` is what the app declares beyond table and log.

        The checkpoint is in the folder, or at a `location` elsewhere.
        With `ids` it knows repeats, and waits for a batch to be decided before it folds the next; without, it does not.
        """
        folder.mkdir(parents=True, exist_ok=True)
        made = make_input(**input_options, repeats=ids)
        if kafka is None:
            write_files(folder, made)
            source, records = f'tg.Files({str(folder / "input")!r}, partition="path:part")', 1
        else:
            topic = write_topic(kafka, made)
            source, records = f"tg.Kafka({kafka.address!r}, topic={topic.name!r})", RECORDS_OF_A_FILE
        (folder / "app.py").write_text(APP.format(source=source, memory=MEMORY if ids else "", more_sinks=more_sinks))
        return Pipeline(folder, [line for lines in made for line in lines], java, records, location)

    def bounded(self, files: int) -> tuple[str, str]:
        """The options that make batches of as much as `files` files hold."""
        return "--max-batch", str(files * self.records_per_file)

    # -- running ----------------------------------------------------------------------------------------------------

    def start(self, *options: str, crash_at: str | None = None) -> subprocess.Popen[str]:
        """A driver in a process group of its own, with its JVM in it."""
        environment = os.environ | {
            "PYTHONPATH": str(SOURCES),
            "TIDEGATE_MEMORY": "512m",
            # A driver of these tests lives for seconds: the optimising compiler would not pay.
            "JDK_JAVA_OPTIONS": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable {self.java}",
        }
        environment.pop("TIDEGATE_CRASH_AT", None)
        if crash_at:
            environment["TIDEGATE_CRASH_AT"] = crash_at
        where = self.location or "checkpoint"
        command = [sys.executable, "-m", "tidegate.cli", "run", "app.py", "--checkpoint", where, *options]
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def run(self, *options: str, crash_at: str | None = None) -> Ended:
        process = self.start(*options, crash_at=crash_at)
        return self.wait(process)

    def wait(self, process: subprocess.Popen[str], timeout: float = 480) -> Ended:
        """Wait for the end of a driver, then make sure that nothing of it is left: a power cut spares no JVM."""
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            kill_group(process, signal.SIGKILL)
            out, err = process.communicate()
            raise AssertionError(f"the driver did not end within {timeout} s\n{out}\n{err}") from None
        kill_group(process, signal.SIGKILL)
        return Ended(process.returncode, out, err)

    def finish(self, *options: str) -> Ended:
        ended = self.run("--drain", *options)
        assert ended.code == 0, f"the restarted driver failed ({ended.code})\n{ended.out}\n{ended.err}"
        return ended

    def kill_at_each(self, chain: Sequence[str], *options: str) -> None:
        """Kill one driver after the other, and let the last finish; what they leave must be sound after each."""
        for number, point in enumerate(chain):
            killed = self.run("--drain", *options, crash_at=point)
            so_far = " ".join(chain[: number + 1])
            assert killed.code == -signal.SIGKILL, f"{so_far}: not reached ({killed.code})\n{killed.out}\n{killed.err}"
            assert self.breakage() == [], f"after the kill at {point} in: {so_far}"
        self.finish(*options)

    def survive_a_zombie(self) -> None:
        """A driver is stopped in the middle, replaced, and woken up when all is done; it must stop without harm."""
        zombie = self.start("--interval", "0", *self.bounded(2))
        self.wait_for_record(3, zombie)
        time.sleep(0.2)  # a delivery that is under way may end: it holds a lock that its successor needs
        kill_group(zombie, signal.SIGSTOP)
        frozen_at = self.sequence()

        self.finish(*self.bounded(2))
        records, shown = self.record_names(), (self.table(), self.log(), self.letters())

        kill_group(zombie, signal.SIGCONT)
        ended = self.wait(zombie)
        told = f"frozen at record {frozen_at}, ended with {ended.code}\n{ended.out}\n{ended.err}"
        assert ended.code == 1, told
        assert "another driver" in ended.err, told
        assert "Traceback" not in ended.err, told
        assert "Py4J" not in ended.err, told
        assert self.record_names() == records
        assert (self.table(), self.log(), self.letters()) == shown
        assert self.troubles() + self.differences_from_truth() == [], told

    def close(self) -> None:
        for process in self.processes:
            kill_group(process, signal.SIGKILL)

    # -- looking ----------------------------------------------------------------------------------------------------

    @property
    def checkpoint(self) -> Place:
        return place(self.location) if self.location else self.folder / "checkpoint"

    def position(self) -> Position:
        position = Checkpoint.open(str(self.checkpoint)).position()
        assert position is not None
        return position

    def sequence(self) -> int:
        """The number of the last record; 0 before there is one."""
        return max((int(name.partition(".")[0]) for name in self.record_names()), default=0)

    def record_names(self) -> list[str]:
        return sorted(path.name for path in (self.checkpoint / "records").glob("0*.json"))

    def wait_for_record(self, number: int, process: subprocess.Popen[str], timeout: float = 120) -> None:
        deadline = time.monotonic() + timeout
        while self.sequence() < number:
            assert process.poll() is None, f"the driver ended before record {number}: {process.communicate()}"
            assert time.monotonic() < deadline, f"record {number} did not come within {timeout} s"
            time.sleep(0.02)

    def table(self, name: str = "counts") -> list[dict[str, Any]]:
        return read_table(self.folder / "out.db", name)

    def log(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = read_log(self.folder / "log").to_pylist()
        return rows

    def letters(self) -> list[dict[str, Any]]:
        files = [self.checkpoint / f.path for f in self.position().files.values() if f.kind == "dead"]
        return [row | {"file": Path(row["origin"]).name} for row in DeadLetters(files).letters(Filter())]

    def breakage(self) -> list[str]:
        """What is wrong already while the pipeline lies killed."""
        if not self.sequence():
            return []
        files = self.position().files.values()
        found = [f"live file is gone: {f.path}" for f in files if not (self.checkpoint / f.path).exists()]
        outbox = self.position().last.outbox.files.values()
        names = [path for paths in outbox for path in paths]
        gone = [name for name in names if not (self.checkpoint / name).exists()]
        found += [f"undelivered file is gone: {name}" for name in gone]
        times = Counter(name for row in self.table() for name in json.loads(row["ids"]))
        found += [f"{name} is in the table {n} times" for name, n in times.items() if n > 1]
        return found + (pane_order(self.log(), ["k"]) if (self.folder / "log" / "_manifests" / "log").exists() else [])

    def troubles(self) -> list[str]:
        """What is wrong in itself after the last run, whatever another pipeline has shown."""
        totals = self.position().last.totals
        accepted = [name for row in self.table() for name in json.loads(row["ids"])]
        found = conservation(self.written, accepted, self.letters(), totals.paths["counts"].filtered)
        # A KLL quantile and a double sum differ each time they are computed; both sinks must show the same.
        found += [f"log and table: {text}" for text in differences(last_panes(self.log(), ["k"]), self.table(), ALL)]
        found += [f"unaccounted: {totals.unaccounted()}"] if totals.unaccounted() else []
        read = totals.sources["events"].read
        found += [f"read {read} of {len(self.written)} lines"] if read != len(self.written) else []
        return found + self.breakage()

    def differences_from(self, other: Pipeline) -> list[str]:
        """Row for row: the table, the log, the dead letters, the totals."""
        letter = ("reason", "operator", "raw", "event_time", "window_start", "file")
        found = [f"table: {text}" for text in differences(other.table(), self.table(), EXACT)]
        found += [f"dead letters: {text}" for text in differences(other.letters(), self.letters(), letter)]
        mine, theirs = renumbered(self.log()), renumbered(other.log())
        found += [f"log: {text}" for text in differences(theirs, mine, (*EXACT, "pane_change", "sequence"))]
        ours, undisturbed = self.position().last.totals, other.position().last.totals
        return found + ([f"totals: {ours} instead of {undisturbed}"] if ours != undisturbed else [])

    def differences_from_truth(self) -> list[str]:
        """For input without late events: what plain Python makes of it."""
        columns = ("k", "window_start", "window_end", "n", "total", "money", "ids")
        return [f"table: {text}" for text in differences(truth(self.written), self.table(), columns)]


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


def renumbered(log: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A restart takes a number for its claim: what counts is the order of the records that spoke."""
    order = {sequence: place for place, sequence in enumerate(sorted({row["sequence"] for row in log}))}
    return [row | {"sequence": order[row["sequence"]]} for row in log]


def kill_group(process: subprocess.Popen[str], number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return
