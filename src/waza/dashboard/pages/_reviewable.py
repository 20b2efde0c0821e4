"""Which runs have something to review: those whose suites ask people, or a judge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from waza.dashboard.index import Listed
from waza.dashboard.markup import Element, Node, el, href, short
from waza.dashboard.parts import day, grid, head_cell, run_link, soft
from waza.dashboard.store import Store, Wanted
from waza.errors import StoreError
from waza.model import JSON
from waza.results.folder import read_run_json

MOST_RUNS = 40


def runs_to_review(store: Store) -> Iterator[Node]:
    """Yield the newest runs that have something to review."""
    runs, _ = store.runs(Wanted())
    rows = []
    for run in [run for run in runs if not run.problem][:MOST_RUNS]:
        people, judges = _asking(run)
        if people or judges:
            rows.append(_run_row(run, people, judges))
    if not rows:
        yield soft("No run here has a `human` grader or a judge.")
        return
    yield soft(
        "People decide where a suite has a `human` grader; for a judge their verdicts say how far it can be believed."
    )
    heads = [head_cell("run"), head_cell("started"), head_cell("people decide"), head_cell("check a judge")]
    yield grid("runs to review", heads, rows, class_="rows")


def _run_row(run: Listed, people: list[str], judges: list[str]) -> Element:
    human = el("a", short(", ".join(people[:4]), 80), href=href("review", run=run.key)) if people else "–"
    links = [[el("a", short(name, 60), href=href("review", run=run.key, grader=[name])), " "] for name in judges[:8]]
    first = [el("td", run_link(run.key, run.suite or run.key)), el("td", day(run.started))]
    return el("tr", *first, el("td", human), el("td", *links))


def _asking(run: Listed) -> tuple[list[str], list[str]]:
    """Return the names of a run's `human` graders, and of those that asked a judge."""
    try:
        spec = read_run_json(Path(run.folder)).spec
    except StoreError:
        return [], []
    people, judges = dict[str, None](), dict[str, None]()
    graders = spec.get("graders")
    for each in graders.values() if isinstance(graders, Mapping) else ():
        for entry in each if isinstance(each, list) else ():
            if isinstance(entry, dict):
                name, kind = str(entry.get("name") or entry.get("type")), entry.get("type")
                (people if kind == "human" else judges if _asks(entry) else {}).setdefault(name)
    return list(people), list(judges)


def _asks(entry: dict[str, JSON]) -> bool:
    return entry.get("type") in ("prompt", "llm", "llm_comparison")
