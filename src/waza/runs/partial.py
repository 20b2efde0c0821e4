"""What a run lacks of its suite: tasks that were not selected, trials that have no result.

A run notes under `spec["not_selected"]` what the suite has beyond it: `tasks` (`{id, name, tags, golden}` each) and
`trigger_tests`. Runs made before that know their `--task` and `--tags` at most, those made from Python not even that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from msgspec.structs import replace

from waza.compact import CompactList
from waza.model import JSON, Result, Run, StoredSuite
from waza.runs.lazy_results import LazyResults
from waza.runs.outcomes import outcomes_of
from waza.runs.tasks import summarize_tasks

NOT_SELECTED = "not_selected"


class Gap(NamedTuple):
    """One thing a run lacks."""

    fact: str
    tasks: list[str] = []
    """The ids of the tasks it is about, where they are known."""


def gaps_of(run: Run) -> list[Gap]:
    """Return what the run lacks of its suite; nothing where it is whole."""
    found = [*_not_selected(run), *_without_result(run)]
    if not run.complete and not found:
        found.append(Gap(run.integrity or "the run did not come to its end"))
    return found


def _not_selected(run: Run) -> Iterator[Gap]:
    suite = run.suite
    given = suite.given
    options = [f"--task {glob}" for glob in given.get("names") or ()]
    options += [f"--tags {tag}" for tag in given.get("tags") or ()]
    how = f" ({' '.join(options)})" if options else ""
    if suite.not_selected is None:
        if options:
            yield Gap(f"only some tasks were selected{how}; which others the suite has was not recorded")
        return
    others = [str(task["id"]) for task in suite.not_selected.tasks]
    if others:
        total = len(others) + len(suite.tasks)
        yield Gap(f"{len(others)} of {total} tasks were not selected{how}", others)
    if suite.not_selected.trigger_tests:
        yield Gap(f"the trigger tests were not run{how}")


def _without_result(run: Run) -> Iterator[Gap]:
    why = "" if run.complete else ": the run ended early"
    tasks = summarize_tasks(run)
    if lacking := {task.id: task.not_run for task in tasks if task.not_run}:
        yield Gap(f"{_trials(lacking)} without a result{why}", list(lacking))
    if ungraded := {task.id: task.skipped for task in tasks if task.skipped}:
        yield Gap(f"{_trials(ungraded)} not graded", list(ungraded))
    suite = run.suite
    trials = suite.config.trials
    answers = Counter(outcome.task_id for outcome in outcomes_of(run.triggers))
    prompts = [str(prompt["id"]) for prompt in suite.trigger_prompts]
    if silent := {prompt: trials - answers[prompt] for prompt in prompts if answers[prompt] < trials}:
        yield Gap(f"{_trials(silent)} of trigger tests without a result{why}", list(silent))


def _trials(counts: dict[str, int]) -> str:
    count = sum(counts.values())
    return f"{count} trial{'' if count == 1 else 's'}"


def _others(suite: StoredSuite) -> Sequence[dict[str, JSON]]:
    return suite.not_selected.tasks if suite.not_selected else ()


def whole_suite(run: Run) -> Run:
    """Return the run with the tasks that were not selected among its own: they count as not run."""
    suite = run.suite
    others = _others(suite)
    if not others:
        return run
    return replace(run, spec=run.spec | {"tasks": CompactList(chain(suite.tasks, others))})


def ran_alone(run: Run) -> Run:
    """Return the run as if nothing but the trials that have a result had been planned."""
    ids = {outcome.task_id for outcome in outcomes_of(run.results)}
    tasks = CompactList(task for task in run.suite.tasks if task["id"] in ids)
    config = (run.spec.get("config") or {}) | {"trials_per_task": 1}
    spec = run.spec | {"tasks": tasks, "config": config}
    if triggers := run.spec.get("triggers"):
        answered = {outcome.task_id for outcome in outcomes_of(run.triggers)}
        prompts = [prompt for prompt in triggers.get("prompts") or [] if prompt["id"] in answered]
        spec["triggers"] = triggers | {"prompts": prompts}
    return replace(run, spec=spec)


def without(baseline: Run, run: Run) -> Run:
    """Return the baseline without the tasks that `run` left out, though its suite has them: they did not disappear."""
    suite = run.suite
    ran = {outcome.task_id for outcome in outcomes_of(run.results)}
    planned = [str(task["id"]) for task in chain(suite.tasks, _others(suite))]
    left_out = {task for task in planned if task not in ran}
    if not left_out:
        return baseline
    tasks = CompactList(task for task in baseline.suite.tasks if task["id"] not in left_out)
    remaining: Sequence[Result]
    if isinstance(baseline.results, LazyResults):
        remaining = baseline.results.where(lambda outcome: outcome.task_id not in left_out)
    else:
        remaining = [result for result in baseline.results if result.task_id not in left_out]
    return replace(baseline, spec=baseline.spec | {"tasks": tasks}, results=remaining)


FILES = "files"
"""The key of a stored grader for the files it reads: the hash of each by its name. Older runs do not have it."""


def graded_alike(one: StoredSuite, other: StoredSuite, task_id: str) -> bool:
    """Return whether two suites grade a task by the same graders, rubrics and judge."""
    if not same_graders(one.graders_of(task_id), other.graders_of(task_id)):
        return False
    judged = one.judged.get(task_id)
    return judged == other.judged.get(task_id) and (judged is None or one.judge == other.judge)


def same_graders(one: JSON, other: JSON) -> bool:
    """Return whether two lists of stored graders are the same, as far as both note it."""
    if one == other:
        return True
    if not one or not other or len(one) != len(other):
        return False
    return all(mine == its or _same_without_files(mine, its) for mine, its in zip(one, other, strict=True))


def _same_without_files(one: dict[str, JSON], other: dict[str, JSON]) -> bool:
    return (FILES in one) is not (FILES in other) and without_files(one) == without_files(other)


def without_files(grader: dict[str, JSON]) -> dict[str, JSON]:
    """Return a stored grader without the hashes of the files it reads."""
    return {key: value for key, value in grader.items() if key != FILES}
