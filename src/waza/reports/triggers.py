"""Trigger tests for the terminal: controls, wrong answers, the measures, the wording ladder, the confusion matrix."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from waza.model import Run
from waza.reports.document import cell, code
from waza.runs.trigger_catalogue import Catalogue, CatalogueRow, SkillRow, catalogue_of
from waza.runs.triggers import TriggerAnswer, TriggerNumbers, TriggerSummary, answers_of
from waza.untrusted.text import clipped, percent, plural, score, visible

MOST_LISTED = 20
MOST_COLUMNS = 20
"""A larger matrix does not fit on a screen; the HTML report has it."""
MOST_PAIRS = 10
BY_READING = "used means: its SKILL.md was read; this agent has no tool that loads a skill"
MARKS = {True: ("✓", "green"), False: ("✗", "red"), None: ("?", "yellow")}
PLAIN_MARKS = {True: "ok", False: "FAIL", None: "??"}


def trigger_lines(
    run: Run, summary: TriggerSummary, console: Console, *, verbose: bool = False, quiet: bool = False
) -> Iterator[RenderableType]:
    """Yield what the trigger tests came to; without a valid control, only why there are no numbers."""
    answers = answers_of(run)
    trials = max((answer.trial for answer in answers), default=1)
    tested = {answer.prompt.skill for answer in answers if answer.prompt.skill}
    about = next(iter(tested)) if len(tested) == 1 else plural(len(tested), "skill")
    head = ["trigger tests", about, plural(summary.prompts, "prompt")]
    head += [plural(trials, "trial") + " each"] if trials > 1 else []
    yield Text(" · ".join(visible(part) for part in head), style="bold")
    if not quiet:
        yield from _answers(answers, console, verbose)
    for reason in summary.reasons:
        yield Text(f"  INVALID: {visible(clipped(reason, 400))}", style="bold yellow")
    if summary.not_asked:
        yield Text(f"  {not_asked(summary)}", style="dim")
    for warning in summary.warnings:
        yield Text(f"  {visible(clipped(warning, 400))}", style="yellow")
    if summary.is_valid:
        yield from _numbers(summary)
    if summary.by_reading:
        yield Text(f"  {BY_READING}", style="dim")
    if not quiet and summary.is_valid and (catalogue := catalogue_of(run)):
        yield Text()
        yield from catalogue_lines(catalogue)
    yield Text()


def _answers(answers: list[TriggerAnswer], console: Console, verbose: bool) -> Iterator[RenderableType]:
    """Yield the controls and the answers that are wrong or missing; every answer if `verbose`."""
    shown = [a for a in answers if verbose or (a.prompt.control and not a.is_right)]
    shown += [a for a in answers if not verbose and not a.prompt.control and not a.is_right]
    plain = (console.encoding or "ascii").lower().replace("-", "") not in ("utf8", "utf16", "utf32")
    table = Table.grid(padding=(0, 2))
    table.add_column(width=4 if plain else 1)
    table.add_column(no_wrap=True, style="dim")
    table.add_column(ratio=3, overflow="ellipsis", no_wrap=True)
    table.add_column(ratio=2, overflow="fold")
    for answer in shown if verbose else shown[:MOST_LISTED]:
        verdict = None if answer.did_trigger is None else answer.is_right
        mark = Text(PLAIN_MARKS[verdict] if plain else MARKS[verdict][0], style=MARKS[verdict][1])
        table.add_row(
            mark, Text(visible(answer.prompt.short_id)), Text(visible(answer.prompt.prompt)), Text(_told(answer))
        )
    if shown:
        yield Padding(table, (0, 0, 0, 2))
    if len(shown) > MOST_LISTED and not verbose:
        yield Text(f"  … {len(shown) - MOST_LISTED} more; -v shows all", style="dim")


def _told(answer: TriggerAnswer) -> str:
    """Return which skill was used, or why nobody can tell."""
    if answer.error:
        return visible(clipped(answer.error, 200))
    used = f"used {', '.join(answer.skills)}" if answer.skills else "used no skill"
    late = ", out of time" if answer.timed_out else ""
    return visible(clipped(used + late, 200)) + (" (half)" if answer.prompt.confidence == "medium" else "")


def _numbers(summary: TriggerSummary) -> Iterator[Text]:
    yield Text(f"  {_measures(summary.all)}  {weighted(summary.all)}")
    if summary.all.errors:
        decided = summary.decided
        told = _measures(decided) if decided else "nothing was decided"
        count = summary.answers - summary.all.errors
        decided_told = f"over {plural(count, 'decided answer')}: {told}"
        yield Text(f"  {decided_told}; {plural(summary.all.errors, 'error')}", style="yellow")
    if summary.heuristic is not None:
        yield Text(f"  by the words of SKILL.md alone: {_measures(summary.heuristic)}", style="dim")
    if summary.rungs:
        rungs = [f"{rung.phrasing} {rung.used} of {rung.decided}" for rung in summary.rungs]
        yield Text(f"  used by wording: {' · '.join(rungs)}")


def not_asked(summary: TriggerSummary) -> str:
    """Return how many trials of prompts were not started."""
    others = "" if summary.is_valid else " of the other prompts"
    are = "is" if summary.not_asked == 1 else "are"
    return f"not asked: {plural(summary.not_asked, 'trial')}{others}, which {are} in no number"


def _measures(numbers: TriggerNumbers) -> str:
    parts = {"accuracy": numbers.accuracy, "precision": numbers.precision, "recall": numbers.recall, "F1": numbers.f1}
    return ", ".join(f"{name} {score(value)}" for name, value in parts.items())


def weighted(numbers: TriggerNumbers) -> str:
    """Return the four counts as sums of weights."""
    names = {"TP": "true_positives", "FP": "false_positives", "TN": "true_negatives", "FN": "false_negatives"}
    return "(" + ", ".join(f"{short} {numbers.weighted.get(name, 0):g}" for short, name in names.items()) + ")"


def catalogue_lines(catalogue: Catalogue) -> Iterator[RenderableType]:
    """Yield the confusion matrix, then the pairs that are confused; observed beside what the words alone would say."""
    yield Text("  which skill was used for whose prompts (rows: prompts of a skill; columns: skills, by number)")
    yield Padding(_matrix(catalogue), (0, 0, 0, 2))
    confused = [pair for pair in catalogue.pairs if pair.observed]
    for pair in confused[:MOST_PAIRS]:
        words = f"words alone: {pair.heuristic} of {plural(pair.prompts, 'prompt')}"
        fact = f"{pair.skill} → {pair.other}: {pair.observed} of {plural(pair.total, 'trial')} ({words})"
        yield Text(f"  confused: {visible(fact)}", style="yellow")
    if len(confused) > MOST_PAIRS:
        yield Text(f"  … {len(confused) - MOST_PAIRS} more pairs", style="dim")
    idle = [skill for skill in catalogue.skills if all(row.skill != skill for row in catalogue.rows)]
    if idle:
        yield Text(f"  without trigger tests of their own: {visible(', '.join(idle))}", style="dim")
    refuted = sum(not pair.observed for pair in catalogue.pairs)
    if refuted:
        told = f"{plural(refuted, 'pair')} that the words alone would confuse "
        yield Text(f"  {told}{'was' if refuted == 1 else 'were'} not confused", style="dim")


def _matrix(catalogue: Catalogue) -> Table:
    numbers = {skill: number for number, skill in enumerate(catalogue.skills, 1)}
    shows = len(numbers) <= MOST_COLUMNS
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="dim")
    table.add_column("", justify="right", style="dim")
    table.add_column("skill", no_wrap=True, overflow="ellipsis", max_width=28)
    for number in numbers.values() if shows else ():
        table.add_column(str(number), justify="right")
    for name in ("none", "?", "recall", "words", "alone", "words"):
        table.add_column(name, justify="right", style="dim" if name == "words" else "")
    for row in catalogue.rows:
        cells = [_cell(row, skill) for skill in catalogue.skills] if shows else []
        table.add_row(str(numbers.get(row.skill, "")), Text(visible(row.skill)), *cells, *_shares(row))
    return table


def _cell(row: SkillRow, skill: str) -> Text:
    count = row.observed.used.get(skill, 0)
    if not count:
        return Text("·", style="dim")
    return Text(str(count), style="bold green" if skill == row.skill else "bold red")


def _shares(row: SkillRow) -> list[str]:
    """Return own recall and exclusivity, each observed and by the words alone."""
    guessed = row.heuristic or CatalogueRow(total=0, used={}, nothing=0, recall=None, exclusivity=None)
    return [
        str(row.observed.nothing or "·"),
        str(row.errors or "·"),
        percent(row.observed.recall),
        percent(guessed.recall),
        percent(row.observed.exclusivity),
        percent(guessed.exclusivity),
    ]


# Trigger tests in Markdown: the measures, what was answered wrongly, and which skills are taken for which.

MOST_NAMED = 20


def trigger_markdown(run: Run, summary: TriggerSummary | None) -> Iterator[str]:
    """Yield the part on trigger tests; nothing where the run has none, and no number where it is not valid."""
    if summary is None:
        return
    yield f"### Trigger tests: {plural(summary.prompts, 'prompt')}\n\n"
    for reason in summary.reasons:
        yield f"❔ **INVALID**: {code(reason, 600)}\n\n"
    if summary.not_asked:
        yield f"{not_asked(summary)}\n\n"
    for warning in summary.warnings:
        yield f"⚠️ {code(warning, 600)}\n\n"
    if not summary.is_valid:
        return
    yield "| over | accuracy | precision | recall | F1 | TP | FP | TN | FN | errors |\n" + "|---" * 10 + "|\n"
    kinds = {"all answers": summary.all, "decided answers": summary.decided, "words of SKILL.md": summary.heuristic}
    yield from (_row(label, numbers) for label, numbers in kinds.items() if numbers is not None)
    yield "\n"
    wrong = [answer for answer in answers_of(run) if not answer.prompt.control and not answer.is_right]
    yield from _wrong(wrong)
    catalogue = catalogue_of(run)
    confused = [pair for pair in catalogue.pairs if pair.observed] if catalogue else []
    for pair in confused[:MOST_NAMED]:
        used = f"used {code(pair.other)} in {pair.observed} of {plural(pair.total, 'trial')}"
        yield f"- for prompts of {code(pair.skill)} the agent {used}\n"
    yield "\n" if confused else ""


def _row(label: str, numbers: TriggerNumbers) -> str:
    measures = [score(value) for value in (numbers.accuracy, numbers.precision, numbers.recall, numbers.f1)]
    weights = [f"{weight:g}" for weight in numbers.weighted.values()]
    return "| " + " | ".join([label, *measures, *weights, str(numbers.errors)]) + " |\n"


def _wrong(answers: list[TriggerAnswer]) -> Iterator[str]:
    if not answers:
        return
    yield "| | prompt | came of it |\n|---|---|---|\n"
    for answer in answers[:MOST_NAMED]:
        told = answer.error or f"used {', '.join(answer.skills or []) or 'no skill'}"
        mark = "❔" if answer.error else "❌"
        yield f"| {mark} {code(answer.prompt.short_id)} | {cell(answer.prompt.prompt)} | {cell(told)} |\n"
    more = len(answers) - MOST_NAMED
    yield f"\n… and {plural(more, 'more answer')}\n\n" if more > 0 else "\n"
