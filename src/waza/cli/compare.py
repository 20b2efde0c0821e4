"""`waza compare`: what changed between runs, and what that shows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click

from waza.analysis.changes import Comparison
from waza.analysis.compare import ComparisonMode, compare_runs
from waza.analysis.comparison import among
from waza.cli._runs import run_or_file
from waza.cli._screen import console, trust_option
from waza.cli._stdout import emit
from waza.errors import EXIT_FAILED, EXIT_PASSED, EXIT_UNDECIDED, UsageError
from waza.files.disk import write_atomically
from waza.reports.comparison import document
from waza.reports.document import markdown_document, print_document
from waza.reports.html.components import document_page
from waza.runs.remote_store import is_url
from waza.runs.store import run_before
from waza.untrusted.json import to_json


@dataclass(frozen=True)
class CompareOptions:
    """The command line of `waza compare`."""

    on: Literal["pass", "score"]
    margin: float
    these_tasks: bool
    anytime: bool
    as_graded: bool
    ask_judge: bool
    trust: bool
    fail_on: Literal["worse", "unclear"] | None
    form: Literal["table", "json", "markdown", "html"]
    as_json: bool
    output: Path | None
    verbose: bool

    @property
    def mode(self) -> ComparisonMode:
        """How the runs are compared."""
        return ComparisonMode(
            on=self.on,
            margin=self.margin,
            these_tasks=self.these_tasks,
            ask_judge=self.ask_judge,
            trust=self.trust,
            as_graded=self.as_graded,
            anytime=self.anytime,
        )


@click.command(epilog="Example:  waza compare  ·  waza compare 20260102 latest  ·  waza compare A B --format markdown")
@click.argument("runs", nargs=-1)
@click.option("--on", type=click.Choice(["pass", "score"]), default="pass", help="What the verdict is about.")
@click.option(
    "--margin",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.1,
    show_default=True,
    help="The smallest difference that matters, as a share.",
)
@click.option("--these-tasks", is_flag=True, help="Ask about these tasks alone, not about tasks like them.")
@click.option("--anytime", is_flag=True, help="A verdict on these tasks that stays valid however often you look.")
@click.option("--as-graded", is_flag=True, help="Compare the grades as they are, though the graders differ.")
@click.option("--ask-judge", is_flag=True, help="Let a judge be asked again where rubrics or judge changed.")
@trust_option
@click.option(
    "--fail-on",
    type=click.Choice(["worse", "unclear"]),
    help="Exit 1 when a run is worse; `unclear` also 3 when there is too little evidence.",
)
@click.option("--format", "form", type=click.Choice(["table", "json", "markdown", "html"]), default="table")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write it here.")
@click.option("-v", "--verbose", is_flag=True, help="Leave no task out.")
def command(runs: tuple[str, ...], **values: Any) -> int:
    """Compare runs: the first of RUNS with each of the others, task by task.

    A run is its folder, its id or the start of it, `latest`, `previous`, or a results.json. One run alone (default:
    `latest`) is compared with the run of the same suite before it. Tasks are paired by id. Where the graders differ,
    the earlier traces are graded by the later graders, and the change is split into the agent's part and the graders'.
    """
    options = CompareOptions(**values)
    folders = [run_or_file(run) for run in runs or ("latest",)]
    if len(folders) == 1 and runs and is_url(runs[0]):
        raise UsageError("name two runs: which one was before a run in a store is not looked up")
    if len(folders) == 1:
        folders.insert(0, run_before(folders[0]))
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise UsageError("these are the same run twice; `waza list runs` shows which there are")
    found = [compare_runs(folders[0], folder, options.mode) for folder in folders[1:]]
    if len(found) > 1:
        found = among(found)
    _show(found, options)
    return _exit_code(found, options.fail_on)


def _show(found: list[Comparison], options: CompareOptions) -> None:
    form = "json" if options.as_json else options.form
    output = None if options.output == Path("-") else options.output
    if form == "table" and output is None:
        for comparison in found:
            print_document(document(comparison, whole=options.verbose), console())
        return
    blocks = [block for comparison in found for block in document(comparison, whole=options.verbose)]
    if form == "json":
        data = [to_json(comparison) for comparison in found]
        text = json.dumps(data[0] if len(data) == 1 else data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    else:
        text = document_page(blocks, "waza compare") if form == "html" else markdown_document(blocks)
    if output is None:
        emit(text, nl=False)
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(output, text.encode(), mode=0o644)


def _exit_code(found: list[Comparison], fail_on: str | None) -> int:
    words = {comparison.verdict.word for comparison in found}
    if fail_on and "worse" in words:
        return EXIT_FAILED
    if fail_on == "unclear" and ("too little evidence" in words or not all(one.holds for one in found)):
        return EXIT_UNDECIDED
    return EXIT_PASSED
