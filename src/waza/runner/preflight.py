"""Everything for which a run is refused before its first trial: one list, which `run` raises and `check` reports.

Add a refusal here, in `EvalSpec.engine_problems` or in an engine's `ready`, and both commands have it. The severity is
how `check` takes a problem; `run` refuses errors and warnings alike.

    error      the suite is wrong: a folder of skills that is not there, mocks that the engine cannot use
    warning    the suite may be right, but cannot run here: a variable that is not set, a program that is not there
    note       the run may work all the same: a vendor's program or credential that was not found, no engine named yet
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from waza.engines.base import Engine
from waza.errors import Problem, SpecError, UsageError
from waza.runner.baseline import with_baseline
from waza.runner.request import RunRequest, auto_for, runs_folder
from waza.runner.schedule import refuse_unreported_costs
from waza.suites.suite import NO_JUDGE, EvalSpec


def refusals(
    spec: EvalSpec,
    *,
    engine: str | None = None,
    judge_model: str = "",
    has_max_cost: bool = False,
    has_baseline: bool = False,
    skips_graders: bool = False,
    imports: bool = True,
    is_run: bool = False,
) -> list[Problem]:
    """Return every reason not to start a run of the suite; without `imports` no code of the project is run for it."""
    built, problems = spec.engine_problems(engine, imports=imports)
    problems = [*problems, *([] if skips_graders else spec.judge_problems(judge_model)), *_trials(spec)]
    problems += [] if is_run else _folder(spec)  # a run notices it when it writes
    if built is not None and not is_run and (reason := built.undecided(spec.tasks)):
        problems.append(spec.place.at("config", "executor").problem(reason, "note"))
    if built is not None:
        problems += [*(_cost(spec, built) if has_max_cost else ()), *_control_arm(spec, engine, has_baseline)]
    return list(dict.fromkeys(problems))


def without_refused(found: Iterable[Problem], refused: Iterable[Problem]) -> list[Problem]:
    """Return what was found in a suite without the warnings that a refusal repeats."""
    refused = list(refused)
    is_without_judge = any(NO_JUDGE in one.message for one in refused)
    places = {_place(one) for one in refused if one.path == "skill"}
    texts = {(*_place(one), one.message) for one in refused}

    def is_repeated(one: Problem) -> bool:
        is_same = _place(one) in places or (*_place(one), one.message) in texts
        return is_same or (is_without_judge and NO_JUDGE in one.message)

    return [one for one in found if one.severity == "error" or not is_repeated(one)]


def _place(problem: Problem) -> tuple[str, int, int, str]:
    return problem.file, problem.line, problem.column, problem.path


def refuse(spec: EvalSpec, *, engine: str | None = None, **how: bool | str) -> list[Problem]:
    """Raise SpecError where a run of the suite cannot start; return what to report before its first trial."""
    found = refusals(spec, engine=engine, is_run=True, **how)  # type: ignore[arg-type]
    if wrong := [problem._replace(severity="error") for problem in found if problem.severity != "note"]:
        raise SpecError(wrong)
    return found


def _trials(spec: EvalSpec) -> Iterator[Problem]:
    try:
        auto_for(spec)
    except SpecError as error:
        yield from error.problems


def _cost(spec: EvalSpec, engine: Engine) -> Iterator[Problem]:
    try:
        refuse_unreported_costs(engine)
    except UsageError as error:
        yield spec.place.at("config", "executor").problem(str(error))


def _folder(spec: EvalSpec) -> Iterator[Problem]:
    """Yield a warning where no run could be stored."""
    folder = runs_folder(spec)
    there = next(path for path in (folder, *folder.parents, Path("/")) if path.exists())
    if not there.is_dir():
        yield spec.place.warning(f"no run can be stored in {folder}: {there} is not a folder")
    elif not os.access(there, os.W_OK | os.X_OK):
        yield spec.place.warning(f"no run can be stored in {folder}: {there} cannot be written to")


def _control_arm(spec: EvalSpec, engine: str | None, is_asked: bool) -> Iterator[Problem]:
    """Yield why there can be no control arm: a note where `baseline: true` asks for it, an error where a call does."""
    if not is_asked and not (spec.baseline and spec.skill and spec.tasks):
        return
    chosen = engine or spec.config.executor or spec.project.defaults.engine or ""
    try:
        with_baseline(RunRequest(spec=spec, engine=chosen, auto=auto_for(spec)))
    except UsageError as error:
        here = spec.place.at("baseline")
        yield here.problem(str(error)) if is_asked else here.problem(f"there will be no control arm: {error}", "note")
    except SpecError:
        return  # reported with the number of trials
