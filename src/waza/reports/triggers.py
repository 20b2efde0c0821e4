"""The document on a run's trigger tests: controls, answers, measures, wording, and which skills are confused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from waza.model import Run
from waza.reports.document import Bar, Bars, Block, Fold, ForeignText, Grid, Heading, Mark, TextLine, Toned, Words
from waza.runs.trigger_catalogue import Catalogue, CatalogueRow, PromptRow, SkillRow, catalogue_of
from waza.runs.triggers import Rung, TriggerAnswer, TriggerNumbers, TriggerSummary, answers_of
from waza.untrusted.text import percent, plural, score

Detail = Literal["short", "normal", "verbose", "whole"]
"""Numbers only; with wrong answers and confused pairs; with every answer; with every prompt against every skill."""
MOST_LISTED = 20
MOST_ANSWERS = 2_000
MOST_COLUMNS = 20
"""A larger matrix does not fit on a screen; the HTML report has it."""
MOST_PAIRS = 10
BY_READING = "used means: its SKILL.md was read; this agent has no tool that loads a skill"
_STATUS = {True: "passed", False: "failed", None: "error"}
_CONTROLS = {"explicit": "names the skill outright", "unrelated": "has nothing to do with any skill"}
_WEIGHTS = {"TP": "true_positives", "FP": "false_positives", "TN": "true_negatives", "FN": "false_negatives"}
_NO_WORDS = CatalogueRow(total=0, used={}, nothing=0, recall=None, exclusivity=None)


def trigger_document(run: Run, summary: TriggerSummary, *, detail: Detail = "normal") -> Iterator[Block]:
    """Yield the results of a run's trigger tests; without a valid control, only why there are no numbers."""
    answers = answers_of(run)
    yield Heading(_title(answers, summary))
    for reason in summary.reasons:
        yield TextLine(("INVALID: ", ForeignText(reason, 600)), "open")
    if summary.not_asked:
        yield TextLine((_not_asked(summary),), "soft")
    for warning in summary.warnings:
        yield TextLine((ForeignText(warning, 600),), "open")
    if detail != "short":
        yield from _answers(answers, detail)
    if summary.is_valid:
        yield from _measures(summary, detail)
    if summary.by_reading:
        yield TextLine((BY_READING,), "soft")
    if detail != "short" and summary.is_valid and (catalogue := catalogue_of(run)):
        yield from _catalogue(catalogue, detail)


def _title(answers: Sequence[TriggerAnswer], summary: TriggerSummary) -> Words:
    skills = {answer.prompt.skill for answer in answers if answer.prompt.skill}
    about = ForeignText(next(iter(skills))) if len(skills) == 1 else plural(len(skills), "skill")
    trials = max((answer.trial for answer in answers), default=1)
    each = f" · {plural(trials, 'trial')} each" if trials > 1 else ""
    return ("Trigger tests · ", about, f" · {plural(summary.prompts, 'prompt')}{each}")


def _not_asked(summary: TriggerSummary) -> str:
    others = "" if summary.is_valid else " of the other prompts"
    are = "is" if summary.not_asked == 1 else "are"
    return f"not asked: {plural(summary.not_asked, 'trial')}{others}, which {are} in no number"


def _answers(answers: Sequence[TriggerAnswer], detail: Detail) -> Iterator[Block]:
    """Yield the controls and answers that are wrong or missing; in more detail, all of them."""
    controls = [answer for answer in answers if answer.prompt.control]
    others = sorted((answer for answer in answers if not answer.prompt.control), key=_is_right)
    wrong = sum(not _is_right(answer) for answer in others)
    if detail == "whole":
        yield Heading(("Controls",))
        yield Grid(("", "control", "prompt", "result"), [_control_row(answer) for answer in controls], (0, 1, 2, 3))
        title = f"{plural(len(others), 'answer')}, {wrong} wrong or undecided"
        yield Fold(title, list(_answer_grid(others, MOST_ANSWERS, 600)), is_open=wrong > 0 and len(others) <= 40)
    elif detail == "verbose":
        yield from _answer_grid([*controls, *others], len(answers), 200)
    else:
        yield from _answer_grid([one for one in (*controls, *others) if not _is_right(one)], MOST_LISTED, 200)


