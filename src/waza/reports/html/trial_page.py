"""One trial in HTML: what did not hold, what was asked and answered, and each step the agent took, folded."""

from __future__ import annotations

from waza.model import Result, ToolEvent
from waza.reports.failed_checks import Fault, ending, faults, headline, shown_value
from waza.reports.html.elements import fold, pre, text
from waza.reports.interpretation import times_of
from waza.reports.judging import split_jury
from waza.runs.outcomes import outcome_of
from waza.runs.tool_use import mock_calls
from waza.untrusted.json import encode
from waza.untrusted.text import plural, score, seconds

MARKS = {"passed": "✓", "failed": "✗", "error": "?", "skipped": "–"}
MOST_TEXT = 20_000
MOST_OF_A_CALL = 4_000
MOST_CALLS = 200
MOST_EVENTS = 500


def mark(status: str) -> str:
    """Return a status as a coloured mark."""
    return f'<span class="{status}">{MARKS[status]}</span>'


def trial(result: Result, *, is_open: bool = False) -> str:
    """Return a trial, folded."""
    outcome = outcome_of(result)
    facts = f"trial {result.trial} · score {score(outcome.score.weighted)} · {times_of(outcome)}"
    why = "" if result.status == "passed" else f" · {text(headline(result), 160)}"
    parts = [_fault(fault) for fault in faults(result)]
    parts += [f"<p>{text(result.reason, 1_000)}</p>\n"] if result.reason else []
    parts += [f"{pre(chr(10).join(ended), MOST_TEXT)}\n"] if (ended := ending(result)) else []
    for label, words in (("asked", result.trace.input), ("answered", result.trace.output)):
        parts.append(f"<h3>{label}</h3>\n{pre(words, MOST_TEXT)}\n" if words else "")
    parts += [f"<h3>error</h3>\n{pre(result.trace.error, MOST_TEXT)}\n"] if result.trace.error else []
    parts += [_grades(result), _calls(result.trace.tool_events), _mock_calls(result), _transcript(result)]
    return fold(f"{mark(result.status)} {facts}{why}", "".join(parts), is_open=is_open)


def _fault(fault: Fault) -> str:
    kind = "failed" if fault.is_failure else "error"
    values = "".join(
        f'<p class="soft">{label}</p>\n{pre(value, MOST_OF_A_CALL)}\n'
        for label, value in (("expected", fault.expected), ("found", fault.found))
        if value is not None
    )
    claim = f"<p>{mark(kind)} <b>{text(fault.grader)}</b>: {text(fault.words, 2_000)}</p>\n"
    return f'<div class="fault {kind}">{claim}{values}</div>\n'


def _grades(result: Result) -> str:
    """Return every grade with its checks, those that held too."""
    rows = []
    for grade in result.grades:
        rows.append(f"<p>{mark(grade.status)} <b>{text(grade.name)}</b> {text(grade.type)} {score(grade.score)}</p>\n")
        rubric = grade.details.get("rubric")
        if isinstance(rubric, dict):
            words = " ".join(str(rubric.get(key) or "") for key in ("name", "version", "description"))
            rows.append(f'<p class="soft">&emsp;rubric {text(words, 600)}</p>\n')
        rows += [
            f"<p>&emsp;{mark({True: 'passed', False: 'failed', None: 'error'}[check.ok])} {text(check.claim)}</p>\n"
            for check in grade.checks
        ]
        rows += [f'<p class="soft">&emsp;{text(split, 2_000)}</p>\n'] if (split := split_jury(grade)) else []
    return fold(plural(len(result.grades), "grade"), "".join(rows)) if rows else ""


def _calls(events: list[ToolEvent] | None) -> str:
    if events is None:
        return '<p class="soft">tool calls were not recorded</p>\n'
    if not events:
        return '<p class="soft">no tool was called</p>\n'
    parts = [f"<h3>{plural(len(events), 'tool call')}</h3>\n"]
    parts += [_call(number, event) for number, event in enumerate(events[:MOST_CALLS], 1)]
    if len(events) > MOST_CALLS:
        parts.append(f'<p class="soft">… and {len(events) - MOST_CALLS} more</p>\n')
    return "".join(parts)


def _call(number: int, event: ToolEvent) -> str:
    args = shown_value(event.args, MOST_OF_A_CALL) or ""
    took = f" · {seconds(event.duration_ms)}" if event.duration_ms is not None else ""
    failed = "" if event.success else ' · <span class="failed">failed</span>'
    inner = f'<p class="soft">arguments</p>\n{pre(args, MOST_OF_A_CALL)}\n'
    for label, value in (("result", shown_value(event.result, MOST_OF_A_CALL)), ("error", event.error)):
        inner += f'<p class="soft">{label}</p>\n{pre(value, MOST_OF_A_CALL)}\n' if value else ""
    return fold(f"{number}. <b>{text(event.tool_name, 100)}</b> {text(args, 100)}{took}{failed}", inner)


def _mock_calls(result: Result) -> str:
    """Return what mocks were asked, a line each; those that no answer fitted say so."""
    calls = mock_calls(result.trace)
    if not calls:
        return ""
    lines = [encode(call).decode() for call in calls[:MOST_CALLS]]
    lines += [f"… and {len(calls) - MOST_CALLS} more"] if len(calls) > MOST_CALLS else []
    return fold(plural(len(calls), "mock call"), pre("\n".join(lines), MOST_TEXT))


def _transcript(result: Result) -> str:
    events = result.trace.events or []
    if not events:
        return ""
    lines = [encode(event).decode() for event in events[:MOST_EVENTS]]
    lines += [f"… and {len(events) - MOST_EVENTS} more"] if len(events) > MOST_EVENTS else []
    return fold(f"transcript: {plural(len(events), 'event')}", pre("\n".join(lines), 5 * MOST_TEXT))
