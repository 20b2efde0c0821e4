"""`waza new`: one more suite, task or grader."""

from __future__ import annotations

import re
from pathlib import Path

import click

from waza.cli._scaffold import EVAL, GRADER, TASK, schema_line, write_new
from waza.cli._screen import say
from waza.errors import UsageError
from waza.sandbox.folders import project_root

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")


@click.command(epilog="Example:  waza new suite refunds  ·  waza new task late-refund --suite evals/refunds")
@click.argument("kind", type=click.Choice(["suite", "task", "grader"]))
@click.argument("name")
@click.option("--suite", type=click.Path(path_type=Path), default=Path(), help="The suite a task goes into.")
def command(kind: str, name: str, suite: Path) -> int:
    """Add a suite, a task or a grader called NAME (lower-case letters, digits, - and _)."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"'{name}' cannot be a name here; use lower-case letters, digits, - and _")
    paths = {"suite": _suite, "task": _task, "grader": _grader}[kind](name, suite)
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
    folder = suite if suite.is_dir() else suite.parent
    if not (folder / "eval.yaml").is_file():
        raise UsageError(f"{folder} holds no eval.yaml; name the suite with --suite")
    task = folder / "tasks" / f"{name}.yaml"
    root = project_root(folder.resolve())
    return [write_new(task, schema_line(task.resolve(), root, "task") + TASK.format(name=name))]


def _grader(name: str, _: Path) -> list[Path]:
    module = name.replace("-", "_")
    class_name = "".join(part.capitalize() for part in module.split("_")) + "Grader"
    return [write_new(Path("graders") / f"{module}.py", GRADER.format(name=module, class_name=class_name))]
