"""`waza list`: runs, graders, engines, judges, reports, tasks, isolation."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from waza.cli._screen import console, emit, say, show_problems
from waza.errors import did_you_mean
from waza.runs.store import StoredRun
from waza.untrusted.text import visible


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
    from waza.graders.base import GRADERS
    from waza.suites.reference import grader_page

    return [{"type": name, "what it checks": grader_page(name).summary} for name in GRADERS.names()]


def _engines(_: Path) -> list[dict[str, object]]:
    from waza.engines.base import ENGINES
    from waza.suites.reference import engine_page

    return [
        {
            "engine": name.replace("_", "-") if name in ENGINES.built_in() else name,
            "what it runs": engine_page(name).summary,
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
    from waza.judges.base import JUDGES
    from waza.suites.reference import judge_page

    return [{"judge": name, "whom it asks": judge_page(name).summary} for name in JUDGES.names()]


def _reports(_: Path) -> list[dict[str, object]]:
    from waza.reports.base import REPORTS

    made = {name: REPORTS.load(name) for name in REPORTS.names()}
    return [{"report": name, "what it writes": _first_line(cls), "file": cls.file} for name, cls in made.items()]


def _first_line(cls: type) -> str:
    return (cls.__doc__ or "").strip().split("\n")[0]


def _isolation(_: Path) -> list[dict[str, object]]:
    from waza.process.isolation_probes import table

    return [dict(row) for row in table()]


def _tasks(path: Path) -> list[dict[str, object]]:
    from waza.suites.load import load_spec
    from waza.suites.local_code import NOT_CHECKED

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
    from waza.cli._runs import runs_parents
    from waza.runs.store import list_runs, newest_first

    stored = [run for parent in runs_parents(path) for run in list_runs(parent)]
    return [_run_row(run) for run in newest_first(stored)]


def _run_row(stored: StoredRun) -> dict[str, object]:
    from waza.runs.signing import word_of
    from waza.untrusted.text import score, seconds

    run, summary = stored.run, stored.summary
    if summary is None:
        return {
            "run": run.id,
            "suite": stored.problem,
            "engine": "",
            "model": "",
            "passed": "",
            "score": "",
            "time": "",
        }
    state = "" if stored.is_complete else " (not complete)"
    state += f" ({word_of(run.integrity)})" if run.integrity else ""
    return {
        "run": run.id,
        "suite": run.name,
        "engine": run.engine,
        "model": run.model,
        "passed": f"{summary.succeeded} of {summary.total_tests}{state}",
        "score": score(summary.weighted_score),
        "time": seconds(summary.duration_ms),
    }


_LISTINGS: dict[str, Callable[[Path], list[dict[str, object]]]] = {
    "graders": _graders,
    "isolation": _isolation,
    "engines": _engines,
    "judges": _judges,
    "reports": _reports,
    "runs": _runs,
    "tasks": _tasks,
}
