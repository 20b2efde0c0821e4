"""Two stored runs compared by one yardstick: where their graders differ, the traces of one are graded by the other's.

The change is then split: what the same graders see change is the agent's, what changes on the same traces is the
graders'. No agent is called; a judge only where that is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from msgspec.structs import replace as changed

from waza.analysis.changes import Attribution, Comparison, TaskPair, paired
from waza.analysis.common_graders import ComparisonMode, GradedAgain, graded_otherwise, some, suite_of
from waza.analysis.comparison import compare
from waza.analysis.results_file import open_run_or_file
from waza.errors import SpecError, UsageError
from waza.model import Run
from waza.runner.regrade import Judging
from waza.runner.request import judge_for
from waza.runs.canaries import drift
from waza.stats.scores import mean


class ComparableRuns(NamedTuple):
    """Two runs by the same graders."""

    before: Run
    after: Run
    attribution: Attribution | None
    """Where the graders differed: whose the change is."""
    warnings: list[str]


def compare_runs(before: Path, after: Path, how: ComparisonMode) -> Comparison:
    """Return what changed between two stored runs; raise UsageError where they cannot be compared."""
    opened = open_both(before, after, how)
    found = compare(opened.before, opened.after, on=how.on, margin=how.margin, these_tasks=how.these_tasks)
    warnings = [*opened.warnings, *drift(opened.before, opened.after)]
    return changed(found, attribution=opened.attribution, warnings=warnings)


def open_both(before: Path, after: Path, how: ComparisonMode, *, with_triggers: bool = False) -> ComparableRuns:
    """Return two stored runs by the same graders; raise UsageError where that cannot be.

    They need a task in common, or with `with_triggers` trigger tests.
    """
    one, other = open_run_or_file(before), open_run_or_file(after)
    pairs = paired(one, other).pairs
    has_triggers = bool(one.triggers and other.triggers)
    if not pairs and not (with_triggers and has_triggers):
        fact = f"runs {one.id} and {other.id} have no graded task in common"
        if has_triggers:
            raise UsageError(f"{fact}; their trigger tests are compared by `waza gate {other.id} --against {one.id}`")
        raise UsageError(f"{fact}; `waza show` lists their tasks")
    warnings = [f"run {run.id} is not complete: trials are missing" for run in (one, other) if not run.complete]
    warnings += [f"run {run.id} is {run.integrity}" for run in (one, other) if run.integrity]
    if unsaid := [run.id for run in (one, other) if "graders" not in run.spec]:
        warnings.append(
            f"{' and '.join(unsaid)}: a results.json does not say by which graders; they are taken as equal"
        )
    differing = [] if unsaid else graded_otherwise(one, other, pairs)
    if differing and not how.as_graded:
        return ComparableRuns(*_same_graders(one, other, differing, how), warnings)
    if differing:
        told = f"the graders of {some(differing)} differ between the runs: part of the change may be theirs"
        warnings.append(told)
    return ComparableRuns(one, other, None, warnings)


def _same_graders(before: Run, after: Run, tasks: list[str], how: ComparisonMode) -> tuple[Run, Run, Attribution]:
    """Return both runs by the graders of one of them, the later one's if possible, and what that tells."""
    refusals: list[str] = []
    for graders_of, graded in ((after, before), (before, after)):
        try:
            spec = suite_of(graders_of, tasks, how)
        except (SpecError, UsageError) as refusal:
            refusals.append(str(refusal))
            continue
        judge = judge_for(spec) if spec.judged else None
        again = changed(graded, results=GradedAgain(graded, spec, Judging(judge)))
        if graded is before:
            return again, after, _attributed(before, again, after, tasks, "before")
        return before, again, _attributed(before, again, after, tasks, "after")
    raise UsageError(
        f"the graders of {some(tasks)} differ between the runs, and the traces of neither can be graded by the "
        f"other's: {refusals[0]}. Compare the grades as they are with --as-graded"
    )


def _attributed(
    before: Run, again: Run, after: Run, tasks: list[str], graded: Literal["before", "after"]
) -> Attribution:
    """Return whose the change is, over the tasks that are decided in every of the three."""
    middle = {pair.before.id: pair for pair in paired(again, again).pairs}
    found = [(pair, middle[pair.before.id]) for pair in paired(before, after).pairs if pair.before.id in middle]
    rates = [(_rate(pair, 0), _rate(other, 0), _rate(pair, 1)) for pair, other in found]
    scores = [
        (pair.before.score.weighted, other.before.score.weighted, pair.after.score.weighted) for pair, other in found
    ]
    passing, scoring = _split(rates, graded), _split(scores, graded)
    return Attribution(
        tasks=tasks,
        graded=graded,
        pass_total=passing[0] or 0.0,
        pass_agent=passing[1] or 0.0,
        pass_graders=passing[2] or 0.0,
        score_total=scoring[0],
        score_agent=scoring[1],
        score_graders=scoring[2],
    )


Split = tuple[float | None, float | None, float | None]


def _split(numbers: Sequence[Split], graded: str) -> Split:
    """Return the mean change, the agent's part and the graders'; each row is before, graded again, after."""
    whole = [(b, a, c) for b, a, c in numbers if b is not None and a is not None and c is not None]
    first = mean([again - before for before, again, _ in whole])
    second = mean([after - again for _, again, after in whole])
    total = mean([after - before for before, _, after in whole])
    return (total, second, first) if graded == "before" else (total, first, second)


def _rate(pair: TaskPair, which: int) -> float | None:
    task = pair[which]
    return task.passed / (task.passed + task.failed) if task.passed + task.failed else None
