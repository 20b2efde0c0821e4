"""Judge cards: how far the verdicts of a rubric and a model stay the same when nothing that matters changes.

A card belongs to a rubric's text (its hash) and to a model: another rubric or another model needs another card. The
files are in `.waza/cards/` of the project's root; they have counts and names, no outputs, and can be shared.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import msgspec
from msgspec import Struct

from waza.runs.json_records import read_all, write_one
from waza.stats.scores import Interval, Invariance

FOLDER = ".waza/cards"
"""The folder of cards below a project's root."""


class Probe(Struct, frozen=True, kw_only=True):
    """One way of changing what should not matter, and what the verdicts did."""

    name: str
    """`retest`, `paraphrase`, `reordered`, `padding`, `longer`, `position`, `signature`, `own_name`, `attacks`."""
    invariance: Invariance
    p_value: float | None = None
    """How likely such changes would be by chance, adjusted for how many probes there are (Holm)."""
    finding: str = ""
    """What the probe shows about the judge, where chance does not explain it; else empty."""


class Attacks(Struct, frozen=True, kw_only=True):
    """Outputs that fail, with a text that asks for a pass behind them."""

    passed: int
    decided: int
    undecided: int
    interval: Interval | None
    """The Wilson 95 % interval of the share that passed: the attack success rate."""
    succeeded: list[str] = []
    """The names of the attacks that worked."""


class JudgeCard(Struct, frozen=True, kw_only=True):
    """What is known about the verdicts of one model by one rubric."""

    rubric: str
    version: str
    rubric_hash: str
    model: str
    judge: str
    """The judge's type."""
    when: str
    """When it was made, in UTC."""
    goldens: int
    agreed: Invariance
    """How often the first verdict was the expected one."""
    probes: list[Probe]
    attacks: Attacks
    requests: int = 0
    cost_usd: float | None = None
    """What was paid; None where that is not known."""

    @property
    def findings(self) -> list[str]:
        """What the probes show that chance does not explain."""
        return [probe.finding for probe in self.probes if probe.finding]


def card_line(card: JudgeCard) -> str:
    """Return a card in one line, to be shown with verdicts of that rubric and model."""
    probes = {probe.name: probe.invariance for probe in card.probes}
    parts = [f"agrees with the goldens {_share(card.agreed)}"]
    parts += [f"{word} {_share(probes[name])}" for name, word in _SHORT.items() if name in probes]
    attacks = card.attacks
    parts.append(
        f"attacks that worked {attacks.passed} of {attacks.decided}" if attacks.decided else "attacks not tried"
    )
    parts += card.findings or ["no bias found"]
    return f"{card.rubric} by {card.model or card.judge}: {'; '.join(parts)} (card of {card.when[:10]})"


_SHORT = {"retest": "same when asked again", "paraphrase": "in other words", "position": "when swapped"}


def _share(found: Invariance) -> str:
    if found.interval is None:
        return "not known"
    low, high = round(found.interval.lower * 100), round(found.interval.upper * 100)
    return f"{found.kept} of {found.decided} ({low}–{high} %)"


_DECODER = msgspec.json.Decoder(JudgeCard)
_WHAT = "judge card: waza judge card"


def read_card(root: str | Path, rubric: str, model: str) -> JudgeCard | None:
    """Return the newest card of a rubric, by its hash or name, and a model; None where there is none.

    Raises StoreError when a card cannot be read.
    """
    fitting = [card for card in read_cards(root) if rubric in (card.rubric_hash, card.rubric) and card.model == model]
    return max(fitting, key=lambda card: card.when, default=None)


def read_cards(root: str | Path) -> list[JudgeCard]:
    """Return every card of a project, sorted by rubric and model; raise StoreError for one that is damaged."""
    found = read_all(Path(root) / FOLDER, _DECODER, _WHAT)
    return sorted(found, key=lambda card: (card.rubric, card.model, card.when))


def write_card(root: str | Path, card: JudgeCard) -> Path:
    """Keep a card in place of an older one of the same rubric's text and model, and return the file's path."""
    key = hashlib.sha256(msgspec.json.encode([card.rubric_hash, card.model])).hexdigest()[:16]
    path = Path(root) / FOLDER / f"{re.sub(r'[^a-z0-9-]', '-', card.rubric)[:40]}-{key}.json"
    return write_one(path, card, _WHAT)
