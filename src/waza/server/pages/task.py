"""The page of one task: all its trials, and one in full: the requested one, or the first that did not pass."""

from __future__ import annotations

from waza.model import Result
from waza.reports.failed_checks import trials_of
from waza.reports.html.components import badge, count, grid, head_cell, interval, mark, money, number, soft
from waza.reports.html.markup import Element, Node, el, href, short
from waza.runs.grader_facts import FactsByType, has_fact, stored_grader_facts
from waza.runs.outcomes import TrialOutcome, outcomes_of
from waza.runs.tasks import TaskSummary
from waza.server.index import TrialMarks
from waza.server.pages.run import the_run
from waza.server.store import OpenRun, RunReader
from waza.server.trial import trial_body
from waza.server.views import NotFound, PageRequest, View
from waza.untrusted.text import percent, plural, score, seconds

PATH = "/runs/{run}/task"
MOST_TRIALS = 100
"""Trials listed on one page, those around the one that is shown."""
MOST_GRADERS = 12
SCRIPTS = ("trial.js",)


def page(request: PageRequest, store: RunReader) -> View:
    """Return a task's page."""
    opened = the_run(request, store)
    task, outcomes = the_task(request, opened)
    listed = opened.listed
    crumbs = [("Runs", href()), (listed.suite or listed.key, href("runs", listed.key))]
    body: list[Node] = [*_top(task, listed.key)]
    if not outcomes:
        body.append(soft("No trial of this task has a result yet."))
        return View(title=task.id, body=body, crumbs=crumbs)
    chosen = chosen_trial(request, outcomes)
    body.append(_trials(store, opened, task, outcomes, chosen))
    result = the_result(opened, task.id, chosen.trial)
    asks_people = _asks_people(result, stored_grader_facts(opened.run.suite))
    body.append(_around(listed.key, outcomes, chosen, result.task_id, can_review=request.can_review and asks_people))
    body += trial_body(request, opened, result)
    return View(title=task.id, body=body, crumbs=crumbs, scripts=SCRIPTS)


def the_task(request: PageRequest, opened: OpenRun) -> tuple[TaskSummary, list[TrialOutcome]]:
    """Return the task an address names with the outcomes of its trials in order. Raises NotFound."""
    wanted = request.query.get("id")
    task = next((task for task in (*opened.tasks, *opened.prompts) if task.id == wanted), None)
    if task is None:
        raise NotFound("The run has no such task.")
    every = (*outcomes_of(opened.run.results), *outcomes_of(opened.run.triggers))
    trials = [one for one in every if one.task_id == wanted]
    return task, sorted(trials, key=lambda one: one.trial)


def chosen_trial(request: PageRequest, outcomes: list[TrialOutcome]) -> TrialOutcome:
    """Return the requested trial, or the first that failed, was undecided, or exists at all. Raises NotFound."""
    wanted = request.number("trial", 0)
    if wanted:
        outcome = next((one for one in outcomes if one.trial == wanted), None)
        if outcome is None:
            raise NotFound(f"The task has no trial {wanted}.")
        return outcome
    order = {"failed": 0, "error": 1}
    return min(outcomes, key=lambda one: (order.get(one.status, 2), one.trial))


def the_result(opened: OpenRun, task: str, trial: int) -> Result:
    """Return one trial, read from the journal. Raises NotFound."""
    for results in (opened.run.results, opened.run.triggers):
        for place, one in enumerate(outcomes_of(results)):
            if one.task_id == task and one.trial == trial:
                return results[place]
    raise NotFound(f"The task has no trial {trial}.")


