"""The review page: people record pass or fail for outputs. The only page that writes, and only with `--review`.

The verdict of a grader or of another person is not shown before one has answered, so that it does not influence anyone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from waza.model import Result
from waza.reports.html.components import day, grid, head_cell, mark, progress, run_link, soft, task_address
from waza.reports.html.markup import Element, Node, TextBudget, el, href, short
from waza.reports.html.steps import STEPS, call_address, steps_of, transcript
from waza.reports.html.view import PageRequest, Query, RunRow, View
from waza.runs.verdicts import Answer, HumanVerdict
from waza.untrusted.text import plural

MOST_TEXT = 40_000
MOST_REASON = 2_000
MOST_NAME = 80
MARKS = {"pass": "passed", "fail": "failed"}


class ReviewGrade(Protocol):
    """A grader's verdict on an output."""

    @property
    def said(self) -> Answer | None:
        """Pass or fail; None where it decided nothing."""


class ReviewItem(Protocol):
    """One output that a person may give a verdict on."""

    @property
    def task(self) -> str:
        """The task."""

    @property
    def trial(self) -> int:
        """The trial."""

    @property
    def grader(self) -> str:
        """The grader that asks."""

    @property
    def asked(self) -> str:
        """The question for the person."""

    @property
    def question(self) -> str:
        """The hash of the question."""

    @property
    def evidence(self) -> str:
        """The hash of the evidence."""

    @property
    def judged(self) -> ReviewGrade:
        """The grader's verdict, not shown before the person has answered."""

    def verdict(self, answer: Answer, reason: str = "", reviewer: str = "") -> HumanVerdict:
        """Return a person's answer as it is recorded."""


class ReviewOutput(NamedTuple):
    """One output that a person judges, and where it is among those to review."""

    item: ReviewItem
    result: Result
    at: int
    """Its number, from 1."""
    total: int
    left: int
    """Outputs that this person has not judged."""
    title: str
    """The grader of the first output."""
    given: HumanVerdict | None
    """This person's verdict on it."""


def choice_page(asking: Iterable[tuple[RunRow, Sequence[str], Sequence[str]]]) -> View:
    """Return the page to choose a run on; each comes with its `human` graders and its judge graders."""
    return View(title="Review", body=[el("h1", "Review"), *_runs(asking)])


def review_page(request: PageRequest, listed: RunRow, output: ReviewOutput | None) -> View:
    """Return one output of a run with the form below it; None where there is nothing to review."""
    key = listed.key
    crumbs = [("Runs", href()), (listed.suite or key, href("runs", key)), ("Review", href("review"))]
    if output is None:
        return View(title=key, body=[el("h1", "Review"), _nothing(key)], crumbs=crumbs)
    body = [*_one(request, listed, output)]
    return View(title=output.title, body=body, crumbs=crumbs, scripts=("review.js",))


def asked_graders(query: Query) -> list[str]:
    """Return the graders that an address or a form names."""
    return [name for name in query.every("grader") if name][:20]


def review_address(key: str, graders: Sequence[str], by: str, **more: int | str) -> str:
    """Return where the outputs of a run are reviewed."""
    return href("review", run=key, grader=graders, by=by, **more)


def _nothing(key: str) -> Element:
    return soft(
        "There is nothing to review: the suite has no `human` grader. ",
        el("a", "Back to the run", href=href("runs", key)),
    )


def _one(request: PageRequest, listed: RunRow, output: ReviewOutput) -> Iterator[Node]:
    """Yield one output with the form below it."""
    graders, by = asked_graders(request.query), request.query.get("by")[:MOST_NAME]
    item, given, at, total = output.item, output.given, output.at, output.total
    yield el("h1", short(item.grader, 100), el("span", f" {at} of {total}", class_="soft"))
    yield progress(total - output.left, total)
    if request.query.get("done"):
        message = f"The run is graded again: {plural(request.number('done', 0), 'result')} changed."
        yield el("p", message, class_="passed", role="status")
    yield _around(listed.key, graders, by, at, total)
    lines = [
        el("p", f"• {line[2:]}" if line.startswith("- ") else line) for line in short(item.asked, 6_000).split("\n")
    ]
    yield el("div", el("b", "The question"), *lines, class_="question")
    yield from _evidence(listed, item, output.result)
    yield _given(item, given) if given else None
    if not request.is_export:
        yield el("p", id="trouble", class_="failed", role="alert")
        yield _form(request, item, listed.key, graders, by, given)
        yield _settle_form(request, listed.key, graders, by)


def _around(key: str, graders: Sequence[str], by: str, at: int, total: int) -> Element:
    def to(which: int) -> str:
        return review_address(key, graders, by, at=which)

    before = el("a", "← before", href=to(at - 1), id="before", rel="prev") if at > 1 else None
    after = el("a", "next →", href=to(at + 1), id="after", rel="next") if at < total else None
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
    parts: list[Node] = ["Your verdict: ", mark(MARKS[given.verdict]), el("b", f" {given.verdict}")]
    parts += [f": {short(given.reason, 400)}"] if given.reason else []
    if grader_verdict:
        parts += [". The grader's: ", mark(MARKS[grader_verdict]), el("b", f" {grader_verdict}")]
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


def _runs(asking: Iterable[tuple[RunRow, Sequence[str], Sequence[str]]]) -> Iterator[Node]:
    rows = [_run_row(run, people, judges) for run, people, judges in asking if people or judges]
    if not rows:
        yield soft("No run here has a `human` grader or a judge.")
        return
    yield soft("People decide where a suite has a `human` grader; for a judge their verdicts show how reliable it is.")
    heads = [head_cell("run"), head_cell("started"), head_cell("people decide"), head_cell("check a judge")]
    yield grid("runs to review", heads, rows, class_="rows")


def _run_row(run: RunRow, people: Sequence[str], judges: Sequence[str]) -> Element:
    human = el("a", short(", ".join(people[:4]), 80), href=href("review", run=run.key)) if people else "–"
    links = [[el("a", short(name, 60), href=href("review", run=run.key, grader=[name])), " "] for name in judges[:8]]
    first = [el("td", run_link(run.key, run.suite or run.key)), el("td", day(run.started))]
    return el("tr", *first, el("td", human), el("td", *links))
