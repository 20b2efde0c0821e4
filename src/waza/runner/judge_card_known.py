"""The judge cards that belong to a suite's verdicts, taken along when a run is stored."""

from __future__ import annotations

import msgspec

from waza.errors import StoreError
from waza.judges._base import Judge
from waza.model import JSON
from waza.results.canaries import KEY, canaries_as_data
from waza.results.cards import card_line, read_card
from waza.runner.canaries import judged_graders, put_canaries
from waza.spec.suite import EvalSpec

CARDS = "judge_cards"
"""Where `run.spec` holds the cards."""


def about_judges(spec: EvalSpec, judge: Judge | None) -> dict[str, JSON]:
    """Return what a run stores about its judges beside their verdicts: canaries, which are asked now, and cards."""
    if judge is None:
        return {}
    found = {KEY: canaries_as_data(put_canaries(spec, judge)), CARDS: known_cards(spec, judge)}
    return {key: value for key, value in found.items() if value}


def known_cards(spec: EvalSpec, judge: Judge) -> list[JSON]:
    """Return the card of each rubric and model of a suite that has one, with the line that tells it."""
    wanted: dict[tuple[str, str], str] = {}
    for grader in judged_graders(spec.asking):
        if rubric := grader.rubric_in_use:
            for juror in grader.jurors:
                wanted[rubric.hash, juror.model or (juror.judge or judge).model] = rubric.name
    found: list[JSON] = []
    for (rubric_hash, model), name in wanted.items():
        try:
            card = read_card(spec.folder.root, rubric_hash, model)
        except StoreError as error:
            found.append({"rubric": name, "model": model, "line": str(error)})
            continue
        if card is not None:
            found.append({"rubric": name, "model": model, "line": card_line(card), "card": msgspec.to_builtins(card)})
    return found
