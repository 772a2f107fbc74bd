"""`tidegate dlq`: dead letters listed, shown, counted and exported, byte for byte where it matters."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import Result

Cli = Callable[..., Result]


def listed(cli: Cli, *args: object) -> list[dict[str, Any]]:
    done = cli("dlq", "list", *args, "--json")
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.output.splitlines()]


def test_the_newest_record_comes_first(cli: Cli, checkpoint: Path) -> None:
    assert [letter["position"] for letter in listed(cli, checkpoint)] == [4, 1, 2, 3]


@pytest.mark.parametrize(
    ("options", "positions"),
    [
        (("--reason", "MALFORMED"), [1, 2]),
        (("--reason", "late"), [4]),
        (("--operator", "revenue"), [4]),
        (("--source", "payments", "--limit", "2"), [4, 1]),
        (("--source", "elsewhere"), []),
        (("--since", "2026-03-01T12:30:00"), [4]),
        (("--until", "2026-03-01T13:30:00+01:00"), [1, 2, 3]),
        (("--limit", "1"), [4]),
    ],
)
def test_letters_are_chosen_by(cli: Cli, checkpoint: Path, options: tuple[str, ...], positions: list[int]) -> None:
    assert [letter["position"] for letter in listed(cli, checkpoint, *options)] == positions


def test_the_list_is_a_table_and_says_how_many_more(cli: Cli, app_file: Path, checkpoint: Path) -> None:
    output = cli("dlq", "list", app_file, "--limit", "3").output
    assert output.splitlines()[0].split()[:3] == ["dlq_id", "failed_at", "reason"]
    assert "04c0ffee" in output
    assert output.endswith("… 1 more; see --limit\n")
    assert cli("dlq", "list", checkpoint, "--reason", "FUTURE").output == "no dead letters like that\n"


def test_a_wrong_time_is_wrong_usage(cli: Cli, checkpoint: Path) -> None:
    done = cli("dlq", "list", checkpoint, "--since", "yesterday")
    assert done.exit_code == 2
    assert "is not an instant" in done.stderr


def test_show_prints_text_as_text_and_bytes_as_hex(cli: Cli, checkpoint: Path) -> None:
    text = cli("dlq", "show", checkpoint, "04").output
    assert 'raw (utf-8):\n{"id": "spät"}\n' in text
    assert "late_by_ms           7200000" in text
    assert "raw (hex):\nff fe 00\n" in cli("dlq", "show", checkpoint, "02c0ffee").output
    assert json.loads(cli("dlq", "show", checkpoint, "02", "--json").output)["raw_encoding"] == "base64"


def test_an_id_must_be_one_letters(cli: Cli, checkpoint: Path) -> None:
    assert "there is no dead letter 'zz'" in cli("dlq", "show", checkpoint, "zz").stderr
    done = cli("dlq", "show", checkpoint, "0")
    assert done.exit_code == 1
    assert "4 dead letters have an id that begins with '0'" in done.stderr


def test_stats_count_by_everything(cli: Cli, checkpoint: Path) -> None:
    data = json.loads(cli("dlq", "stats", checkpoint, "--json").output)
    assert data["total"] == 4
    assert data["reason"] == {"MALFORMED": 2, "DUPLICATE": 1, "LATE": 1}
    assert data["operator"] == {"": 3, "revenue": 1}
    assert data["partition"] == {"north": 3, "south": 1}
    text = cli("dlq", "stats", checkpoint).output
    assert text.startswith("4 dead letters, 2026-03-01 12:00:00 to 2026-03-01 13:00:00 UTC\n")
    assert "MALFORMED        2  50.0%" in text


def test_jsonl_and_csv_say_how_raw_is_written(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "letters.jsonl"
    done = cli("dlq", "export", checkpoint, "-o", out)
    assert done.stderr == f"4 dead letters to {out}\n"
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert {line["position"]: (line["raw"], line["raw_encoding"]) for line in lines} == {
        1: ('{"id": "x', "utf-8"),
        2: ("//4A", "base64"),
        3: ('{"id": "d"}', "utf-8"),
        4: ('{"id": "spät"}', "utf-8"),
    }
    out = tmp_path / "letters.csv"
    cli("dlq", "export", checkpoint, "--format", "csv", "-o", out)
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["raw"] for row in rows] == ['{"id": "spät"}', '{"id": "x', "//4A", '{"id": "d"}']
    assert rows[0]["event_time"] == "2026-03-01T10:00:00Z"


def test_parquet_keeps_types_and_bytes(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "letters.parquet"
    assert cli("dlq", "export", checkpoint, "--format", "parquet", "--reason", "MALFORMED", "-o", out).exit_code == 0
    table = pq.read_table(out)
    assert table["raw"].to_pylist() == [b'{"id": "x', b"\xff\xfe\x00"]
    assert str(table.schema.field("failed_at").type) == "timestamp[us, tz=UTC]"


def test_raw_export_is_byte_for_byte_and_leaves_copies_out(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "replay.jsonl"
    done = cli("dlq", "export", checkpoint, "--raw", "-o", out)
    assert out.read_bytes() == '{"id": "spät"}\n{"id": "x\n'.encode() + b"\xff\xfe\x00\n"
    assert done.stderr == f"3 raw records to {out}\n"
    cli("dlq", "export", checkpoint, "--raw", "--reason", "DUPLICATE", "-o", out)
    assert out.read_bytes() == b'{"id": "d"}\n'


def test_a_missing_file_of_letters_is_never_skipped(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    (checkpoint / "data" / "dead" / "2.parquet").unlink()
    out = tmp_path / "letters.jsonl"
    done = cli("dlq", "export", checkpoint, "-o", out)
    assert done.exit_code == 1
    assert "cannot be read" in done.stderr
    assert not out.exists()
