"""`waza judge`: how far a judge's verdicts can be believed."""

from __future__ import annotations

import json
from pathlib import Path

import click

from waza.cli._screen import remark, say
from waza.errors import EXIT_FAILED, EXIT_PASSED, EXIT_UNDECIDED, UsageError
from waza.reports._text import plural


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
    beside verdicts of that rubric and model. Exit code 0: made; 1: something was found (--strict); 3: no verdicts.
    """
    from waza.cli._judge_card import make_cards  # graders and judges are loaded only where they are asked

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

    from waza.results.cards import card_line, read_cards
    from waza.sandbox.folders import SpecFolder

    cards = read_cards(SpecFolder().root)
    for card in cards:
        say(json.dumps(msgspec.to_builtins(card)) if as_json else card_line(card))
    if not cards:
        remark("no judge card yet; make one with:  waza judge card RUBRIC", "cyan")
    elif not as_json:
        remark(plural(len(cards), "card"))
    return EXIT_PASSED
