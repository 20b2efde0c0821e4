"""The page of the `html` report: numbers, plots, failed checks, every trial. No script, nothing loaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from waza.compact import ordered
from waza.model import Result, Run, ToolEvent
from waza.reports.failed_checks import Fault, ending, faults, headline, places_of, shown_value, trials_of
from waza.reports.html.charts import durations, rates
from waza.reports.html.components import (
    document_nodes,
    fold,
    grid,
    head_cell,
    interval,
    mark,
    number,
    soft,
    tile,
    tiles,
)
from waza.reports.html.grades import evidence_of
from waza.reports.html.markup import PAGE_END, Element, Node, TextBudget, el, long_text, page_head, render, short
from waza.reports.impact import impact_document
from waza.reports.interpretation import costs_of_run, headline_rate, repeats_line, times_of
from waza.reports.judging import judging_lines, split_jury
from waza.reports.run_before import EarlierRun
from waza.reports.run_sections import change_document, metrics_document
from waza.reports.triggers import trigger_document
from waza.runs.impact import stored_impact
from waza.runs.outcomes import mock_calls, outcome_of
from waza.runs.summary import Summary, summarize
from waza.runs.tasks import TaskSummary, summarize_tasks
from waza.untrusted.json import encode
from waza.untrusted.text import percent, plural, score, seconds

OPEN_TASKS = 3
"""The first trial of this many tasks that did not pass is unfolded."""
MOST_TEXT = 20_000
MOST_OF_A_CALL = 4_000
MOST_CALLS = 200
MOST_EVENTS = 500
_NAME = 300
"""Characters of a name or a claim."""
_ORDER = {"failed": 0, "error": 1, "passed": 2, "skipped": 3}
_CHECK_STATUS = {True: "passed", False: "failed", None: "error"}


def page(run: Run, before: EarlierRun | None, most_bytes: int) -> Iterator[bytes]:
    """Yield the page, a trial at a time; trials beyond `most_bytes` are counted, not shown."""
    tasks = summarize_tasks(run)
    summary = summarize(run, tasks=tasks)
    worst_first = ordered(tasks, lambda task: _ORDER[task.status])
    yield page_head(f"{run.name} · waza").encode()
    yield _encoded([*_top(run, summary), *document_nodes(metrics_document(summary), level=2)])
    if before:
        yield _encoded(list(document_nodes(change_document(before, tasks, most=len(tasks)), level=2)))
    if impact := stored_impact(run):
        yield _encoded(list(document_nodes(impact_document(impact, whole=True), level=2)))
    if summary.triggers:
        yield _encoded(list(document_nodes(trigger_document(run, summary.triggers, detail="whole"), level=2)))
    yield _encoded([rates(tasks), _task_table(worst_first) if tasks else None])
    yield from _trials(run, worst_first, most_bytes)
    yield _encoded(durations(run))
    yield PAGE_END.encode()


def _encoded(node: Node) -> bytes:
    return (render(node) + "\n").encode()


def _top(run: Run, summary: Summary) -> Iterator[Node]:
    facts = [run.engine, *([run.model] if run.model else []), run.started_at, run.id]
    status = {0: "passed", 1: "failed"}.get(summary.exit_code, "error")
    yield el("h1", mark(status), " ", short(run.name, _NAME))
    yield soft(" · ".join(short(fact, _NAME) for fact in facts if fact))
    if not run.complete:
        yield el("p", "The run is not complete: some trials are missing.", class_="error")
    yield [el("p", short(warning, 600), class_="error") for warning in summary.warnings]
    yield tiles(*_tiles(summary))
    yield soft(repeats_line(run)) if run.results else None
    yield [soft(short(line, 600)) for line in judging_lines(run)]


def _tiles(summary: Summary) -> Iterator[Element]:
    has_tasks = summary.total_tests or summary.triggers is None
    if has_tasks:
        rate, found = headline_rate(summary)
        ci: Node = [" (95 % interval ", interval(found), ")"] if found else None
        passed = f"{summary.succeeded} of {summary.decided if summary.errors else summary.total_tests}"
        yield tile("decided tasks passed" if summary.errors else "passed", passed, [percent(rate), ci])
    if summary.errors:
        low, high = summary.rate_bounds
        yield tile("undecided", str(summary.errors), f"so {low * 100:.0f}–{percent(high)} of all pass")
    counts = ((summary.failed, "failed"), (summary.skipped, "not graded"))
    yield from (tile(noun, str(count), "of " + plural(summary.total_tests, "task")) for count, noun in counts if count)
    span = f"between {score(summary.score_low)} and {score(summary.score_high)}" if summary.undecided else ""
    if has_tasks:
        yield tile("score", score(summary.weighted_score), span or f"plain mean {score(summary.aggregate_score)}")
    yield tile("time", times_of(summary))
    if summary.agent_tokens is not None or summary.judge_tokens:
        judged = f"{summary.judge_tokens:,} of judging" if summary.judge_tokens else ""
        yield tile("tokens", f"{(summary.agent_tokens or 0) + summary.judge_tokens:,}", judged)
    total, parts = costs_of_run(summary)
    if total:
        yield tile("cost", total, parts.strip("()"))


def _task_table(tasks: Sequence[TaskSummary]) -> Node:
    rows = [_task_row(place, task) for place, task in enumerate(tasks)]
    names = ("", "task", "passed", "score", "time")
    heads = [head_cell(name, is_number=place > 1) for place, name in enumerate(names)]
    return [el("h2", "Tasks"), grid("tasks", heads, rows)]


def _task_row(place: int, task: TaskSummary) -> Element:
    link = el("a", short(task.id, _NAME), href=f"#task-{place}")
    flaky = [" ", el("b", "flaky")] if task.is_flaky else None
    tags = el("span", short(" ".join(task.tags), _NAME), class_="soft")
    return el(
        "tr",
        el("td", mark(task.status), class_="mark"),
        el("td", link, flaky, " ", tags),
        number(f"{task.passed} of {trials_of(task)}"),
        number(*_score(task)),
        number(seconds(task.duration_ms)),
    )


def _score(task: TaskSummary) -> list[Node]:
    """Return a task's score, with its 95 % interval where its trials differ."""
    ci = task.score_ci
    spread = el("span", f"({score(ci.lower)}–{score(ci.upper)})", class_="soft") if ci and ci.tells else None
    return [score(task.score.weighted), " " if spread else None, spread]


