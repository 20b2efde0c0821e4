"""The results file: the original's field tree (schema 1.5), with every grade, check and tool call added.

Old readers stay safe: what is undecided has `passed` false and `score` 0.0 where they read, and the truth is in
`grades[]`. It is strict JSON with its keys always in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import to_builtins

from waza.model import JSON, USAGE_NUMBERS, Attempt, Grade, Result, Run, SkillInvocation, ToolEvent, Trace, Usage
from waza.runs.impact import stored_impact
from waza.runs.impact_records import task_impacts, win_rates
from waza.runs.lazy_results import ProgressResults
from waza.runs.metrics import tool_metrics
from waza.runs.outcomes import cache_use, command_invocations, duration_of, shown_names
from waza.runs.partial import NOT_SELECTED
from waza.runs.summary import Metric, Summary, TaskSummary, summarize, summarize_tasks
from waza.runs.tasks import RunStatistics, by_task, statistics_of
from waza.runs.trigger_catalogue import catalogue_of
from waza.runs.triggers import TriggerAnswer, TriggerNumbers, TriggerSummary, answers_of
from waza.spending import Costs, Spending
from waza.untrusted.json import encode

SCHEMA_VERSION = "1.5"
AFTER_TURN = "after_turn"
"""The type of a grade that was given in the middle of a conversation."""
_RENAMED = {"args": "arguments", "result": "tool_result"}
"""Fields of our events, and what the original calls them in its transcript."""


def results_json(
    run: Run, tasks: Sequence[TaskSummary] | None = None, summary: Summary | None = None
) -> Iterator[bytes]:
    """Yield `results.json` piece by piece, a trial at a time; `tasks` and `summary` are its numbers, where known."""
    tasks = tasks or summarize_tasks(run)
    before, after = _about(run, summary or summarize(run, tasks=tasks), statistics_of(run, tasks))
    impact = stored_impact(run)
    after |= {"skill_impact": impact} if impact else {}
    yield _indented(before)[:-2] + b',\n  "tasks": ['
    separator = b"\n    "
    for pieces in _tasks(run, tasks, task_impacts(impact)):
        yield separator
        yield from pieces
        separator = b",\n    "
    yield (b"\n  ],\n" if tasks else b"],\n") + _indented(after)[2:] + b"\n"


def _tasks(run: Run, tasks: Sequence[TaskSummary], impacts: Mapping[str, dict[str, JSON]]) -> Iterator[Iterable[bytes]]:
    """Yield the text of each task in pieces; `impacts` is what the skill under test did for it, by its id."""
    if isinstance(run.results, ProgressResults) and not impacts:
        yield from ([text] for text in run.results.texts())
        return
    for task, trials in by_task(run, tasks):
        yield _task(task, map(_trial, trials), impacts.get(task.id, {}))


def _trial(result: Result) -> bytes:
    """Return a trial of a task."""
    return _indented(_run(result), b"\n        ")


def _indented(tree: dict[str, JSON], line: bytes = b"\n") -> bytes:
    return msgspec.json.format(encode(tree), indent=2).replace(b"\n", line)


def _about(run: Run, summary: Summary, statistics: RunStatistics) -> tuple[dict[str, JSON], dict[str, JSON]]:
    """Return the parts of the file before and after the tasks of a run."""
    return {
        "schemaVersion": SCHEMA_VERSION,
        "eval_id": run.id,
        "skill": run.skill,
        "eval_name": run.name,
        "timestamp": run.started_at,
        "config": _config(run),
        "summary": _summary(summary)
        | _statistics(summary, statistics)
        | _tool_metrics(run)
        | _pairwise(run)
        | _cached(run),
        "metrics": {metric.name: _metric(metric) for metric in summary.metrics},
    }, {
        "complete": run.complete,
        "metadata": {"fingerprint": run.fingerprint, "versions": run.versions} | _not_selected(run),
    } | trigger_tree(run, summary.triggers, _run)


def _not_selected(run: Run) -> dict[str, JSON]:
    """Return what the suite has beyond this run, where only a part of it was selected."""
    found = run.suite.not_selected
    return {NOT_SELECTED: to_builtins(found)} if found and (found.tasks or found.trigger_tests) else {}


def _config(run: Run) -> dict[str, JSON]:
    config = run.suite.config
    optional = ("judge_model", "reasoning_effort", "judge_reasoning_effort")
    return {
        "runs_per_test": config.trials,
        "model_id": run.model,
        "engine_type": run.engine,
        "timeout_sec": _whole(config.timeout_seconds),
    } | {key: value for key in optional if (value := getattr(config, key))}


def _cached(run: Run) -> dict[str, JSON]:
    """Return how many verdicts came from the judge cache, and how many of its entries were refused, where any did."""
    found = cache_use(run)
    counts = {"verdicts_from_cache": found.cached, "cache_entries_refused": found.refused}
    return {name: count for name, count in counts.items() if count}


def _pairwise(run: Run) -> dict[str, JSON]:
    rates = win_rates(run)
    return {"pairwise": rates} if rates else {}


def _summary(summary: Summary) -> dict[str, JSON]:
    tree: dict[str, JSON] = {name: getattr(summary, name) for name in _SUMMARY}
    tree["duration_ms"] = _whole(summary.duration_ms)
    for name in ("grader_duration_ms", "judge_duration_ms"):
        tree |= {} if (time := getattr(summary, name)) is None else {name: _whole(time)}
    if summary.groups:
        tree["groups"] = summary.groups
    if summary.usage is not None:
        tree["usage"] = _usage(summary.usage)
    if summary.costs is not None:
        tree["costs"] = _costs(summary.costs)
    if summary.agents_before is not None:
        tree["costs"]["agents_before"] = _spending(summary.agents_before)
    if summary.metrics:
        tree["metrics_score"] = summary.metrics_score
    return tree | {"warnings": summary.warnings}


def _costs(costs: Costs) -> dict[str, JSON]:
    """Return what was billed: every attempt of the agents, every request to the judges, and the sum."""
    whole: dict[str, JSON] = {"total_usd": costs.total_usd, "without_cost": costs.without_cost}
    for name, part in (("agent", costs.agent), ("judge", costs.judge)):
        whole[name] = _spending(part)
    return whole


def _spending(part: Spending) -> dict[str, JSON]:
    return {field: getattr(part, field) for field in part.__struct_fields__}


def _attempt(attempt: Attempt) -> dict[str, JSON]:
    """Return one attempt at a trial with what it was billed."""
    return {
        "status": attempt.status,
        **({"reason": attempt.reason} if attempt.reason else {}),
        "duration_ms": _whole(attempt.duration_ms),
        "costs": _costs(attempt.costs),
    }


def _statistics(summary: Summary, found: RunStatistics) -> dict[str, JSON]:
    """Return the intervals of a run and the statistics of its repeats, as far as there are any."""
    whole, repeated = found.whole, len(found.pass_hat_k) > 1
    tree: dict[str, JSON] = {
        **({"success_rate_ci": summary.success_rate_ci} if summary.success_rate_ci else {}),
        **({"success_rate_bounds": [whole.pass_rate_low, whole.pass_rate_high]} if whole.undecided else {}),
        **(
            {"decided_rate": summary.decided_rate, "decided_rate_ci": summary.decided_rate_ci}
            if whole.undecided
            else {}
        ),
        **({"bootstrap_ci": whole.score_ci} if whole.score_ci else {}),
        **({"pass_at_k": found.pass_at_k, "pass_hat_k": found.pass_hat_k} if repeated else {}),
        **({"flaky_tasks": found.flaky_tasks, "flakiness_percent": 100 * (found.flakiness or 0)} if repeated else {}),
        **({"by_tag": found.by_tag} if found.by_tag else {}),
    }
    return {"statistics": tree} if tree else {}


def _tool_metrics(run: Run) -> dict[str, JSON]:
    metrics = tool_metrics(run)
    return {} if metrics is None else {"tool_metrics": metrics}


_SUMMARY = (
    *("total_tests", "succeeded", "failed", "errors", "skipped", "not_run", "success_rate"),
    *("aggregate_score", "weighted_score", "min_score", "max_score", "std_dev"),
    *("undecided", "score_low", "score_high", "duration_ms", "exit_code"),
)


def _metric(metric: Metric) -> dict[str, JSON]:
    details = {"reason": metric.reason, "note": metric.note}
    present = {key: value for key, value in details.items() if value}
    return {
        "identifier": metric.name,
        "value": metric.value,
        "threshold": metric.threshold,
        "passed": metric.status == "passed",
        "weight": metric.weight,
        "status": metric.status,
        "low": metric.low,
        "high": metric.high,
    } | ({"details": present} if present else {})


def _task(task: TaskSummary, trials: Iterable[bytes], more: Mapping[str, JSON]) -> Iterator[bytes]:
    """Yield a task's text, a trial at a time; `more` follows its numbers."""
    text = _indented({**_task_tree(task, []), **more}, b"\n    ")
    before, _, after = text.partition(b'"runs": []')  # no text contains that: quotes are escaped
    yield before + b'"runs": ['
    separator = b"\n        "
    for trial in trials:
        yield separator
        yield trial
        separator = b",\n        "
    yield (b"\n      ]" if separator[:1] == b"," else b"]") + after


