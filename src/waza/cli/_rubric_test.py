"""`waza rubric test`: goldens put to a judge, with a bar while it goes on and a table at the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from waza.cli._screen import console, remark, say
from waza.cli._stdout import emit
from waza.errors import EXIT_FAILED, EXIT_PASSED, EXIT_UNDECIDED, SpecError, UsageError
from waza.files.paths import SpecFolder
from waza.graders.prompt import PromptGrader
from waza.judges.base import Judge
from waza.judges.rubrics import BUILT_IN, Golden, Rubric, find_rubric, read_rubric, ref_kind
from waza.runner.judge_checks import Agreement, Opinion, agreement, oracle, put_goldens
from waza.suites.judges import chosen_judge, judge_settings, refuse_untrusted_hosts
from waza.suites.load import load_spec
from waza.suites.positions import Position, read_project
from waza.suites.shapes import ConfigShape
from waza.untrusted.text import clipped, percent, plural, visible

ORACLE_REMARK = (
    "The answers are those the goldens expect: this shows that everything around a judge works, nothing about one."
)
REASON_WIDTH = 70


class Tested(NamedTuple):
    """A rubric and the judge's verdicts on its goldens."""

    rubric: Rubric
    opinions: list[Opinion]


def test_rubrics(
    refs: list[str], *, oracle: bool, judge_model: str, suite: Path | None, min_agreement: float, as_json: bool
) -> int:
    """Put the goldens of each rubric to the judge, show the outcome, and return the exit code."""
    chosen = [located(ref) for ref in refs]
    if without := [rubric.name for _, rubric in chosen if not rubric.goldens]:
        raise UsageError(f"{', '.join(without)}: no goldens, so there is nothing to test; add some to the frontmatter")
    judge = None if oracle else judge_of(judge_model, suite)
    tested = _put(chosen, judge)
    in_all = agreement([opinion for item in tested for opinion in item.opinions])
    if as_json:
        emit(json.dumps(_as_json(tested, in_all, oracle)))
    else:
        _show(tested, in_all)
        if oracle:
            remark(ORACLE_REMARK, "cyan")
    return _exit_code(in_all, min_agreement)


def located(ref: str) -> tuple[PromptGrader, Rubric]:
    """Return a rubric with the grader that uses it; a path is taken from here, wherever it leads.

    Raises ValueError with what is wrong with it.
    """
    folder = SpecFolder()
    if ref_kind(ref) != BUILT_IN:
        path = Path(ref)
        read_rubric(path, ref)
        folder, ref = SpecFolder(path.parent), f"./{path.name}"
    rubric = find_rubric(ref, folder)
    return PromptGrader(rubric=ref, folder=folder), rubric


def _put(chosen: list[tuple[PromptGrader, Rubric]], judge: Judge | None) -> list[Tested]:
    def judge_for(rubric: Rubric, golden: Golden) -> Any:
        return oracle(rubric, golden) if judge is None else judge

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    screen = console(stderr=True)
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as progress:
        bar = progress.add_task("goldens", total=sum(len(rubric.goldens) for _, rubric in chosen))
        tested = []
        for grader, rubric in chosen:
            progress.update(bar, description=rubric.name)
            tested.append(Tested(rubric, put_goldens(rubric, grader, judge_for, lambda _: progress.advance(bar))))
    return tested


def _exit_code(found: Agreement, least: float) -> int:
    if found.agreed < least * found.decided:
        return EXIT_FAILED
    return EXIT_UNDECIDED if found.undecided else EXIT_PASSED


def _show(tested: list[Tested], in_all: Agreement) -> None:
    for rubric, opinions in tested:
        say(f"{rubric.name} {rubric.version}", "bold")
        table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
        for column in ("", "golden", "expected", "verdict", "reason"):
            table.add_column(column)
        for opinion in opinions:
            table.add_row(*_cells(opinion))
        console().print(table)
        say(f"{_sentence(agreement(opinions))}\n")
    if len(tested) > 1:
        say(f"in all: {_sentence(in_all)}", "bold")


def _cells(opinion: Opinion) -> list[Text]:
    mark, style = {True: ("✓", "green"), False: ("✗", "bold red"), None: ("?", "yellow")}[opinion.agrees]
    verdict = "no verdict" if opinion.said is None else str(opinion.said)
    reason = "" if opinion.agrees else clipped(visible(opinion.reason), REASON_WIDTH)
    return [Text(mark, style), Text(visible(opinion.golden)), Text(str(opinion.expected)), Text(verdict), Text(reason)]


def _sentence(found: Agreement) -> str:
    """Return an agreement as people say it."""
    if found.interval is None:
        return f"no verdict on any of {plural(found.undecided, 'golden')}"
    share, low, high = (percent(number) for number in (found.interval.mean, found.interval.lower, found.interval.upper))
    rest = f"; {found.undecided} without a verdict" if found.undecided else ""
    return (
        f"agrees on {found.agreed} of {plural(found.decided, 'golden')} ({share}, 95 % interval {low} to {high}){rest}"
    )


def _as_json(tested: list[Tested], in_all: Agreement, is_oracle: bool) -> dict[str, Any]:
    rubrics = [
        {
            "rubric": {"name": rubric.name, "version": rubric.version, "scale": rubric.scale, "hash": rubric.hash},
            "goldens": msgspec.to_builtins(opinions),
            "agreement": msgspec.to_builtins(agreement(opinions)),
        }
        for rubric, opinions in tested
    ]
    return {"rubrics": rubrics, "agreement": msgspec.to_builtins(in_all), "oracle": is_oracle}


def judge_of(model: str, suite: Path | None) -> Judge:
    """Return the judge of a suite, or of this project; raise SpecError or UsageError if there is none to ask."""
    if suite:
        spec = load_spec(suite, only_look=True)
        settings, place, folder = judge_settings(spec.project, spec.config), spec.place, spec.folder
    else:
        project, problems = read_project(Path.cwd())
        if wrong := [problem for problem in problems if problem.severity == "error"]:
            raise SpecError(wrong)
        settings = judge_settings(project, ConfigShape(judge_model=project.defaults.judge_model))
        place, folder = Position(".waza.yaml"), SpecFolder()
    if not settings and not model:
        raise UsageError("no judge is set up; put `judge:` into .waza.yaml, or give --oracle to try the plumbing")
    judge = chosen_judge(settings, place.at("judge"), folder, model=model)
    refuse_untrusted_hosts([judge], folder)
    if not judge.model and judge.needs_model:
        raise UsageError("the judge has no model; name one in judge.model, or with --judge-model")
    return judge
