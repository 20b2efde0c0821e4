"""The page of one tool call, with as much of its arguments and result as fits."""

from __future__ import annotations

from waza.reports.failed_checks import shown_value
from waza.reports.html.components import badge, soft
from waza.reports.html.markup import Node, TextBudget, el, href, short
from waza.server.pages.run import the_run
from waza.server.pages.task import the_result
from waza.server.store import RunReader
from waza.server.trial import trial_address
from waza.server.views import NotFound, PageRequest, View
from waza.untrusted.text import seconds

PATH = "/runs/{run}/call"
MOST = 100_000


def page(request: PageRequest, store: RunReader) -> View:
    """Return a call's page."""
    opened = the_run(request, store)
    task, trial, number = request.query.get("id"), request.number("trial", 1), request.number("n", 1)
    events = the_result(opened, task, trial).trace.tool_events or []
    if not 1 <= number <= len(events):
        raise NotFound(f"The trial has no call {number}.")
    event, key, budget = events[number - 1], opened.listed.key, TextBudget()
    address = href("runs", key, "call", id=task, trial=trial)
    body: list[Node] = [
        el("h1", badge("passed" if event.success else "failed"), f" {number}. {short(event.tool_name, 100)}")
    ]
    facts = [f"turn {event.turn}", f"call {number} of {len(events)}"]
    facts += [f"began at {seconds(event.start_ms)}"] if event.start_ms is not None else []
    facts += [f"took {seconds(event.duration_ms)}"] if event.duration_ms is not None else []
    body.append(soft(" · ".join(facts)))
    before = el("a", "← before", href=f"{address}&n={number - 1}", rel="prev") if number > 1 else None
    after = el("a", "next →", href=f"{address}&n={number + 1}", rel="next") if number < len(events) else None
    back = f"{trial_address(key, task, trial)}call={number}#call-{number}"
    body.append(el("nav", before, el("a", "in the transcript", href=back), after, class_="around", aria_label="calls"))
    for label, value in (("Arguments", event.args), ("Error", event.error), ("Result", event.result)):
        text = shown_value(value, 10_000_000)
        body += [el("h2", label), budget.text(text, MOST)] if text else []
    crumbs = [("Runs", href()), (opened.listed.suite or key, href("runs", key)), (f"{task}, trial {trial}", back)]
    return View(title=f"call {number}", body=body, crumbs=crumbs)
