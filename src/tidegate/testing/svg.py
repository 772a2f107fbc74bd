"""SVG by hand: elements as text, how wide a text will be, and rows in which nothing overlaps.

Nobody knows the reader's font, so widths are those of a wide one (DejaVu Sans); with any other there is more air.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise

_NARROW = frozenset(" .,:;|!'`()[]{}ijlftrI·-/\"")
_WIDE = frozenset("mwMWOQGDHNU@%&+=<>#…→−–")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")

FONT = "Helvetica, Arial, 'DejaVu Sans', sans-serif"


def element(name: str, content: str = "", /, **attributes: str | float) -> str:
    """One element; `stroke_width` becomes `stroke-width`, and numbers are kept short."""
    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{_value(v)}"' for key, v in attributes.items())
    return f"<{name}{written}>{content}</{name}>" if content else f"<{name}{written}/>"


def text(content: str, x: float, y: float, size: float, **attributes: str | float) -> str:
    return element("text", plain(content), x=x, y=y, font_size=size, **attributes)


def title(content: str) -> str:
    """What a browser shows while the mouse rests on the element it stands in."""
    return element("title", plain(content))


def plain(content: str) -> str:
    """Text for XML, which knows no control characters."""
    return escape(_UNPRINTABLE.sub("\ufffd", content), quote=False)


def _value(value: str | float) -> str:
    if isinstance(value, str):
        return escape(value)
    return f"{value:.1f}".removesuffix(".0")


def width(content: str, size: float) -> float:
    """How wide a text is at most, in the fonts we name."""
    return size * sum(0.42 if c in _NARROW else 0.95 if c in _WIDE or ord(c) > 0x2E7F else 0.66 for c in content)


def shorten(content: str, size: float, room: float) -> str:
    """The text, or as much of it as fits, with … for the rest."""
    if width(content, size) <= room:
        return content
    while content and width(content + "…", size) > room:
        content = content[:-1]
    return content.rstrip(" ,") + "…"


def wrap(content: str, size: float, room: float) -> list[str]:
    """Lines that fit; a word that is too long alone is shortened."""
    lines: list[str] = []
    for word in content.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and width(longer, size) <= room:
            lines[-1] = longer
        else:
            lines.append(shorten(word, size, room))
    return lines


@dataclass
class Rows:
    """Puts things that take room from left to right into the first row that has it."""

    gap: float = 6
    _taken: list[list[tuple[float, float]]] = field(default_factory=list)

    def place(self, left: float, right: float) -> int:
        """The row for something that reaches from `left` to `right`."""
        for number, taken in enumerate(self._taken):
            if all(right + self.gap <= start or end + self.gap <= left for start, end in taken):
                taken.append((left, right))
                return number
        self._taken.append([(left, right)])
        return len(self._taken) - 1

    def __len__(self) -> int:
        return len(self._taken)


@dataclass(frozen=True)
class Axis:
    """Event time from left to right. An empty stretch much longer than all others together is cut out: `breaks`.

    >>> axis = Axis.over([0, 10, 20, 1_000_000], left=0, right=100)
    >>> len(axis.breaks)
    1
    """

    times: tuple[int, ...]
    places: tuple[float, ...]
    breaks: tuple[float, ...]

    @classmethod
    def over(cls, times: Sequence[int], left: float, right: float, whole: int = 0) -> Axis:
        """An axis on which all these times have a place. What is no longer than `whole` is never cut."""
        points = sorted(set(times)) or [0]
        gaps = [later - earlier for earlier, later in pairwise(points)]
        cut = _cut(gaps, whole)
        kept = sum(gap for i, gap in enumerate(gaps) if i not in cut) or 1
        lengths = [kept * 0.15 if i in cut else gap for i, gap in enumerate(gaps)]
        scale = (right - left) / (sum(lengths) or 1)
        places = [left]
        for length in lengths:
            places.append(places[-1] + length * scale)
        breaks = tuple((places[i] + places[i + 1]) / 2 for i in sorted(cut))
        return cls(tuple(points), tuple(places), breaks)

    def at(self, time: int) -> float:
        """The place of one of the times that the axis was made over."""
        return self.places[self.times.index(time)]


def _cut(gaps: Sequence[int], whole: int) -> set[int]:
    """The gaps that would leave no room for the rest."""
    left = dict(enumerate(gaps))
    cut: set[int] = set()
    while len(left) > 1:
        longest = max(left, key=left.__getitem__)
        if left[longest] <= max(whole, 3 * (sum(left.values()) - left[longest])):
            break
        cut.add(longest)
        del left[longest]
    return cut
