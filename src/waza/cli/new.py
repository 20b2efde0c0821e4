"""`waza new`: one more suite, task or grader."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click

from waza.cli._scaffold import EVAL, GRADER, TASK, schema_line, write_new
from waza.cli._screen import remark, say
from waza.errors import SpecError, TraceError, UsageError
from waza.sandbox.folders import project_root

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")


@click.command(epilog="Example:  waza new suite refunds  ·  waza new task --from run.jsonl --suite evals/refunds")
@click.argument("kind", type=click.Choice(["suite", "task", "grader"]))
@click.argument("name", required=False)
@click.option("--suite", type=click.Path(path_type=Path), default=Path(), help="The suite a task goes into.")
@click.option(
    "--from",
    "recording",
    type=click.Path(path_type=Path),
    help="Write the task from a recording of an agent (any format `waza import` knows): its prompt, and what happened "
    "as checks. A file with several traces gives a task each.",
)
@click.option("--prompt", default="", help="With --from: the prompt, where the recording does not tell it.")
def command(kind: str, name: str | None, suite: Path, recording: Path | None, prompt: str) -> int:
    """Add a suite, a task or a grader called NAME (lower-case letters, digits, - and _).

    A task written with --from is called after the recording's file where NAME is left out.
    """
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
    made: dict[str, Any] = {"suite": _suite, "task": _task, "grader": _grader}
    paths = made[kind](name, suite)
    for path in paths:
        say(f"wrote {path}")
    nexts = {
        "suite": f"waza run {paths[0].parent}",
        "task": f"waza run {suite} --task {name}",
        "grader": "use it from Python, or announce it in your package: entry point group `waza.graders`",
    }
    say(f"\nNext:  {nexts[kind]}")
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
    from waza.cli._recorded_task import task_text
    from waza.sandbox.yaml12 import read_yaml
    from waza.traces._read import read_found

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
    from waza.spec.load import load_spec

    try:
        known = {task.id for task in load_spec(suite).tasks}
    except SpecError as error:
        remark(f"the suite has mistakes: {error}", "yellow")
        return
    if missing := [path for path in texts if path.stem not in known]:
        remark(
            f'the suite does not name {missing[0]}: add it to `tasks:` in eval.yaml, such as "tasks/*.yaml"', "yellow"
        )
