"""`python -m tidegate.cli`: the same command where the package is on the path but not installed."""

from __future__ import annotations

from tidegate.cli import main

if __name__ == "__main__":
    main(prog_name="tidegate")