def _task_tree(task: TaskSummary, runs: Sequence[JSON]) -> dict[str, JSON]:
    return {
        "test_id": task.id,
        "display_name": task.name,
        **({"golden": True} if task.golden else {}),
        **({"tags": task.tags} if task.tags else {}),
        **({"metadata": task.metadata} if task.metadata else {}),
        "status": task.status,
        **({"reason": task.reason} if task.reason else {}),
        "runs": runs,
        "stats": _stats(task),
    }


def task_text(task: TaskSummary, results: Iterable[Result]) -> bytes:
    """Return a task with its trials as in the results file."""
    return _indented(_task_tree(task, [_run(result) for result in results]), b"\n    ")


def _stats(task: TaskSummary) -> dict[str, JSON]:
    total = task.passed + task.failed + task.errors
    stats: dict[str, JSON] = {
        "pass_rate": task.pass_rate,
        "flakiness_percent": 100 * min(task.passed, total - task.passed) / total if total else None,
        "passed_runs": task.passed,
        "failed_runs": task.failed,
        "error_runs": task.errors,
        "total_runs": total + task.skipped,
        "avg_score": task.score.value,
        "avg_weighted_score": task.score.weighted,
        "min_score": task.min_score,
        "max_score": task.max_score,
        "std_dev_score": task.std_dev,
        "score_variance": None if task.std_dev is None else task.std_dev**2,
        "score_low": task.score.low,
        "score_high": task.score.high,
        "undecided": task.score.undecided,
        "flaky": task.is_flaky,
        "avg_duration_ms": _whole(task.duration_ms / max(1, total + task.skipped - task.not_run)),
    }
    stats |= {"pass_rate_ci": task.pass_rate_ci} if total > 1 else {}
    if task.settled is not None:
        stats |= {"settled": task.settled, "stopped_by": "auto", "pass_rate_ci_method": "always-valid"}
    if (found := task.score_ci) is None:
        return stats
    return stats | {"bootstrap_ci": found, "ci95_lo": found.lower, "ci95_hi": found.upper}