def _is_right(answer: TriggerAnswer) -> bool:
    return answer.did_trigger is not None and answer.is_right


def _answer_grid(answers: Sequence[TriggerAnswer], most: int, most_text: int) -> Iterator[Block]:
    rows: list[tuple[Words, ...]] = [
        (
            (_mark(answer),),
            (ForeignText(answer.prompt.short_id),),
            (ForeignText(answer.prompt.prompt, most_text),),
            (f"{answer.trial}",),
            _used(answer),
        )
        for answer in answers[:most]
    ]
    if rows:
        yield Grid(("", "id", "prompt", "trial", "result"), rows, (0, 1, 2, 4))
    if len(answers) > most:
        yield TextLine((f"… {plural(len(answers) - most, 'more answer')}: waza show -v",), "soft")


def _control_row(answer: TriggerAnswer) -> tuple[Words, ...]:
    skill: Words = (ForeignText(answer.prompt.skill), " ") if answer.prompt.skill else ()
    prompt = ForeignText(answer.prompt.prompt)
    return ((_mark(answer),), (*skill, _CONTROLS[answer.prompt.control]), (prompt,), _used(answer))


def _mark(answer: TriggerAnswer) -> Mark:
    return Mark(_STATUS[None if answer.did_trigger is None else answer.is_right])


def _used(answer: TriggerAnswer) -> Words:
    """Return which skill was used, or why that is unknown."""
    if answer.error:
        return (ForeignText(answer.error, 600),)
    used: Words = ("used ", ForeignText(", ".join(answer.skills))) if answer.skills else ("used no skill",)
    late = ", out of time" if answer.timed_out else ""
    return (*used, late + (" (counts half)" if answer.prompt.confidence == "medium" else ""))


def _measures(summary: TriggerSummary, detail: Detail) -> Iterator[Block]:
    """Yield the measures over all answers, over the decided ones, by the words of SKILL.md alone, and by wording."""
    kinds = {"all answers": summary.all, "words of SKILL.md alone": summary.heuristic}
    if summary.all.errors:
        kinds = {"all answers": summary.all, "decided answers": summary.decided, **kinds}
    rows = [_measure_row(label, numbers) for label, numbers in kinds.items() if numbers is not None]
    if detail == "whole":
        rows += [_measure_row(ForeignText(skill.skill), skill.all) for skill in summary.skills]
    yield Grid(("over", "accuracy", "precision", "recall", "F1", *_WEIGHTS, "errors"), rows)
    if ci := summary.recall_ci:
        interval = f"{ci.lower * 100:.0f}–{percent(ci.upper)}"
        yield TextLine((f"recall without weights: {score(ci.mean)}, 95 % interval {interval}",), "soft")
    if summary.rungs:
        yield Bars("used by wording", [_rung_bar(rung) for rung in summary.rungs])
    if detail == "whole":
        note = "An error counts as wrong. TP to FN are sums of weights: a prompt of medium confidence counts half."
        yield TextLine((note,), "soft")


def _measure_row(label: str | ForeignText, numbers: TriggerNumbers) -> tuple[Words, ...]:
    measures = (score(value) for value in (numbers.accuracy, numbers.precision, numbers.recall, numbers.f1))
    weights = (f"{numbers.weighted.get(name, 0):g}" for name in _WEIGHTS.values())
    return ((label,), *((cell,) for cell in (*measures, *weights, str(numbers.errors))))


def _rung_bar(rung: Rung) -> Bar:
    span = (rung.rate_ci.lower, rung.rate_ci.upper) if rung.rate_ci else None
    return Bar(rung.phrasing, rung.rate or 0.0, f"{rung.used} of {rung.decided}", span)


