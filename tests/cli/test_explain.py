"""`tidegate explain`: the same graph as a tree, Mermaid, SVG and JSON."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from click.testing import Result

from tidegate.cli.drawing import draw
from tidegate.cli.graph import Box, graph
from tidegate.cli.load import load_app

Cli = Callable[..., Result]
_SVG = "{http://www.w3.org/2000/svg}"


def test_text_is_a_tree_from_source_to_sink(cli: Cli, app_file: Path) -> None:
    assert cli("explain", app_file).output == (
        "shop\n"
        "└─ source payments\n"
        "   │  files data (jsonl, by column:region)\n"
        "   │  event time paid_at\n"
        "   │  event id id\n"
        "   │  watermark: delay 30s, max future 1h\n"
        "   │  6 fields, required: id\n"
        "   └─ key by merchant\n"
        "      │  where status = 'captured'\n"
        "      └─ operator revenue\n"
        "         │  tumbling 5m\n"
        "         │  allowed lateness 10m\n"
        "         │  orders = count(*)\n"
        "         │  total = sum(amount)\n"
        "         └─ sink warehouse\n"
        "               SQLite shop.db, table revenue\n"
    )


def test_mermaid_has_a_line_per_box_and_arrow(cli: Cli, app_file: Path) -> None:
    output = cli("explain", app_file, "--format", "mermaid").output
    assert output.startswith("flowchart LR\n")
    assert "  source_payments --> path_revenue\n" in output
    assert "  operator_revenue --> sink_warehouse\n" in output


def test_json_names_nodes_and_what_they_follow(cli: Cli, app_file: Path) -> None:
    data = json.loads(cli("explain", app_file, "--json").output)
    assert [node["id"] for node in data["nodes"]] == [
        "source.payments",
        "path.revenue",
        "operator.revenue",
        "sink.warehouse",
    ]
    assert data["nodes"][3]["after"] == "operator.revenue"


UNION = """
import tidegate as tg

app = tg.App("shop")
contract = "customer STRING, amount BIGINT, at TIMESTAMP"
web = app.source("web", tg.Files("web"), contract=contract, event_time="at")
mobile = app.source("mobile", tg.Files("mobile"), contract=contract, event_time="at")
both = mobile.where("amount > 0").union(web)
revenue = both.key_by("customer").window("revenue", tg.Tumbling("1h")).aggregate(total=tg.sum("amount"))
app.sink("warehouse", revenue, tg.Memory())
"""


def test_a_union_stands_under_its_first_source_and_the_others_point_to_it(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "union.py").write_text(UNION)
    text = cli("explain", tmp_path / "union.py").output
    assert text.splitlines()[6:] == [
        "│  └─ key by customer",
        "│     └─ operator revenue",
        "│        │  union of mobile, web",
        "│        │  tumbling 1h",
        "│        │  allowed lateness 0s",
        "│        │  total = sum(amount)",
        "│        └─ sink warehouse",
        "│              memory of this process",
        "└─ source mobile",
        "   │  files mobile (jsonl)",
        "   │  event time at",
        "   │  watermark: delay 0s, max future 1h",
        "   │  3 fields",
        "   └─ key by customer",
        "      │  where amount > 0",
        "      └─ to operator revenue",
    ]
    arrows = cli("explain", tmp_path / "union.py", "--format", "mermaid").output
    for arrow in ("path_revenue_web --> operator_revenue", "path_revenue_mobile --> operator_revenue"):
        assert f"  {arrow}\n" in arrows
    root = ET.fromstring(cli("explain", tmp_path / "union.py", "--format", "svg").output)
    assert len(root.findall(f"{_SVG}rect")) == 1 + 6
    assert len(root.findall(f"{_SVG}path")) == 5, "arrows: two to the paths, two to the operator, one to the sink"


def test_every_form_can_go_to_a_file(cli: Cli, app_file: Path, tmp_path: Path) -> None:
    for form, start in (("text", "shop"), ("mermaid", "flowchart"), ("svg", "<svg"), ("json", "{")):
        out = tmp_path / f"graph.{form}"
        done = cli("explain", app_file, "--format", form, "-o", out)
        assert (done.exit_code, done.output) == (0, "")
        assert out.read_text().startswith(start)


def test_the_picture_is_well_formed_and_text_stays_in_its_box() -> None:
    long = "where note = '" + "<&>" * 60 + "' AND status = 'captured'"
    boxes = [
        Box("source.a", "source", "a_source_with_a_name_that_is_longer_than_any_box", ("files " + "deep/" * 40,)),
        Box("path.b", "path", "key by x", (long,), "source.a"),
        *(Box(f"operator.{i}", "operator", f"op{i}", ("tumbling 5m",), "path.b") for i in range(3)),
    ]
    root = ET.fromstring(draw("demo & more", boxes))
    rects = [
        tuple(float(rect.get(side, "0")) for side in ("x", "y", "width", "height"))
        for rect in root.findall(f"{_SVG}rect")[1:]
    ]
    assert len(rects) == 5
    width, height = float(root.get("width", "0")), float(root.get("height", "0"))
    assert all(x + w <= width and y + h <= height for x, y, w, h in rects)
    for text in root.findall(f"{_SVG}text"):
        if text.get("class") in ("app", "heading"):
            continue
        x, y = float(text.get("x", "0")), float(text.get("y", "0"))
        advance = 9.4 if text.get("class") == "title" else 7.2
        right = x + len(text.text or "") * advance
        assert any(bx < x and right < bx + w and by < y < by + h for bx, by, w, h in rects), text.text


def test_boxes_of_a_column_do_not_overlap(app_file: Path) -> None:
    boxes = graph(load_app(app_file))
    tall = [Box(f"sink.{i}", "sink", f"s{i}", ("line",) * (i + 1), "operator.revenue") for i in range(4)]
    root = ET.fromstring(draw("demo", [*boxes, *tall]))
    columns: dict[str, list[tuple[float, float]]] = {}
    for rect in root.findall(f"{_SVG}rect")[1:]:
        y = float(rect.get("y", "0"))
        columns.setdefault(rect.get("x", ""), []).append((y, y + float(rect.get("height", "0"))))
    for spans in columns.values():
        spans.sort()
        assert all(above[1] < below[0] for above, below in pairwise(spans))
