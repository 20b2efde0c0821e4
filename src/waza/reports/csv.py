"""CSV for spreadsheets and data frames: a row for each trial. No cell is a formula, whatever an agent wrote.

Rows of trigger tests come last and have no score: `kind` distinguishes them.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from waza.model import Result, Run
from waza.reports.base import Report
from waza.reports.failed_checks import faults, missing_trials
from waza.reports.run_before import EarlierRun
from waza.runs.outcomes import duration_of, outcome_of
from waza.runs.tasks import TaskSummary, by_task, summarize_tasks
from waza.runs.triggers import TriggerAnswer, answers_of, prompts_of, unanswered
from waza.untrusted.text import clipped, visible

LONGEST_CELL = 32_000
"""Spreadsheets take no cell longer than 32,767 characters."""
_GUARDED = tuple("=+-@'\t\n＝＋－＠")
"""A cell that starts so is a formula to some spreadsheet; the quote is guarded too, so that the guard can be undone."""
COLUMNS = (
    *("run", "suite", "engine", "model", "task", "name", "tags", "golden", "trial", "status", "reason"),
    *("score", "score_low", "score_high", "undecided", "duration_ms", "input_tokens", "output_tokens", "cost_usd"),
    *("tool_calls", "attempts", "started_at", "failed_checks", "prompt", "output", "error"),
    *("kind", "skill", "should_trigger", "did_trigger", "skills", "grader_duration_ms", "judge_duration_ms"),
)
_NOT_OF_TRIGGERS = ("score", "score_low", "score_high", "undecided", "failed_checks")

Cell = str | float | bool | None


class CsvReport(Report):
    """CSV: a row for each trial, in UTF-8; text that a spreadsheet would take for a formula gets a `'` in front.

    Answers of trigger tests follow those of tasks, with `trigger` or `control` in the column `kind`.
    """

    file = "results.csv"

    def render(self, run: Run, before: EarlierRun | None = None) -> Iterator[bytes]:
        """Yield the file, a row at a time."""
        yield _line(COLUMNS)
        for task, results in by_task(run, summarize_tasks(run)):
            known: set[int] = set()
            for result in results:
                known.add(result.trial)
                yield _row(_about(run, task) | _trial(result))
            for trial in missing_trials(task, known):
                yield _row(_about(run, task) | {"trial": trial, "status": "error", "reason": "not run"})
        yield from _triggers(run)


def _triggers(run: Run) -> Iterator[bytes]:
    """Yield a row for each trial of each prompt of the trigger tests; those that were not run last."""
    prompts = prompts_of(run)
    results = (result for result in run.triggers if result.task_id in prompts)
    for answer, result in zip(answers_of(run), results, strict=True):
        cells = {column: cell for column, cell in _trial(result).items() if column not in _NOT_OF_TRIGGERS}
        yield _row(_of_run(run) | cells | _answer(answer))
    for answer in unanswered(run):
        yield _row(_of_run(run) | _answer(answer) | {"status": "not asked", "reason": ""})


def _answer(answer: TriggerAnswer) -> dict[str, Cell]:
    prompt = answer.prompt
    return {
        "task": prompt.id,
        "name": prompt.short_id,
        "trial": answer.trial,
        "status": "error" if answer.did_trigger is None else "right" if answer.is_right else "wrong",
        "reason": answer.error,
        "prompt": prompt.prompt,
        "kind": "control" if prompt.control else "trigger",
        "skill": prompt.skill,
        "should_trigger": prompt.should_trigger,
        "did_trigger": answer.did_trigger,
        "skills": "; ".join(answer.skills or []),
    }


def _of_run(run: Run) -> dict[str, Cell]:
    return {"run": run.id, "suite": run.name, "engine": run.engine, "model": run.model}


def _about(run: Run, task: TaskSummary) -> dict[str, Cell]:
    return _of_run(run) | {
        "kind": "task",
        "task": task.id,
        "name": task.name,
        "tags": "; ".join(task.tags),
        "golden": task.golden,
    }


def _trial(result: Result) -> dict[str, Cell]:
    outcome, trace = outcome_of(result), result.trace
    usage, score = outcome.usage, outcome.score
    return {
        "trial": result.trial,
        "status": result.status,
        "reason": result.reason,
        "score": score.weighted,
        "score_low": score.low,
        "score_high": score.high,
        "undecided": score.undecided,
        "duration_ms": duration_of(result),
        "grader_duration_ms": outcome.grader_duration_ms,
        "judge_duration_ms": outcome.judge_duration_ms,
        "input_tokens": usage.input_tokens if usage else None,
        "output_tokens": usage.output_tokens if usage else None,
        "cost_usd": usage.cost_usd if usage else None,
        "tool_calls": None if trace.tool_events is None else len(trace.tool_events),
        "attempts": result.attempts,
        "started_at": result.started_at,
        "failed_checks": "\n".join(f"{fault.grader}: {fault.words}" for fault in faults(result)),
        "prompt": trace.input,
        "output": trace.output,
        "error": trace.error,
    }


def _row(cells: dict[str, Cell]) -> bytes:
    return _line([_cell(cells.get(column)) for column in COLUMNS])


def _cell(value: Cell) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return guarded(value) if isinstance(value, str) else "" if value is None else str(value)


def guarded(text: str) -> str:
    """Return text as a cell that no spreadsheet computes; a leading `'` is the only change."""
    text = visible(clipped(text, LONGEST_CELL), lines=True)
    return f"'{text}" if text.startswith(_GUARDED) else text


def _line(cells: list[str] | tuple[str, ...]) -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\r\n").writerow(cells)
    return out.getvalue().encode()
