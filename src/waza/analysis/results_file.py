"""A `results.json`, ours or the original's (schema 1.0 to 1.5), as a run: to be compared and gated like a stored one.

It does not contain its graders, so nothing of it is graded again here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from waza.errors import UsageError
from waza.model import Check, Grade, GradeStatus, Result, ResultStatus, Run, Trace
from waza.runs.partial import NOT_SELECTED
from waza.runs.store import open_run
from waza.traces.base import Item
from waza.traces.fields import amount, mapping, mappings, text
from waza.traces.waza_results import WazaResultsReader

STATUSES: dict[str, ResultStatus] = {"passed": "passed", "failed": "failed", "error": "error", "skipped": "skipped"}


def open_run_or_file(path: Path) -> Run:
    """Return the run in a folder, or the run that a results.json describes; else raise UsageError or StoreError."""
    return open_run(path) if path.is_dir() else read_results(path)


def read_results(path: Path) -> Run:
    """Return a run from its results.json; raise UsageError when the file is none."""
    try:
        tree = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: is not a results.json: {error}") from None
    if not isinstance(tree, dict) or not WazaResultsReader.recognises(tree):
        raise UsageError(f"{path}: is not a results.json: it has no list of tasks with their runs")
    config, tasks = mapping(tree.get("config")), mappings(tree.get("tasks"))
    return Run(
        id=text(tree.get("eval_id")) or path.name,
        name=text(tree.get("eval_name")),
        started_at=text(tree.get("timestamp")),
        engine=text(config.get("engine_type")),
        model=text(config.get("model_id")),
        skill=text(tree.get("skill")),
        spec={"tasks": [_task(task) for task in tasks]} | _not_selected(tree),
        results=list(_results(tree, tasks)),
        complete=tree.get("complete") is not False,
    )


def _task(task: Item) -> dict[str, Any]:
    tags = [tag for tag in task.get("tags") or [] if isinstance(tag, str)]
    name = text(task.get("display_name"))
    return {"id": text(task.get("test_id")), "name": name, "tags": tags, "golden": task.get("golden") is True}


def _not_selected(tree: Item) -> dict[str, Any]:
    found = mapping(mapping(tree.get("metadata")).get(NOT_SELECTED))
    if not found:
        return {}
    others = mappings(found.get("tasks"))
    tasks = [task | {"test_id": task.get("id"), "display_name": task.get("name")} for task in others]
    return {NOT_SELECTED: {"tasks": list(map(_task, tasks)), "trigger_tests": found.get("trigger_tests") is True}}


def _results(tree: Item, tasks: list[Item]) -> Iterator[Result]:
    reader = WazaResultsReader()
    reader.feed(tree)
    traces = iter(reader.traces())
    for task in tasks:
        for number, run in enumerate(mappings(task.get("runs")), 1):
            yield _result(text(task.get("test_id")), number, run, next(traces))


def _result(task_id: str, number: int, run: Item, trace: Trace) -> Result:
    grades = [_grade(grade) for grade in mappings(run.get("grades"))]
    if "grades" not in run:
        grades = [_grade({"name": name} | entry) for name, entry in mapping(run.get("validations")).items()]
    return Result(
        task_id=task_id,
        trial=number,
        status=STATUSES.get(text(run.get("status")), "error"),
        trace=trace,
        grades=grades,
        reason=text(run.get("reason")),
        started_at=text(run.get("started_at")),
        duration_ms=float(amount(run.get("total_duration_ms")) or amount(run.get("duration_ms")) or 0),
        grader_duration_ms=amount(run.get("grader_duration_ms")),
        judge_duration_ms=amount(run.get("judge_duration_ms")),
    )


def _grade(grade: Item) -> Grade:
    stated = grade.get("status")
    status: GradeStatus = (
        stated if stated in ("passed", "failed", "error") else "passed" if grade.get("passed") else "failed"
    )
    score, weight = amount(grade.get("score")), amount(grade.get("weight"))
    return Grade(
        name=text(grade.get("name")) or text(grade.get("identifier")),
        type=text(grade.get("type")),
        status=status if score is not None and 0 <= score <= 1 else "error",
        score=float(score) if score is not None and 0 <= score <= 1 else 0.0,
        feedback=text(grade.get("feedback")),
        weight=1.0 if weight is None else float(weight),
        checks=[_check(check) for check in mappings(grade.get("checks"))],
        details=mapping(grade.get("details")),
    )


def _check(check: Item) -> Check:
    ok = check.get("ok")
    return Check(
        ok if isinstance(ok, bool) else None,
        text(check.get("claim")),
        text(check.get("failure")),
        check.get("expected"),
        check.get("actual"),
    )