def _run(result: Result) -> dict[str, JSON]:
    """Return one trial: first what the original writes, then what it leaves out."""
    trace = result.trace
    named = list(zip(shown_names(result), result.grades, strict=True))
    error = trace.error or (result.reason if result.status == "error" else "")
    return {
        "run_number": result.trial,
        "attempts": result.attempts,
        **({"attempt_log": [*map(_attempt, result.attempt_log)]} if result.attempt_log else {}),
        "prompt": trace.input,
        "status": result.status,
        "duration_ms": _whole(duration_of(result)),
        "validations": {name: _validation(name, grade) for name, grade in named},
        "session_digest": _digest(trace),
        "transcript": None if trace.events is None else [_event(event) for event in trace.events],
        "final_output": trace.output,
        **({"error_msg": error} if error else {}),
        **({} if trace.skill_invocations is None else {"skill_invocations": [*map(_skill, trace.skill_invocations)]}),
        **({} if trace.usage is None else {"usage": _usage(trace.usage)}),
        "tool_events": None if trace.tool_events is None else [_tool_event(event) for event in trace.tool_events],
        **({} if (calls := command_invocations(trace)) is None else {"command_invocations": calls}),
        **({"snapshot_path": f"artifacts/{result.snapshot}"} if result.snapshot else {}),
        "grades": [_grade(name, grade) for name, grade in named],
        **_checkpoints(named),
        "trace_status": trace.status,
        **({"reason": result.reason} if result.reason else {}),
        **({"started_at": result.started_at} if result.started_at else {}),
        **_other_times(result),
        **{name: value for name in _RARE if (value := getattr(trace, name)) is not None and value != {}},
        **({} if trace.files_before is None else {"files_before": trace.files_before}),
    }