def _catalogue(catalogue: Catalogue, detail: Detail) -> Iterator[Block]:
    """Yield the confusion matrix and the confused pairs, observed next to what the words alone predict."""
    numbers = {skill: str(number) for number, skill in enumerate(catalogue.skills, 1)}
    columns = list(numbers) if detail == "whole" or len(numbers) <= MOST_COLUMNS else []
    yield Heading(("Which skill was used for whose prompts",))
    legend = "Rows: the should-trigger prompts of a skill. Columns: the skills that were used, by number. "
    legend += "Recall: the share in which the skill itself was used; alone: it and no other. "
    legend += f"Words: what the trigger grader expects of SKILL.md alone (relevance from {catalogue.threshold:g} on)."
    yield TextLine((legend,), "soft")
    names = ("#", "skill", *(numbers[skill] for skill in columns), "none", "?", "recall", "words", "alone", "words")
    rows = [_matrix_row(row, numbers.get(row.skill, ""), columns) for row in catalogue.rows]
    yield Grid((*names, "taken"), rows, (1,))
    yield from _pairs(catalogue, 10 * MOST_PAIRS if detail == "whole" else MOST_PAIRS)
    without = [skill for skill in catalogue.skills if all(row.skill != skill for row in catalogue.rows)]
    if without:
        yield TextLine(("without trigger tests of their own: ", ForeignText(", ".join(without), 600)), "soft")
    if detail == "whole":
        yield Fold("Every prompt against every skill", list(_prompt_matrix(catalogue, numbers)))


def _matrix_row(row: SkillRow, number: str, columns: Sequence[str]) -> tuple[Words, ...]:
    words = row.heuristic or _NO_WORDS
    shares = (row.observed.recall, words.recall, row.observed.exclusivity, words.exclusivity)
    return (
        (number,),
        (ForeignText(row.skill),),
        *((_count(row.observed.used.get(skill, 0), skill == row.skill),) for skill in columns),
        (str(row.observed.nothing or "·"),),
        (str(row.errors or "·"),),
        *((percent(share),) for share in shares),
        (str(row.taken or "·"),),
    )


def _count(count: int, is_right: bool) -> Toned:
    return Toned(str(count), "good" if is_right else "bad") if count else Toned("·", "soft")


def _pairs(catalogue: Catalogue, most: int) -> Iterator[Block]:
    confused = [pair for pair in catalogue.pairs if pair.observed]
    for pair in confused[:most]:
        counts = f"{pair.observed} of {plural(pair.total, 'trial')}"
        words = f"words alone: {pair.heuristic} of {plural(pair.prompts, 'prompt')}"
        names = (ForeignText(pair.skill), " → ", ForeignText(pair.other))
        yield TextLine(("confused: ", *names, f": {counts} ({words})"), "open", 1)
    if len(confused) > most:
        yield TextLine((f"… {plural(len(confused) - most, 'more pair')}",), "soft", 1)
    if not confused:
        yield TextLine(("No two skills are confused.",), "soft")
    if only_words := len(catalogue.pairs) - len(confused):
        verb = "was" if only_words == 1 else "were"
        yield TextLine(
            (f"{plural(only_words, 'pair')} that the words alone would confuse {verb} not confused",), "soft"
        )


def _prompt_matrix(catalogue: Catalogue, numbers: dict[str, str]) -> Iterator[Block]:
    yield TextLine(("How often each skill was used, and what the words alone predict, from 0 to 1.",), "soft")
    legend = ", ".join(f"{number} {skill}" for skill, number in numbers.items())
    yield TextLine((ForeignText(legend, 20_000),), "soft")
    columns = ("", "prompt", "of", *numbers.values(), "none", "?")
    yield Grid(columns, [_prompt_row(row, catalogue) for row in catalogue.prompts[:MOST_ANSWERS]], (0, 1, 2))


def _prompt_row(row: PromptRow, catalogue: Catalogue) -> tuple[Words, ...]:
    cells: list[Words] = []
    for skill in catalogue.skills:
        count = _count(row.used.get(skill, 0), (skill == row.skill) == row.should_trigger)
        relevance = row.relevance.get(skill)
        is_expected = relevance is not None and relevance >= catalogue.threshold
        predicted = Toned("" if relevance is None else f" {score(relevance)}", "" if is_expected else "soft")
        cells.append((count, predicted))
    kind = "should" if row.should_trigger else "should not"
    errors = (str(row.errors or "·"),)
    prompt, skill_name = (ForeignText(row.prompt, 400),), (ForeignText(row.skill),)
    return ((kind,), prompt, skill_name, *cells, (str(row.nothing or "·"),), errors)
