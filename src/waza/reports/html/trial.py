"""The pages of one task and one tool call: all trials, and one in full with grades, transcript and files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from waza.model import JSON, Result, Trace
from waza.reports.failed_checks import Fault, faults, shown_value, trials_of
from waza.reports.html.charts import placed, timeline
from waza.reports.html.components import (
    badge,
    count,
    fold,
    grid,
    head_cell,
    interval,
    mark,
    money,
    number,
    pager,
    soft,
    task_address,
)
from waza.reports.html.grades import grades, numbers_of
from waza.reports.html.markup import Element, Node, TextBudget, el, href, short
from waza.reports.html.steps import STEPS, TraceStep, call_address, page_of, steps_of, transcript
from waza.reports.html.view import OpenRun, PageRequest, TrialMarks, View
from waza.reports.interpretation import times_of
from waza.runs.grader_facts import FactsByType, has_fact, stored_grader_facts
from waza.runs.outcomes import TrialOutcome, mock_calls, outcome_of
from waza.runs.tasks import TaskSummary
from waza.untrusted.json import encode
from waza.untrusted.text import percent, plural, score, seconds

MOST_TEXT = 16_000
MOST_FAULTS = 12
MOST_PROMPTS = 50
TALK_BYTES, GRADES_BYTES, TRAJECTORY_BYTES = 150_000, 250_000, 300_000
"""Separate byte budgets, so that none of the three crowds out another."""
MOST_FILES = 20
MOST_MOCKED = 100
MOST_TRIALS = 100
"""Trials listed on one page, those around the one that is shown."""
MOST_GRADERS = 12
MOST_OF_A_VALUE = 100_000


class LeftFiles(NamedTuple):
    """The files that a trial left in its workspace."""

    paths: Sequence[str] = ()
    is_empty: bool = False
    error: str = ""
    """Why they cannot be listed."""


def task_page(
    request: PageRequest,
    opened: OpenRun,
    task: TaskSummary,
    outcomes: Sequence[TrialOutcome],
    result: Result | None = None,
    marks: Sequence[TrialMarks] = (),
    left: LeftFiles | None = None,
) -> View:
    """Return a task's page with all its trials and one of them, `result`, in full; None where none has ended."""
    listed = opened.listed
    crumbs = [("Runs", href()), (listed.suite or listed.key, href("runs", listed.key))]
    body: list[Node] = [*_top(task, listed.key)]
    if result is None:
        body.append(soft("No trial of this task has a result yet."))
        return View(title=task.id, body=body, crumbs=crumbs)
    chosen = next(one for one in outcomes if one.trial == result.trial)
    body.append(_trials(listed.key, outcomes, chosen, marks))
    can_review = request.can_review and _asks_people(result, stored_grader_facts(opened.run.suite))
    body.append(_around(listed.key, outcomes, chosen, result.task_id, can_review=can_review))
    body += _trial(request, listed.key, result, left)
    return View(title=task.id, body=body, crumbs=crumbs, scripts=("trial.js",))


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