_RARE = ("model", "engine", "outcome", "available_skills", "steps", "leftovers", "baseline_output", "crash")
"""Fields of a trace that are written where they are set."""


def _other_times(result: Result) -> dict[str, JSON]:
    """Return the times that are not the agent's: the whole trial's, the graders' and the judges'."""
    times = {"total_duration_ms": result.duration_ms or None}
    times |= {"grader_duration_ms": result.grader_duration_ms, "judge_duration_ms": result.judge_duration_ms}
    return {name: _whole(time) for name, time in times.items() if time is not None}


def _checkpoints(named: list[tuple[str, Grade]]) -> dict[str, JSON]:
    """Return the grades in the middle of a conversation, by the number of the prompt."""
    found: dict[int, dict[str, Grade]] = {}
    for name, grade in named:
        if grade.type == AFTER_TURN:
            found.setdefault(grade.details.get("turn", 0), {})[name] = grade
    return {"checkpoints": [_checkpoint(turn, found[turn]) for turn in sorted(found)]} if found else {}


def _checkpoint(turn: int, grades: dict[str, Grade]) -> dict[str, JSON]:
    return {
        "after_turn": turn,
        "status": min((grade.status for grade in grades.values()), key=("failed", "error", "passed").index),
        "validations": {name: _validation(name, grade) for name, grade in grades.items()},
        **({"stopped": True} if any(grade.details.get("stopped") for grade in grades.values()) else {}),
    }


def _validation(name: str, grade: Grade) -> dict[str, JSON]:
    return {
        "identifier": name,
        "type": grade.type,
        "score": grade.score,
        "weight": grade.weight,
        "passed": grade.passed,
        "feedback": grade.feedback,
        "details": grade.details,
        "duration_ms": _whole(grade.duration_ms),
    }


def _grade(name: str, grade: Grade) -> dict[str, JSON]:
    return {
        "name": grade.name,
        **({"shown_as": name} if name != grade.name else {}),
        "type": grade.type,
        "status": grade.status,
        "score": grade.score,
        "weight": grade.weight,
        "feedback": grade.feedback,
        "checks": grade.checks,
        "details": grade.details,
        "duration_ms": grade.duration_ms,
    }


def _digest(trace: Trace) -> dict[str, JSON]:
    events = trace.tool_events
    return {
        "tool_call_count": None if events is None else len(events),
        "tools_used": [event.tool_name for event in events or []],
        "tool_calls": [_tool_call(event) for event in events or []],
        "errors": [trace.error] if trace.error else [],
        **({} if trace.usage is None else {"usage": _usage(trace.usage)}),
        **({"session_id": trace.session_id} if trace.session_id else {}),
    }


def _tool_call(event: ToolEvent) -> dict[str, JSON]:
    return {
        **({"id": event.tool_call_id} if event.tool_call_id else {}),
        "name": event.tool_name,
        "arguments": event.args,
        **({} if event.result is None else {"result": event.result}),
        "success": event.success,
    }


def _tool_event(event: ToolEvent) -> dict[str, JSON]:
    names = ("turn", "sequence", "tool_call_id", "tool_name", "args", "result", "success", "error", "duration_ms")
    always = ("turn", "tool_name", "args", "result", "success", "duration_ms")
    tree = {name: getattr(event, name) for name in names if name in always or getattr(event, name) is not None}
    return tree | event.extra


def _event(event: dict[str, JSON]) -> dict[str, JSON]:
    return {_RENAMED.get(key, key): value for key, value in event.items()}


def _skill(invocation: SkillInvocation) -> dict[str, JSON]:
    return {"name": invocation.name, **({"path": invocation.path} if invocation.path else {})} | invocation.extra


def _usage(usage: Usage) -> dict[str, JSON]:
    tree = {name: value for name in USAGE_NUMBERS if (value := getattr(usage, name)) is not None}
    return tree | ({"invalid_numbers": usage.invalid_numbers} if usage.invalid_numbers else {}) | usage.extra


def _whole(number: float) -> int:
    return round(number) if math.isfinite(number) else 0


