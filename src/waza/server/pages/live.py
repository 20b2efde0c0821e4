"""A run while it goes on: how far it has come, and each result at the moment the journal has it."""

from __future__ import annotations

from waza.errors import StoreError
from waza.reports.html.components import WORDS, mark, progress, soft, task_address, tile, when
from waza.reports.html.markup import Element, Node, el, href, short
from waza.runs.outcomes import TrialOutcome, outcomes_of
from waza.server.index import RunRow
from waza.server.registry import NotThere, PageRequest, View
from waza.server.store import RunReader
from waza.untrusted.text import score, seconds

PATH = "/runs/{run}/live"
SHOWN = 50
"""Results that stand on the page at first, the newest on top."""


def page(ask: PageRequest, store: RunReader) -> View:
    """Return the live view of a run; of one that ended, how it went."""
    listed = store.find(ask.parts["run"])
    if listed is None:
        raise NotThere("No run has this name.")
    if listed.problem:
        raise StoreError(listed.problem)
    # The journal was at least that long when it was read: what came since is told again rather than not at all.
    told_to = listed.journal_size
    opened = store.open(listed)
    outcomes = sorted(outcomes_of(opened.run.results), key=lambda one: (one.start_ms or 0.0) + one.duration_ms)
    statuses = [one.status for one in outcomes]
    tiles = [tile(WORDS[status], el("span", str(statuses.count(status)), id=f"n-{status}"))
             for status in ("passed", "failed", "error", "skipped")]  # fmt: skip
    name = short(listed.suite or listed.key, 100)
    state = el("span", "running" if listed.is_live else "ended", id="state", class_="badge running", role="status")
    body: list[Node] = [
        el("h1", name, " ", state),
        soft(when(listed.started), f" · {short(listed.model or listed.engine, 60)} · {listed.key}"),
        el("div", progress(len(outcomes), listed.planned), id="progress", class_="large"),
        el("div", *tiles, class_="tiles"),
        el("p", el("a", "all numbers so far", href=href("runs", listed.key), id="whole")),
        el("h2", "Results, the newest first"),
        el(
            "ol",
            *(_item(listed, one) for one in outcomes[: -SHOWN - 1 : -1]),
            id="feed",
            class_="feed",
            data_most="500",
        ),
    ]
    frame = el("div", *body, id="watch", data_events=href("runs", listed.key, "events", from_=told_to),
               data_task=href("runs", listed.key, "task"))  # fmt: skip
    crumbs = [("Runs", href()), (listed.suite or listed.key, href("runs", listed.key))]
    return View(title="Live", body=[frame], crumbs=crumbs, scripts=("live.js",))


def _item(listed: RunRow, one: TrialOutcome) -> Element:
    link = el("a", short(one.task_id, 100), href=task_address(listed.key, one.task_id, one.trial))
    told = f" trial {one.trial} · score {score(one.score.weighted)} · {seconds(one.duration_ms)}"
    why = f" · {short(one.reason, 200)}" if one.reason else ""
    about = el("span", told + why, class_="soft")
    return el("li", mark(one.status), " ", link, about, data_task=one.task_id, data_trial=one.trial)
