"""Real drivers, killed with SIGKILL at every named point and at random times, then started again.

What comes out must be what an undisturbed run gives: nothing lost, nothing doubled, and never two sinks that disagree.

Starting a JVM is what costs time here, so the matrix is made of *chains*: a driver is killed at the first point, the
driver that is started in its place at the second, and so on, until one is allowed to finish. Each kill is a case of its
own – what lies in the folders is examined after each – and a chain also has what single kills have not: a driver that
dies while it is mending what another one left. `breakage` names the kill after which something was wrong.

Any chain of your own:    ``TIDEGATE_CHAOS_CHAIN="mid_sink:1 mid_record:2" pytest tests/chaos -k chain_of_your_own``
One random story again:   ``TIDEGATE_CHAOS_SEED=<seed> pytest tests/chaos -k random``
"""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.chaos.drivers import SOURCES, Pipeline, kill_group
from tests.servers import RunningServer

pytestmark = pytest.mark.chaos

# `name:k` is the k-th time that a process comes to the point. The claim is a record too, so a driver's first batch is
# its second record. A driver that finds something undelivered delivers it first: its first `mid_sink` is a redelivery.
BEFORE_THE_FIRST_RECORD = [
    "at_claim",
    "mid_record:1",
    "after_record:1",
    "before_offset_log",
    "while_staging:1",
    "while_staging:2",
    "mid_dead_letters:1",
    "after_staging:1",
    "before_record:2",
    "mid_record:2",
]
FROM_RECORD_TO_RECORD = [
    "after_record:2",  # the first batch is decided, and no sink has seen it
    "mid_sink:1",
    "mid_sink:2",
    "between_sinks:1",
    "after_sinks:1",
    "mid_compaction:1",
    "mid_garbage_collection:1",
    "mid_sink:3",
    # A batch is concluded in the background: from here on the one before may be decided already, or not.
    "before_spark_commit:1",
    "before_spark_commit:2",
    "after_fold:2",
    "before_record:3",
    "mid_record:3",
]
END_OF_INPUT = [
    "before_record:3",
    "mid_record:2",
    "after_record:2",  # the last record is decided; what is left is to deliver it
    "mid_sink:1",
    "between_sinks:1",
]


def once_each(chain: list[str]) -> list[str]:
    """The chain with each point once, at its first place: what CI has time for."""
    first: dict[str, str] = {}
    for point in chain:
        first.setdefault(name_of(point), point)
    return list(first.values())


def name_of(point: str) -> str:
    return point.partition(":")[0]


brief_or_whole = pytest.mark.parametrize(
    "shorten", [pytest.param(once_each, id="brief"), pytest.param(list, id="whole", marks=pytest.mark.slow)]
)

Make = Callable[..., Pipeline]
Shorten = Callable[[list[str]], list[str]]


@pytest.fixture(scope="module", params=["files", pytest.param("kafka", marks=[pytest.mark.servers, pytest.mark.slow])])
def broker(request: pytest.FixtureRequest) -> RunningServer | None:
    """The whole matrix, with files as input and with a topic. `test_kill_sinks` has a short chain on a topic."""
    return request.getfixturevalue("kafka") if request.param == "kafka" else None


@pytest.fixture(
    scope="module", params=[pytest.param(True, id="ids", marks=pytest.mark.slow), pytest.param(False, id="no-ids")]
)
def ids(request: pytest.FixtureRequest) -> bool:
    """Whether the pipeline knows repeats. Without ids two batches overlap, and that is what CI has time for."""
    return bool(request.param)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, broker: RunningServer | None, ids: bool) -> Pipeline:
    """The run that others are compared with. It also leaves an archive of Java classes, which halves a JVM's start."""
    folder = tmp_path_factory.mktemp("undisturbed")
    archive = folder / "classes.jsa"
    pipeline = Pipeline.make(folder / "pipeline", f"-XX:ArchiveClassesAtExit={archive}", broker, ids=ids)
    pipeline.finish(*pipeline.bounded(2))
    pipeline.java = f"-XX:SharedArchiveFile={archive}" if archive.exists() else ""
    return pipeline


@pytest.fixture
def make(tmp_path: Path, undisturbed: Pipeline, broker: RunningServer | None, ids: bool) -> Iterator[Make]:
    made: list[Pipeline] = []

    def pipeline(*, late: bool) -> Pipeline:
        made.append(Pipeline.make(tmp_path / f"pipeline{len(made)}", undisturbed.java, broker, ids=ids, late=late))
        return made[-1]

    yield pipeline
    for each in made:
        each.close()


def test_the_undisturbed_run_is_in_order_and_shows_what_the_matrix_is_about(undisturbed: Pipeline, ids: bool) -> None:
    assert undisturbed.troubles() == []
    totals = undisturbed.position().last.totals
    assert totals.operators["counts"].late > 0
    assert totals.operators["counts"].panes["late"] > 0
    assert (totals.sources["events"].duplicates > 0) is ids
    assert totals.paths["counts"].filtered > 0
    assert len(undisturbed.log()) > len(undisturbed.table())
    assert undisturbed.sequence() == 12, "a claim, ten batches, the end of input"


