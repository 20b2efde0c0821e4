"""One trial on a page: failed checks, prompt and answer, timeline, grades, transcript, files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from waza.files.snapshot import EMPTY, SnapshotFiles
from waza.model import JSON, Result, Trace
from waza.reports.failed_checks import Fault, faults
from waza.reports.html.charts import placed, timeline
from waza.reports.html.components import badge, count, fold, mark, money, pager, soft
from waza.reports.html.grades import grades, numbers_of
from waza.reports.html.markup import Element, Node, TextBudget, el, href, short
from waza.reports.html.steps import STEPS, TraceStep, call_address, page_of, steps_of, transcript
from waza.reports.interpretation import times_of
from waza.runs.folder import ARTIFACTS
from waza.runs.outcomes import mock_calls, outcome_of
from waza.server.store import OpenRun
from waza.server.views import PageRequest
from waza.untrusted.json import encode
from waza.untrusted.text import plural, score

MOST_TEXT = 16_000
MOST_FAULTS = 12
MOST_PROMPTS = 50
TALK_BYTES, GRADES_BYTES, TRAJECTORY_BYTES = 150_000, 250_000, 300_000
"""Separate byte budgets, so that none of the three crowds out another."""
MOST_FILES = 20
MOST_MOCKED = 100


def trial_address(key: str, task: str, trial: int) -> str:
    """Return where a trial is shown, ready for one more part of the query."""
    return href("runs", key, "task", id=task, trial=trial) + "&"


def trial_body(request: PageRequest, opened: OpenRun, result: Result) -> Iterator[Node]:
    """Yield a trial's part of the page."""
    address = trial_address(opened.listed.key, result.task_id, result.trial)
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
    yield from _transcript(request, opened, result, steps, skip, address)
    yield _files(opened, result)
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
    for number, turn in enumerate(turns[:MOST_PROMPTS], 1):
        place = f" {number} of {len(turns)}" if len(turns) > 1 else ""
        # The error of the last turn, such as a checkpoint that stopped the conversation, is on the whole trace.
        error = trace.error if number == len(turns) else turn.error
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
    request: PageRequest, opened: OpenRun, result: Result, steps: Sequence[TraceStep], skip: int, address: str
) -> Iterator[Node]:
    yield el("h2", "Transcript", id="transcript")
    yield _keys()
    pages = pager(address, len(steps), skip, STEPS, "steps")
    whole = call_address(opened.listed.key, result.task_id, result.trial)
    yield pages
    yield transcript(steps, skip, TextBudget(TRAJECTORY_BYTES), whole, request.number("call", 0))
    yield pages


def _keys() -> Element:
    every = [el("button", f"{word} all", type="button", id=f"{word}-all") for word in ("open", "close")]
    keys = el("span", " keys: j k step by step, n next that failed, o open or close all", class_="soft")
    return el("p", every[0], " ", every[1], keys, class_="only-screen")


def _files(opened: OpenRun, result: Result) -> Node:
    """Return the files that were left, by name, and where their contents are shown."""
    if not result.snapshot:
        return None
    head = el("h2", "Files", id="files")
    if result.snapshot == EMPTY:
        return [head, soft("The workspace was empty.")]
    try:
        paths = list(SnapshotFiles(opened.listed.path / ARTIFACTS, result.snapshot).paths())
    except OSError as error:
        return [
            head,
            soft(f"Not all files were stored: {short(error.strerror or str(error), 300)}"),
            _files_link(opened, result),
        ]
    items = [
        el(
            "li",
            el(
                "a",
                short(path, 200),
                href=href("runs", opened.listed.key, "files", id=result.task_id, trial=result.trial, path=path),
            ),
        )
        for path in paths[:MOST_FILES]
    ]
    more = soft(f"… and {plural(len(paths) - MOST_FILES, 'more file')}") if len(paths) > MOST_FILES else None
    return [head, el("ul", *items, class_="files"), more, _files_link(opened, result)]


def _files_link(opened: OpenRun, result: Result) -> Element:
    address = href("runs", opened.listed.key, "files", id=result.task_id, trial=result.trial)
    return el("p", el("a", "what changed against the fixture", href=address))


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
