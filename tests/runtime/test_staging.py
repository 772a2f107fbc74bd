"""What the driver has taken is read from memory, whether it was written or not; what was written, from its file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegate.runtime import staging
from tidegate.runtime.staging import Staged, Taking


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


def test_what_is_taken_spares_the_files_what_only_the_driver_needs(tmp_path: Path) -> None:
    letter = pa.struct([("reason", pa.string())])
    taken = pa.table(
        {
            "_fate": pa.array([0, 1, 0, 1], pa.int8()),
            "_n": [5, 1, 7, 1],
            "_newest": [10, 20, 30, 40],
            "_dead": pa.array([None, [{"reason": "LATE"}], None, [{"reason": None}]], pa.list_(letter)),
        }
    )
    taking = Taking(needed=("slice",), noted=("_newest", "_high"), seldom="_dead")
    staged = staging._write(taken, tmp_path, "_fate", ("slice", "dead"), taking)
    (slices,), (dead,) = staged.of("slice"), staged.of("dead")
    assert pq.read_table(slices).to_pydict() == {"_n": [5, 7]}
    assert staged.read(slices, ["_newest"]).to_pydict() == {"_newest": [10, 30]}
    assert not dead.exists()
    (piece,) = staged.pieces("dead", columns=["_dead"])
    assert piece["_dead"].to_pylist() == [{"reason": "LATE"}, {"reason": None}]
