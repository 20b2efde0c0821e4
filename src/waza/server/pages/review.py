"""The review page: people record pass or fail for outputs. The only page that writes, and only with `--review`.

The verdict of a grader or of another person is not shown before one has answered, so that it does not influence anyone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

from waza.errors import StoreError, WazaError
from waza.model import Result
from waza.reports.html.components import day, grid, head_cell, mark, progress, run_link, soft, task_address
from waza.reports.html.markup import Element, Node, TextBudget, el, href, short
from waza.reports.html.steps import STEPS, call_address, steps_of, transcript
from waza.runs.folder import read_run_json
from waza.runs.grader_facts import has_fact, stored_grader_facts
from waza.runs.verdicts import Answer, HumanVerdict, record_verdict
from waza.server.index import RunRow
from waza.server.pages.task import the_result
from waza.server.review_queue import Pile, ReviewItem, ReviewQueue
from waza.server.store import RunFilter, RunReader
from waza.server.views import NotFound, PageRequest, Query, View
from waza.untrusted.text import plural

PATH = "/review"
NAV = "Review"
PLACE = 4
KEY = "v"
MOST_TEXT = 40_000
MOST_REASON = 2_000
MOST_NAME = 80
_MARKS = {"pass": "passed", "fail": "failed"}


def page(request: PageRequest, store: RunReader) -> View:
    """Return the outputs of a run to review, one at a time; without a run, the runs to choose from."""
    key = request.query.get("run")
    if not key:
        return View(title="Review", body=[el("h1", "Review"), *runs_to_review(store)])
    listed, pile = _pile(store, key, _graders(request.query))
    crumbs = [("Runs", href()), (listed.suite or key, href("runs", key)), ("Review", href("review"))]
    by = request.query.get("by")[:MOST_NAME]
    if not pile.items:
        return View(title=key, body=[el("h1", "Review"), _nothing(key)], crumbs=crumbs)
    body = [*_one(request, store, listed, pile, by)]
    return View(title=pile.items[0].grader, body=body, crumbs=crumbs, scripts=("review.js",))


def accept(request: PageRequest, store: RunReader, form: Query) -> str:
    """Record a verdict, or grade the run again, and return the next address."""
    key, graders, by = form.get("run"), _graders(form), form.get("by").strip()[:MOST_NAME]
    listed, pile = _pile(store, key, graders)
    if form.get("do") == "settle":
        return _address(key, graders, by, done=_settled(store, listed))
    item = _named(pile, form)
    if form.get("answer") not in _MARKS:
        raise NotFound("A verdict is pass or fail; go back and choose one.")
    answer = cast("Answer", form.get("answer"))
    record_verdict(pile.file, item.verdict(answer, form.get("reason").strip()[:MOST_REASON], by))
    left = [place for place, one in enumerate(pile.items) if pile.given(one, by) is None]
    here = pile.items.index(item)
    if left:
        return _address(key, graders, by, at=1 + next((place for place in left if place > here), left[0]))
    return _address(key, graders, by, at=here + 1, done=_settled(store, listed))


def _graders(query: Query) -> list[str]:
    return [name for name in query.every("grader") if name][:20]


def _address(key: str, graders: Sequence[str], by: str, **more: int | str) -> str:
    return href("review", run=key, grader=graders, by=by, **more)


def _review_queue(store: RunReader) -> ReviewQueue:
    if store.review_queue is None:
        raise NotFound("This server was started without anything to review.")
    return store.review_queue


def _pile(store: RunReader, key: str, graders: Sequence[str]) -> tuple[RunRow, Pile]:
    """Return a run and its outputs to review. Raises NotFound with the reason."""
    listed = store.find(key)
    if listed is None or listed.problem:
        raise NotFound("No run has this name." if listed is None else listed.problem)
    try:
        return listed, _review_queue(store).pile(listed.path, graders)
    except (WazaError, OSError) as error:
        raise NotFound(f"This run cannot be reviewed: {error}") from None


def _named(pile: Pile, form: Query) -> ReviewItem:
    wanted = (form.get("name"), form.get("evidence"), form.get("question"))
    item = next((one for one in pile.items if (one.grader, one.evidence, one.question) == wanted), None)
    if item is None:
        raise NotFound("The question has changed since the page was opened; nothing was recorded. Open it again.")
    return item


def _settled(store: RunReader, listed: RunRow) -> int:
    """Grade the run again and return how many results changed. Raises NotFound with the reason."""
    try:
        return _review_queue(store).settle(listed.path)
    except (WazaError, OSError) as error:
        raise NotFound(f"The verdicts are recorded, but the run could not be graded again: {error}") from None


def _nothing(key: str) -> Element:
    return soft(
        "There is nothing to review: the suite has no `human` grader. ",
        el("a", "Back to the run", href=href("runs", key)),
    )


def _one(request: PageRequest, store: RunReader, listed: RunRow, pile: Pile, by: str) -> Iterator[Node]:
    """Yield one output with the form below it."""
    graders = _graders(request.query)
    open_places = [place for place, one in enumerate(pile.items) if pile.given(one, by) is None]
    at = request.number("at", 0) or (open_places[0] if open_places else 0) + 1
    at = max(1, min(at, len(pile.items)))
    item = pile.items[at - 1]
    given = pile.given(item, by)
    result = the_result(store.open(listed), item.task, item.trial)
    yield el("h1", short(item.grader, 100), el("span", f" {at} of {len(pile.items)}", class_="soft"))
    yield progress(len(pile.items) - len(open_places), len(pile.items))
    if request.query.get("done"):
        message = f"The run is graded again: {plural(request.number('done', 0), 'result')} changed."
        yield el("p", message, class_="passed", role="status")
    yield _around(listed.key, graders, by, at, len(pile.items))
    lines = [
        el("p", f"• {line[2:]}" if line.startswith("- ") else line) for line in short(item.asked, 6_000).split("\n")
    ]
    yield el("div", el("b", "The question"), *lines, class_="question")
    yield from _evidence(listed, item, result)
    yield _given(item, given) if given else None
    if not request.is_export:
        yield el("p", id="trouble", class_="failed", role="alert")
        yield _form(request, item, listed.key, graders, by, given)
        yield _settle_form(request, listed.key, graders, by)


def _around(key: str, graders: Sequence[str], by: str, at: int, total: int) -> Element:
    before = (
        el("a", "← before", href=_address(key, graders, by, at=at - 1), id="before", rel="prev") if at > 1 else None
    )
    after = (
        el("a", "next →", href=_address(key, graders, by, at=at + 1), id="after", rel="next") if at < total else None
    )
    keys = el("span", "keys: j k next, before · p pass, f fail, then a reason · Enter records", class_="soft")
    return el("nav", before, after, keys, class_="around", aria_label="outputs")


def _evidence(listed: RunRow, item: ReviewItem, result: Result) -> Iterator[Node]:
    """Yield what a person needs for a verdict: prompt, answer, tool calls, files."""
    budget, trace = TextBudget(), result.trace
    prompt = el("div", el("h2", "Prompt"), budget.text(trace.input, MOST_TEXT))
    answer = el("div", el("h2", "Answer"), budget.text(trace.output or "(nothing)", MOST_TEXT))
    yield el("div", prompt, answer, class_="talk")
    if trace.tool_events is None:
        yield soft("Tool calls were not recorded.")
    elif trace.tool_events:
        steps = [step for step in steps_of(trace) if step.call]
        yield el("h2", plural(len(steps), "tool call"))
        yield transcript(steps, 0, budget, call_address(listed.key, item.task, item.trial))
        yield soft(f"… and {len(steps) - STEPS} more on the trial's page") if len(steps) > STEPS else None
    links = [el("a", "the trial", href=task_address(listed.key, item.task, item.trial))]
    if result.snapshot:
        links.append(el("a", "its files", href=href("runs", listed.key, "files", id=item.task, trial=item.trial)))
    yield el("nav", *links, class_="around", aria_label="more about it")


def _given(item: ReviewItem, given: HumanVerdict) -> Element:
    grader_verdict = item.judged.said
    parts: list[Node] = ["Your verdict: ", mark(_MARKS[given.verdict]), el("b", f" {given.verdict}")]
    parts += [f": {short(given.reason, 400)}"] if given.reason else []
    if grader_verdict:
        parts += [". The grader's: ", mark(_MARKS[grader_verdict]), el("b", f" {grader_verdict}")]
    return el("p", *parts, ". A later verdict replaces it.", class_="given")


def _form(
    request: PageRequest, item: ReviewItem, key: str, graders: Sequence[str], by: str, given: HumanVerdict | None
) -> Element:
    hidden = _hidden(request, key, graders, name=item.grader, evidence=item.evidence, question=item.question)
    answers = [
        el("label", el("input", type="radio", name="answer", value=word, required=True, id=f"answer-{word}",
                       checked=given is not None and given.verdict == word), f" {sign} {word}", class_="answer")
        for word, sign in (("pass", "✓"), ("fail", "✗"))
    ]  # fmt: skip
    reason = el("input", type="text", name="reason", id="reason", maxlength=MOST_REASON, placeholder="why, in a line",
                aria_label="reason", value=given.reason if given else "", autocomplete="off")  # fmt: skip
    name = el("input", type="text", name="by", id="by", maxlength=MOST_NAME, value=by, placeholder="your name",
              aria_label="your name", class_="name", autocomplete="off")  # fmt: skip
    choice = el("fieldset", el("legend", "your verdict"), *answers)
    return el(
        "form",
        *hidden,
        choice,
        reason,
        name,
        el("button", "record"),
        method="post",
        action="/review",
        class_="verdict-form",
        id="verdict-form",
    )


def _settle_form(request: PageRequest, key: str, graders: Sequence[str], by: str) -> Element:
    hidden = _hidden(request, key, graders, do="settle", by=by)
    return el(
        "form", *hidden, el("button", "grade the run again with the verdicts so far"), method="post", action="/review"
    )


def _hidden(request: PageRequest, key: str, graders: Sequence[str], **more: str) -> list[Element]:
    pairs = [("form_key", request.form_key), ("run", key), *(("grader", name) for name in graders), *more.items()]
    return [el("input", type="hidden", name=name, value=value) for name, value in pairs]


MOST_RUNS = 40


def runs_to_review(store: RunReader) -> Iterator[Node]:
    """Yield the newest runs that have something to review."""
    runs, _ = store.runs(RunFilter())
    rows = []
    for run in [run for run in runs if not run.problem][:MOST_RUNS]:
        people, judges = _asking(run)
        if people or judges:
            rows.append(_run_row(run, people, judges))
    if not rows:
        yield soft("No run here has a `human` grader or a judge.")
        return
    yield soft("People decide where a suite has a `human` grader; for a judge their verdicts show how reliable it is.")
    heads = [head_cell("run"), head_cell("started"), head_cell("people decide"), head_cell("check a judge")]
    yield grid("runs to review", heads, rows, class_="rows")


def _run_row(run: RunRow, people: list[str], judges: list[str]) -> Element:
    human = el("a", short(", ".join(people[:4]), 80), href=href("review", run=run.key)) if people else "–"
    links = [[el("a", short(name, 60), href=href("review", run=run.key, grader=[name])), " "] for name in judges[:8]]
    first = [el("td", run_link(run.key, run.suite or run.key)), el("td", day(run.started))]
    return el("tr", *first, el("td", human), el("td", *links))


def _asking(run: RunRow) -> tuple[list[str], list[str]]:
    """Return the names of a run's `human` graders, and of its judge graders."""
    try:
        suite = read_run_json(Path(run.folder)).suite
    except StoreError:
        return [], []
    people, judges = dict[str, None](), dict[str, None]()
    facts = stored_grader_facts(suite)
    for entry in suite.every_grader:
        kind = str(entry.get("type"))
        name = str(entry.get("name") or kind)
        if has_fact(facts, kind, "asks_people"):
            people.setdefault(name)
        elif has_fact(facts, kind, "asks_judge"):
            judges.setdefault(name)
    return list(people), list(judges)
