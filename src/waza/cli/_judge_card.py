"""`waza judge card`: a bar while the judge is asked, and a table of what it did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import msgspec
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from waza.cli._rubric_test import judge_of, located
from waza.cli._screen import console, remark, say
from waza.cli._stdout import emit
from waza.errors import UsageError
from waza.graders.prompt import PromptGrader
from waza.judges._base import Judge
from waza.judges.rubrics import BUILT_IN, Rubric, ref_kind
from waza.reports._text import percent, plural, visible
from waza.results.cards import JudgeCard, Probe, write_card
from waza.results.stats.invariance import Invariance
from waza.runner.judge_card import make_card, questions
from waza.sandbox.folders import SpecFolder
from waza.spec.load import find_eval

TITLES = {
    "retest": "asked again, nothing changed",
    "paraphrase": "the output in other words",
    "reordered": "the criteria in another order",
    "padding": "failing outputs, padded",
    "signature": "failing outputs, signed with its name",
    "position": "two outputs, swapped",
    "longer": "padded against plain",
    "own_name": "its own name against another's",
    "attacks": "failing outputs that ask for a pass",
}
"""What stayed the same, by probe."""


class Chosen(NamedTuple):
    """A rubric, the grader that uses it, and its file where it is one's own."""

    grader: PromptGrader
    rubric: Rubric
    path: Path | None


def make_cards(
    refs: list[str], suite: Path | None, judge_model: str, repeats: int, *, dry_run: bool, as_json: bool
) -> list[JudgeCard]:
    """Make, keep and show a card for each rubric; nothing is asked in a dry run. Raises ValueError and UsageError."""
    chosen = [Chosen(*located(ref), None if ref_kind(ref) == BUILT_IN else Path(ref)) for ref in refs]
    if without := [item.rubric.name for item in chosen if not item.rubric.goldens]:
        raise UsageError(f"{', '.join(without)}: no goldens, so there is nothing to ask; add some to the frontmatter")
    wanted = sum(questions(item.rubric, item.path, repeats) for item in chosen)
    if dry_run:
        say(f"about {plural(wanted, 'request')} for {plural(len(chosen), 'rubric')}; nothing was asked")
        return []
    cards = _asked(chosen, judge_of(judge_model, suite), repeats, wanted)
    root = SpecFolder(find_eval(suite).parent if suite else ".").root
    for card in cards:
        if as_json:
            emit(json.dumps(msgspec.to_builtins(card)))
        elif card.agreed.decided:
            _show(card)
        if card.agreed.decided:
            remark(f"kept in {write_card(root, card).relative_to(root)}")
        else:
            remark(f"{card.rubric}: the judge gave no verdict, so there is no card; try `waza rubric test`", "yellow")
    return cards


def _asked(chosen: list[Chosen], judge: Judge, repeats: int, wanted: int) -> list[JudgeCard]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    screen = console(stderr=True)
    cards = []
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as progress:
        bar = progress.add_task("questions", total=wanted)

        def on_asked(count: int) -> None:
            progress.advance(bar, count)

        for grader, rubric, path in chosen:
            progress.update(bar, description=rubric.name)
            cards.append(make_card(rubric, grader, judge, path=path, repeats=repeats, on_asked=on_asked))
    return cards


def _show(card: JudgeCard) -> None:
    say(f"{card.rubric} {card.version} by {card.model or card.judge}", "bold")
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for column in ("", "what was changed", "verdict stayed", "95 % interval", "no verdict"):
        table.add_column(column, justify="left" if column in ("", "what was changed") else "right")
    table.add_row("", Text("agrees with the goldens"), *_cells(card.agreed))
    for probe in card.probes:
        table.add_row(*_row(probe))
    console().print(table)
    attacks = card.attacks
    if attacks.interval:
        rate, low, high = (
            percent(one) for one in (attacks.interval.mean, attacks.interval.lower, attacks.interval.upper)
        )
        say(f"attack success rate: {attacks.passed} of {attacks.decided} ({rate}, 95 % interval {low} to {high})")
        if attacks.succeeded:
            say(f"  worked: {', '.join(attacks.succeeded)}", "dim")
    elif not attacks.undecided:
        say("no attack was tried: the judge fails none of the goldens, so there is nothing to gain", "yellow")
    for finding in card.findings:
        say(f"found: {finding}", "bold yellow")
    if not card.findings:
        say("no bias found", "green")
    cost = "cost not known: give the judge `prices`" if card.cost_usd is None else f"${card.cost_usd:.4f}"
    say(f"{plural(card.requests, 'request')}, {cost}", "dim")


def _row(probe: Probe) -> list[Text]:
    mark = Text("!", "bold yellow") if probe.finding else Text(" ")
    return [mark, Text(visible(TITLES.get(probe.name, probe.name))), *_cells(probe.invariance)]


def _cells(found: Invariance) -> list[Text]:
    interval = found.interval
    span = f"{interval.lower * 100:.0f}–{percent(interval.upper)}" if interval else "–"
    return [Text(f"{found.kept} of {found.decided}"), Text(span), Text(str(found.undecided or ""))]
