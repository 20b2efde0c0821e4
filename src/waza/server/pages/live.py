"""The live page of a run: its progress, and each result as soon as the journal has it."""

from __future__ import annotations

from waza.errors import StoreError
from waza.reports.html.components import WORDS, mark, progress, soft, task_address, tile, when
from waza.reports.html.markup import Element, Node, el, href, short
from waza.runs.outcomes import TrialOutcome, outcomes_of
from waza.server.index import RunRow
from waza.server.store import RunReader
from waza.server.views import NotFound, PageRequest, View
from waza.untrusted.text import score, seconds

PATH = "/runs/{run}/live"
SHOWN = 50
"""Results on the page when it is opened, the newest first."""


def page(request: PageRequest, store: RunReader) -> View:
    """Return the live view of a run, or its results when it has ended."""
    listed = store.find(request.parts["run"])
    if listed is None:
        raise NotFound("No run has this name.")
    if listed.problem:
        raise StoreError(listed.problem)
    # The journal was at least that long when it was read: later results are rather sent twice than not at all.
    read_to = listed.journal_size
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
    frame = el("div", *body, id="watch", data_events=href("runs", listed.key, "events", from_=read_to),
               data_task=href("runs", listed.key, "task"))  # fmt: skip
    crumbs = [("Runs", href()), (listed.suite or listed.key, href("runs", listed.key))]
    return View(title="Live", body=[frame], crumbs=crumbs, scripts=("live.js",))


def _item(listed: RunRow, one: TrialOutcome) -> Element:
    link = el("a", short(one.task_id, 100), href=task_address(listed.key, one.task_id, one.trial))
    facts = f" trial {one.trial} · score {score(one.score.weighted)} · {seconds(one.duration_ms)}"
    why = f" · {short(one.reason, 200)}" if one.reason else ""
    about = el("span", facts + why, class_="soft")
    return el("li", mark(one.status), " ", link, about, data_task=one.task_id, data_trial=one.trial)
