"""The page on contracts is true: what it says is typed, with real servers."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.test_readme import ROOT, Reader, blocks_of


@pytest.mark.servers
@pytest.mark.slow
def test_everything_on_the_page_runs(tmp_path: Path) -> None:
    reader, output = Reader(tmp_path), ""
    try:
        for block in blocks_of((ROOT / "docs" / "how-to" / "contracts-and-registry.md").read_text()):
            output = reader.read(block, output)
    finally:
        reader.type("tidegate dev down >/dev/null 2>&1 || true")