def _trials(run: Run, tasks: Sequence[TaskSummary], most_bytes: int) -> Iterator[bytes]:
    """Yield every trial, task by task, as long as the page does not grow too large."""
    places = places_of(run)
    size, left_out, title = 0, 0, ""
    for place, task in enumerate(tasks):
        has_failed = task.status in ("failed", "error")
        previous, title = title, "Failed checks" if has_failed else "Passed"
        heading = el("h2", title) if title != previous else None
        not_run = soft(f"{plural(task.not_run, 'trial')} not run") if task.not_run else None
        name = el("h3", mark(task.status), " ", short(task.id, _NAME), id=f"task-{place}")
        yield _encoded([heading, name, not_run])
        for position, result_place in enumerate(places.get(task.id, ())):
            if size > most_bytes:
                left_out += 1
                continue
            is_open = has_failed and place < OPEN_TASKS and not position
            piece = _encoded(_trial(run.results[result_place], is_open=is_open))
            size += len(piece)
            yield piece
    if left_out:
        yield _encoded(soft(f"{plural(left_out, 'more trial')} would make this page too large: waza show"))


def _trial(result: Result, *, is_open: bool) -> Element:
    """Return a trial, folded: failed checks, prompt and answer, grades, and each step the agent took."""
    outcome = outcome_of(result)
    facts = f" trial {result.trial} · score {score(outcome.score.weighted)} · {times_of(outcome)}"
    why = "" if result.status == "passed" else f" · {short(headline(result), 160)}"
    trace = result.trace
    parts: list[Node] = [_fault(fault) for fault in faults(result)]
    parts += [el("p", short(result.reason, 1_000))] if result.reason else []
    parts += [long_text("\n".join(lines), MOST_TEXT)] if (lines := ending(result)) else []
    for label, text in (("prompt", trace.input), ("answer", trace.output), ("error", trace.error)):
        parts += [el("h3", label), long_text(text, MOST_TEXT)] if text else []
    parts += [_grades(result), _calls(trace.tool_events)]
    calls, events = mock_calls(trace), trace.events or []
    parts += [_json_lines(plural(len(calls), "mock call"), calls, MOST_CALLS, MOST_TEXT)] if calls else []
    title = f"transcript: {plural(len(events), 'event')}"
    parts += [_json_lines(title, events, MOST_EVENTS, 5 * MOST_TEXT)] if events else []
    return fold([mark(result.status), facts, why], *parts, is_open=is_open)


