"""A checkpoint asks the same of every file system: a local folder, HDFS and S3, each a real one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.servers import unique
from tests.stores import STORES, Store

import tidegate
from tidegate.errors import CheckpointError
from tidegate.storage import parquet
from tidegate.storage import publish as publishing
from tidegate.storage.hadoop import file_system, hadoop_path
from tidegate.storage.parquet import Nearby, read_table, reading, rows_in, schema_of, write_table
from tidegate.storage.places import Place, place, remove_tree
from tidegate.storage.publish import prove, publish
from tidegate.storage.remote import RemotePath

pytestmark = pytest.mark.usefixtures("jvm_alone")

remote_only = pytest.mark.parametrize("store", STORES, indirect=True)


@pytest.fixture(params=["local", *STORES])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "local":
        made: Place = tmp_path / "place with a space"
    else:
        made = place(request.getfixturevalue("store_of")(request.param).location(unique("place with a space")))
    made.mkdir(parents=True, exist_ok=True)
    yield made
    remove_tree(made)


@pytest.fixture
def remote(store: Store) -> Iterator[RemotePath]:
    made = place(store.location(unique("remote")))
    assert isinstance(made, RemotePath)
    made.mkdir(parents=True)
    yield made
    remove_tree(made)


# -- folders and files ----------------------------------------------------------------------------------------------


def test_what_is_published_is_there(folder: Place) -> None:
    before = time.time()
    assert publish(folder / "a.json", "grüße".encode())
    file = folder / "a.json"
    assert file.exists()
    assert file.is_file()
    assert not file.is_dir()
    assert (file.read_bytes(), file.read_text()) == ("grüße".encode(), "grüße")
    assert file.stat().st_size == 7
    assert before - 60 < file.stat().st_mtime < time.time() + 60
    assert (file.name, file.stem, file.suffix, file.parent) == ("a.json", "a", ".json", folder)


def test_what_is_not_there_says_so(folder: Place) -> None:
    absent = folder / "absent"
    assert not absent.exists()
    assert not absent.is_dir()
    assert not absent.is_file()
    assert list(absent.glob("*")) == []
    assert list(absent.rglob("*")) == []
    absent.unlink(missing_ok=True)
    remove_tree(absent)
    for ask in (absent.read_bytes, absent.stat, absent.unlink, lambda: list(absent.iterdir())):
        with pytest.raises(FileNotFoundError):
            ask()


def test_a_folder_lists_what_is_in_it(folder: Place) -> None:
    for name in ("1.json", "2.json", "3.compact"):
        publish(folder / name, b"x")
    (folder / "inner" / "k=v").mkdir(parents=True)
    publish(folder / "inner" / "k=v" / "4.json", b"x")
    assert sorted(path.name for path in folder.iterdir()) == ["1.json", "2.json", "3.compact", "inner"]
    assert sorted(folder.glob("*.json")) == [folder / "1.json", folder / "2.json"]
    assert sorted(folder.rglob("*.json"))[-1] == folder / "inner" / "k=v" / "4.json"
    assert (folder / "inner" / "k=v" / "4.json").relative_to(folder) == PurePath("inner/k=v/4.json")
    with pytest.raises(ValueError, match="inner"):
        (folder / "inner" / "k=v" / "4.json").relative_to(folder / "other")
    assert (folder / "inner").is_dir()
    (folder / "inner").mkdir(exist_ok=True)


def test_files_and_folders_can_be_deleted(folder: Place) -> None:
    (folder / "tree" / "branch").mkdir(parents=True)
    publish(folder / "tree" / "branch" / "leaf", b"y")
    publish(folder / "single", b"z")
    remove_tree(folder / "tree")
    (folder / "single").unlink()
    assert list(folder.iterdir()) == []


# -- publishing -----------------------------------------------------------------------------------------------------


def test_a_name_that_is_taken_is_never_overwritten(folder: Place) -> None:
    assert publish(folder / "x", b"first")
    assert not publish(folder / "x", b"second")
    assert (folder / "x").read_bytes() == b"first"
    assert [path.name for path in folder.iterdir()] == ["x"], "no draft is left"


@pytest.mark.slow
def test_of_many_writers_of_one_name_exactly_one_wins(folder: Place) -> None:
    race(folder, names=200)


def test_of_some_writers_of_one_name_exactly_one_wins(folder: Place) -> None:
    race(folder, names=25)


def race(folder: Place, names: int) -> None:
    writers = 4

    def write(writer: int) -> list[int]:
        content = f"writer {writer}".encode() * 99
        return [number for number in range(names) if publish(folder / f"{number:04d}", content)]

    with ThreadPoolExecutor(writers) as pool:
        won = dict(enumerate(pool.map(write, range(writers))))
    assert sorted(number for numbers in won.values() for number in numbers) == list(range(names))
    for writer, numbers in won.items():
        for number in numbers:
            assert (folder / f"{number:04d}").read_bytes() == f"writer {writer}".encode() * 99
    assert len(list(folder.iterdir())) == names, "no draft is left"


WRITES = """
import sys
from tidegate.storage.places import place
from tidegate.storage.publish import publish
folder, writer = place(sys.argv[1]), sys.argv[2]
(folder / "ready").exists()
sys.stdin.readline()
print(*[number for number in range(40) if publish(folder / str(number), writer.encode())])
"""


def test_of_two_processes_exactly_one_wins(folder: Place) -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(tidegate.__file__).parents[1])}
    command = [sys.executable, "-c", WRITES, str(folder)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    processes = [subprocess.Popen([*command, name], **pipes) for name in ("one", "another")]
    told = [process.communicate("go\n", timeout=120)[0] for process in processes]
    won = [set(map(int, text.split())) for text in told]
    assert won[0] | won[1] == set(range(40))
    assert not won[0] & won[1]


@remote_only
def test_who_is_refused_by_what_it_wrote_itself_has_won(remote: RemotePath) -> None:
    """An answer was lost, and the client has asked again."""
    assert publish(remote / "x", b"mine")
    assert publish(remote / "x", b"mine")
    assert not publish(remote / "x", b"theirs")


@remote_only
def test_a_store_that_takes_a_condition_and_does_not_look_at_it_is_found_out(
    remote: RemotePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    prove(remote)
    assert list(remote.iterdir()) == []

    def careless(path: RemotePath, content: bytes, crash_point: str) -> bool:
        stream = file_system(path.uri).create(hadoop_path(path.uri), True)
        stream.write(content)
        stream.close()
        return True

    monkeypatch.setattr(publishing, "_by_rename", careless)
    monkeypatch.setattr(publishing, "_by_condition", careless)
    with pytest.raises(CheckpointError, match="let two writers create the same file"):
        prove(remote)


# -- Parquet --------------------------------------------------------------------------------------------------------


def test_a_table_comes_back_as_it_was(folder: Place) -> None:
    table = pa.table({"x": [1, 2, 3], "y": ["a", None, "ü"]})
    write_table(table, folder / "t.parquet", compression="zstd")
    assert read_table(folder / "t.parquet").equals(table)
    assert read_table(folder / "t.parquet", ["y"]).equals(table.select(["y"]))
    assert rows_in(folder / "t.parquet") == 3
    assert schema_of(folder / "t.parquet").names == ["x", "y"]


def test_a_file_that_is_not_there_cannot_be_read(folder: Place) -> None:
    with pytest.raises(FileNotFoundError):
        read_table(folder / "absent.parquet")


@remote_only
def test_a_copy_nearby_is_what_is_at_its_place(remote: RemotePath, tmp_path: Path) -> None:
    """Copies are kept up to a size, and one that was let go is fetched again."""
    tables = {f"{number}.parquet": pa.table({"x": range(number, number + 1000)}) for number in range(4)}
    near = Nearby(tmp_path, most=20_000)
    for name, table in tables.items():
        with near.writing(remote / name) as file:
            pq.write_table(table, file, compression="none", use_dictionary=False)
    assert 0 < sum(path.stat().st_size for path in tmp_path.iterdir()) <= 20_000
    for name, table in tables.items():
        with near.reading(remote / name) as file:
            assert pq.read_table(file).equals(table)
    with near.writing(remote / "0.parquet") as file:  # anew, under the same name
        pq.write_table(tables["3.parquet"], file)
    with near.reading(remote / "0.parquet") as file:
        assert pq.read_table(file).equals(tables["3.parquet"])
    (tmp_path / "other").mkdir()
    with Nearby(tmp_path / "other").reading(remote / "0.parquet") as file:
        assert pq.read_table(file).equals(tables["3.parquet"])


@remote_only
def test_a_copy_is_not_let_go_while_it_is_read(remote: RemotePath, tmp_path: Path) -> None:
    near = Nearby(tmp_path, most=0)  # none may stay: each is let go as soon as nobody reads it
    for number in range(4):
        with near.writing(remote / f"{number}.parquet") as file:
            pq.write_table(pa.table({"x": [number] * 100}), file)

    def read(number: int) -> bool:
        with near.reading(remote / f"{number % 4}.parquet") as file:
            return bool(pq.read_table(file)["x"].to_pylist() == [number % 4] * 100)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(100)))
    assert list(tmp_path.iterdir()) == []


@remote_only
def test_a_table_that_cannot_be_written_is_not_there(remote: RemotePath) -> None:
    def write() -> None:
        with parquet.writing(remote / "half.parquet") as file:
            file.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert not (remote / "half.parquet").exists()


@remote_only
def test_a_large_file_is_read_without_the_help_of_a_copy(remote: RemotePath, tmp_path: Path) -> None:
    near = Nearby(tmp_path, most=0)
    with near.writing(remote / "large.parquet") as file:
        pq.write_table(pa.table({"x": range(100_000)}), file)
    with near.reading(remote / "large.parquet") as file:
        assert pq.read_metadata(file).num_rows == 100_000
    with reading(remote / "large.parquet") as file:
        assert pq.read_metadata(file).num_rows == 100_000
