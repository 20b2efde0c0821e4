"""Trigger tests on the HTML page: controls, measures, the wording ladder, every answer, and the confusion matrix."""

from __future__ import annotations

from collections.abc import Iterable

from waza.model import Run
from waza.reports.html.elements import Bar, fold, plot, text, tile
from waza.reports.html.trial_page import mark
from waza.reports.triggers import BY_READING, not_asked
from waza.runs.trigger_catalogue import Catalogue, CatalogueRow, PromptRow, SkillRow, catalogue_of
from waza.runs.triggers import Rung, TriggerAnswer, TriggerNumbers, TriggerSummary, answers_of
from waza.untrusted.text import percent, plural, score

MOST_ANSWERS = 2_000
MOST_PAIRS = 100
_STATUS = {True: "passed", False: "failed", None: "error"}


def trigger_section(run: Run, summary: TriggerSummary | None) -> str:
    """Return the part of the page on trigger tests; nothing where the run has none."""
    if summary is None:
        return ""
    parts = ["<h2>Trigger tests</h2>\n"]
    parts += [f'<p class="error"><b>INVALID</b>: {text(reason, 600)}</p>\n' for reason in summary.reasons]
    parts += [f'<p class="soft">{not_asked(summary)}</p>\n'] if summary.not_asked else []
    parts += [f'<p class="error">{text(warning, 600)}</p>\n' for warning in summary.warnings]
    parts += [f'<p class="soft">{BY_READING}</p>\n'] if summary.by_reading else []
    answers = answers_of(run)
    parts.append(_controls(answers))
    if summary.is_valid:
        parts += [_measures(summary), plot("Skill used, by wording", map(_rung_bar, summary.rungs))]
    parts.append(_answers(answers))
    if summary.is_valid and (catalogue := catalogue_of(run)):
        parts.append(catalogue_section(catalogue))
    return "".join(parts)


def _controls(answers: Iterable[TriggerAnswer]) -> str:
    told = {"explicit": "names the skill outright", "unrelated": "has nothing to do with any skill"}
    rows = [
        [_mark(a), f"{text(a.prompt.skill)} {told[a.prompt.control]}", text(a.prompt.prompt), _used(a)]
        for a in answers
        if a.prompt.control
    ]
    return "<h3>Controls</h3>\n" + table(("", "the control", "prompt", "came of it"), rows)


def _measures(summary: TriggerSummary) -> str:
    """Return the four measures over all answers, over the decided ones, and by the words of SKILL.md alone."""
    rows = [_numbers("all answers, an error counts as wrong", summary.all)]
    if summary.decided is not None:
        rows.append(_numbers("decided answers", summary.decided))
    if summary.heuristic is not None:
        rows.append(_numbers("words of SKILL.md alone (<code>trigger</code> grader)", summary.heuristic))
    rows += [_numbers(text(skill.skill), skill.all) for skill in summary.skills]
    ci = summary.recall_ci
    span = f'<span class="whole">{ci.lower * 100:.0f}–{percent(ci.upper)}</span>' if ci else ""
    note = f"unweighted {score(ci.mean)}, 95 % interval {span}" if ci else ""
    tiles = tile("accuracy", score(summary.all.accuracy), f"{plural(summary.prompts, 'prompt')}")
    tiles += tile("recall", score(summary.all.recall), note) + tile("errors", str(summary.all.errors))
    names = ("over", "accuracy", "precision", "recall", "F1", "TP", "FP", "TN", "FN", "errors")
    note = '<p class="soft">TP to FN are sums of weights: a prompt of medium confidence counts half.</p>\n'
    return f'<div class="tiles">\n{tiles}</div>\n{table(names, rows)}{note}'


def _numbers(label: str, numbers: TriggerNumbers) -> list[str]:
    measures = (numbers.accuracy, numbers.precision, numbers.recall, numbers.f1)
    weights = [f"{numbers.weighted.get(name, 0):g}" for name in _WEIGHTS]
    return [label, *map(score, measures), *weights, str(numbers.errors)]


_WEIGHTS = ("true_positives", "false_positives", "true_negatives", "false_negatives")


def _rung_bar(rung: Rung) -> Bar:
    span = (rung.rate_ci.lower, rung.rate_ci.upper) if rung.rate_ci else None
    return Bar(rung.phrasing, rung.rate or 0.0, f"{rung.used} of {rung.decided}", span)


def _answers(answers: Iterable[TriggerAnswer]) -> str:
    """Return every answer, the wrong ones first."""
    counted = sorted(
        (a for a in answers if not a.prompt.control), key=lambda a: a.did_trigger is not None and a.is_right
    )
    rows = [
        [
            _mark(a),
            text(a.prompt.short_id),
            text(a.prompt.prompt, 600),
            text(" · ".join(part for part in (a.prompt.phrasing, a.prompt.confidence) if part)),
            str(a.trial),
            _used(a),
        ]
        for a in counted[:MOST_ANSWERS]
    ]
    more = f'<p class="soft">{len(counted) - MOST_ANSWERS} more: waza show</p>\n' if len(counted) > MOST_ANSWERS else ""
    wrong = sum(not a.is_right for a in counted)
    inner = table(("", "", "prompt", "", "trial", "came of it"), rows) + more
    return fold(f"{plural(len(counted), 'answer')}, {wrong} not right", inner, is_open=wrong > 0 and len(rows) <= 40)


