"""Tasks × graders: each cell says passed, failed or undecided with a mark that needs no colour."""

from __future__ import annotations

from collections.abc import Sequence

from waza.dashboard.index import SeenMark, TrialMarks
from waza.dashboard.markup import Element, Node, el, href, short
from waza.dashboard.parts import MARKS, WORDS, count, grid, head_cell, mark, money, number, pager, soft, task_address
from waza.dashboard.registry import Ask
from waza.dashboard.store import Opened, Store
from waza.reports._faults import trials_of
from waza.reports._text import percent, plural, score, seconds
from waza.results.tasks import TaskSummary
from waza.sandbox.texts import fold_case

TASKS = 200
"""Tasks on one page."""
MOST_GRADERS = 26
FEW_GRADERS = 6
"""So many names fit beside each other; more are written upwards."""
_ORDER = {"failed": 0, "error": 1, "passed": 2, "skipped": 3}
_SORTS = {
    "status": lambda task: _ORDER[task.status],
    "task": lambda task: task.id,
    "score": lambda task: -1.0 if task.score.weighted is None else task.score.weighted,
    "cost": lambda task: -float(task.usage.cost_usd or 0) if task.usage else 0.0,
    "tokens": lambda task: -(task.usage.total_tokens or 0) if task.usage else 0,
    "time": lambda task: -task.duration_ms,
}
_FILTERS = ("task", "status", "tag")


def matrix(ask: Ask, store: Store, opened: Opened) -> Node:
    """Return the tasks that fit, a page of them, with the verdict of each grader."""
    chosen = _chosen(ask, opened.tasks)
    skip = ask.number("skip", 0)
    shown = chosen[skip : skip + TASKS]
    marks: dict[str, list[TrialMarks]] = {}
    for trial in store.marks(opened.listed, [task.id for task in shown]):
        marks.setdefault(trial.task_id, []).append(trial)
    graders = _graders(marks)
    names = list(graders)[:MOST_GRADERS]
    columns = _columns(opened.tasks)
    kept = {name: ask.query.get(name) for name in _FILTERS}
    sort = _sort(ask)
    rows = [_row(opened.listed.key, task, marks.get(task.id, []), names, columns) for task in shown]
    head = _head(opened.listed.key, graders, columns, kept, sort)
    look = "verdicts rows many" if len(names) > FEW_GRADERS else "verdicts rows"
    body: list[Node] = [el("h2", "Tasks × graders", id="tasks"), _legend(), _form(ask, opened.tasks)]
    body += [grid("tasks and graders", head, rows, class_=look)]
    body += [soft("No task fits.") if not shown else None]
    if len(graders) > MOST_GRADERS:
        body.append(soft(f"{plural(len(graders) - MOST_GRADERS, 'more grader')} on the tasks' own pages"))
    address = href("runs", opened.listed.key, **kept, sort=sort)
    return [*body, pager(f"{address}{'&' if '?' in address else '?'}", len(chosen), skip, TASKS, "tasks")]


def _columns(tasks: Sequence[TaskSummary]) -> list[str]:
    """Return the columns of numbers that have any."""
    usages = [task.usage for task in tasks if task.usage is not None]
    known = {
        "passed": any(trials_of(task) > 1 for task in tasks),
        "score": True,
        "cost": any(usage.cost_usd is not None for usage in usages),
        "tokens": any(usage.total_tokens is not None for usage in usages),
        "time": True,
    }
    return [name for name, is_known in known.items() if is_known]


def _sort(ask: Ask) -> str:
    asked = ask.query.get("sort")
    return asked if asked in _SORTS else "status"


def _chosen(ask: Ask, tasks: Sequence[TaskSummary]) -> Sequence[TaskSummary]:
    word, status, tag = (ask.query.get(name) for name in _FILTERS)
    fitting = [
        task
        for task in tasks
        if (not word or fold_case(word) in fold_case(f"{task.id} {task.name}"))
        and (not status or task.status == status or (status == "flaky" and task.is_flaky))
        and (not tag or tag in task.tags)
    ]
    return sorted(fitting, key=_SORTS[_sort(ask)])


def _graders(marks: dict[str, list[TrialMarks]]) -> dict[str, float]:
    """Return the graders' names with their weights, in the order in which they first appear."""
    found: dict[str, float] = {}
    for trials in marks.values():
        for trial in trials:
            for one in trial.marks:
                found.setdefault(one.name, one.weight)
    return found


