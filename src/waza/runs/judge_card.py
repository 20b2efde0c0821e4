"""What is known about judges, stored in the project, one file per judge: judge cards and calibrations.

A judge card says how far the verdicts of a rubric and a model stay the same when nothing that matters changes. It
belongs to a rubric's text (its hash) and to a model: another rubric or another model needs another card. A calibration
says how a judge's verdicts compare with people's. It belongs to what is asked (a rubric, or the question of a grader's
prompt) and to the judge's model.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field

from waza.errors import StoreError
from waza.files.disk import why, write_atomically
from waza.model import JSON, Run
from waza.runs.verdicts import question_of
from waza.stats.agreement import Confusion
from waza.stats.intervals import Invariance
from waza.stats.scores import Interval

CARDS_FOLDER = ".waza/cards"
"""The folder of cards below a project's root."""
CARDS = "judge_cards"
"""Where `run.spec` holds the cards."""


class BiasProbe(Struct, frozen=True, kw_only=True):
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
    probes: list[BiasProbe]
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


_CARD_DECODER = msgspec.json.Decoder(JudgeCard)
_CARD = "judge card: waza judge card"


def read_card(root: str | Path, rubric: str, model: str) -> JudgeCard | None:
    """Return the newest card of a rubric, by its hash or name, and a model; None where there is none.

    Raises StoreError when a card cannot be read.
    """
    fitting = [card for card in read_cards(root) if rubric in (card.rubric_hash, card.rubric) and card.model == model]
    return max(fitting, key=lambda card: card.when, default=None)


def read_cards(root: str | Path) -> list[JudgeCard]:
    """Return every card of a project, sorted by rubric and model; raise StoreError for one that is damaged."""
    found = read_all(Path(root) / CARDS_FOLDER, _CARD_DECODER, _CARD)
    return sorted(found, key=lambda card: (card.rubric, card.model, card.when))


def write_card(root: str | Path, card: JudgeCard) -> Path:
    """Keep a card in place of an older one of the same rubric's text and model, and return the file's path."""
    key = hashlib.sha256(msgspec.json.encode([card.rubric_hash, card.model])).hexdigest()[:16]
    path = Path(root) / CARDS_FOLDER / f"{re.sub(r'[^a-z0-9-]', '-', card.rubric)[:40]}-{key}.json"
    return write_one(path, card, _CARD)


CALIBRATIONS_FOLDER = ".waza/calibration"
"""The folder of calibrations below a project's root."""


class Calibration(Struct, frozen=True, kw_only=True):
    """How a judge's verdicts by one rubric compare with people's."""

    grader: str
    """The grader whose verdicts were compared."""
    rubric: str = ""
    """The rubric's hash; empty where the grader has a prompt and no rubric."""
    rubric_name: str = ""
    question: str = ""
    """The name of a prompt's question, as in `questions_in`; empty where a rubric asks."""
    model: str = ""
    """The judge's model as requested; empty where it has none."""
    address: str = ""
    """Where a juror's model is served, if the jury names it."""
    counts: Confusion = field(default_factory=Confusion)
    when: str = ""
    """When it was calibrated, in UTC."""
    reviewers: list[str] = field(default_factory=list)
    """The people whose verdicts were compared with; no name where none was given."""

    @property
    def asked(self) -> str:
        """The question's name or the rubric's hash; empty for one that may be about anything."""
        return self.question or self.rubric

    @property
    def n(self) -> int:
        """How many items both people and the judge decided."""
        return self.counts.n

    @property
    def sensitivity(self) -> float | None:
        """Of what people pass, the share that the judge passes; None where they pass nothing."""
        return self.counts.sensitivity

    @property
    def specificity(self) -> float | None:
        """Of what people fail, the share that the judge fails; None where they fail nothing."""
        return self.counts.specificity

    @property
    def kappa(self) -> float | None:
        """Cohen's kappa; None where it is undefined."""
        return self.counts.kappa

    @property
    def accuracy(self) -> float | None:
        """The share of items that both agree on."""
        return self.counts.accuracy

    @property
    def constant_accuracy(self) -> float | None:
        """How often the best constant answer would have agreed with people."""
        return self.counts.constant_accuracy


_CALIBRATION_DECODER = msgspec.json.Decoder(Calibration)
_CALIBRATION = "calibration: waza calibrate"


