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
from tidegate.contracts import Contract
from tidegate.errors import TidegateError
from tidegate.sources.files import Files
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
    from tidegate.sinks.delta import Delta
    from tidegate.sinks.memory import Console, Memory
    from tidegate.sinks.parquet_log import ParquetLog
    from tidegate.sinks.postgres import Postgres
    from tidegate.sinks.redis import Redis
    from tidegate.sinks.sqlite import SQLite

__version__ = "0.1.0"

# Sinks bring pyarrow, which takes half a second to load; a command that only reads should not wait for it.
_LAZY = {
    "Console": "tidegate.sinks.memory",
    "Delta": "tidegate.sinks.delta",
    "Memory": "tidegate.sinks.memory",
    "ParquetLog": "tidegate.sinks.parquet_log",
    "Postgres": "tidegate.sinks.postgres",
    "Redis": "tidegate.sinks.redis",
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
    "Delta",
    "Each",
    "EveryEventTime",
    "EveryProcessingTime",
    "Files",
    "FinalOnly",
    "Global",
    "Hopping",
    "Manual",
    "Memory",
    "ParquetLog",
    "Postgres",
    "Redis",
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
