"""What the driver has taken is read from memory, whether it was written or not; what was written, from its file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegate.runtime import staging
from tidegate.runtime.staging import Staged


def test_pieces_are_the_same_from_memory_and_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "_PIECE", 3)
    table = pa.table({"a": list(range(8)), "b": ["x"] * 8})
    path = tmp_path / "dead.parquet"
    in_memory = list(Staged({"dead": [path]}, {path: table}).pieces("dead", columns=["a"]))
    pq.write_table(table, path)
    in_file = list(Staged({"dead": [path]}).pieces("dead", columns=["a"]))
    for pieces in (in_memory, in_file):
        assert [piece["a"].to_pylist() for piece in pieces] == [[0, 1, 2], [3, 4, 5], [6, 7]]
        assert all(piece.column_names == ["a"] for piece in pieces)
