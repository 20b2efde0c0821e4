"""What graders that go by people's verdicts know of their suite: the source that people see, and what others ask."""

from __future__ import annotations

from collections.abc import Iterable

from waza.graders._base import Grader
from waza.graders._turn import AfterTurnGrader
from waza.graders.human import HumanGrader
from waza.graders.human_calibration import HumanCalibrationGrader
from waza.model import Task
from waza.sandbox.folders import SpecFolder
from waza.spec.sources import source_of


def with_sources(
    graders: dict[str, list[Grader]], tasks: Iterable[Task], folder: SpecFolder
) -> dict[str, list[Grader]]:
    """Return each task's graders, where those that ask people know the source context that people see."""
    found = dict(graders)
    for task in tasks:
        if "source" in task.context and task.id in graders and (source := source_of(task, folder)):
            found[task.id] = [_beside(grader, source) for grader in graders[task.id]]
    return found


def with_judges(graders: dict[str, list[Grader]]) -> dict[str, list[Grader]]:
    """Return each task's graders, where those that measure another one know what it asks in this suite."""
    every = {id(grader): grader for listed in graders.values() for grader in listed}
    known = {key: one.among(every.values()) for key, one in every.items() if isinstance(one, HumanCalibrationGrader)}
    if not known:
        return graders
    return {task: [known.get(id(one), one) for one in listed] for task, listed in graders.items()}


def _beside(grader: Grader, source: str) -> Grader:
    if isinstance(grader, AfterTurnGrader):
        inner = _beside(grader.grader, source)
        return grader if inner is grader.grader else grader.model_copy(update={"grader": inner})
    return grader.beside(source) if isinstance(grader, HumanGrader) else grader
