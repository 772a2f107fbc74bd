"""The kill matrix with the checkpoint on HDFS and on S3: real stores, which decide who was first.

Records, state, staged results and Spark's own log are all there; only the sinks are local.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chaos.drivers import Pipeline
from tests.chaos.test_kill_matrix import BEFORE_THE_FIRST_RECORD, FROM_RECORD_TO_RECORD, once_each
from tests.servers import unique
from tests.stores import STORES, Store

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.usefixtures("jvm_alone"),
    pytest.mark.parametrize("store", STORES, indirect=True),
]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """The same pipeline with its checkpoint in a local folder, left in peace."""
    pipeline = Pipeline.make(tmp_path_factory.mktemp("undisturbed"), ids=False)
    pipeline.finish(*pipeline.bounded(2))
    return pipeline


@pytest.fixture
def pipeline(tmp_path: Path, store: Store) -> Iterator[Pipeline]:
    made = Pipeline.make(tmp_path / "late", ids=False, location=store.location(unique("killed")))
    yield made
    made.close()


@pytest.fixture
def timely(tmp_path: Path, store: Store) -> Iterator[Pipeline]:
    """A pipeline without late events, so that the result does not depend on how its batches were cut."""
    made = Pipeline.make(tmp_path / "timely", ids=False, late=False, location=store.location(unique("taken_over")))
    yield made
    made.close()


def test_drivers_killed_one_after_the_other_give_the_same_result(pipeline: Pipeline, undisturbed: Pipeline) -> None:
    chain = [*once_each(BEFORE_THE_FIRST_RECORD), *once_each(FROM_RECORD_TO_RECORD)]
    pipeline.kill_at_each(chain, *pipeline.bounded(2))
    assert pipeline.troubles() == []
    assert pipeline.differences_from(undisturbed) == []


def test_a_driver_that_was_frozen_finds_its_successor_and_stops_without_harm(timely: Pipeline) -> None:
    timely.survive_a_zombie()


def test_a_store_that_goes_away_stops_the_driver_and_another_goes_on(timely: Pipeline, store: Store) -> None:
    driver = timely.start("--interval", "0", *timely.bounded(1))
    timely.wait_for_record(3, driver)
    store.server.kill()
    try:
        ended = timely.wait(driver)
    finally:
        store.server.start()
    told = f"ended with {ended.code}\n{ended.out}\n{ended.err}"
    assert ended.code == 1, told
    assert "Traceback" not in ended.err, told
    assert "Py4J" not in ended.err, told
    timely.finish(*timely.bounded(2))
    assert timely.troubles() + timely.differences_from_truth() == [], told
