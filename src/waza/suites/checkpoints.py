"""Checkpoints of a task: graders of the conversation up to one of its prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from waza.errors import Problem, did_you_mean
from waza.files.paths import SpecFolder
from waza.graders.base import Grader
from waza.graders.composed import AfterTurnGrader
from waza.suites.expected import build_expected
from waza.suites.graders import build_grader
from waza.suites.positions import Position
from waza.suites.shapes import CheckpointShape

Built = tuple[list[Grader], list[Problem]]
_NOT_OVER = "a judge goes on in the agent's session when that is over, not at a checkpoint; leave continue_session out"


class CheckpointContext(NamedTuple):
    """What the checkpoints of a task need to know about it and its suite."""

    prompts: int
    """How many the task has, with its follow-up prompts."""
    folder: SpecFolder
    suite: Sequence[Grader] = ()
    """The suite's graders, which a checkpoint may name."""
    skill: str = ""
    forced: Mapping[str, Any] = {}
    """Options that win over written ones."""


def build_checkpoints(checkpoints: list[CheckpointShape], place: Position, around: CheckpointContext) -> Built:
    """Return the graders of all checkpoints, each named after its turn."""
    graders: list[Grader] = []
    problems: list[Problem] = []
    for index, checkpoint in enumerate(checkpoints):
        here = place.at("checkpoints", index)
        found, wrong = _built(checkpoint, here, around)
        problems += wrong
        if checkpoint.after_turn > around.prompts:
            fact = f"there is no turn {checkpoint.after_turn}: the task has {around.prompts} with its follow_up_prompts"
            problems.append(here.at("after_turn").problem(fact))
        elif not found and not wrong:
            problems.append(here.problem("this checkpoint checks nothing; give 'expected' or 'graders'"))
        else:
            stops = checkpoint.on_failure == "stop"
            graders += [after_turn(grader, checkpoint.after_turn, around.prompts, stops=stops) for grader in found]
    return graders, problems


def after_turn(grader: Grader, turn: int, prompts: int, *, is_alone: bool = False, stops: bool = False) -> Grader:
    """Return a grader of one turn of a conversation, named after it."""
    return AfterTurnGrader(
        name=f"{grader.name}@{turn}",
        weight=grader.weight,
        grader=grader,
        turn=turn,
        prompts=prompts,
        is_alone=is_alone,
        stops=stops,
        folder=grader.folder,
    )


def _built(checkpoint: CheckpointShape, place: Position, around: CheckpointContext) -> Built:
    graders: list[Grader] = []
    problems: list[Problem] = []
    if checkpoint.expected is not None:
        graders, problems = build_expected(checkpoint.expected, place.at("expected"), around.folder, skill=around.skill)
        if "graders" in checkpoint.expected:
            problems.append(place.at("expected", "graders").problem("put them under the checkpoint's own 'graders'"))
    for index, entry in enumerate(checkpoint.graders):
        found, wrong = _graders(entry, place.at("graders", index), around)
        wrong += [place.at("graders", index).problem(_NOT_OVER) for grader in found if grader.continues]
        graders += found
        problems += wrong
    return graders, problems


def _graders(entry: Any, place: Position, around: CheckpointContext) -> Built:
    """Return the grader that is written out here, or those of the suite that have this name."""
    if not isinstance(entry, str):
        grader, wrong = build_grader(entry, place, around.folder, around.forced)
        return [grader] if grader else [], wrong
    named = [grader for grader in around.suite if grader.name == entry]
    known = [grader.name for grader in around.suite]
    hint = did_you_mean(entry, known) if known else "the suite has no graders"
    return named, [] if named else [place.problem(f"unknown grader '{entry}'; {hint}")]
