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
    median,
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
from tidegate.watermarks import ArrivalTime, Manual, Punctuated, Watermark
from tidegate.windows import Calendar, Global, Hopping, Rolling, Session, Tumbling

if TYPE_CHECKING:
    from tidegate.sinks.delta import Delta
    from tidegate.sinks.kafka import KafkaTopic
    from tidegate.sinks.kafka_letters import KafkaDeadLetters
    from tidegate.sinks.memory import Console, Memory
    from tidegate.sinks.parquet_log import ParquetLog
    from tidegate.sinks.postgres import Postgres
    from tidegate.sinks.redis import Redis
    from tidegate.sinks.sqlite import SQLite

__version__ = "0.1.0"

# Sinks bring pyarrow, which takes half a second to load; a command that only reads should not wait for it.
_LAZY = {
    "Console": "tidegate.sinks.memory",
    "KafkaDeadLetters": "tidegate.sinks.kafka_letters",
    "KafkaTopic": "tidegate.sinks.kafka",
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
    "ArrivalTime",
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
    "Kafka",
    "KafkaDeadLetters",
    "KafkaTopic",
    "Manual",
    "Memory",
    "ParquetLog",
    "Postgres",
    "Punctuated",
    "Redis",
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
    "median",
    "min",
    "quantile",
    "stddev",
    "sum",
    "top_k",
]
