"""`waza docs`: the reference, made from the docstrings and fields of the program itself."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from waza.cli import COMMANDS, cli
from waza.cli._screen import say
from waza.engines.base import ENGINES
from waza.engines.mock import MockFile
from waza.errors import EXIT_FAILED, EXIT_PASSED, Problem, SpecError
from waza.graders.base import GRADERS
from waza.judges.base import JUDGES
from waza.suites.load import read_spec
from waza.suites.positions import Position, parse, unmarked
from waza.suites.reference import ReferencePage, engine_page, grader_page, judge_page, page_of
from waza.suites.shapes import (
    AgentShape,
    ConfigShape,
    ControlsShape,
    EvalShape,
    FileShape,
    HookShape,
    HooksShape,
    InputsShape,
    MetricShape,
    ProjectShape,
    TaskShape,
    TriggerPromptShape,
    TriggerShape,
)
from waza.untrusted.text import plural
from waza.untrusted.yaml import read_yaml


@click.command(epilog="Example:  waza docs -o docs/reference  ·  waza docs --check")
@click.option(
    "-o", "--output", "folder", type=click.Path(path_type=Path), default=Path("docs/reference"), show_default=True
)
@click.option("--check", is_flag=True, help="Write nothing; fail if anything is undocumented or an example is wrong.")
def command(folder: Path, check: bool) -> int:
    """Write the reference pages: every grader, engine, file and command.

    With --check, say which option has no text and which example does not load; docs/guide and README are read too.
    """

    if check:
        found = faults(Path())
        for fault in found:
            say(fault)
        say(f"{plural(len(found), 'fault')}; mend the docstring or the page named, then run `waza docs --check` again"
            if found else "reference ok: every option has a text, every example loads")  # fmt: skip
        return EXIT_FAILED if found else EXIT_PASSED
    written = 0
    for name, text in pages().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written += 1
    say(f"wrote {plural(written, 'page')} to {folder}")
    return EXIT_PASSED


_FILES = {
    "eval.yaml": (EvalShape, ConfigShape, AgentShape, HooksShape, HookShape, MetricShape),
    "task files": (TaskShape, InputsShape, FileShape),
    "trigger_tests.yaml": (TriggerShape, TriggerPromptShape, ControlsShape),
    ".waza.yaml": (ProjectShape,),
}
_YAML_BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.S | re.M)
_GRADER = {"type": "text", "name": "polite", "config": {"contains": ["x"]}}
_NOT_THERE = ("is not there", "is not loaded", "no fixture", "was not found", "no task file fits")
"""An example may name a file that only the reader has."""


def pages() -> dict[str, str]:
    """Return every page of the reference by its path."""
    made = {f"graders/{name}.md": _page(grader_page(name), f"Grader `{name}`") for name in GRADERS.built_in()}
    made |= {f"engines/{name}.md": _page(engine_page(name), f"Engine `{name}`") for name in ENGINES.built_in()}
    made |= {f"judges/{name}.md": _page(judge_page(name), f"Judge `{name}`") for name in JUDGES.built_in()}
    made["files.md"] = _files_page()
    made["commands.md"] = _commands_page()
    made["index.md"] = _index()
    return made


def faults(root: Path) -> list[str]:
    """Return what is undocumented and which examples do not load."""
    found = []
    for name in GRADERS.built_in():
        found += [f"grader {name}: {fault}" for fault in _page_faults(grader_page(name))]
    for name in ENGINES.built_in():
        found += [f"engine {name}: {fault}" for fault in _page_faults(engine_page(name))]
    for name in JUDGES.built_in():
        found += [f"judge {name}: {fault}" for fault in _page_faults(judge_page(name))]
    for shapes in _FILES.values():
        for shape in shapes:
            found += [f"{shape.__name__}: {fault}" for fault in _field_faults(page_of(shape.__name__, shape))]
    for page in sorted([*root.glob("docs/guide/*.md"), *root.glob("README.md")]):
        found += [f"{page}: {fault}" for fault in _guide_faults(page)]
    return found


def _page(page: ReferencePage, title: str) -> str:
    parts = [f"# {title}", page.text]
    if page.example:
        parts.append(f"```{page.language}\n{page.example}\n```")
    parts.append(_table(page))
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(page: ReferencePage) -> str:
    if not page.fields:
        return ""
    rows = ["| key | type | default | |", "|---|---|---|---|"]
    for field in page.fields:
        default = "**required**" if field.required else field.default
        cells = (f"`{field.key}`", field.type, default, field.text.replace("\n", " "))
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def _files_page() -> str:
    parts = ["# Files"]
    for name, shapes in _FILES.items():
        parts.append(f"## {name}")
        for shape in shapes:
            page = page_of(shape.__name__, shape)
            parts += [page.summary, _table(page)]
    return "\n\n".join(parts) + "\n"


def _commands_page() -> str:
    parts = ["# Commands"]
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        if command is not None:
            parts += [f"## waza {name}", _help(command, name)]
            for verb, inner in getattr(command, "commands", {}).items():
                parts += [f"### waza {name} {verb}", _help(inner, f"{name} {verb}")]
    return "\n\n".join(parts) + "\n"


def _help(command: click.Command, name: str) -> str:
    context = click.Context(command, info_name=f"waza {name}", terminal_width=100, max_content_width=100)
    return f"```\n{command.get_help(context)}\n```"


def _index() -> str:
    graders = [f"- [`{name}`](graders/{name}.md): {grader_page(name).summary}" for name in GRADERS.built_in()]
    engines = [f"- [`{name}`](engines/{name}.md): {engine_page(name).summary}" for name in ENGINES.built_in()]
    judges = [f"- [`{name}`](judges/{name}.md): {judge_page(name).summary}" for name in JUDGES.built_in()]
    head = "# Reference\n\n[Files](files.md) · [Commands](commands.md)"
    return "\n".join([head, "\n## Graders\n", *graders, "\n## Engines\n", *engines, "\n## Judges\n", *judges]) + "\n"


def _page_faults(page: ReferencePage) -> Iterator[str]:
    if not page.example:
        yield "the docstring has no example"
    elif page.language == "yaml":
        yield from _example_faults(page.example)
    yield from _field_faults(page)


def _field_faults(page: ReferencePage) -> Iterator[str]:
    for field in page.fields:
        if not field.text:
            yield f"option '{field.key}' has no text under it"


def _example_faults(example: str) -> Iterator[str]:
    """Yield what is wrong with an example: graders, a suite, a task, a project, mock scripts, trigger tests."""
    try:
        data: Any = read_yaml(example, "example")
    except SpecError as error:
        yield from map(str, error.problems)
        return
    if isinstance(data, dict) and ("default" in data or "triggers" in data):
        problems = parse(MockFile, data, Position("example", data))[1]
    elif isinstance(data, dict) and "should_trigger_prompts" in data:
        problems = parse(TriggerShape, data, Position("example", data))[1]
    elif isinstance(data, dict) and "paths" in data:
        problems = parse(ProjectShape, data, Position("example", data))[1]
    else:
        problems = _suite_problems(unmarked(data))
    yield from (problem.message for problem in problems if not any(words in problem.message for words in _NOT_THERE))


def _suite_problems(data: Any) -> list[Problem]:
    """Return the mistakes in an example, made a whole suite by what it leaves out."""
    suite: dict[str, Any] = {"graders": [_GRADER], "tasks": [{"id": "example", "prompt": "x"}]}
    if isinstance(data, list):
        suite["graders"] = data
    elif isinstance(data, dict) and ("id" in data or "inputs" in data):
        suite["tasks"] = [data]
    elif isinstance(data, dict) and "judge" in data:
        suite["config"] = {"judge": data["judge"]}
    elif isinstance(data, dict):
        suite |= data
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "eval.yaml"
        file.write_text(json.dumps(suite), encoding="utf-8")
        return [problem for problem in read_spec(file)[1] if problem.severity == "error"]


def _guide_faults(page: Path) -> Iterator[str]:
    text = page.read_text(encoding="utf-8")
    for block in _YAML_BLOCK.findall(text):
        yield from _example_faults(block)
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        if "reference/" not in target and not (page.parent / target).exists():
            yield f"the link to {target} leads nowhere"
