"""JUnit XML, as CI servers read it: a test case for each trial. Whatever an agent printed, the file is valid XML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from sys import intern
from xml.sax.saxutils import escape, quoteattr

from waza.model import Result, Run
from waza.reports.base import Report
from waza.reports.failed_checks import ending, faults, headline, missing_trials, trials_of
from waza.reports.interpretation import spot_of
from waza.reports.run_before import EarlierRun
from waza.runs.outcomes import duration_of, outcome_of, outcomes_of
from waza.runs.summary import Summary, summarize, trigger_verdict
from waza.runs.tasks import TaskSummary, by_task, summarize_tasks
from waza.untrusted.text import clipped, visible

MOST_OUTPUT = 20_000
"""How much of an agent's output a test case holds."""


class JunitReport(Report):
    """JUnit XML: a test case for each trial; undecided trials are errors, failed checks are the failure's text."""

    file = "junit.xml"

    def render(self, run: Run, before: EarlierRun | None = None) -> Iterator[bytes]:
        """Yield the file, a trial at a time."""
        tasks = summarize_tasks(run)
        summary = summarize(run, tasks=tasks)
        counts = _counts(run, tasks, summary)
        yield b'<?xml version="1.0" encoding="UTF-8"?>\n'
        yield _open("testsuites", {"name": run.name} | counts)
        yield _open("testsuite", {"name": _suite_name(run)} | counts | {"timestamp": run.started_at, "id": run.id})
        yield _properties(_about(run, summary))
        for task, results in by_task(run, tasks):
            known: set[int] = set()
            for result in results:
                known.add(result.trial)
                yield _test_case(run, task, result)
            for trial in missing_trials(task, known):
                attributes = _attributes(run, task, trial) | {"time": "0.000"}
                yield _element("testcase", attributes, _problem("error", "not run", "not_run", "").decode())
        if summary.triggers is not None:
            yield _trigger_case(run, summary)
        yield b"</testsuite>\n</testsuites>\n"


def _trigger_case(run: Run, summary: Summary) -> bytes:
    """Return all trigger tests as one test case: wrong answers are a matter of their gate."""
    status, why = trigger_verdict(summary)
    failure = b"" if status == "passed" else _problem("failure" if status == "failed" else "error", why, status, why)
    time = _time(sum(outcome.duration_ms for outcome in outcomes_of(run.triggers)))
    return _element(
        "testcase", {"classname": _suite_name(run), "name": "trigger tests", "time": time}, failure.decode()
    )


def _counts(run: Run, tasks: Sequence[TaskSummary], summary: Summary) -> dict[str, str]:
    statuses: list[str] = [intern(outcome.status) for outcome in outcomes_of(run.results)]
    time = sum(outcome.duration_ms for some in (run.results, run.triggers) for outcome in outcomes_of(some))
    statuses += [trigger_verdict(summary)[0]] if summary.triggers else []
    not_run = sum(task.not_run for task in tasks)
    return {
        "tests": str(len(statuses) + not_run),
        "failures": str(statuses.count("failed")),
        "errors": str(statuses.count("error") + not_run),
        "skipped": str(statuses.count("skipped")),
        "time": _time(time),
    }


def _suite_name(run: Run) -> str:
    return f"{run.name} [{run.model}]" if run.model else run.name


def _about(run: Run, summary: Summary) -> dict[str, object]:
    interval = summary.success_rate_ci
    metrics: dict[str, object] = {f"metric.{metric.name}": metric.value for metric in summary.metrics}
    metrics |= {f"metric.{metric.name}.note": metric.note for metric in summary.metrics if metric.note}
    return metrics | {
        "run": run.id,
        "engine": run.engine,
        "model": run.model,
        "skill": run.skill,
        "complete": "true" if run.complete else "false",
        "tasks": summary.total_tests,
        "tasks_passed": summary.succeeded,
        "pass_rate": summary.success_rate,
        "pass_rate_low": interval.lower if interval else None,
        "pass_rate_high": interval.upper if interval else None,
        "decided_rate": summary.decided_rate if summary.errors else None,
        "score": summary.weighted_score,
        "exit_code": summary.exit_code,
    }