def _mark(answer: TriggerAnswer) -> str:
    return mark(_STATUS[None if answer.did_trigger is None else answer.is_right])


def _used(answer: TriggerAnswer) -> str:
    if answer.error:
        return text(answer.error, 600)
    used = f"used {', '.join(answer.skills)}" if answer.skills else "used no skill"
    return text(used + (", out of time" if answer.timed_out else ""))


def catalogue_section(catalogue: Catalogue) -> str:
    """Return the confusion matrix, the confused pairs, and every prompt against every skill."""
    numbers = {skill: number for number, skill in enumerate(catalogue.skills, 1)}
    legend = (
        '<p class="soft">Rows: the should-trigger prompts of a skill. Columns: the skills that were used, by number. '
    )
    legend += "Own recall: the share in which the skill itself was used; alone: it and no other. "
    legend += (
        f"Words: what the <code>trigger</code> grader expects of SKILL.md alone (relevance from {catalogue.threshold:g}"
    )
    legend += " on), counted in prompts.</p>\n"
    head = ("#", "skill", *map(str, numbers.values()), "none", "?", "own recall", "words", "alone", "words", "taken")
    matrix = table(head, [_matrix_row(row, catalogue.skills, numbers) for row in catalogue.rows], is_matrix=True)
    return f"<h2>Which skill is taken for which</h2>\n{legend}{matrix}{_pairs(catalogue)}" + fold(
        "Every prompt against every skill", _prompt_matrix(catalogue, numbers)
    )


def _matrix_row(row: SkillRow, skills: Iterable[str], numbers: dict[str, int]) -> list[str]:
    words = row.heuristic or CatalogueRow(total=0, used={}, nothing=0, recall=None, exclusivity=None)
    shares = (row.observed.recall, words.recall, row.observed.exclusivity, words.exclusivity)
    return [
        str(numbers.get(row.skill, "")),
        text(row.skill),
        *(_count(row.observed.used.get(skill, 0), skill == row.skill) for skill in skills),
        _plain(row.observed.nothing),
        _plain(row.errors),
        *map(percent, shares),
        _plain(row.taken),
    ]


def _count(count: int, is_own: bool) -> str:
    return f'<b class="{"passed" if is_own else "failed"}">{count}</b>' if count else '<span class="soft">·</span>'


def _plain(count: int) -> str:
    return str(count) if count else '<span class="soft">·</span>'


def _pairs(catalogue: Catalogue) -> str:
    rows = [
        [
            f"{text(pair.skill)} → {text(pair.other)}",
            f"{pair.observed} of {plural(pair.total, 'trial')}",
            f"{pair.heuristic} of {plural(pair.prompts, 'prompt')}",
        ]
        for pair in catalogue.pairs[:MOST_PAIRS]
    ]
    if not rows:
        return '<p class="soft">No two skills are confused.</p>\n'
    more = len(catalogue.pairs) - MOST_PAIRS
    rest = f'<p class="soft">… {plural(more, "more pair")}</p>\n' if more > 0 else ""
    names = ("prompts of → skill used", "observed", "words of SKILL.md alone")
    return f"<h3>Pairs that are confused</h3>\n{table(names, rows)}{rest}"


def _prompt_matrix(catalogue: Catalogue, numbers: dict[str, int]) -> str:
    legend = (
        '<p class="soft">How often each skill was used; below it what the words alone make of it, from 0 to 1.</p>\n'
    )
    head = ("", "prompt", "of", *map(str, numbers.values()), "none", "?")
    rows = [_prompt_cells(row, catalogue) for row in catalogue.prompts[:MOST_ANSWERS]]
    names = ", ".join(f"{number} {text(skill)}" for skill, number in numbers.items())
    return f'{legend}<p class="soft">{names}</p>\n{table(head, rows, is_matrix=True)}'


def _prompt_cells(row: PromptRow, catalogue: Catalogue) -> list[str]:
    cells = []
    for skill in catalogue.skills:
        is_right = (skill == row.skill) if row.should_trigger else (skill != row.skill)
        relevance = row.relevance.get(skill)
        strong = relevance is not None and relevance >= catalogue.threshold
        words = "" if relevance is None else f"<b>{score(relevance)}</b>" if strong else score(relevance)
        cells.append(f'{_count(row.used.get(skill, 0), is_right)}<br><span class="soft">{words}</span>')
    kind = "should" if row.should_trigger else "should not"
    return [kind, text(row.prompt, 400), text(row.skill), *cells, _plain(row.nothing), _plain(row.errors)]


def table(names: Iterable[str], rows: Iterable[Iterable[str]], *, is_matrix: bool = False) -> str:
    """Return a table of cells that are HTML already; numbers stand at the right."""
    kind = ' class="matrix"' if is_matrix else ""
    head = "".join(f"<th>{name}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>\n" for row in rows)
    return f'<div class="wide"><table{kind}>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>\n'