_COUNTS = ("true_positives", "false_positives", "true_negatives", "false_negatives")
_MEASURES = ("precision", "recall", "f1", "accuracy")
_OF_TRIAL = ("transcript", "final_output", "skill_invocations", "usage", "duration_ms", "started_at", "trace_status")


def trigger_tree(
    run: Run, summary: TriggerSummary | None, trial: Callable[[Result], dict[str, JSON]]
) -> dict[str, JSON]:
    """Return what a run's trigger tests add to the file: counts are whole, measures weighted; nothing without tests.

    `trigger_metrics.valid` is false where the controls failed; its measures are null then, and there is neither a
    wording ladder nor a matrix. `trigger_results` has an entry for each prompt and trial, those with `control` set
    among them. `trigger_catalogue` is the confusion matrix, as `results.stats.catalogue.Catalogue` describes it.
    """
    if summary is None:
        return {}
    catalogue = catalogue_of(run) if summary.is_valid else None
    answers = answers_of(run)
    results = {(result.task_id, result.trial): result for result in run.triggers}
    listed = [_entry(answer, trial(results[answer.prompt.id, answer.trial])) for answer in answers]
    tree: dict[str, JSON] = {"trigger_metrics": _metrics(summary, answers), "trigger_results": listed}
    return tree | ({"trigger_catalogue": to_builtins(catalogue)} if catalogue else {})


def _metrics(summary: TriggerSummary, answers: list[TriggerAnswer]) -> dict[str, JSON]:
    return {
        **_numbers(summary.all, summary.is_valid),
        "valid": summary.is_valid,
        **({"invalid_reasons": summary.reasons} if summary.reasons else {}),
        "warnings": summary.warnings,
        "seen_by": "file" if summary.by_reading else "tool" if any(answer.skills for answer in answers) else None,
        "prompts": summary.prompts,
        "answers": summary.answers,
        **({"not_asked": summary.not_asked} if summary.not_asked else {}),
        "decided": _numbers(summary.decided, summary.is_valid) if summary.decided else None,
        **({"accuracy_low": summary.accuracy_low} if summary.is_valid and summary.not_asked else {}),
        "accuracy_high": summary.accuracy_high if summary.is_valid else None,
        "accuracy_ci": to_builtins(summary.accuracy_ci) if summary.is_valid else None,
        "heuristic": _numbers(summary.heuristic, True) if summary.heuristic else None,
        "recall_ci": to_builtins(summary.recall_ci) if summary.is_valid else None,
        "phrasing": to_builtins(summary.rungs) if summary.is_valid else [],
        "skills": {
            skill.skill: _numbers(skill.all, summary.is_valid)
            | {"decided": _numbers(skill.decided, summary.is_valid) if skill.decided else None}
            for skill in summary.skills
        },
    }


def _numbers(numbers: TriggerNumbers, is_valid: bool) -> dict[str, JSON]:
    return {
        **{name: getattr(numbers, name) for name in _COUNTS},
        "errors": numbers.errors,
        **{name: getattr(numbers, name) if is_valid else None for name in _MEASURES},
        "weighted": numbers.weighted,
    }


def _entry(answer: TriggerAnswer, trial: dict[str, JSON]) -> dict[str, JSON]:
    """Return one answer; an error shows as a wrong one where older readers read it."""
    prompt = answer.prompt
    shown = (not prompt.should_trigger) if answer.did_trigger is None else answer.did_trigger
    return {
        "prompt": prompt.prompt,
        "confidence": prompt.confidence,
        "should_trigger": prompt.should_trigger,
        "did_trigger": shown,
        **({"error_msg": answer.error} if answer.error else {}),
        "id": prompt.id,
        "skill": prompt.skill,
        "trial": answer.trial,
        "status": "error" if answer.did_trigger is None else "right" if answer.is_right else "wrong",
        **({"control": prompt.control} if prompt.control else {}),
        **({"phrasing": prompt.phrasing} if prompt.phrasing else {}),
        **({"reason": prompt.reason} if prompt.reason else {}),
        **({"timed_out": True} if answer.timed_out else {}),
        "tool_calls": trial["session_digest"]["tool_calls"],
        **{key: trial["session_digest"][key] for key in ("session_id",) if key in trial["session_digest"]},
        **{key: trial[key] for key in _OF_TRIAL if key in trial},
    }
