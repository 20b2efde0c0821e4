"""Checkpoints of a task: graders that look at the conversation as it was after one of its prompts."""

from __future__ import annotations

from typing import Any

from waza.errors import Problem
from waza.graders._base import Grader
from waza.graders._turn import AfterTurnGrader
from waza.sandbox.folders import SpecFolder
from waza.spec.expected import build_expected
from waza.spec.graders import build_grader
from waza.spec.places import Place
from waza.spec.shapes import CheckpointShape


def build_checkpoints(
    checkpoints: list[CheckpointShape], prompts: int, place: Place, folder: SpecFolder, *, skill: str = ""
) -> tuple[list[Grader], list[Problem]]:
    """Return the graders of all checkpoints, each named after its turn, for a task of so many prompts."""
    graders: list[Grader] = []
    problems: list[Problem] = []
    for index, checkpoint in enumerate(checkpoints):
        here = place.at("checkpoints", index)
        found, wrong = _built(checkpoint, here, folder, skill)
        problems += wrong
        if checkpoint.after_turn > prompts:
            fact = f"there is no turn {checkpoint.after_turn}: the task has {prompts} with its follow_up_prompts"
            problems.append(here.at("after_turn").problem(fact))
        elif not found and not wrong:
            problems.append(here.problem("this checkpoint checks nothing; give 'expected' or 'graders'"))
        graders += [_at(grader, checkpoint.after_turn, prompts) for grader in found]
    return graders, problems


def _built(
    checkpoint: CheckpointShape, place: Place, folder: SpecFolder, skill: str
) -> tuple[list[Grader], list[Problem]]:
    graders: list[Grader] = []
    problems: list[Problem] = []
    if checkpoint.expected is not None:
        graders, problems = build_expected(checkpoint.expected, place.at("expected"), folder, skill=skill)
        if "graders" in checkpoint.expected:
            problems.append(place.at("expected", "graders").problem("put them under the checkpoint's own 'graders'"))
    for index, entry in enumerate(checkpoint.graders):
        here = place.at("graders", index)
        grader, wrong = _grader(entry, here, folder)
        graders += [grader] if grader else []
        problems += wrong
    return graders, problems


def _grader(entry: Any, place: Place, folder: SpecFolder) -> tuple[Grader | None, list[Problem]]:
    if isinstance(entry, str):
        return None, [place.problem(f"'{entry}' is a name; a checkpoint's graders are written out here")]
    return build_grader(entry, place, folder)


def _at(grader: Grader, turn: int, prompts: int) -> Grader:
    """Return the grader for one turn; after the only prompt there is nothing to cut off."""
    name = f"{grader.name}@{turn}"
    if prompts == 1:
        return grader.model_copy(update={"name": name})
    return AfterTurnGrader(name=name, weight=grader.weight, grader=grader, turn=turn, folder=grader.folder)
