"""Finding the app in a user's file, and telling what is wrong with that file in its own terms."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.cli.load import load, load_app
from tidegate.errors import PipelineError


def write(folder: Path, text: str, name: str = "pipeline.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_the_only_app_of_a_file_is_found(app_file: Path) -> None:
    assert load_app(app_file).name == "shop"


def test_one_app_under_two_names_is_one_app(tmp_path: Path) -> None:
    path = write(tmp_path, "import tidegate as tg\napp = same = tg.App('a')\n")
    assert load_app(path).name == "a"


def test_several_apps_need_a_name(tmp_path: Path) -> None:
    path = write(tmp_path, "import tidegate as tg\none = tg.App('a')\ntwo = tg.App('b')\n")
    with pytest.raises(PipelineError, match=r"several apps: one, two\n.*pipeline.py:one"):
        load_app(path)
    assert load(f"{path}:two").app.name == "b"
    assert load_app(path, "one").name == "a"
    with pytest.raises(PipelineError, match=r"no App called 'three'\n.*it has one, two"):
        load_app(path, "three")


def test_a_file_without_an_app_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="declares no App"):
        load_app(write(tmp_path, "x = 1\n"))


@pytest.mark.parametrize(("name", "why"), [("absent.py", "does not exist"), (".", "is a folder")])
def test_what_is_not_a_file_is_refused(tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(PipelineError, match=why):
        load_app(tmp_path / name)


def test_a_file_may_import_its_neighbours(tmp_path: Path) -> None:
    write(tmp_path, "NAME = 'named_elsewhere'\n", "neighbour_of_an_app.py")
    path = write(tmp_path, "import neighbour_of_an_app as n\nimport tidegate as tg\napp = tg.App(n.NAME)\n")
    assert load_app(path).name == "named_elsewhere"


def test_a_syntax_error_shows_the_users_line(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"pipeline\.py\", line 2(.|\n)*app = = 1(.|\n)*SyntaxError"):
        load_app(write(tmp_path, "x = 1\napp = = 1\n"))


def test_an_exception_shows_the_users_lines_only(tmp_path: Path) -> None:
    path = write(tmp_path, "def broken():\n    return 1 / 0\n\nbroken()\n")
    with pytest.raises(PipelineError) as raised:
        load_app(path)
    text = str(raised.value)
    assert "line 4" in text
    assert "return 1 / 0" in text
    assert "ZeroDivisionError: division by zero" in text
    assert "importlib" not in text
    assert "load.py" not in text


def test_a_wrong_declaration_says_where_it_stands(tmp_path: Path) -> None:
    path = write(tmp_path, "import tidegate as tg\napp = tg.App('no spaces please')\n")
    with pytest.raises(PipelineError) as raised:
        load_app(path)
    assert "is not usable" in str(raised.value)
    assert "line 2" in str(raised.value)
    assert "stream.py" not in str(raised.value)


def test_a_file_that_exits_is_not_an_exit_of_ours(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="SystemExit: 0"):
        load_app(write(tmp_path, "import sys\nsys.exit(0)\n"))


def test_the_default_checkpoint_is_beside_the_file(app_file: Path) -> None:
    assert load(str(app_file)).checkpoint == app_file.parent / ".tidegate" / "shop"
