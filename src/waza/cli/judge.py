"""`waza judge`: how far a judge's verdicts can be believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import click
import msgspec
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from waza.analysis.judge_card import make_card, questions
from waza.cli._rubric_test import judge_of, located
from waza.cli._screen import console, remark, say
from waza.cli._stdout import emit
from waza.errors import EXIT_FAILED, EXIT_PASSED, EXIT_UNDECIDED, UsageError
from waza.files.paths import SpecFolder
from waza.graders.prompt import PromptGrader
from waza.judges.base import Judge
from waza.judges.rubrics import BUILT_IN, Rubric, ref_kind
from waza.runs.judge_card import BiasProbe, JudgeCard, card_line, read_cards, write_card
from waza.stats.intervals import Invariance
from waza.suites.load import find_eval
from waza.untrusted.text import percent, plural, visible


@click.group(epilog="Example:  waza judge card helpfulness  ·  waza judge list")
def command() -> None:
    """Find out how far a judge's verdicts stay the same when nothing that matters changes."""


@command.command(
    "card", epilog="Example:  waza judge card helpfulness  ·  waza judge card rubrics/house-style.md --dry-run"
)
@click.argument("rubrics", nargs=-1, required=True)
@click.option("--suite", type=click.Path(path_type=Path), help="Take the judge of this suite, not of .waza.yaml.")
@click.option("--judge-model", default="", help="The model that judges, instead of the configured one.")
@click.option(
    "--repeats",
    type=click.IntRange(1, 20),
    default=2,
    show_default=True,
    help="How often each golden is asked again without any change.",
)
@click.option("--dry-run", is_flag=True, help="Say how many requests it would take.")
@click.option("--strict", is_flag=True, help="Exit 1 when something is found.")
@click.option("--json", "as_json", is_flag=True, help="Print the cards as JSON lines.")
def card_command(
    rubrics: tuple[str, ...],
    suite: Path | None,
    judge_model: str,
    repeats: int,
    dry_run: bool,
    strict: bool,
    as_json: bool,
) -> int:
    """Make the judge card of RUBRICS: their goldens asked again, swapped, padded, reordered, reworded and attacked.

    Nothing comes from the cache, so a card costs about 200 requests a rubric; it is kept in .waza/cards and shown
    next to verdicts of that rubric and model. Exit code 0: made; 1: something was found (--strict); 3: no verdicts.
    """
    # graders and judges are loaded only where they are asked

    try:
        cards = make_cards(list(dict.fromkeys(rubrics)), suite, judge_model, repeats, dry_run=dry_run, as_json=as_json)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if any(not card.agreed.decided for card in cards):
        return EXIT_UNDECIDED
    return EXIT_FAILED if strict and any(card.findings for card in cards) else EXIT_PASSED


@command.command("list", epilog="Example:  waza judge list  ·  waza judge list --json")
@click.option("--json", "as_json", is_flag=True, help="Print the cards as JSON lines.")
def list_command(as_json: bool) -> int:
    """List the judge cards of this project."""
    import msgspec  # only where cards are read

    cards = read_cards(SpecFolder().root)
    for card in cards:
        say(json.dumps(msgspec.to_builtins(card)) if as_json else card_line(card))
    if not cards:
        remark("no judge card yet; make one with:  waza judge card RUBRIC", "cyan")
    elif not as_json:
        remark(plural(len(cards), "card"))
    return EXIT_PASSED


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


def _row(probe: BiasProbe) -> list[Text]:
    mark = Text("!", "bold yellow") if probe.finding else Text(" ")
    return [mark, Text(visible(TITLES.get(probe.name, probe.name))), *_cells(probe.invariance)]


def _cells(found: Invariance) -> list[Text]:
    interval = found.interval
    span = f"{interval.lower * 100:.0f}–{percent(interval.upper)}" if interval else "–"
    return [Text(f"{found.kept} of {found.decided}"), Text(span), Text(str(found.undecided or ""))]