def _fault(fault: Fault) -> Element:
    kind = "failed" if fault.is_failure else "error"
    claim = el("p", mark(kind), " ", el("b", short(fault.grader, _NAME)), f": {short(fault.words, 2_000)}")
    values = _labelled(("expected", fault.expected), ("found", fault.found))
    return el("div", claim, *values, class_=f"fault {kind}")


def _labelled(*texts: tuple[str, str | None]) -> Iterator[Node]:
    """Yield each text that there is below its label."""
    for label, text in texts:
        if text is not None:
            yield [soft(label), long_text(text, MOST_OF_A_CALL)]


def _grades(result: Result) -> Node:
    """Return every grade with all its checks."""
    rows: list[Node] = []
    for grade in result.grades:
        name = el("b", short(grade.name, _NAME))
        rows.append(el("p", mark(grade.status), " ", name, f" {short(grade.type, _NAME)} {score(grade.score)}"))
        rubric = grade.details.get("rubric")
        if isinstance(rubric, dict):
            words = " ".join(str(rubric.get(key) or "") for key in ("name", "version", "description"))
            rows.append(soft(f"\u2003rubric {short(words, 600)}"))
        for check in grade.checks:
            rows.append(el("p", "\u2003", mark(_CHECK_STATUS[check.ok]), f" {short(check.claim, _NAME)}"))
        rows.append(evidence_of(grade, TextBudget(MOST_TEXT)))
        rows += [soft(f"\u2003{short(split, 2_000)}")] if (split := split_jury(grade)) else []
    return fold(plural(len(result.grades), "grade"), *rows) if rows else None


def _calls(events: list[ToolEvent] | None) -> Node:
    if not events:
        return soft("tool calls were not recorded" if events is None else "no tool was called")
    calls = [_call(number, event) for number, event in enumerate(events[:MOST_CALLS], 1)]
    more = soft(f"… and {len(events) - MOST_CALLS} more") if len(events) > MOST_CALLS else None
    return [el("h3", plural(len(events), "tool call")), *calls, more]


def _call(number: int, event: ToolEvent) -> Element:
    args = shown_value(event.args, MOST_OF_A_CALL) or ""
    took = f" · {seconds(event.duration_ms)}" if event.duration_ms is not None else ""
    failed = None if event.success else [" · ", el("span", "failed", class_="failed")]
    result = shown_value(event.result, MOST_OF_A_CALL)
    inner = _labelled(("arguments", args), ("result", result or None), ("error", event.error or None))
    summary: Node = [f"{number}. ", el("b", short(event.tool_name, 100)), f" {short(args, 100)}{took}", failed]
    return fold(summary, *inner)


def _json_lines(title: str, entries: Sequence[object], most: int, most_text: int) -> Element:
    """Return JSON records folded, a line each."""
    lines = [encode(entry).decode() for entry in entries[:most]]
    lines += [f"… and {len(entries) - most} more"] if len(entries) > most else []
    return fold(title, long_text("\n".join(lines), most_text))