def test_every_crash_point_of_the_code_has_a_case() -> None:
    text = "".join(path.read_text() for path in (SOURCES / "tidegate").rglob("*.py"))
    found = re.findall(r'crash\.point\("(\w+)"\)|crash_point="(\w+)"', text)
    cases = BEFORE_THE_FIRST_RECORD + FROM_RECORD_TO_RECORD + END_OF_INPUT
    assert {name for pair in found for name in pair if name} == {name_of(case) for case in cases}


@brief_or_whole
def test_drivers_killed_before_the_first_record_leave_nothing_behind(
    make: Make, undisturbed: Pipeline, shorten: Shorten
) -> None:
    pipeline = make(late=True)
    pipeline.kill_at_each(shorten(BEFORE_THE_FIRST_RECORD), *pipeline.bounded(2))
    assert pipeline.troubles() == []
    assert pipeline.differences_from(undisturbed) == []


@brief_or_whole
def test_drivers_killed_from_record_to_record_give_the_same_result(
    make: Make, undisturbed: Pipeline, shorten: Shorten
) -> None:
    pipeline = make(late=True)
    pipeline.kill_at_each(shorten(FROM_RECORD_TO_RECORD), *pipeline.bounded(2))
    assert pipeline.troubles() == []
    assert pipeline.differences_from(undisturbed) == []


@pytest.mark.slow
def test_drivers_killed_at_the_end_of_input_deliver_the_last_record(make: Make) -> None:
    """A drained checkpoint refuses to run; but not before its sinks have what it decided."""
    pipeline = make(late=False)
    pipeline.kill_at_each(END_OF_INPUT, *pipeline.bounded(100))
    assert pipeline.troubles() == []
    assert pipeline.differences_from_truth() == []
    refused = pipeline.run("--drain", *pipeline.bounded(100))
    assert refused.code == 1
    assert "was drained" in refused.err


CHAIN = os.environ.get("TIDEGATE_CHAOS_CHAIN", "").split()


@pytest.mark.skipif(not CHAIN, reason="for looking into a failure: set TIDEGATE_CHAOS_CHAIN")
def test_a_chain_of_your_own(make: Make, undisturbed: Pipeline) -> None:
    pipeline = make(late=True)
    pipeline.kill_at_each(CHAIN, *pipeline.bounded(2))
    assert pipeline.troubles() == []
    assert pipeline.differences_from(undisturbed) == []


SEEDS = [int(seed) for seed in os.environ.get("TIDEGATE_CHAOS_SEED", "1 2 3 4").split()]


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_driver_killed_at_random_times_and_started_again_loses_and_doubles_nothing(seed: int, make: Make) -> None:
    """Kills may hit Spark between its own logs, where it cuts batches anew: so there are no late events here."""
    pipeline, rng = make(late=False), random.Random(seed)
    story = []
    for _ in range(2):
        wanted, delay = pipeline.sequence() + rng.randrange(1, 4), rng.uniform(0, 1.5)
        process = pipeline.start("--drain", *pipeline.bounded(2))
        while process.poll() is None and pipeline.sequence() < wanted:
            time.sleep(0.01)
        time.sleep(delay)
        kill_group(process, signal.SIGKILL)
        pipeline.wait(process)
        story.append(f"killed {delay:.3f} s after record {wanted}, at record {pipeline.sequence()}")
    ended = pipeline.run("--drain", *pipeline.bounded(2))
    again = f"TIDEGATE_CHAOS_SEED={seed} python -m pytest tests/chaos/test_kill_matrix.py -k random"
    told = f"seed {seed}: {'; '.join(story)}\n  again with: {again}\n{ended.out}\n{ended.err}"
    # When the last kill came after the last delivery there is nothing left to do, and the run is refused.
    assert ended.code == 0 or "was drained" in ended.err, told
    assert pipeline.troubles() + pipeline.differences_from_truth() == [], told


@pytest.mark.slow
def test_a_driver_that_was_frozen_finds_its_successor_and_stops_without_harm(make: Make) -> None:
    """A zombie: stopped in the middle, replaced, and woken up when all is done."""
    pipeline = make(late=False)
    pipeline.survive_a_zombie()


def test_a_driver_that_is_asked_to_stop_ends_its_batch_and_a_later_one_goes_on(make: Make) -> None:
    pipeline = make(late=False)
    driver = pipeline.start("--interval", "0", *pipeline.bounded(1))
    pipeline.wait_for_record(3, driver)
    driver.send_signal(signal.SIGINT)
    ended = pipeline.wait(driver)
    assert ended.code == 0, f"{ended.out}\n{ended.err}"
    assert "stopped by signal" in ended.out
    assert "unaccounted 0" in ended.out
    assert "Traceback" not in ended.err
    pipeline.finish(*pipeline.bounded(2))
    assert pipeline.troubles() + pipeline.differences_from_truth() == []


@pytest.mark.slow
def test_a_second_driver_takes_over_from_one_that_still_runs(make: Make) -> None:
    pipeline = make(late=False)
    first = pipeline.start("--interval", "0.1", *pipeline.bounded(1))
    pipeline.wait_for_record(2, first)
    second = pipeline.finish(*pipeline.bounded(2))
    ended = pipeline.wait(first)
    told = f"the first driver ended with {ended.code}\n{ended.out}\n{ended.err}"
    assert ended.code == 1, told
    assert "another driver" in ended.err, told
    assert "unaccounted 0" in second.out
    assert pipeline.troubles() + pipeline.differences_from_truth() == [], told
