"""Operators: pure functions on DataFrames, one concept per file. They start no job and hold no state."""
