"""`waza list`: runs, graders, engines, judges, reports, tasks, isolation."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from waza.cli._screen import console, say, show_problems
from waza.cli._stdout import emit
from waza.errors import did_you_mean
from waza.plugins import Folder
from waza.untrusted.text import visible

# Not those of `graders.base` and `judges.base`: importing these takes longer than reading every summary.
_GRADERS, _JUDGES = Folder("graders", "Grader"), Folder("judges", "Judge")


@click.command(epilog="Example:  waza list graders  ·  waza list tasks evals/greeter  ·  waza list runs")
@click.argument("kind", default="graders")
@click.argument("path", type=click.Path(path_type=Path), required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
def command(kind: str, path: Path | None, as_json: bool) -> int:
    """List graders, engines, judges, reports, the tasks of a suite, stored runs, or what isolation holds here.

    KIND is graders (default), engines, judges, reports, tasks, runs or isolation, which tries on this machine what a
    program gets through to. PATH is the suite or project folder for tasks
    and runs.
    """
    if kind not in _LISTINGS:
        raise click.UsageError(f"'{kind}' cannot be listed; {did_you_mean(kind, list(_LISTINGS))}")
    rows = _LISTINGS[kind](path or Path())
    for row in rows:
        if as_json:
            emit(json.dumps(row))
    if not as_json:
        _table(rows, kind)
    return 0


def _graders(_: Path) -> list[dict[str, object]]:
    return [{"type": name, "what it checks": _GRADERS.summary(name)} for name in _GRADERS.names()]


def _engines(_: Path) -> list[dict[str, object]]:
    from waza.engines.base import ENGINES  # engines load pydantic; other lists do without

    return [
        {
            "engine": name.replace("_", "-") if name in ENGINES.built_in() else name,
            "what it runs": ENGINES.summary(name),
            "program": _installed(ENGINES.load(name)),
        }
        for name in ENGINES.names()
    ]


def _installed(engine: Any) -> str:
    """Say whether the program an engine starts is here, and how to get it if not."""
    if not engine.program:
        return ""
    return f"{engine.program} is installed" if engine.locate() else f"not installed: {engine.install}"


def _judges(_: Path) -> list[dict[str, object]]:
    return [{"judge": name, "whom it asks": _JUDGES.summary(name)} for name in _JUDGES.names()]


def _reports(_: Path) -> list[dict[str, object]]:
    from waza.reports.base import REPORTS  # only `list reports` needs it

    return [
        {"report": name, "what it writes": REPORTS.summary(name), "file": REPORTS.load(name).file}
        for name in REPORTS.names()
    ]


def _isolation(_: Path) -> list[dict[str, object]]:
    from waza.process.isolation_probes import table  # only `list isolation` needs it

    return [dict(row) for row in table()]


def _tasks(path: Path) -> list[dict[str, object]]:
    from waza.suites.load import load_spec  # suites load pydantic; other lists do without
    from waza.suites.local_code import NOT_CHECKED  # as above

    spec = load_spec(path, only_look=True)
    show_problems(note for note in spec.notes if note.severity == NOT_CHECKED)
    return [
        {
            "task": task.id,
            "tags": ", ".join(task.tags),
            "graders": ", ".join(grader.name for grader in spec.graders[task.id]),
            "prompt": task.prompt,
        }
        for task in spec.tasks
    ]


def _table(rows: list[dict[str, object]], kind: str) -> None:
    from rich.table import Table
    from rich.text import Text

    if not rows:
        say(f"no {kind} here")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for position, column in enumerate(rows[0]):
        table.add_column(column, no_wrap=position == 0, overflow="ellipsis" if column == "prompt" else "fold",
                         max_width=60 if column == "prompt" else None)  # fmt: skip
    for row in rows:
        table.add_row(*(Text(visible(str(value))) for value in row.values()))
    console().print(table)


def _runs(path: Path) -> list[dict[str, object]]:
    from waza.cli.runs import short_rows  # it loads the run store, which no other listing needs

    return short_rows(path)


_LISTINGS: dict[str, Callable[[Path], list[dict[str, object]]]] = {
    "graders": _graders,
    "isolation": _isolation,
    "engines": _engines,
    "judges": _judges,
    "reports": _reports,
    "runs": _runs,
    "tasks": _tasks,
}
