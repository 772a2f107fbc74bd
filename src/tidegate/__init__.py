"""Tidegate: event-time pipelines on Apache Spark that never silently lose an event."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidegate.aggregates import (
    Aggregate,
    approx_distinct,
    avg,
    collect,
    count,
    custom,
    first,
    last,
    max,
    min,
    quantile,
    stddev,
    sum,
    top_k,
)
from tidegate.app import App
from tidegate.contracts import Contract, Registry
from tidegate.errors import TidegateError
from tidegate.sources.files import Files
from tidegate.sources.kafka import Kafka
from tidegate.stream import Stream
from tidegate.triggers import (
    AfterWatermark,
    AllOf,
    AnyOf,
    Count,
    Default,
    Each,
    EveryEventTime,
    EveryProcessingTime,
    FinalOnly,
)
from tidegate.watermarks import Manual, Watermark
from tidegate.windows import Calendar, Global, Hopping, Rolling, Session, Tumbling

if TYPE_CHECKING:
    from tidegate.sinks.memory import Console, Memory
    from tidegate.sinks.parquet_log import ParquetLog
    from tidegate.sinks.sqlite import SQLite

__version__ = "0.1.0"

# Sinks bring pyarrow, which takes half a second to load; a command that only reads should not wait for it.
_LAZY = {
    "Console": "tidegate.sinks.memory",
    "Memory": "tidegate.sinks.memory",
    "ParquetLog": "tidegate.sinks.parquet_log",
    "SQLite": "tidegate.sinks.sqlite",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'tidegate' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


__all__ = [
    "AfterWatermark",
    "Aggregate",
    "AllOf",
    "AnyOf",
    "App",
    "Calendar",
    "Console",
    "Contract",
    "Count",
    "Default",
    "Each",
    "EveryEventTime",
    "EveryProcessingTime",
    "Files",
    "FinalOnly",
    "Global",
    "Hopping",
    "Kafka",
    "Manual",
    "Memory",
    "ParquetLog",
    "Registry",
    "Rolling",
    "SQLite",
    "Session",
    "Stream",
    "TidegateError",
    "Tumbling",
    "Watermark",
    "approx_distinct",
    "avg",
    "collect",
    "count",
    "custom",
    "first",
    "last",
    "max",
    "min",
    "quantile",
    "stddev",
    "sum",
    "top_k",
]