def read_calibration(
    root: str | Path, *, grader: str = "", rubric: str = "", question: str = "", model: str = "", address: str = ""
) -> Calibration | None:
    """Return the calibration of a judge, or None; the grader's name counts only where there is no question or rubric.

    Raises StoreError when the file is there and cannot be read.
    """
    key = Calibration(grader=grader, rubric=rubric, question=question, model=model, address=address)
    return read_one(_place(root, key), _CALIBRATION_DECODER, _CALIBRATION)


def read_calibrations(root: str | Path) -> list[Calibration]:
    """Return every calibration of a project, sorted by grader and model; raise StoreError for one that is damaged."""
    found = read_all(Path(root) / CALIBRATIONS_FOLDER, _CALIBRATION_DECODER, _CALIBRATION)
    return sorted(found, key=lambda one: (one.grader, one.rubric_name, one.model))


def asked_in(run: Run, known: Iterable[Calibration]) -> set[str]:
    """Return the questions to the judges of a run: hashes of rubrics, and names of questions that are known.

    Results are read only where some calibration is about a question: there may be any number of them.
    """
    rubrics = {one for task in run.suite.judged.values() for one in task}
    if not (questions := {one.question for one in known if one.question}):
        return rubrics
    return rubrics | questions.intersection(questions_in(run).values())


JURY = "jury of "
"""How the name of a jury begins, where a judge's has its model."""


def jury_name(details: dict[str, JSON]) -> str:
    """Return the name under which the jury of a grade is calibrated: its jurors'; empty where there is no jury."""
    jury = details.get("jury")
    if not isinstance(jury, dict):
        return ""
    votes, not_asked = jury.get("votes"), jury.get("not_asked")
    voted = [vote.get("juror") for vote in votes if isinstance(vote, dict)] if isinstance(votes, list) else []
    names = [*voted, *(not_asked if isinstance(not_asked, list) else [])]
    return f"{JURY}{', '.join(sorted(str(name) for name in names))}"


def questions_in(run: Run) -> dict[str, str]:
    """Return, by grader, the name of what it asks in a run; of a grader that asks several things, of all together."""
    found: dict[str, set[str]] = {}
    for result in run.results:
        for grade in result.grades:
            if isinstance(question := grade.details.get("question"), str):
                found.setdefault(grade.name, set()).add(question)
    return {name: questions.pop() if len(questions) == 1 else question_of(*sorted(questions))
            for name, questions in found.items()}  # fmt: skip


def write_calibration(root: str | Path, calibration: Calibration) -> Path:
    """Write a calibration in place of an older one of the same judge, and return the file's path."""
    path = _place(root, calibration)
    numbers = ("n", "accuracy", "constant_accuracy", "kappa", "sensitivity", "specificity")
    record = msgspec.to_builtins(calibration) | {name: getattr(calibration, name) for name in numbers}
    return write_one(path, record, _CALIBRATION)


def _place(root: str | Path, one: Calibration) -> Path:
    """Return the file of a judge; names are hashed, since they may have any characters."""
    identity = ["question", one.question, one.rubric] if one.question else ["rubric", one.rubric]
    key = [*(identity if one.question or one.rubric else ["grader", one.grader]), one.model]
    name = hashlib.sha256(msgspec.json.encode([*key, one.address] if one.address else key)).hexdigest()[:16]
    return Path(root) / CALIBRATIONS_FOLDER / f"{name}.json"


T = TypeVar("T")


def read_all(folder: Path, decoder: msgspec.json.Decoder[T], what: str) -> Iterator[T]:
    """Yield the record in every file of a folder; `what` is its kind and the command that makes it.

    Raises StoreError for a file that cannot be read.
    """
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".json")
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"{folder}: cannot be listed: {why(error)}") from error
    for path in paths:
        if (record := read_one(path, decoder, what)) is not None:
            yield record


def read_one(path: Path, decoder: msgspec.json.Decoder[T], what: str) -> T | None:
    """Return the record in a file, None where there is none. Raises StoreError when it cannot be read."""
    try:
        return decoder.decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {why(error)}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        noun, _, command = what.partition(": ")
        raise StoreError(f"{path}: is not a {noun}: {error}; remove it and run `{command}` again") from None


def write_one(path: Path, record: Any, what: str) -> Path:
    """Write a record, replacing an older one, and return its path."""
    noun = what.partition(": ")[0]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{path.parent}: cannot be created: {why(error)}; the {noun} is not stored") from error
    write_atomically(path, msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n", mode=0o644)
    return path