def _top(task: TaskSummary, key: str) -> list[Node]:
    facts: list[Node] = [f"{task.passed} of {plural(trials_of(task), 'trial')} passed"]
    if trials_of(task) > 1:
        facts += [f" ({percent(task.pass_rate)}, 95 % interval ", interval(task.pass_rate_ci), ")"]
    facts.append(f" · score {score(task.score.weighted)}")
    facts += [" · ", el("span", "flaky", class_="tag")] if task.is_flaky else []
    facts += [" · ", el("span", "golden", class_="tag")] if task.golden else []
    tags = [el("a", short(tag, 40), href=href("runs", key, tag=tag) + "#tasks", class_="tag") for tag in task.tags[:20]]
    name = soft(short(task.name, 300)) if task.name != task.id else None
    reason = el("p", short(task.reason, 400), class_="error") if task.reason else None
    return [el("h1", badge(task.status), " ", short(task.id, 160)), name, soft(*facts, " ", *tags), reason]


def _trials(
    store: RunReader, opened: OpenRun, task: TaskSummary, outcomes: list[TrialOutcome], chosen: TrialOutcome
) -> Node:
    """Return every trial with the verdict of each grader; of very many those around the one that is shown."""
    if len(outcomes) < 2:
        return None
    place = outcomes.index(chosen)
    start = max(0, min(place - MOST_TRIALS // 2, len(outcomes) - MOST_TRIALS))
    shown = outcomes[start : start + MOST_TRIALS]
    marks = {one.trial: one for one in store.marks(opened.listed, [task.id])}
    graders = list(dict.fromkeys(one.name for trial in marks.values() for one in trial.marks))
    head: list[Node] = [head_cell("trial")]
    head += [
        el("th", short(name, 24), scope="col", class_="grader", title=short(name, 200))
        for name in graders[:MOST_GRADERS]
    ]
    head += [head_cell(word, is_number=True) for word in ("score", "time", "calls", "tokens", "cost")]
    rows = [_row(opened.listed.key, one, marks.get(one.trial), graders[:MOST_GRADERS], one is chosen) for one in shown]
    note = f"trials {shown[0].trial}–{shown[-1].trial} of {len(outcomes)}" if len(shown) < len(outcomes) else ""
    return [grid("trials", head, rows, class_="matrix trials"), soft(note) if note else None]


def _row(key: str, one: TrialOutcome, marks: TrialMarks | None, graders: list[str], is_here: bool) -> Element:
    link = el("a", mark(one.status), f" {one.trial}", href=href("runs", key, "task", id=one.task_id, trial=one.trial),
              aria_current="true" if is_here else None, aria_label=f"trial {one.trial}, {one.status}")  # fmt: skip
    found = {mark.name: mark.status for mark in marks.marks} if marks else {}
    cells = [_cell(found.get(name)) for name in graders]
    usage = one.usage
    numbers = [
        number(score(one.score.weighted)),
        number(seconds(one.duration_ms)),
        number("–" if one.tools is None else str(one.tools.calls)),
        number(count(usage.total_tokens if usage else None)),
        number(money(float(usage.cost_usd) if usage and usage.cost_usd is not None else None)),
    ]
    return el(
        "tr", el("th", link, scope="row"), *cells, *numbers, class_="here" if is_here else None, data_status=one.status
    )


def _cell(status: str | None) -> Element:
    return el("td", mark(status) if status else "·", class_=f"cell {status}" if status else "cell soft")


def _asks_people(result: Result, facts: FactsByType) -> bool:
    return any(has_fact(facts, grade.type, "asks_people") for grade in result.grades)


def _around(key: str, outcomes: list[TrialOutcome], chosen: TrialOutcome, task_id: str, *, can_review: bool) -> Node:
    """Return links to the trial before and after, and to the review of this one."""
    place = outcomes.index(chosen)

    def to(which: int) -> str:
        return href("runs", key, "task", id=task_id, trial=outcomes[which].trial)

    before = el("a", f"← trial {outcomes[place - 1].trial}", href=to(place - 1), rel="prev") if place else None
    last = place + 1 == len(outcomes)
    after = None if last else el("a", f"trial {outcomes[place + 1].trial} →", href=to(place + 1), rel="next")
    review = el("a", "review", href=href("review", run=key)) if can_review else None
    links = [link for link in (before, after, review) if link is not None]
    return el("nav", *links, class_="around", aria_label="trials") if links else None
