"""How a run's agent used its tools: what fitted, what succeeded, how many calls a trial took."""

from __future__ import annotations

from waza.dashboard.markup import Node, el
from waza.dashboard.parts import chart, grid, head_cell, number, soft, tile
from waza.model import Run
from waza.reports._text import percent
from waza.results.tool_metrics import tool_metrics


def tool_section(run: Run) -> Node:
    """Return the tool metrics and the distribution of calls; nothing where no call was recorded."""
    found = tool_metrics(run)
    if found is None:
        return None
    calls = found["call_count"]
    if not calls["max"] and found["selection_accuracy"] is None:
        return [el("h2", "Tools"), soft("No trial called a tool.")]
    tiles = [
        tile("right tool first", percent(found["selection_accuracy"]), "of tasks that expect a tool"),
        tile("right arguments", percent(found["input_correctness"]), "of calls whose arguments are stated"),
        tile("calls that worked", percent(found["success_rate"])),
        tile(
            "calls a trial",
            f"{calls['median']:g}",
            f"median · mean {calls['mean']:.1f} · p95 {calls['p95']} · most {calls['max']}",
        ),
    ]
    bars = calls["histogram"]
    rows = [el("tr", el("th", label, scope="row"), number(str(many))) for label, many in bars.items()]
    table = grid("calls a trial", [head_cell("calls"), head_cell("trials", is_number=True)], rows)
    data = {"labels": list(bars), "values": list(bars.values()), "unit": "trials"}
    return [
        el("h2", "Tools"),
        el("div", *tiles, class_="tiles"),
        chart("bars", "Tool calls a trial: how many trials", data, table),
    ]
