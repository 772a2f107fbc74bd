"""Is every document of one JSON Schema valid under another? What a reader's schema demands, the writer's must promise.

Compared are types, properties, required properties, closed objects, enums, bounds, formats, arrays and the alternatives
of `anyOf` and `oneOf`; `$ref` into the same document is followed. What cannot be judged – `not`, `if`, a changed
`allOf` – is an incompatibility of its own, so that nothing passes unseen.

A property that the writer's schema does not name counts as not written, though an open schema would allow it: adding an
optional property is compatible. (Some registries are stricter there.) A `default` fills in nothing when a record is
read, so it does not make a new required property compatible.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from tidegate.contracts.incompatibility import Incompatibility, below
from tidegate.errors import ContractError

ALL_TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")

_LOWER = ("minLength", "minItems", "minProperties")
_UPPER = ("maxLength", "maxItems", "maxProperties")
_OPAQUE = ("not", "if", "then", "else", "dependencies", "dependentSchemas", "dependentRequired", "patternProperties")
_EXACT = ("pattern", "format", "contentEncoding", "uniqueItems", "contains", "propertyNames", "prefixItems")


def json_incompatibilities(reader: Any, writer: Any) -> list[Incompatibility]:
    """Every reason why a document that is valid under `writer` may not be under `reader`."""
    return list(dict.fromkeys(_Comparison(reader, writer).compare(reader, writer, "")))


def follow(schema: Any, root: Any, path: str) -> dict[str, Any]:
    """The schema behind a local `$ref`; `true` is the empty schema, which allows everything."""
    for _ in range(100):
        if schema is True:
            return {}
        if schema is False:
            return {"not": {}}
        if not isinstance(schema, dict):
            raise ContractError(f"JSON Schema, {path or 'the whole'}: {schema!r} is not a schema")
        if "$ref" not in schema:
            return schema
        ref = schema["$ref"]
        if not isinstance(ref, str) or not ref.startswith("#"):
            raise ContractError(
                f"JSON Schema, {path or 'the whole'}: $ref {ref!r} is outside of the file",
                hint="only references into the same file are followed: #/$defs/…",
            )
        schema = root
        for part in ref.lstrip("#/").split("/") if ref.lstrip("#/") else ():
            part = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(schema, dict) or part not in schema:
                raise ContractError(f"JSON Schema, {path or 'the whole'}: $ref {ref!r} leads nowhere")
            schema = schema[part]
    raise ContractError(f"JSON Schema, {path or 'the whole'}: a $ref leads back to itself")


def types_of(schema: dict[str, Any]) -> tuple[str, ...]:
    """The types that a schema allows, by its `type`, or by its enum, or all."""
    kinds = schema.get("type")
    if isinstance(kinds, str):
        return (kinds,)
    if isinstance(kinds, list):
        return tuple(kinds)
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    return tuple(dict.fromkeys(map(_type_of, values))) if values else ALL_TYPES


def _type_of(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return "null" if value is None else "boolean"
    if isinstance(value, int):
        return "integer"
    kinds = ((float, "number"), (str, "string"), (list, "array"))
    return next((kind for cls, kind in kinds if isinstance(value, cls)), "object")


class _Comparison:
    def __init__(self, reader_root: Any, writer_root: Any) -> None:
        self._roots = (reader_root, writer_root)
        self._open: set[str] = set()

    def compare(self, reader: Any, writer: Any, path: str) -> list[Incompatibility]:
        mine, theirs = follow(reader, self._roots[0], path), follow(writer, self._roots[1], path)
        # By their text: alternatives are put together anew at every turn, and a schema may contain itself.
        pair = json.dumps([mine, theirs], sort_keys=True)
        if pair in self._open:
            return []
        self._open.add(pair)
        try:
            return list(self._compare(mine, theirs, path))
        finally:
            self._open.discard(pair)

    def _compare(self, mine: dict[str, Any], theirs: dict[str, Any], path: str) -> Iterator[Incompatibility]:
        if _plain(mine) == _plain(theirs) and self._roots[0] == self._roots[1]:
            return
        for word in (*_OPAQUE, "allOf"):
            if mine.get(word) != theirs.get(word) and word in mine:
                yield Incompatibility("NOT_COMPARABLE", path, f"{word} was changed, and cannot be compared")
                return
        their_choices, my_choices = _choices(theirs), _choices(mine)
        if their_choices:
            rest = {k: v for k, v in theirs.items() if k not in ("anyOf", "oneOf")}
            for choice in their_choices:
                yield from self.compare(mine, rest | follow(choice, self._roots[1], path), path)
            return
        if my_choices:
            rest = {k: v for k, v in mine.items() if k not in ("anyOf", "oneOf")}
            tried = [self.compare(rest | follow(c, self._roots[0], path), theirs, path) for c in my_choices]
            if all(tried):
                yield Incompatibility(
                    "BRANCH_MISSING", path, f"{_some(types_of(theirs))} is in none of {len(tried)} alternatives"
                )
            return
        yield from self._values(mine, theirs, path)
        allowed = types_of(mine)
        written = types_of(theirs)
        lost = [k for k in written if k not in allowed and not (k == "integer" and "number" in allowed)]
        if written == ALL_TYPES and allowed == ALL_TYPES:
            lost = []
        if lost:
            yield Incompatibility("TYPE_CHANGED", path, f"{_some(written)} cannot be read as {_some(allowed)}")
            return
        yield from _bounds(mine, theirs, path)
        if "object" in written:
            yield from self._objects(mine, theirs, path)
        if "array" in written and "items" in mine:
            yield from self._items(mine, theirs, path)

    def _values(self, mine: dict[str, Any], theirs: dict[str, Any], path: str) -> Iterator[Incompatibility]:
        allowed = mine.get("enum", [mine["const"]] if "const" in mine else None)
        if allowed is None:
            return
        written = theirs.get("enum", [theirs["const"]] if "const" in theirs else None)
        lost = [repr(value) for value in written or () if value not in allowed]
        if written is None or lost:
            what = f"{', '.join(lost)} may be written" if lost else "any value may be written"
            yield Incompatibility(
                "VALUES_NARROWED", path, f"{what}, and the reader allows only {_some(map(repr, allowed))}"
            )

    def _objects(self, mine: dict[str, Any], theirs: dict[str, Any], path: str) -> Iterator[Incompatibility]:
        my_properties, their_properties = mine.get("properties", {}), theirs.get("properties", {})
        promised = theirs.get("required", ())
        for name in mine.get("required", ()):
            if name not in promised:
                written = "may be missing in" if name in their_properties else "is not in"
                text = f"the reader requires it, and it {written} what was written"
                kind = "REQUIRED_ADDED" if name in their_properties else "FIELD_MISSING"
                yield Incompatibility(kind, below(path, name), text)  # type: ignore[arg-type]
        rest = mine.get("additionalProperties", True)
        for name, schema in their_properties.items():
            where = below(path, name)
            if name in my_properties:
                yield from self.compare(my_properties[name], schema, where)
            elif rest is False:
                yield Incompatibility(
                    "FIELD_REMOVED", where, "it may be written, and the reader allows no such property"
                )
            elif rest is not True:
                yield from self.compare(rest, schema, where)
        their_rest = theirs.get("additionalProperties", True)
        if rest is not True and their_rest is not False:
            if rest is False:
                text = "other properties may be written, and the reader allows none"
                yield Incompatibility("CLOSED", path, text)
            else:
                yield from self.compare(rest, their_rest, path + "{}")

    def _items(self, mine: dict[str, Any], theirs: dict[str, Any], path: str) -> Iterator[Incompatibility]:
        one, other = mine["items"], theirs.get("items", True)
        if isinstance(one, list) or isinstance(other, list):
            if one != other:
                yield Incompatibility("NOT_COMPARABLE", path + "[]", "lists of item schemas cannot be compared")
            return
        yield from self.compare(one, other, path + "[]")


def _bounds(mine: dict[str, Any], theirs: dict[str, Any], path: str) -> Iterator[Incompatibility]:
    for sign, words in ((1, ("minimum", "exclusiveMinimum")), (-1, ("maximum", "exclusiveMaximum"))):
        limit, written = _limit(mine, words, sign), _limit(theirs, words, sign)
        if limit is not None and (written is None or written < limit):
            yield _narrowed(path, next(word for word in words if word in mine), mine, theirs)
    for sign, names in ((1, _LOWER), (-1, _UPPER)):
        for word in names:
            if word in mine and (word not in theirs or theirs[word] * sign < mine[word] * sign):
                yield _narrowed(path, word, mine, theirs)
    if "multipleOf" in mine and not _is_multiple(theirs, mine["multipleOf"]):
        yield _narrowed(path, "multipleOf", mine, theirs)
    for word in _EXACT:
        if word in mine and mine[word] is not False and mine[word] != theirs.get(word):
            yield _narrowed(path, word, mine, theirs)


def _is_multiple(schema: dict[str, Any], step: Any) -> bool:
    written = schema.get("multipleOf", 1 if types_of(schema) == ("integer",) else None)
    return written is not None and (Fraction(str(written)) / Fraction(str(step))).denominator == 1


def _limit(schema: dict[str, Any], words: tuple[str, str], sign: int) -> tuple[Any, int] | None:
    """The strictest of an inclusive and an exclusive bound, as something that compares: larger is stricter."""
    found = [(schema[word] * sign, n) for n, word in enumerate(words) if isinstance(schema.get(word), int | float)]
    return max(found, default=None)


def _narrowed(path: str, word: str, mine: dict[str, Any], theirs: dict[str, Any]) -> Incompatibility:
    before = f"it was {theirs[word]!r}" if word in theirs else "it was not there"
    return Incompatibility("BOUND_NARROWED", path, f"the reader demands {word} {mine[word]!r}; {before}")


def _choices(schema: dict[str, Any]) -> list[Any]:
    return [*schema.get("anyOf", ()), *schema.get("oneOf", ())]


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in schema.items() if k not in ("title", "description", "default", "examples", "$comment")}


def _some(words: Any) -> str:
    return " or ".join(words)