def _trials(key: str, outcomes: Sequence[TrialOutcome], chosen: TrialOutcome, found: Sequence[TrialMarks]) -> Node:
    """Return every trial with the verdict of each grader; of very many those around the one that is shown."""
    if len(outcomes) < 2:
        return None
    place = outcomes.index(chosen)
    start = max(0, min(place - MOST_TRIALS // 2, len(outcomes) - MOST_TRIALS))
    shown = outcomes[start : start + MOST_TRIALS]
    marks = {one.trial: one for one in found}
    graders = list(dict.fromkeys(one.name for trial in marks.values() for one in trial.marks))
    head: list[Node] = [head_cell("trial")]
    head += [
        el("th", short(name, 24), scope="col", class_="grader", title=short(name, 200))
        for name in graders[:MOST_GRADERS]
    ]
    head += [head_cell(word, is_number=True) for word in ("score", "time", "calls", "tokens", "cost")]
    rows = [_row(key, one, marks.get(one.trial), graders[:MOST_GRADERS], one is chosen) for one in shown]
    note = f"trials {shown[0].trial}–{shown[-1].trial} of {len(outcomes)}" if len(shown) < len(outcomes) else ""
    return [grid("trials", head, rows, class_="matrix trials"), soft(note) if note else None]


def _row(key: str, one: TrialOutcome, marks: TrialMarks | None, graders: list[str], is_here: bool) -> Element:
    link = el("a", mark(one.status), f" {one.trial}", href=task_address(key, one.task_id, one.trial),
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


def _around(
    key: str, outcomes: Sequence[TrialOutcome], chosen: TrialOutcome, task_id: str, *, can_review: bool
) -> Node:
    """Return links to the trial before and after, and to the review of this one."""
    place = outcomes.index(chosen)

    def to(which: int) -> str:
        return task_address(key, task_id, outcomes[which].trial)

    before = el("a", f"← trial {outcomes[place - 1].trial}", href=to(place - 1), rel="prev") if place else None
    last = place + 1 == len(outcomes)
    after = None if last else el("a", f"trial {outcomes[place + 1].trial} →", href=to(place + 1), rel="next")
    review = el("a", "review", href=href("review", run=key)) if can_review else None
    links = [link for link in (before, after, review) if link is not None]
    return el("nav", *links, class_="around", aria_label="trials") if links else None


def trial_address(key: str, task: str, trial: int) -> str:
    """Return where a trial is shown, ready for one more part of the query."""
    return href("runs", key, "task", id=task, trial=trial) + "&"


def _trial(request: PageRequest, key: str, result: Result, left: LeftFiles | None) -> Iterator[Node]:
    """Yield a trial's part of the page."""
    address = trial_address(key, result.task_id, result.trial)
    talk = TextBudget(TALK_BYTES)
    steps = steps_of(result.trace)
    skip = _skip(request, steps)
    yield el("h2", f"Trial {result.trial} ", badge(result.status), id="trial")
    yield soft(*_facts(result), *_sections(result))
    if result.reason:
        yield el("p", short(result.reason, 1_000), class_="error")
    if result.trace.crash is not None and result.trace.crash.stderr:
        yield [el("h3", "Standard error"), talk.text(result.trace.crash.stderr, MOST_TEXT)]
    yield _first_faults(result, talk)
    yield _talk(result.trace, talk)
    yield from _timeline(result, steps, skip, address)
    yield el("h2", "Grades", id="grades")
    yield grades(result, address, TextBudget(GRADES_BYTES))
    yield from _transcript(request, key, result, steps, skip, address)
    yield _files(key, result, left) if left is not None else None
    yield from _more(result.trace, talk)


def _facts(result: Result) -> Iterator[Node]:
    """Yield a trial in numbers."""
    outcome, trace = outcome_of(result), result.trace
    usage = trace.usage
    facts = [f"score {score(outcome.score.weighted)}", times_of(outcome)]
    facts.append(
        "tool calls not recorded" if trace.tool_events is None else plural(len(trace.tool_events), "tool call")
    )
    if usage is not None:
        facts += [plural(usage.turns, "turn")] if usage.turns is not None else []
        parts = f"{count(usage.input_tokens)} in, {count(usage.output_tokens)} out"
        facts += [f"{count(usage.total_tokens)} tokens ({parts})"] if usage.least_tokens is not None else []
        facts += [money(float(usage.cost_usd))] if usage.cost_usd is not None else []
    facts += [f"{result.attempts} attempts"] if result.attempts > 1 else []
    yield " · ".join(facts)


def _sections(result: Result) -> Iterator[Node]:
    """Yield links to the parts of the page."""
    for name in ("grades", "transcript", *(["files"] if result.snapshot else [])):
        yield " · "
        yield el("a", name, href=f"#{name}")


def _first_faults(result: Result, budget: TextBudget) -> Node:
    failed = faults(result)
    if not failed:
        return None
    numbers = numbers_of(result)
    items = [_fault(fault, numbers.get(fault.grader), budget) for fault in failed[:MOST_FAULTS]]
    more = len(failed) - MOST_FAULTS
    rest = soft(f"… and {plural(more, 'more check')} below") if more > 0 else None
    return [el("h3", "Failed checks"), el("ul", *items, class_="faults"), rest]


def _fault(fault: Fault, number: int | None, budget: TextBudget) -> Element:
    name = short(fault.grader, 80) or "(no name)"
    who: Node = name if number is None else el("a", name, href=f"#grade-{number}")
    status = "failed" if fault.is_failure else "error"
    return el("li", mark(status), " ", el("b", who), ": ", budget.line(fault.words, 400))


def _talk(trace: Trace, budget: TextBudget) -> Node:
    """Return each prompt and its answer, side by side on a wide screen."""
    turns = trace.turns or [trace]
    shown: list[Node] = []
    for turn_number, turn in enumerate(turns[:MOST_PROMPTS], 1):
        place = f" {turn_number} of {len(turns)}" if len(turns) > 1 else ""
        # The error of the last turn, such as a checkpoint that stopped the conversation, is on the whole trace.
        error = trace.error if turn_number == len(turns) else turn.error
        shown.append(_prompt_and_answer(turn, place, error, budget))
    if len(turns) > MOST_PROMPTS:
        shown.append(soft(f"… and {plural(len(turns) - MOST_PROMPTS, 'more prompt')} in the transcript"))
    return shown


def _prompt_and_answer(turn: Trace, place: str, error: str | None, budget: TextBudget) -> Element:
    prompt = [el("h3", f"Prompt{place}"), budget.text(turn.input, MOST_TEXT) if turn.input else soft("nothing")]
    answer: list[Node] = [
        el("h3", f"Answer{place}"),
        budget.text(turn.output, MOST_TEXT) if turn.output else soft("nothing"),
    ]
    if error:
        answer += [el("h3", "Error"), budget.text(error, MOST_TEXT)]
    return el("div", el("div", *prompt), el("div", *answer), class_="talk")


def _skip(request: PageRequest, steps: Sequence[TraceStep]) -> int:
    """Return where the requested page of steps begins, by its offset or by a call on it."""
    wanted = request.number("call", 0)
    skip = page_of(steps, wanted) if wanted else request.number("skip", 0)
    return min(skip - skip % STEPS, max(0, (len(steps) - 1) // STEPS * STEPS))


def _timeline(result: Result, steps: Sequence[TraceStep], skip: int, address: str) -> Iterator[Node]:
    trace = result.trace
    yield el("h2", "Timeline", id="timeline")
    if trace.tool_events is None:
        yield soft("Tool calls were not recorded.")
    elif not trace.tool_events:
        yield soft("No tool was called.")
    else:
        numbers = [step.call for step in steps[skip : skip + STEPS] if step.call]
        first, last = min(numbers, default=0), max(numbers, default=0)
        yield timeline(placed(trace.tool_events, trace.duration_ms), first, last, address)


def _transcript(
    request: PageRequest, key: str, result: Result, steps: Sequence[TraceStep], skip: int, address: str
) -> Iterator[Node]:
    yield el("h2", "Transcript", id="transcript")
    yield _keys()
    pages = pager(address, len(steps), skip, STEPS, "steps")
    whole = call_address(key, result.task_id, result.trial)
    yield pages
    yield transcript(steps, skip, TextBudget(TRAJECTORY_BYTES), whole, request.number("call", 0))
    yield pages


def _keys() -> Element:
    every = [el("button", f"{word} all", type="button", id=f"{word}-all") for word in ("open", "close")]
    keys = el("span", " keys: j k step by step, n next that failed, o open or close all", class_="soft")
    return el("p", every[0], " ", every[1], keys, class_="only-screen")


def _files(key: str, result: Result, left: LeftFiles) -> Node:
    """Return the files that were left, by name, and where their contents are shown."""
    head = el("h2", "Files", id="files")
    if left.is_empty:
        return [head, soft("The workspace was empty.")]
    address = href("runs", key, "files", id=result.task_id, trial=result.trial)
    changed = el("p", el("a", "what changed against the fixture", href=address))
    if left.error:
        return [head, soft(f"Not all files were stored: {short(left.error, 300)}"), changed]
    items = [
        el(
            "li",
            el(
                "a", short(path, 200), href=href("runs", key, "files", id=result.task_id, trial=result.trial, path=path)
            ),
        )
        for path in left.paths[:MOST_FILES]
    ]
    rest = len(left.paths) - MOST_FILES
    more = soft(f"… and {plural(rest, 'more file')}") if rest > 0 else None
    return [head, el("ul", *items, class_="files"), more, changed]


def _more(trace: Trace, budget: TextBudget) -> Iterator[Node]:
    """Yield the rest of a trace: mock calls, skills, and its other fields."""
    calls = mock_calls(trace)
    if calls:
        lines = "\n".join(encode(call).decode() for call in calls[:MOST_MOCKED])
        more = f"\n… and {len(calls) - MOST_MOCKED} more" if len(calls) > MOST_MOCKED else ""
        yield fold(plural(len(calls), "call of mocks"), budget.text(lines + more, MOST_TEXT))
    if trace.skill_invocations:
        names = ", ".join(skill.name for skill in trace.skill_invocations[:100])
        yield fold(plural(len(trace.skill_invocations), "skill used"), budget.text(names, 4_000))
    facts: dict[str, JSON] = {
        "status": trace.status,
        "engine": trace.engine,
        "model": trace.model,
        "session": trace.session_id,
    }
    facts |= {"outcome": {key: value for key, value in trace.outcome.items() if key != "mocks"}, **trace.extra}
    shown = {key: value for key, value in facts.items() if value not in (None, "", {})}
    yield fold("the rest of the record", budget.text(encode(shown).decode(), 8_000))


def call_page(opened: OpenRun, result: Result, number: int) -> View:
    """Return the page of one tool call of a trial, with as much of its arguments and result as fits."""
    events, key, budget = result.trace.tool_events or [], opened.listed.key, TextBudget()
    task, trial, event = result.task_id, result.trial, events[number - 1]
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
        body += [el("h2", label), budget.text(text, MOST_OF_A_VALUE)] if text else []
    crumbs = [("Runs", href()), (opened.listed.suite or key, href("runs", key)), (f"{task}, trial {trial}", back)]
    return View(title=f"call {number}", body=body, crumbs=crumbs)
