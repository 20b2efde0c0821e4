"""What `waza check` says about a suite's local rubrics: texts changed under their version, bodies without a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from waza.errors import Problem
from waza.files.paths import display_path
from waza.graders.base import Grader
from waza.judges.rubrics import BUILT_IN, VERDICT_TOOLS, Rubric
from waza.judges.rubrics.rubric import LOCK, lock_problem, read_lock
from waza.suites.suite import EvalSpec


def rubric_problems(spec: EvalSpec) -> list[Problem]:
    """Return what is wrong with the local rubrics a suite's graders use, each rubric once."""
    found: list[Problem] = []
    for path, rubric in _local_rubrics(spec).items():
        found += _problems(path, rubric)
    return found


def _local_rubrics(spec: EvalSpec) -> dict[Path, Rubric]:
    rubrics: dict[Path, Rubric] = {}
    for grader in {id(inner): inner for graders in spec.graders.values() for inner in _single(graders)}.values():
        rubric = getattr(grader, "rubric_in_use", None)
        if isinstance(rubric, Rubric) and rubric.source != BUILT_IN:
            rubrics.setdefault(grader.folder.find(rubric.source), rubric)
    return rubrics


def _single(graders: Iterable[Grader]) -> Iterator[Grader]:
    """Yield the graders themselves, those in a checkpoint or a combination one by one."""
    for grader in graders:
        if grader.parts:
            yield from _single(grader.parts)
        else:
            yield grader


def _problems(path: Path, rubric: Rubric) -> Iterator[Problem]:
    file, folder = display_path(path), display_path(path.parent)
    command = f"`waza rubric lock {folder}`"
    try:
        entries = read_lock(path.parent)
    except ValueError as error:
        yield Problem(f"{error}", folder)
        return
    if fact := lock_problem(rubric, entries):
        yield Problem(fact.replace("`waza rubric lock`", command), file)
    elif rubric.name not in entries:
        fact = f"rubric '{rubric.name}' is not in {LOCK}, so a changed text would go unnoticed"
        yield Problem(f"{fact}; run {command}", file, severity="warning")
    tools = VERDICT_TOOLS[rubric.scale]
    if missing := [tool for tool in tools if tool not in rubric.body]:
        fact = f"the body never names {' and '.join(missing)}, by which the judge gives its verdict"
        yield Problem(f"{fact}; end it with when to call each", file, severity="warning")
