"""Testing event-time pipelines: transcripts, the checker, and executors that play them.

A transcript describes behaviour as data; an executor plays it; the checker compares. The same file
runs on the reference model and on Spark:

>>> from tidegate.testing import ModelExecutor, parse, run_transcript
>>> transcript = parse({
...     "name": "one_window",
...     "window": {"tumbling": 10},
...     "steps": [{"batch": [1, 2]}, {"watermark": 10}, {"expect": [{"window": [0, 10], "values": [1, 2]}]}],
... })
>>> run_transcript(transcript, ModelExecutor()).passed
True

`steps.py` and `reading.py` know the words of the format, `transcripts.py` the documents and files,
`matching.py` who is who, `checker.py` the verdict, `conformance.py` whole folders.
"""

from __future__ import annotations

from tidegate.testing.checker import Executor, Result, Run, compare, run_transcript
from tidegate.testing.conformance import collect, run_all
from tidegate.testing.model_executor import ModelExecutor
from tidegate.testing.outcomes import EventOut, PaneOut, Step
from tidegate.testing.reading import TranscriptError
from tidegate.testing.steps import EventIn
from tidegate.testing.transcripts import Transcript, Unreadable, parse, read_file

__all__ = [
    "EventIn",
    "EventOut",
    "Executor",
    "ModelExecutor",
    "PaneOut",
    "Result",
    "Run",
    "Step",
    "Transcript",
    "TranscriptError",
    "Unreadable",
    "collect",
    "compare",
    "parse",
    "read_file",
    "run_all",
    "run_transcript",
]
