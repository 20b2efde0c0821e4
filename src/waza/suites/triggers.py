"""`trigger_tests.yaml` in, prompts as tasks out: one file next to a suite, or those of a whole catalogue of skills."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from msgspec import to_builtins
from msgspec.structs import replace as changed

from waza.engines.base import ENGINES
from waza.engines.mock import MockFile, trigger_script
from waza.errors import Problem, SpecError, UsageError, did_you_mean
from waza.files.paths import SpecFolder, display_path
from waza.graders.base import GRADERS, Grader
from waza.model import JSON, Task
from waza.runs.triggers import TriggerPrompt
from waza.skills import MARK, Skill, find_skills, read_skill
from waza.suites.positions import Position, parse, read_file
from waza.suites.shapes import ConfigShape, TriggerPromptShape, TriggerShape
from waza.suites.skills import find_skill, skill_names

FILE = "trigger_tests.yaml"
EXPLICIT = "Use the skill {skill} now: load it, then say in one sentence what it is for."
UNRELATED = "What is 17 plus 25? Answer with the number only."
THRESHOLD = 0.6
"""The relevance from which on the `trigger` grader expects a skill to be used, unless another is given."""
_ALL = "*"


@dataclass(frozen=True)
class TriggerTests:
    """The trigger tests of a suite: each prompt as a task with its grader, controls first."""

    prompts: list[TriggerPrompt]
    tasks: list[Task]
    graders: dict[str, list[Grader]]
    skills: list[str]
    """Every skill whose use is distinguished."""
    heuristic: dict[str, dict[str, float]] = field(default_factory=dict)
    """By prompt and skill: what the `trigger` grader makes of it, where the SKILL.md can be read."""
    is_catalogue: bool = False
    not_found: list[Problem] = field(default_factory=list)
    """A warning for each tested skill that is not in the project."""

    def refused(self, engine: str) -> list[Problem]:
        """Return what an engine cannot answer: one that gives its agents their skills has none that is not found."""
        if not ENGINES.load(engine).has_only_given_skills:
            return []  # its agent may have skills of its own
        return [problem._replace(severity="error") for problem in self.not_found]

    def as_data(self) -> dict[str, JSON]:
        """Return all that readers of a stored run need; `runs/triggers.py` says what is what."""
        return {
            "prompts": to_builtins(self.prompts),
            "skills": self.skills,
            "catalogue": self.is_catalogue,
            "heuristic": self.heuristic,
            "threshold": THRESHOLD,
            "tasks": to_builtins(self.tasks),
        }


class TriggerFile(NamedTuple):
    """One checked `trigger_tests.yaml`."""

    shape: TriggerShape
    place: Position


def read_trigger_file(file: Path) -> tuple[TriggerFile | None, list[Problem]]:
    """Return what a file holds, or None with every problem in it."""
    try:
        place = read_file(file)
    except SpecError as error:
        return None, error.problems
    shape, problems = parse(TriggerShape, place.content, place)
    return (TriggerFile(shape, place) if shape else None), problems


class TriggerContext(NamedTuple):
    """What the trigger tests of a suite share with it."""

    folder: SpecFolder
    config: ConfigShape
    mocks: MockFile | None = None
    folders: dict[str, Path] = {}
    """By skill: its folder."""
    mock_programs: JSON = None
    """The suite's mocks of tools."""


def build_triggers(files: list[TriggerFile], around: TriggerContext, *, is_catalogue: bool = False) -> TriggerTests:
    """Return the tests of these files as one set; in a catalogue the skill's name is part of each prompt's id."""
    prompts = [prompt for file in files for prompt in _prompts(file.shape, is_catalogue)]
    prompts = [*_controls(files, is_catalogue), *prompts]
    shapes = {file.shape.skill: file.shape for file in files}
    skills = list(around.folders if is_catalogue else shapes)
    return TriggerTests(
        prompts=prompts,
        tasks=[_task(prompt, shapes.get(prompt.skill), around) for prompt in prompts],
        graders={prompt.id: [_grader(prompt, list(shapes), around.folder)] for prompt in prompts},
        skills=skills,
        heuristic=_heuristic(prompts, around.folders),
        is_catalogue=is_catalogue,
    )


def _prompts(shape: TriggerShape, is_catalogue: bool) -> Iterator[TriggerPrompt]:
    head = f"trigger:{shape.skill}:" if is_catalogue else "trigger:"
    lists: dict[bool, list[TriggerPromptShape]] = {
        True: shape.should_trigger_prompts,
        False: shape.should_not_trigger_prompts,
    }
    for should, listed in lists.items():
        for number, item in enumerate(listed, 1):
            yield TriggerPrompt(
                id=f"{head}{'should' if should else 'should-not'}-{number}",
                prompt=item.prompt,
                skill=shape.skill,
                should_trigger=should,
                confidence=item.confidence,
                phrasing=item.phrasing or "",
                reason=item.reason,
            )


