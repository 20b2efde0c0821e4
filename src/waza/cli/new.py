"""`waza new`: one more suite, task, grader or skill."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click

from waza.cli._scaffold import EVAL, GRADER, PROJECT, TASK, schema_line, write_new
from waza.cli._screen import remark, say
from waza.errors import SpecError, TraceError, UsageError
from waza.files.paths import PROJECT_MARKS, project_root

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
_ABOUT = "Says in a sentence what {name} does and for whom; agents choose it by these words alone, so make them plain."


@click.command(epilog="Example:  waza new skill csv-report  ·  waza new task --from run.jsonl --suite evals/refunds")
@click.argument("kind", type=click.Choice(["suite", "task", "grader", "skill"]))
@click.argument("name", required=False)
@click.option("--suite", type=click.Path(path_type=Path), default=Path(), help="The suite a task goes into.")
@click.option(
    "--from",
    "recording",
    type=click.Path(path_type=Path),
    help="Write the task from a recording of an agent (any format `waza import` knows): its prompt, and what happened "
    "as checks. A file with several traces gives a task each.",
)
@click.option("--prompt", default="", help="With --from: the prompt, if the recording does not have it.")
@click.option("--about", default="", help="For a skill: what it does, in a sentence.")
@click.option("--use-for", multiple=True, help="For a skill: a phrase by which users would ask for it; repeat it.")
@click.option("--not-for", multiple=True, help="For a skill: a phrase that is for something else; repeat it.")
def command(
    kind: str,
    name: str | None,
    suite: Path,
    recording: Path | None,
    prompt: str,
    about: str,
    use_for: tuple[str, ...],
    not_for: tuple[str, ...],
) -> int:
    """Add a suite, a task, a grader or a skill called NAME (lower-case letters, digits, - and _).

    A task written with --from is called after the recording's file where NAME is left out. A skill gets a SKILL.md
    below skills/, and a suite with trigger tests below evals/ that runs at once, offline.
    """
    if kind != "skill" and (about or use_for or not_for):
        raise UsageError("--about, --use-for and --not-for are for skills: waza new skill NAME")
    if kind != "task" and (recording or prompt):
        raise UsageError("--from and --prompt are for tasks: waza new task --from FILE")
    if prompt and not recording:
        raise UsageError("--prompt goes with --from FILE")
    if name is None and recording is None:
        raise UsageError(f"what is the {kind} called? waza new {kind} NAME")
    if name is None and recording is not None:
        name = re.sub(r"[^a-z0-9_-]+", "-", recording.stem.lower()).strip("-_") or "recorded"
    if not _NAME.fullmatch(str(name)):
        raise UsageError(f"'{name}' cannot be a name here; use lower-case letters, digits, - and _")
    if recording is not None:
        return _from_recording(str(name), suite, recording, prompt)
    if kind == "skill":
        return _skill(str(name), about, list(use_for), list(not_for))
    made: dict[str, Any] = {"suite": _suite, "task": _task, "grader": _grader}
    paths = made[kind](name, suite)
    for path in paths:
        say(f"wrote {path}")
    nexts = {
        "suite": f"waza run {paths[0].parent}",
        "task": f"waza run {suite} --task {name}",
        "grader": f"name it in a suite (`type: ./{paths[0].as_posix()}`) and trust this folder: waza trust",
    }
    say(f"\nNext:  {nexts[kind]}")
    return 0


def _skill(name: str, about: str, use_for: list[str], not_for: list[str]) -> int:
    """Write a skill and a suite that tests it, all files or none."""
    from waza.cli._new_files import default_description, skill_text, suite_files  # only `new skill` needs it
    from waza.suites.skill_prompts import from_phrases  # as above
    from waza.suites.skills import MOST_NAME  # as above

    if "_" in name or "--" in name or name.endswith("-") or len(name) > MOST_NAME:
        raise UsageError(
            f"'{name}' cannot be a skill's name: lower-case letters, digits and single hyphens between them"
        )
    if quoting := next((phrase for phrase in (*use_for, *not_for) if '"' in phrase or not phrase.strip()), None):
        raise UsageError(f"{quoting!r} cannot be a phrase of a description: it is empty, or has a quote in it")
    uses, others = use_for or [f"help me with {name}"], not_for or ["tell me a joke"]
    description = default_description(uses, others, about or _ABOUT.format(name=name))
    root = project_root(Path.cwd())
    texts = {Path("skills") / name / "SKILL.md": skill_text(name, description)}
    texts |= suite_files(name, from_phrases(name, description), Path("evals") / name)
    if not any((root / mark).exists() for mark in PROJECT_MARKS):
        texts[Path(".waza.yaml")] = PROJECT  # the skill is found from the project's root
    if taken := next((path for path in texts if path.exists()), None):
        raise UsageError(f"{taken} is there already; remove it first, or choose another name")
    for path, text in texts.items():
        say(f"wrote {write_new(path, text)}")
    say(f"\nNext:  write skills/{name}/SKILL.md, then  waza check  and  waza run evals/{name}")
    return 0


def _suite(name: str, _: Path) -> list[Path]:
    root = project_root(Path.cwd())
    suite = Path("evals") / name / "eval.yaml"
    task = suite.parent / "tasks" / "greet.yaml"
    return [
        write_new(suite, schema_line(suite.resolve(), root, "eval") + EVAL.format(name=name)),
        write_new(task, schema_line(task.resolve(), root, "task") + TASK.format(name="greet")),
    ]


def _task(name: str, suite: Path) -> list[Path]:
    path, head = _task_file(name, suite)
    return [write_new(path, head + TASK.format(name=name))]


def _task_file(name: str, suite: Path) -> tuple[Path, str]:
    """Return where a task of a suite goes, and its first line."""
    folder = suite if suite.is_dir() else suite.parent
    if not (folder / "eval.yaml").is_file():
        raise UsageError(f"{folder} holds no eval.yaml; name the suite with --suite, or start one with `waza init`")
    path = folder / "tasks" / f"{name}.yaml"
    return path, schema_line(path.resolve(), project_root(folder.resolve()), "task")


def _grader(name: str, _: Path) -> list[Path]:
    module = name.replace("-", "_")
    class_name = "".join(part.capitalize() for part in module.split("_")) + "Grader"
    return [write_new(Path("graders") / f"{module}.py", GRADER.format(name=module, class_name=class_name))]


def _from_recording(name: str, suite: Path, recording: Path, prompt: str) -> int:
    """Write a task for each trace of a recording, all of them or none, and say what to do next."""
    texts = _recorded_tasks(name, suite, recording, prompt)
    if taken := next((path for path in texts if path.exists()), None):
        raise UsageError(f"{taken} is there already; remove it first, or choose another name")
    for path, text in texts.items():
        say(f"wrote {write_new(path, text)}")
    names = name if len(texts) == 1 else f"{name}*"
    chosen = ["--task", names]
    say("\nNext:  " + shlex.join(["waza", "grade", str(recording), "--graders", str(suite), *chosen]))
    say("       grades the recording by it; look through the checks, then let the agent try:")
    say("       " + shlex.join(["waza", "run", str(suite), *chosen]))
    _say_if_not_in(suite, texts)
    return 0


def _recorded_tasks(name: str, suite: Path, recording: Path, prompt: str) -> dict[Path, str]:
    """Return the text of each task file; raise UsageError when one of them could not be written or read again."""
    from waza.cli._new_files import task_text  # only `new task --from` needs it
    from waza.traces.reading import read_found  # as above
    from waza.untrusted.yaml import read_yaml  # as above

    texts: dict[Path, str] = {}
    try:
        for number, found in enumerate(read_found(recording), 1):
            identity = name if number == 1 else f"{name}-{number}"
            path, head = _task_file(identity, suite)
            for note in [
                *found.notes,
                *([f"it ended with an error: {found.trace.error}"] if found.trace.error else []),
            ]:
                remark(f"{recording}: {note}", "yellow")
            texts[path] = head + task_text(found.trace, identity, recording.name, prompt)
            read_yaml(texts[path].encode(), str(path))
    except (TraceError, SpecError) as error:
        raise UsageError(str(error)) from None
    return texts


def _say_if_not_in(suite: Path, texts: dict[Path, str]) -> None:
    """Say it when the suite does not take in what was written."""
    from waza.suites.load import load_spec  # suites load pydantic; only new tasks of a suite need it

    try:
        known = {task.id for task in load_spec(suite, only_look=True).tasks}
    except SpecError as error:
        remark(f"the suite has mistakes: {error}", "yellow")
        return
    if missing := [path for path in texts if path.stem not in known]:
        remark(
            f'the suite does not name {missing[0]}: add it to `tasks:` in eval.yaml, such as "tasks/*.yaml"', "yellow"
        )