def _legend() -> Element:
    parts: list[Node] = []
    for status in ("passed", "failed", "error"):
        parts += [mark(status), f" {WORDS[status]} · "]
    return soft(*parts, "1/2: of two trials one passed · ×2: a grader's weight")


def _form(ask: Ask, tasks: Sequence[TaskSummary]) -> Element:
    tags = sorted({tag for task in tasks for tag in task.tags})[:200]
    states = [*(status for status in _ORDER if any(task.status == status for task in tasks))]
    states += ["flaky"] if any(task.is_flaky for task in tasks) else []
    search = el("input", type="search", name="task", value=ask.query.get("task"), placeholder="task",
                aria_label="search tasks", id="search")  # fmt: skip
    status = [el("option", "any status", value="")]
    status += [el("option", WORDS.get(one, one), value=one, selected=one == ask.query.get("status")) for one in states]
    tag = [el("option", "any tag", value="")]
    tag += [el("option", short(one, 60), value=one, selected=one == ask.query.get("tag")) for one in tags]
    lists = [el("select", *status, name="status", aria_label="status")]
    lists += [el("select", *tag, name="tag", aria_label="tag")] if tags else []
    address = ask.address.split("?")[0]
    return el("form", search, *lists, el("button", "filter"), method="get", action=address, class_="filters")


def _head(key: str, graders: dict[str, float], columns: Sequence[str], kept: dict[str, str], sort: str) -> list[Node]:
    def sorting(name: str, *, is_number: bool = True) -> Element:
        if name not in _SORTS:
            return head_cell(name, is_number=is_number)
        link = el("a", name, " ↓" if sort == name else "", href=href("runs", key, **kept, sort=name) + "#tasks")
        told = "descending" if sort == name else None
        return el("th", link, scope="col", class_="number" if is_number else None, aria_sort=told)

    head: list[Node] = [sorting("status", is_number=False), sorting("task", is_number=False)]
    for name, weight in list(graders.items())[:MOST_GRADERS]:
        told = f"{short(name, 28)} ×{weight:g}" if weight != 1.0 else short(name, 32)
        head.append(el("th", el("span", told, title=short(name, 200)), scope="col", class_="grader"))
    return [*head, *(sorting(name) for name in columns)]


def _row(
    key: str, task: TaskSummary, trials: list[TrialMarks], graders: Sequence[str], columns: Sequence[str]
) -> Element:
    name = el("a", short(task.id, 80), href=task_address(key, task.id))
    about = [el("span", "flaky", class_="tag") if task.is_flaky else None,
             el("span", short(" ".join(task.tags), 60), class_="soft")]  # fmt: skip
    found: dict[str, list[SeenMark]] = {}
    for trial in trials:
        for one in trial.marks:
            found.setdefault(one.name, []).append(one)
    cells = [_cell(name, found.get(name, [])) for name in graders]
    numbers = [number(_number(task, column)) for column in columns]
    return el("tr", el("td", mark(task.status)), el("th", name, " ", *about, scope="row"), *cells, *numbers,
              data_status=task.status)  # fmt: skip


def _number(task: TaskSummary, column: str) -> Node:
    usage = task.usage
    if column == "passed":
        return [f"{task.passed} of {trials_of(task)}", el("span", f" {percent(task.pass_rate)}", class_="soft")]
    if column == "cost":
        return money(float(usage.cost_usd) if usage and usage.cost_usd is not None else None)
    if column == "tokens":
        return count(usage.total_tokens if usage else None)
    return seconds(task.duration_ms) if column == "time" else _score(task)


def _score(task: TaskSummary) -> Node:
    if not task.score.undecided:
        return score(task.score.weighted)
    return [
        score(task.score.weighted),
        el("span", f" ({score(task.score.low)}–{score(task.score.high)})", class_="soft"),
    ]


def _cell(name: str, marks: list[SeenMark]) -> Element:
    """Return one grader's verdict on one task: the worst over its trials, and how many passed."""
    if not marks:
        return el("td", "·", class_="cell soft", title=f"{short(name, 60)}: not used here")
    statuses = [one.status for one in marks]
    status = "failed" if "failed" in statuses else "error" if "error" in statuses else "passed"
    passed = statuses.count("passed")
    told = f"{short(name, 60)}: {WORDS[status]}, score {score(sum(one.score for one in marks) / len(marks))}"
    if len(marks) > 1:
        told += f", {passed} of {len(marks)} trials passed"
    many = f" {passed}/{len(marks)}" if len(marks) > 1 and passed < len(marks) else ""
    return el("td", el("span", MARKS[status], many, role="img", aria_label=told), class_=f"cell {status}", title=told)
