"""Jars come from the lock and from nowhere else: checked, once, and not at all when the user brings them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tidegate import jars, maven
from tidegate.errors import MachineError
from tidegate.jars import Jar
from tidegate.runtime.session import make_session

SETTINGS = """
<settings xmlns="http://maven.apache.org/SETTINGS/1.2.0">
  <servers><server><id>{server}</id><username>me</username><password>${{env.SECRET}}</password></server></servers>
  <mirrors>
    <mirror><id>blocker</id><mirrorOf>*</mirrorOf><url>http://0.0.0.0/</url><blocked>true</blocked></mirror>
    <mirror><id>house</id><mirrorOf>{mirror_of}</mirrorOf><url>https://maven.example/repo</url></mirror>
  </mirrors>
</settings>
"""


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TIDEGATE_JARS", "TIDEGATE_MAVEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Maven repository in a folder, and a lock with two files of it."""
    root = tmp_path / "repository"
    files = {
        "org.leaf:green:1.0": root / "org/leaf/green/1.0/green-1.0.jar",
        "org.leaf:pot:2.1:zip:all": root / "org/leaf/pot/2.1/pot-2.1-all.zip",
    }
    for file in files.values():
        file.parent.mkdir(parents=True)
        file.write_text(file.name)
    lock = tuple(Jar("tea", coordinate, jars.sha256(file)) for coordinate, file in files.items())
    monkeypatch.setattr(jars, "locked", lambda: lock)
    monkeypatch.setenv("TIDEGATE_MAVEN", root.as_uri())
    return root


def test_the_lock_names_each_file_once_per_group_with_its_hash() -> None:
    assert {"kafka", "avro", "delta", "s3a", "broker", "registry", "hdfs", "s3"} == set(jars.groups())
    for group in jars.groups():
        found = jars.of([group])
        assert len({jar.file for jar in found}) == len(found)
        assert all(len(jar.sha256) == 64 for jar in found)
    assert [jar.file for jar in jars.of(["registry"])] == ["apicurio-registry-app-2.6.13.Final-all.zip"]


def test_jars_are_fetched_once_and_checked(repository: Path, tmp_path: Path) -> None:
    assert len(jars.missing(["tea"])) == 2
    files = jars.fetch(["tea"])
    assert [file.read_text() for file in files] == ["green-1.0.jar", "pot-2.1-all.zip"]
    assert {file.name for file in (tmp_path / "cache").iterdir()} == {"green-1.0.jar", "pot-2.1-all.zip"}
    assert jars.missing(["tea"]) == []
    (repository / "org/leaf/green/1.0/green-1.0.jar").unlink()
    assert jars.fetch(["tea"]) == files


def test_a_damaged_file_in_the_cache_is_fetched_again(repository: Path) -> None:
    file = jars.fetch(["tea"])[0]
    file.write_text("half")
    assert jars.fetch(["tea"])[0].read_text() == "green-1.0.jar"


def test_another_file_under_the_name_of_a_locked_one_is_refused(repository: Path, tmp_path: Path) -> None:
    (repository / "org/leaf/green/1.0/green-1.0.jar").write_text("not what it was")
    with pytest.raises(MachineError, match=r"green-1\.0\.jar .* is not the file that was locked"):
        jars.fetch(["tea"])
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_file_that_the_repository_lacks_is_named(repository: Path) -> None:
    (repository / "org/leaf/pot/2.1/pot-2.1-all.zip").unlink()
    with pytest.raises(MachineError, match=r"org\.leaf:pot:2\.1:zip:all cannot be had") as error:
        jars.fetch(["tea"])
    assert "TIDEGATE_JARS" in str(error.value.hint)


def test_a_repository_that_is_away_is_said_so(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_MAVEN", "http://me:hush@127.0.0.1:1/repo")
    with pytest.raises(MachineError, match=r"127\.0\.0\.1") as error:
        jars.fetch(["tea"])
    assert "hush" not in str(error.value)


def test_a_folder_of_jars_overrides_everything(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "green-1.0.jar").write_text("my own build")
    monkeypatch.setenv("TIDEGATE_JARS", str(mine))
    with pytest.raises(MachineError, match=r"mine, which lacks pot-2\.1-all\.zip"):
        jars.fetch(["tea"])
    (mine / "pot-2.1-all.zip").write_text("mine too")
    assert jars.fetch(["tea"]) == [mine / "green-1.0.jar", mine / "pot-2.1-all.zip"]
    assert not (tmp_path / "cache").exists()


def test_two_processes_may_fetch_at_once(repository: Path) -> None:
    script = (
        "from tidegate import jars; from pathlib import Path\n"
        f"files = {[str(file) for file in repository.rglob('*.*') if file.is_file()]}\n"
        "coordinates = {'green-1.0.jar': 'org.leaf:green:1.0', 'pot-2.1-all.zip': 'org.leaf:pot:2.1:zip:all'}\n"
        "lock = [jars.Jar('tea', coordinates[Path(f).name], jars.sha256(Path(f))) for f in files]\n"
        "jars.locked = lambda: lock\n"
        "print(sorted(path.read_text() for path in jars.fetch(['tea'])))\n"
    )
    both = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate(timeout=120)[0] for process in both] == ["['green-1.0.jar', 'pot-2.1-all.zip']\n"] * 2


def test_an_unknown_group_is_refused() -> None:
    with pytest.raises(MachineError, match="'kafak'") as error:
        jars.fetch(["kafak"])
    assert "kafka" in str(error.value.hint)


@pytest.mark.parametrize("mirror_of", ["*", "central", "external:*", "other,central"])
def test_the_mirror_in_the_maven_settings_is_asked(
    mirror_of: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "hush")
    (tmp_path / "home" / ".m2").mkdir(parents=True)
    (tmp_path / "home" / ".m2" / "settings.xml").write_text(SETTINGS.format(server="house", mirror_of=mirror_of))
    assert maven.repository() == maven.Repository("https://maven.example/repo", "me", "hush")
    assert maven.where() == "the repository maven.example"


@pytest.mark.parametrize("mirror_of", ["other", "*,!central"])
def test_a_mirror_of_something_else_is_not_asked(mirror_of: str, tmp_path: Path) -> None:
    (tmp_path / "home" / ".m2").mkdir(parents=True)
    (tmp_path / "home" / ".m2" / "settings.xml").write_text(SETTINGS.format(server="house", mirror_of=mirror_of))
    assert maven.repository() == maven.Repository()
    assert maven.where() == "Maven Central"


@pytest.mark.spark
def test_a_session_that_runs_without_them_is_refused(
    spark: object, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(MachineError, match=r"without green-1\.0\.jar, pot-2\.1-all\.zip") as error:
        make_session("tests", "2", brief=True, jars=["tea"])
    assert error.value.hint
