"""Can a reader's Avro schema read what a writer's schema wrote? The rules of Avro's schema resolution.

Fields are matched by name, or by an alias of the reader's; what only the writer has is skipped; what only the reader
has needs a default. Numbers widen (int → long → float → double), text and bytes are the same bytes. A reader's union
takes what one of its branches reads; a writer's union is readable when each of its branches is.

Avro itself lets a reader reinterpret logical types: a decimal of another scale, or milliseconds as microseconds, would
be read without an error and be another value. Here these are incompatibilities, for nobody would notice.
"""

from __future__ import annotations

from tidegate.contracts.avro import AvroField, AvroType
from tidegate.contracts.incompatibility import Incompatibility, below

PROMOTIONS = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "string": ("bytes",),
    "bytes": ("string",),
}
"""What each type reads besides itself."""


def avro_incompatibilities(reader: AvroType, writer: AvroType) -> list[Incompatibility]:
    """Every reason why data written with `writer` may not be readable with `reader`; none means it always is."""
    return list(dict.fromkeys(_Comparison().compare(reader, writer, "")))


class _Comparison:
    """One comparison; it remembers the pairs that it is in the midst of, for a record may contain itself."""

    def __init__(self) -> None:
        self._open: set[tuple[int, int]] = set()

    def compare(self, reader: AvroType, writer: AvroType, path: str) -> list[Incompatibility]:
        pair = (id(reader), id(writer))
        if pair in self._open:
            return []
        self._open.add(pair)
        try:
            return self._compare(reader, writer, path)
        finally:
            self._open.discard(pair)

    def _compare(self, reader: AvroType, writer: AvroType, path: str) -> list[Incompatibility]:
        if writer.kind == "union":
            return [found for branch in writer.branches for found in self.compare(reader, branch, path)]
        if reader.kind == "union":
            return self._any_branch(reader, writer, path)
        if reader.kind != writer.kind:
            if writer.kind in PROMOTIONS.get(reader.kind, ()):
                return _meaning(reader, writer, path)
            return [Incompatibility("TYPE_CHANGED", path, f"{writer} cannot be read as {reader}")]
        match reader.kind:
            case "array":
                return self.compare(reader.inner, writer.inner, path + "[]")
            case "map":
                return self.compare(reader.inner, writer.inner, path + "{}")
            case "record":
                return [*_name(reader, writer, path), *self._fields(reader, writer, path)]
            case "enum":
                return [*_name(reader, writer, path), *_symbols(reader, writer, path)]
            case "fixed":
                found = [*_name(reader, writer, path), *_meaning(reader, writer, path)]
                if reader.size != writer.size:
                    text = f"fixed {writer.name} has {writer.size} bytes, the reader wants {reader.size}"
                    found.append(Incompatibility("SIZE_CHANGED", path, text))
                return found
        return _meaning(reader, writer, path)

    def _any_branch(self, reader: AvroType, writer: AvroType, path: str) -> list[Incompatibility]:
        """A union reads it with the branch of its own kind, else with any that reads it."""
        own = [branch for branch in reader.branches if branch.kind == writer.kind and same_name(branch, writer)]
        if own:
            own.sort(key=lambda branch: branch.name != writer.name)
            return self.compare(own[0], writer, path)
        tried = [self.compare(branch, writer, path) for branch in reader.branches]
        if any(not found for found in tried):
            return []
        return [Incompatibility("BRANCH_MISSING", path, f"{writer} is in no branch of {reader}")]

    def _fields(self, reader: AvroType, writer: AvroType, path: str) -> list[Incompatibility]:
        found: list[Incompatibility] = []
        for mine in reader.fields:
            where = below(path, mine.name)
            theirs = written_as(mine, writer)
            if theirs is not None:
                found += self.compare(mine.type, theirs.type, where)
            elif not mine.has_default:
                text = "the reader needs this field, the writer does not have it, and it has no default"
                found.append(Incompatibility("FIELD_MISSING", where, text))
        return found


def written_as(mine: AvroField, writer: AvroType) -> AvroField | None:
    """The writer's field that a reader's field is read from: of its name, else of one of its aliases."""
    theirs = {field.name: field for field in writer.fields}
    return next((theirs[name] for name in (mine.name, *mine.aliases) if name in theirs), None)


def same_name(reader: AvroType, writer: AvroType) -> bool:
    """Named types are matched by their name without namespace, or by an alias of the reader's."""
    return reader.short_name == writer.short_name or writer.name in reader.aliases


def _name(reader: AvroType, writer: AvroType, path: str) -> list[Incompatibility]:
    if same_name(reader, writer):
        return []
    text = f"{writer.kind} {writer.name} became {reader.name}; an alias on the reader's would join them"
    return [Incompatibility("NAME_CHANGED", path, text)]


def _symbols(reader: AvroType, writer: AvroType, path: str) -> list[Incompatibility]:
    missing = [symbol for symbol in writer.symbols if symbol not in reader.symbols]
    if not missing or reader.default is not None:
        return []
    text = f"enum {reader.name} lacks {', '.join(missing)}, and has no default to read them as"
    return [Incompatibility("SYMBOLS_MISSING", path, text)]


def _meaning(reader: AvroType, writer: AvroType, path: str) -> list[Incompatibility]:
    """Where both sides say what the bytes mean, they must mean the same."""
    if reader.logical is None or writer.logical is None:
        return []
    if reader.logical != writer.logical:
        text = f"{writer} would be read as {reader}: other values, and no error"
        return [Incompatibility("MEANING_CHANGED", path, text)]
    if reader.logical == "decimal" and (reader.scale != writer.scale or reader.precision < writer.precision):
        text = f"{writer} does not fit {reader}: the scale must be the same, and the precision at least that"
        return [Incompatibility("DECIMAL_CHANGED", path, text)]
    return []
