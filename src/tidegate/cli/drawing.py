"""The dataflow graph as an SVG picture, drawn by hand: boxes in columns, and arrows.

Text in SVG does not wrap by itself, and its true width is known only to who renders it. Details are therefore set in a
monospaced font, whose width per character is known well enough, and wrapped here; a box is as tall as its lines need.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from html import escape

from tidegate.cli.graph import Box, Column, children

_WIDTH, _GAP, _MARGIN = 268, 64, 28
_PADDING, _TITLE, _LINE, _BETWEEN = 14, 20, 17, 22
_TOP = 92
_CHARACTERS = 33  # 7.2 px each at 12 px, within 268 − 2 × 14
_TITLE_CHARACTERS = 26  # bold and proportional: the widest words still fit

_HEADINGS: dict[Column, str] = {"source": "Sources", "path": "Path", "operator": "Operators", "sink": "Sinks"}
_COLOURS: dict[Column, tuple[str, str]] = {
    "source": ("#e8f1fb", "#2f6fb0"),
    "path": ("#f4f4f2", "#8a8a85"),
    "operator": ("#e9f6ef", "#2e8b62"),
    "sink": ("#fdf1e3", "#c27a1d"),
}
_STYLE = (
    "text{font-family:ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;font-size:12px;fill:#33383d}"
    ".title{font-family:system-ui,'DejaVu Sans',Helvetica,Arial,sans-serif;font-size:14px;font-weight:600;fill:#14181c}"
    ".app{font-family:system-ui,'DejaVu Sans',Helvetica,Arial,sans-serif;font-size:20px;font-weight:600;fill:#14181c}"
    ".heading{font-family:system-ui,'DejaVu Sans',Helvetica,Arial,sans-serif;font-size:12px;fill:#767c82}"
)


@dataclass
class _Placed:
    """A box with its wrapped text and its place."""

    box: Box
    depth: int
    title: list[str]
    lines: list[str]
    below: list[_Placed] = field(default_factory=list)
    y: float = 0

    @property
    def x(self) -> int:
        return _MARGIN + self.depth * (_WIDTH + _GAP)

    @property
    def height(self) -> int:
        space = 6 if self.lines else 0
        return 2 * _PADDING + len(self.title) * _TITLE + len(self.lines) * _LINE + space - 4

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


def draw(name: str, boxes: list[Box]) -> str:
    """The whole picture as SVG text."""
    roots = [_prepare(box, boxes, 0) for box in children(boxes, None)]
    bottom = float(_TOP)
    for root in roots:
        bottom = _place(root, bottom) + _BETWEEN
    headings: dict[int, list[str]] = {}
    for root in roots:
        _name_columns(root, headings)
    width = 2 * _MARGIN + len(headings) * _WIDTH + (len(headings) - 1) * _GAP
    height = round(bottom - _BETWEEN + _MARGIN)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f"<title>Dataflow of {escape(name)}</title><style>{_STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 1 L9 5 L0 9 Z" fill="#767c82"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text class="app" x="{_MARGIN}" y="42">{escape(name)}</text>',
    ]
    for depth, names in headings.items():
        x = _MARGIN + depth * (_WIDTH + _GAP)
        parts.append(f'<text class="heading" x="{x}" y="76">{", ".join(names)}</text>')
    for root in roots:
        parts += _drawn(root)
    parts += _further_arrows(roots)
    return "\n".join([*parts, "</svg>"])


def _name_columns(placed: _Placed, headings: dict[int, list[str]]) -> None:
    """What stands in each column: with operators on operators, one may hold sinks and paths."""
    names = headings.setdefault(placed.depth, [])
    if _HEADINGS[placed.box.column] not in names:
        names.append(_HEADINGS[placed.box.column])
    for child in placed.below:
        _name_columns(child, headings)


def _prepare(box: Box, boxes: list[Box], depth: int) -> _Placed:
    title = textwrap.wrap(box.name, _TITLE_CHARACTERS) or [""]
    lines = [
        part
        for line in box.lines
        for part in textwrap.wrap(line, _CHARACTERS, subsequent_indent="  ", break_on_hyphens=False) or [""]
    ]
    below = [_prepare(child, boxes, depth + 1) for child in children(boxes, box.id)]
    return _Placed(box, depth, title, lines, below)


def _place(placed: _Placed, top: float) -> float:
    """Place the box and all that hangs on it below `top`, the box in the middle; where the bottom is."""
    bottom = top
    for child in placed.below:
        bottom = _place(child, bottom) + _BETWEEN
    bottom -= _BETWEEN if placed.below else 0
    if placed.height > bottom - top:
        # The box is taller than what hangs on it: it sets the height, and its children move to the middle.
        _shift(placed.below, (placed.height - (bottom - top)) / 2)
        bottom = top + placed.height
    placed.y = top + (bottom - top - placed.height) / 2
    return bottom


def _shift(boxes: list[_Placed], by: float) -> None:
    for placed in boxes:
        placed.y += by
        _shift(placed.below, by)


def _drawn(placed: _Placed) -> list[str]:
    fill, stroke = _COLOURS[placed.box.column]
    x, y = placed.x, placed.y
    parts = [
        f'<rect x="{x}" y="{y:.1f}" width="{_WIDTH}" height="{placed.height}" rx="8" fill="{fill}" stroke="{stroke}"/>'
    ]
    baseline = y + _PADDING + 11
    for line in placed.title:
        parts.append(f'<text class="title" x="{x + _PADDING}" y="{baseline:.1f}">{escape(line)}</text>')
        baseline += _TITLE
    baseline += 4
    for line in placed.lines:
        # leading spaces of continued lines collapse in SVG, so they become distance
        indent = (len(line) - len(line.lstrip())) * 7.2
        parts.append(f'<text x="{x + _PADDING + indent:.1f}" y="{baseline:.1f}">{escape(line.strip())}</text>')
        baseline += _LINE
    for child in placed.below:
        parts.append(_arrow(placed, child))
        parts += _drawn(child)
    return parts


def _arrow(one: _Placed, other: _Placed) -> str:
    start, end, bend = one.x + _WIDTH, other.x - 2, _GAP / 2
    there, here = f"{other.middle:.1f}", f"{one.middle:.1f}"
    return (
        f'<path d="M{start} {here} C{start + bend} {here} {end - bend} {there} {end} {there}" fill="none" '
        'stroke="#767c82" stroke-width="1.4" marker-end="url(#tip)"/>'
    )


def _further_arrows(roots: list[_Placed]) -> list[str]:
    """A union hangs on the path of its first source; those of the others lead to it too."""
    everyone, pending = {}, list(roots)
    while pending:
        placed = pending.pop()
        everyone[placed.box.id] = placed
        pending += placed.below
    return [_arrow(everyone[one], placed) for placed in everyone.values() for one in placed.box.others]
