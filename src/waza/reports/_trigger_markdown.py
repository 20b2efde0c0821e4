"""Trigger tests in Markdown: the measures, what was answered wrongly, and which skills are taken for which."""

from __future__ import annotations

from collections.abc import Iterator

from waza.model import Run
from waza.reports._markdown import cell, code
from waza.reports._text import plural, score
from waza.reports._trigger_table import not_asked
from waza.results.stats.catalogue import catalogue_of
from waza.results.trigger_answers import Answer, answers_of
from waza.results.triggers import TriggerNumbers, TriggerSummary

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


def _wrong(answers: list[Answer]) -> Iterator[str]:
    if not answers:
        return
    yield "| | prompt | came of it |\n|---|---|---|\n"
    for answer in answers[:MOST_NAMED]:
        told = answer.error or f"used {', '.join(answer.skills or []) or 'no skill'}"
        mark = "❔" if answer.error else "❌"
        yield f"| {mark} {code(answer.prompt.short_id)} | {cell(answer.prompt.prompt)} | {cell(told)} |\n"
    more = len(answers) - MOST_NAMED
    yield f"\n… and {plural(more, 'more answer')}\n\n" if more > 0 else "\n"