def _controls(files: list[TriggerFile], is_catalogue: bool) -> Iterator[TriggerPrompt]:
    """Yield a control for each skill that names it outright, and each distinct one that concerns none of them."""
    for shape in (file.shape for file in files):
        head = f"trigger:{shape.skill}:" if is_catalogue else "trigger:"
        words = shape.controls.explicit or EXPLICIT.format(skill=shape.skill)
        yield TriggerPrompt(id=f"{head}control-explicit", prompt=words, skill=shape.skill, control="explicit")
    texts = dict.fromkeys(file.shape.controls.unrelated or UNRELATED for file in files)
    for number, words in enumerate(texts, 1):
        identity = "trigger:control-unrelated" + (f"-{number}" if number > 1 else "")
        yield TriggerPrompt(id=identity, prompt=words, should_trigger=False, control="unrelated")


def _task(prompt: TriggerPrompt, shape: TriggerShape | None, around: TriggerContext) -> Task:
    script = trigger_script(around.mocks, prompt.id, prompt.prompt) if around.mocks else None
    is_own = shape is not None and shape.stop_at == "this_skill"
    return Task(
        id=prompt.id,
        prompt=prompt.prompt,
        timeout_s=(shape.timeout_seconds if shape else None) or around.config.timeout_seconds,
        mock=script.model_dump(mode="json", exclude_unset=True) if script else None,
        mocks=around.mock_programs,
        until_skill=prompt.skill if is_own else _ALL,
    )


def _grader(prompt: TriggerPrompt, tested: list[str], folder: SpecFolder) -> Grader:
    if not prompt.skill:
        found: Grader = GRADERS.load("skill_invocation")(name="trigger", forbidden_skills=tested, folder=folder)
        return found
    cls = GRADERS.load("skill_triggered")
    made: Grader = cls(name="trigger", skill=prompt.skill, should_trigger=prompt.should_trigger, folder=folder)
    return made


def _heuristic(prompts: list[TriggerPrompt], folders: dict[str, Path]) -> dict[str, dict[str, float]]:
    """Return how relevant each prompt is to each skill by the words of its SKILL.md."""
    skills: dict[str, Skill] = {}
    for name, folder in folders.items():
        try:
            skills[name] = read_skill(folder / MARK)
        except ValueError:
            continue  # `waza check` says what is wrong with it; there is just nothing to compare with
    asked = [prompt for prompt in prompts if not prompt.control]
    return {p.id: {name: skill.relevance(p.prompt).score for name, skill in skills.items()} for p in asked if skills}


def adjacent_triggers(
    folder: SpecFolder, around: TriggerContext, taken: set[str], skills_at: str = "skills"
) -> tuple[TriggerTests | None, list[Problem]]:
    """Return the trigger tests next to an eval file, if there are any; `taken` are the ids of its tasks."""
    file = folder.base / FILE
    if not file.is_file():
        return None, []
    found, problems = read_trigger_file(file)
    if found is None:
        return None, problems
    name = found.shape.skill
    home = find_skill(name, folder, around.config.skill_directories, skills_at)
    tests = build_triggers([found], around._replace(folders={name: home} if home else {}))
    if home is None:
        known = skill_names(folder, around.config.skill_directories, skills_at)
        hint = did_you_mean(name, known) if known else "put it into skills/, or name its folder in skill_directories"
        lost = found.place.at("skill").warning(f"skill '{name}' was not found in this project; {hint}")
        tests = replace(tests, not_found=[lost])
        problems.append(lost)
    if clash := next((prompt.id for prompt in tests.prompts if prompt.id in taken), None):
        problems.append(found.place.problem(f"a task of the suite has the id '{clash}', which names a trigger test"))
    return tests, problems


def catalogue_files(folder: Path, place: SpecFolder, suites: Path) -> tuple[list[TriggerFile], dict[str, Path]]:
    """Return the trigger tests of every skill in a folder, and the folder of each skill.

    A skill's tests are in its folder, or in `evals` there; those at `suites`, if any, are for the skill they name.
    Raises SpecError for every mistake in them.
    """
    try:
        folders = find_skills([str(folder)], place)
    except ValueError as error:
        raise UsageError(f"--catalogue: {error}") from None
    files: list[TriggerFile] = []
    problems: list[Problem] = []
    for name, home in folders.items():
        file = next((path for path in (home / FILE, home / "evals" / FILE) if path.is_file()), None)
        found, wrong = read_trigger_file(file) if file else (None, [])
        problems += wrong
        if found is not None and found.shape.skill != name:
            problems.append(
                found.place.at("skill").problem(f"this is in the folder of skill '{name}'; test it under its name")
            )
        files += [found] if found else []
    own, wrong = read_trigger_file(suites) if suites.is_file() else (None, [])
    problems += wrong
    if own and own.shape.skill in folders and all(one.shape.skill != own.shape.skill for one in files):
        files.append(own)
    if problems:
        raise SpecError(problems)
    if not files:
        raise UsageError(f"--catalogue: no skill in {display_path(folder)} has a {FILE}")
    order = list(folders)
    return sorted(files, key=lambda file: order.index(file.shape.skill)), folders


def with_time(tests: TriggerTests, timeout_s: float) -> TriggerTests:
    """Return the tests with another time limit for every prompt."""
    return replace(tests, tasks=[changed(task, timeout_s=timeout_s) for task in tests.tasks])
