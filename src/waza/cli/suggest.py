"""`waza suggest`: tests for a skill, from its own words."""

from __future__ import annotations

import re
from pathlib import Path

import click

from waza.cli._new_files import prompt_lines, suite_files
from waza.cli._screen import remark, say
from waza.errors import EXIT_PASSED, EXIT_UNDECIDED, JudgeError, UsageError
from waza.files.paths import SpecFolder, display_path, project_root
from waza.skills import MARK
from waza.suites.judges import chosen_judge, judge_settings, refuse_untrusted_hosts, settings_place
from waza.suites.positions import Position, read_project
from waza.suites.shapes import ConfigShape
from waza.suites.skill_prompts import MOST, Suggestions, from_model, from_phrases
from waza.suites.skills import SkillFile, find_skill, read_skill_file
from waza.suites.triggers import read_trigger_file
from waza.untrusted.text import fold_case, plural, visible

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
"""What a skill may be called."""


@click.command(epilog="Example:  waza suggest skills/csv-report  ·  waza suggest csv-report --write")
@click.argument("skill")
@click.option("--write", is_flag=True, help="Write the files; what is there already is never changed.")
@click.option(
    "--into", type=click.Path(path_type=Path), help="The suite's folder; evals/NAME, or where the tests already are."
)
@click.option("--count", type=click.IntRange(1, 50), default=MOST, show_default=True, help="Prompts of each kind.")
@click.option("--offline", is_flag=True, help="Ask no model, though a judge is configured.")
@click.option("--judge-model", default="", help="The model to ask, instead of the configured judge's.")
def command(skill: str, write: bool, into: Path | None, count: int, offline: bool, judge_model: str) -> int:
    """Suggest trigger tests and tasks for SKILL: a SKILL.md, its folder, or the name of a skill of this project.

    They come from its `USE FOR:` and `DO NOT USE FOR:` phrases; where a judge is configured (`judge:` in .waza.yaml),
    its model is asked instead. Without --write they are only shown. Exit code 3: the model gave no usable answer.
    """
    found = read_skill_file(_folder(skill) / MARK)
    name = found.name or found.path.parent.name
    if not _NAME.fullmatch(name):  # it names folders and files below: a skill may come from anywhere
        raise UsageError(
            f"{display_path(found.path)}: '{visible(name)}' cannot be a skill's name; `waza check` says why"
        )
    try:
        suggested = _suggestions(found, name, count, offline, judge_model)
    except JudgeError as error:
        remark(f"{error}; `--offline` takes the phrases of the description", "bold red")
        return EXIT_UNDECIDED
    if not suggested.should_trigger:
        fact = "its description has no `USE FOR:` phrases, and no judge is configured"
        raise UsageError(f"{display_path(found.path)}: {fact}; add phrases a user would say, or `judge:` to .waza.yaml")
    folder = into or _suite_folder(found, name)
    files = suite_files(name, suggested, folder)
    if write:
        _write(files, suggested)
    else:
        for path, text in files.items():
            say(f"# {path}" + (" (there already, would be left as it is)" if path.exists() else ""), "bold")
            say(text)
        say("Nothing was written; --write does.", "dim")
    return EXIT_PASSED


def _folder(skill: str) -> Path:
    """Return the folder of the skill that is meant."""
    path = Path(skill)
    if path.name == MARK and path.is_file():
        return path.resolve().parent
    if (path / MARK).is_file():
        return path.resolve()
    root = project_root(Path.cwd())
    found = find_skill(skill, SpecFolder(Path.cwd(), root), [], read_project(root)[0].paths.skills)
    if found is None:
        raise UsageError(f"no skill '{skill}': name a SKILL.md, its folder, or a skill below {display_path(root)}")
    return found


def _suite_folder(skill: SkillFile, name: str) -> Path:
    """Return the folder for tests of a skill: its own if it has tests, else `evals/NAME`."""
    folder = skill.path.parent
    if any((folder / file).is_file() for file in ("eval.yaml", "trigger_tests.yaml")):
        return Path(display_path(folder))
    return Path("evals") / name


def _suggestions(skill: SkillFile, name: str, count: int, offline: bool, model: str) -> Suggestions:
    root = project_root(skill.path.parent)
    project, _ = read_project(root)
    config, folder = ConfigShape(judge_model=project.defaults.judge_model), SpecFolder(root, root)
    settings = judge_settings(project, config)
    if offline or not (settings or model):
        return from_phrases(name, skill.description, count)
    judge = chosen_judge(settings, settings_place(project, config, Position(), folder), folder, model=model)
    refuse_untrusted_hosts([judge], folder)
    remark(f"asking {judge.type_name()} {model or judge.model}".rstrip())
    return from_model(skill, judge, count)


def _write(files: dict[Path, str], suggested: Suggestions) -> None:
    """Write what is not there yet, and say what is."""
    for path, text in files.items():
        if path.exists() or path.is_symlink():
            remark(f"{path} is there already and was left as it is", "yellow")
            if path.name == "trigger_tests.yaml":
                _say_what_it_lacks(path, suggested)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
        say(f"wrote {path}")
    say(f"\nNext:  read them, then  waza run {next(iter(files)).parent}")


def _say_what_it_lacks(path: Path, suggested: Suggestions) -> None:
    """Print the prompts that a file of trigger tests does not have, to be taken over by hand."""
    there, _ = read_trigger_file(path)
    lists = (*there.shape.should_trigger_prompts, *there.shape.should_not_trigger_prompts) if there else ()
    known = {fold_case(entry.prompt.strip()) for entry in lists}
    for key, prompts in (
        ("should_trigger_prompts", suggested.should_trigger),
        ("should_not_trigger_prompts", suggested.should_not_trigger),
    ):
        if new := [prompt for prompt in prompts if fold_case(prompt.prompt.strip()) not in known]:
            say(f"{plural(len(new), 'prompt')} it does not have yet, for {key}:")
            say(visible(prompt_lines(new), lines=True))
