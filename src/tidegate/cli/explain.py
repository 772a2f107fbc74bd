"""`tidegate explain`: the dataflow of an app as a tree, a Mermaid diagram, a picture, or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from tidegate.cli.drawing import draw
from tidegate.cli.graph import Box, children, graph
from tidegate.cli.load import load


@click.command()
@click.argument("app", metavar="APP")
@click.option(
    "--format", "form", type=click.Choice(["text", "mermaid", "svg", "json"]), default="text", show_default=True
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to a file, not to stdout.")
def explain(app: str, form: str, as_json: bool, output: Path | None) -> None:
    """Show the dataflow of an app.

    Sources, paths, operators with their windows, and sinks of APP (file.py, or file.py:name).
    """
    declared = load(app).app
    boxes = graph(declared)
    text = _rendered(declared.name, boxes, "json" if as_json else form)
    if output is None:
        click.echo(text)
    else:
        output.write_text(text + "\n")


def _rendered(name: str, boxes: list[Box], form: str) -> str:
    if form == "json":
        return json.dumps({"app": name, "nodes": [asdict(box) for box in boxes]}, indent=2, ensure_ascii=False)
    if form == "svg":
        return draw(name, boxes)
    return mermaid(boxes) if form == "mermaid" else tree(name, boxes)


def tree(name: str, boxes: list[Box]) -> str:
    """The graph as an indented tree; each box's lines stand under its name."""
    return "\n".join([name, *_branches(boxes, None, "")])


def _branches(boxes: list[Box], parent: str | None, indent: str) -> Iterator[str]:
    below = children(boxes, parent)
    for box in below:
        is_last = box is below[-1]
        yield f"{indent}{'└─' if is_last else '├─'} {_title(box)}"
        inner = indent + ("   " if is_last else "│  ")
        # A union stands under the first of its sources; the others point to it.
        elsewhere = [other for other in boxes if box.id in other.others]
        has_more = bool(children(boxes, box.id) or elsewhere)
        for line in box.lines:
            yield f"{inner}{'│  ' if has_more else '   '}{line}"
        yield from _branches(boxes, box.id, inner)
        for other in elsewhere:
            yield f"{inner}└─ to {_title(other)}"


def _title(box: Box) -> str:
    return box.name if box.column == "path" else f"{box.column} {box.name}"


def mermaid(boxes: list[Box]) -> str:
    """The graph as a Mermaid flowchart, which GitHub and many wikis draw."""
    shapes = {"source": ('[("', '")]'), "path": ('["', '"]'), "operator": ('{{"', '"}}'), "sink": ('[/"', '"/]')}
    lines = ["flowchart LR"]
    for box in boxes:
        opening, closing = shapes[box.column]
        text = "<br/>".join([f"<b>{_escaped(_title(box))}</b>", *map(_escaped, box.lines)])
        lines.append(f"  {_identifier(box.id)}{opening}{text}{closing}")
    arrows = [(after, box.id) for box in boxes for after in (box.after, *box.others) if after]
    lines += [f"  {_identifier(after)} --> {_identifier(before)}" for after, before in arrows]
    return "\n".join(lines)


def _identifier(box_id: str) -> str:
    return box_id.replace(".", "_")


def _escaped(text: str) -> str:
    """Mermaid reads entities by number and by name, with # in place of &."""
    for character, entity in (("#", "#35;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;")):
        text = text.replace(character, entity)
    return text