def _test_case(run: Run, task: TaskSummary, result: Result) -> bytes:
    attributes = _attributes(run, task, result.trial)
    attributes |= {"assertions": str(sum(len(grade.checks) for grade in result.grades))}
    attributes |= {"time": _time(duration_of(result))}
    inner = _properties(_trial_facts(task, result)) + _verdict(result)
    if result.status != "passed" and result.trace.output:
        inner += _element("system-out", {}, _text(clipped(result.trace.output, MOST_OUTPUT)))
    if result.status != "passed" and result.trace.error:
        inner += _element("system-err", {}, _text(clipped(result.trace.error, MOST_OUTPUT)))
    return _element("testcase", attributes, inner.decode())


def _attributes(run: Run, task: TaskSummary, trial: int) -> dict[str, str]:
    """Return what names a test case: the same from run to run, so that CI servers can follow it."""
    name = f"{task.id} (trial {trial})" if trials_of(task) > 1 else task.id
    spot = spot_of(run, task.id)
    where = {"file": spot.relative_to(Path.cwd()), "line": str(spot.line)} if spot else {}
    return {"classname": _suite_name(run), "name": name} | where


def _trial_facts(task: TaskSummary, result: Result) -> dict[str, object]:
    outcome = outcome_of(result)
    return {
        "score": outcome.score.weighted,
        "tags": ", ".join(task.tags),
        "golden": "true" if task.golden else "",
        "tokens": outcome.usage.total_tokens if outcome.usage else None,
        "cost_usd": outcome.usage.cost_usd if outcome.usage else None,
        "attempts": result.attempts if result.attempts > 1 else None,
        "tool_calls": None if result.trace.tool_events is None else len(result.trace.tool_events),
    }


def _verdict(result: Result) -> bytes:
    if result.status == "passed":
        return b""
    if result.status == "skipped":
        return _element("skipped", {"message": result.reason or "not graded"})
    kind = "failure" if result.status == "failed" else "error"
    return _problem(kind, headline(result), result.reason or result.status, _failure_text(result))


def _problem(kind: str, message: str, reason: str, text: str) -> bytes:
    return _element(kind, {"message": clipped(message, 300), "type": clipped(reason, 100)}, _text(text))


def _failure_text(result: Result) -> str:
    """Return every check that did not hold, with what was expected and what was there."""
    lines = [*([result.reason] if result.reason else []), *ending(result)]
    for fault in faults(result):
        lines.append(f"{'✗' if fault.is_failure else '?'} {fault.grader}: {fault.words}")
        lines += [f"    expected: {fault.expected}"] if fault.expected is not None else []
        lines += [f"    found:    {fault.found}"] if fault.found is not None else []
    return "\n".join(lines)


def _properties(facts: dict[str, object]) -> bytes:
    known = {name: value for name, value in facts.items() if value not in (None, "")}
    inner = b"".join(_element("property", {"name": name, "value": str(value)}) for name, value in known.items())
    return _element("properties", {}, inner.decode()) if known else b""


def _open(name: str, attributes: dict[str, str]) -> bytes:
    return f"<{name}{_written(attributes)}>\n".encode()


def _element(name: str, attributes: dict[str, str], inner: str = "") -> bytes:
    """Return an element; `inner` is XML already."""
    return f"<{name}{_written(attributes)}>{inner}</{name}>\n".encode()


def _written(attributes: dict[str, str]) -> str:
    return "".join(f" {name}={quoteattr(visible(value, lines=True))}" for name, value in attributes.items())


def _text(text: str) -> str:
    return escape(visible(text, lines=True))


def _time(ms: float) -> str:
    return f"{ms / 1000:.3f}"
