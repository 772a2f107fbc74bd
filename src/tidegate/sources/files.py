"""Files: a folder that grows, of JSON lines, CSV or Parquet.

Text is read line by line and kept byte for byte until it is decoded, so that a line that does not parse is a
dead letter and not a lost row. Each micro-batch is bounded. New files must appear whole (write elsewhere, then
rename), as for every reader of folders.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote, urlsplit

from tidegate.contracts import Contract
from tidegate.errors import PipelineError, SourceError, TidegateError
from tidegate.sources.base import ONLY_PARTITION, Records, Standing
from tidegate.sources.filelog import files_between

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidegate.storage.places import Place

Format = Literal["jsonl", "csv", "parquet"]
_ENCODINGS = {"jsonl": "json", "csv": "csv", "parquet": "record"}
ONE_TASK_BYTES = 1 << 20
"""Files up to this size, of input or of state, are read by one task: a shuffle would cost more than it saves."""
_PATTERNS = {"jsonl": "*.json*", "csv": "*.csv*", "parquet": "*.parquet"}


@dataclass(frozen=True)
class Files:
    """A folder of files.

    `partition` says what the watermark is kept by: ``"path:region"`` is the folder part ``region=…`` of the file's
    path, ``"column:region"`` is a field of the contract; without it the source is one partition.
    `max_files` bounds a micro-batch. `header` skips CSV lines that repeat the contract's field names.
    """

    path: str
    format: Format = "jsonl"
    partition: str | None = None
    max_files: int = 64
    header: bool = False
    delimiter: str = ","
    pattern: str | None = None

    def __post_init__(self) -> None:
        if self.format not in _ENCODINGS:
            raise PipelineError(f"file format {self.format!r} is unknown", hint=f"one of {', '.join(_ENCODINGS)}")
        if self.partition is not None and not re.fullmatch(r"(path|column):\w+", self.partition):
            raise PipelineError(
                f"partition {self.partition!r} is not usable",
                hint='"path:NAME" or "column:NAME", such as "path:region"',
            )
        if self.max_files < 1:
            raise PipelineError(f"max_files is {self.max_files}; a batch needs at least one file")

    @property
    def encoding(self) -> str:
        return _ENCODINGS[self.format]

    @property
    def extra(self) -> Mapping[str, str]:
        return {}

    @property
    def one_partition(self) -> bool:
        return self.partition is None

    def describe(self) -> str:
        return f"files {self.path} ({self.format}{', by ' + self.partition if self.partition else ''})"

    def problems(self, contract: Contract) -> list[str]:
        if contract.wire is not None:
            return [
                "the contract is of records that are bytes, and files have lines or typed rows; use DDL or JSON Schema"
            ]
        kind, _, name = (self.partition or "").partition(":")
        if kind == "column" and name not in contract.names:
            return [f"partition column {name!r} is not in the contract ({', '.join(contract.names)})"]
        return []

    def ready(self) -> None:
        folder = Path(self.path)
        if not folder.is_dir():
            raise SourceError(
                f"source folder {self.path!r} {'is not a folder' if folder.exists() else 'does not exist'}",
                hint="create it, or correct the path (it is relative to where the command runs)",
            )

    def open(self, spark: SparkSession, contract: Contract, name: str, max_batch: int | None) -> FilesReader:
        return FilesReader(self, spark, contract, name, max_batch or self.max_files)


@dataclass(frozen=True)
class FileRange:
    """Some files, as Spark writes their names."""

    files: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.files)

    def __str__(self) -> str:
        return "\n".join(sorted(self.files))


class FilesReader:
    """The folder of a running pipeline."""

    def __init__(self, source: Files, spark: SparkSession, contract: Contract, name: str, bound: int) -> None:
        self.source, self.spark, self.contract, self.name, self.bound = source, spark, contract, name, bound

    def stream(self) -> DataFrame:
        source = self.source
        reader = self.spark.readStream.name(self.name).option("maxFilesPerTrigger", self.bound)
        reader = reader.option("pathGlobFilter", source.pattern or _PATTERNS[source.format])
        reader = reader.option("recursiveFileLookup", "true")
        if source.format == "parquet":
            return self._envelope(reader.schema(self.contract.ddl).parquet(source.path))
        return self._envelope(reader.text(source.path))

    def whole(self) -> FileRange:
        """The files that are there now."""
        found = Path(self.source.path).resolve().rglob(self.source.pattern or _PATTERNS[self.source.format])
        hidden = ("_", ".")
        return FileRange(
            tuple(sorted(path.as_uri() for path in found if path.is_file() and not path.name.startswith(hidden)))
        )

    def taken(self, log: Place, start: str | None, end: str) -> FileRange:
        return FileRange(tuple(files_between(log, start, end)))

    def without(self, span: FileRange, origins: frozenset[str]) -> FileRange:
        return FileRange(tuple(path for path in span.files if path not in origins))

    def holds(self, origin: str) -> int:
        """The innermost folder holds a file when folders are nested: the deeper, the surer."""
        folder = Path(self.source.path).resolve()
        return len(folder.parts) if Path(_local(origin)).is_relative_to(folder) else 0

    def records(self, span: FileRange) -> Records:
        reader = self.spark.read.option("recursiveFileLookup", "true")
        paths = [_as_path(uri) for uri in span.files]
        parquet = self.source.format == "parquet"
        rows = reader.schema(self.contract.ddl).parquet(*paths) if parquet else reader.text(paths)
        rows = self._envelope(rows)
        rows = rows.coalesce(1) if _size(span.files) <= ONE_TASK_BYTES else rows
        return Records(rows, self._count(span.files))

    def standing(self, span: FileRange | None) -> Standing:
        """A batch that is full may have left files behind."""
        return Standing(behind_somewhere=span is not None and len(span.files) >= self.bound)

    def check(self, before: str | None) -> None:
        self.source.ready()

    def trouble(self, error: BaseException) -> TidegateError | None:
        return None

    def close(self) -> None:
        pass

    def _count(self, files: tuple[str, ...]) -> int | None:
        """From the footers of Parquet files; a line of text is known only once it is read."""
        if self.source.format != "parquet":
            return None
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            counts: list[int] = [pq.read_metadata(_local(uri)).num_rows for uri in files]
            return sum(counts)
        except (OSError, pa.ArrowException):
            return None  # reading will tell what is wrong with it

    def _envelope(self, rows: DataFrame) -> DataFrame:
        source = self.source
        kind, _, name = (source.partition or "").partition(":")
        if kind == "path":
            # Evaluated for every row, so no regular expression.
            part = f"substring_index(substring_index(_metadata.file_path, '/{name}=', -1), '/', 1)"
            partition = f"CASE WHEN contains(_metadata.file_path, '/{name}=') THEN {part} ELSE '?' END"
        else:
            partition = f"'{ONLY_PARTITION}'"  # a column partition is known only after decoding
        columns = [
            f"{partition} AS _partition",
            "_metadata.file_path AS _origin",
            # Lines of text are numbered by the engine; only Parquet knows the place of a row in its file.
            f"{'_metadata.row_index' if source.format == 'parquet' else 'CAST(NULL AS BIGINT)'} AS _position",
            "unix_micros(_metadata.file_modification_time) AS _arrival",
        ]
        if source.format == "parquet":
            columns += ["CAST(NULL AS BINARY) AS _raw", *[f"`{name}`" for name in rows.columns]]
        else:
            columns += ["CAST(value AS BINARY) AS _raw"]
        if source.format == "csv" and source.header:
            repeated = source.delimiter.join(self.contract.names).replace("\\", "\\\\").replace("'", "\\'")
            rows = rows.where(f"replace(trim(value), '\"', '') != '{repeated}'")
        return rows.selectExpr(*columns)


def _size(files: tuple[str, ...]) -> int:
    """Bytes in all; a file that has gone counts as large, and reading tells."""
    try:
        return sum(Path(_local(uri)).stat().st_size for uri in files)
    except OSError:
        return ONE_TASK_BYTES + 1


def _local(uri: str) -> str:
    """The path of a file that Spark's log names ``file:///a%20b``."""
    return unquote(urlsplit(uri).path) if uri.startswith("file:") else uri


def _as_path(uri: str) -> str:
    """The same in the form in which Spark reads it: no pattern."""
    return re.sub(r"([\\\[\]{}*?])", r"\\\1", _local(uri))
