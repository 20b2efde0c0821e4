"""The grades of a trial: checks with expected and found, judge and rubric, votes; and how calls match expectations.

A stored run may come from anywhere, so an alignment is read with care: entries of another shape are left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from waza.model import JSON, Check, Grade, Result, Trace
from waza.reports.failed_checks import shown_value
from waza.reports.html.components import fold, grid, head_cell, mark, soft
from waza.reports.html.markup import Element, Node, TextBudget, el, short
from waza.runs.outcomes import shown_names
from waza.untrusted.text import plural, score, seconds

MOST_GRADES = 60
MOST_CHECKS = 60
FEW_CHECKS = 12
"""Up to this many passed checks are shown unfolded."""
MOST_VALUE = 3_000
MOST_QUOTES = 20
MOST_EFFECTS = 60
MOST_PARTS = 64
MOST_DEPTH = 8
MOST_RULES = 100
_STATUS = {True: "passed", False: "failed", None: "error"}


def grades(result: Result, address: str, budget: TextBudget) -> Node:
    """Return every grade of a trial, what did not pass first and open."""
    named = sorted(zip(shown_names(result), result.grades, strict=True), key=lambda one: one[1].status == "passed")
    if not named:
        return soft("This trial was not graded.")
    shown = [
        _grade(name, number, grade, result, address, budget) for number, (name, grade) in enumerate(named[:MOST_GRADES])
    ]
    more = len(named) - MOST_GRADES
    return [*shown, soft(f"… and {plural(more, 'more grade')}: waza show has all") if more > 0 else None]


def _grade(name: str, number: int, grade: Grade, result: Result, address: str, budget: TextBudget) -> Element:
    weight = f" · weight {grade.weight:g}" if grade.weight != 1.0 else ""
    kind = f" {short(grade.type, 60)}" if grade.type != name else ""
    rubric = _mapping(grade.details.get("rubric"))
    by = f" · rubric {_word(rubric.get('name'), 60)} {_word(rubric.get('version'), 20)}" if rubric else ""
    facts = el("span", f"{kind} · score {score(grade.score)}{weight}{by}", class_="soft")
    head: list[Node] = [mark(grade.status), " ", el("b", short(name, 100)), facts]
    inner: list[Node] = [_judged(grade)]
    if grade.feedback and not _repeats_checks(grade):
        inner.append(budget.text(grade.feedback, MOST_VALUE))
    inner += [_checks(grade.checks, budget), _evidence(grade, budget)]
    if (drawing := read_alignment(grade, result.trace)) is not None:
        inner.append(drawn(drawing, address, budget))
    inner += [evidence_of(grade, budget, address), _votes(grade, budget), _people(grade)]
    is_open, anchor = grade.status != "passed", f"grade-{number}"
    return fold(head, *inner, is_open=is_open, id=anchor, class_="grade")


def _repeats_checks(grade: Grade) -> bool:
    """Return whether the checks already contain the feedback."""
    wrong = [check.failure or check.claim for check in grade.checks if check.ok is not True]
    return (bool(wrong) and all(words in grade.feedback for words in wrong)) or (grade.passed and bool(grade.checks))


def numbers_of(result: Result) -> dict[str, int]:
    """Return each grade's number on the page, by name."""
    named = sorted(zip(shown_names(result), result.grades, strict=True), key=lambda one: one[1].status == "passed")
    return {name: number for number, (name, _) in enumerate(named[:MOST_GRADES])}


def _judged(grade: Grade) -> Node:
    """Return the judge and the rubric of a judged grade: model, version, time."""
    rubric, judge = _mapping(grade.details.get("rubric")), _mapping(grade.details.get("judge"))
    if not rubric and not judge:
        return None
    parts: list[Node] = []
    if rubric:
        version = f" {_word(rubric.get('version'))}" if rubric.get("version") else ""
        scale = f" ({_word(rubric.get('scale'))})" if rubric.get("scale") else ""
        parts += ["rubric ", el("b", f"{_word(rubric.get('name'))}{version}"), scale]
        parts += [" · ", el("span", _word(rubric.get("hash"))[:12], class_="id")] if rubric.get("hash") else []
    if judge:
        parts += [" · " if parts else "", "judge ", el("b", _word(judge.get("model")) or _word(judge.get("type")))]
        parts += [", from the cache"] if judge.get("cached") is True else []
        took = judge.get("seconds")
        parts += [f", {seconds(took * 1000)}"] if isinstance(took, (int, float)) and 0 < took < 1e6 else []
    described = _word(rubric.get("description"), 300)
    return [el("p", *parts, class_="judged"), soft(described) if described else None]


def _checks(checks: Sequence[Check], budget: TextBudget) -> Node:
    """Return checks, failed ones first and with their values; passed ones are folded if there are many."""
    wrong = [check for check in checks if check.ok is not True]
    passed = [check for check in checks if check.ok is True]
    parts: list[Node] = [_listed(wrong, budget)] if wrong else []
    if passed:
        listed = _listed(passed, budget)
        is_short = not wrong and len(passed) <= FEW_CHECKS
        parts.append(listed if is_short else fold(f"{plural(len(passed), 'check')} passed", listed))
    return parts


def _listed(checks: Sequence[Check], budget: TextBudget) -> Element:
    """Return as many checks as the budget allows."""
    items: list[Node] = []
    for check in checks[:MOST_CHECKS]:
        if budget.is_full:
            break
        items.append(_check(check, budget))
    more = len(checks) - len(items)
    rest = soft(f"… and {plural(more, 'more check')}: waza show has all") if more else None
    return el("div", el("ul", *items, class_="checks") if items else None, rest)


def _check(check: Check, budget: TextBudget) -> Element:
    status = _STATUS[check.ok]
    words = check.claim if check.ok else check.failure or check.claim
    parts: list[Node] = [mark(status), " ", el("span", budget.line(words, 1_500))]
    if check.ok is not True and check.failure and check.claim and check.claim != check.failure:
        parts.append(el("div", "claim: ", budget.line(check.claim, 600), class_="soft claim"))
    values = [
        (label, shown_value(value, 100_000)) for label, value in (("expected", check.expected), ("found", check.actual))
    ]
    known = [
        el("div", el("span", label, class_="soft"), budget.text(value, MOST_VALUE))
        for label, value in values
        if value is not None
    ]
    if known and check.ok is not True:
        parts.append(el("div", *known, class_="pair"))
    return el("li", *parts)


def _evidence(grade: Grade, budget: TextBudget) -> Node:
    """Return what a judge quotes, each with its place, and what it was not shown."""
    quotes, left_out = grade.details.get("evidence"), grade.details.get("left_out")
    parts: list[Node] = []
    for cut in [_mapping(one) for one in left_out[:10]] if isinstance(left_out, list) else []:
        count, whole = _word(cut.get("characters"), 20), _word(cut.get("of"), 20)
        parts.append(soft(f"not shown to the judge: {count} of {whole} characters of {_word(cut.get('part'))}"))
    items = []
    for quote in [_mapping(one) for one in quotes[:MOST_QUOTES]] if isinstance(quotes, list) else []:
        line = f", line {_word(quote.get('line'), 12)}" if quote.get("line") else ""
        is_found = quote.get("found") is True
        where = f" {_word(quote.get('place'))}{line}" if is_found else " not in the material"
        words = budget.line(_word(quote.get("quote"), 1_000), 1_000)
        items.append(
            el("li", mark("passed" if is_found else "error"), " “", words, "”", el("span", where, class_="soft"))
        )
    if items:
        parts.append(el("div", soft("the judge quotes"), el("ul", *items, class_="checks")))
    return parts


def evidence_of(grade: Grade, budget: TextBudget, address: str | None = None) -> Node:
    """Return the parts of a combination, the evidence of rules and the ledger of side effects, where a grade has them.

    `address` is the page with the calls; None where there is none.
    """
    parts, rules = _parts(grade.details.get("parts"), budget), _rules(grade, budget, address)
    return [parts, rules, effects_table(grade, budget, address)]


def _parts(listed: JSON, budget: TextBudget, depth: int = 0) -> Node:
    """Return the parts of a combination as a tree: each with its status and feedback, and its own parts below it."""
    if not isinstance(listed, list) or not listed or depth > MOST_DEPTH:
        return None
    items: list[Node] = []
    for part in [_mapping(one) for one in listed[:MOST_PARTS]]:
        if budget.is_full:
            break
        status = next((known for known in ("passed", "failed", "error") if part.get("status") == known), "error")
        kind = _word(part.get("type"), 60)
        head: list[Node] = [mark(status), " ", el("b", _word(part.get("name"), 100) or kind), soft(f" {kind}")]
        feedback = budget.line(_word(part.get("feedback"), 600), 600)
        inner = _parts(_mapping(part.get("details")).get("parts"), budget, depth + 1)
        items.append(el("div", *head, el("div", feedback, class_="soft"), inner, class_="part"))
    if depth:
        return el("div", *items, class_="parts")
    return el("div", *items, class_="parts", role="group", aria_label="parts")


def _rules(grade: Grade, budget: TextBudget, address: str | None) -> Node:
    """Return the evidence of each rule as a table: its trigger, the calls, and in how many first calls it is seen."""
    listed = grade.details.get("rules")
    if not isinstance(listed, list) or not listed:
        return None
    rows: list[Node] = []
    for rule in [_mapping(one) for one in listed[:MOST_RULES]]:
        if budget.is_full:
            break
        prefix = next(iter(_places([rule.get("prefix")])), None)
        cells: list[Node] = [
            budget.line(_word(rule.get("name"), 300), 300),
            _word(rule.get("status"), 20).replace("_", " "),
            _call_links([rule.get("trigger")], address),
            _call_links(rule.get("calls"), address),
            f"calls 1-{prefix}" if prefix else "–",
        ]
        rows.append(el("tr", *(el("td", cell) for cell in cells)))
    head = [head_cell(label) for label in ("rule", "status", "trigger", "calls", "seen in")]
    return grid("rules", head, rows)


def _call_links(listed: JSON, address: str | None) -> Node:
    """Return calls by their numbers, as links where there is a page with them; a dash without any."""
    calls = _places(listed)[:10]
    if address is None:
        return ", ".join(f"call {call + 1}" for call in calls) or "–"
    linked = [el("a", f"call {call + 1}", href=f"{address}call={call + 1}#call-{call + 1}") for call in calls]
    return [part for link in linked for part in (link, " ")] if linked else "–"


def effects_table(grade: Grade, budget: TextBudget, address: str | None = None) -> Node:
    """Return the ledger of side effects as a table: what was changed, by which call, and what is not certain.

    `address` is the page with the calls; None where there is none.
    """
    listed = grade.details.get("effects")
    if not isinstance(listed, list) or not listed:
        return None
    rows: list[Node] = []
    for effect in [_mapping(one) for one in listed[:MOST_EFFECTS]]:
        if budget.is_full:
            break
        call = next(iter(_places([effect.get("call")])), None)
        by: Node = "–" if call is None else f"call {call + 1}"
        if call is not None and address is not None:
            by = el("a", by, href=f"{address}call={call + 1}#call-{call + 1}")
        notes = (effect.get("done") is False and "failed", effect.get("sure") is False and "not certain")
        outcome = ", ".join(note for note in notes if note) or "done"
        target = budget.line(_word(effect.get("target"), 400) or "not recorded", 400)
        rows.append(el("tr", *(el("td", cell) for cell in (_word(effect.get("kind"), 20), target, by, outcome))))
    head = [head_cell("effect"), head_cell("what"), head_cell("by"), head_cell("outcome")]
    left_out = grade.details.get("effects_left_out")
    more = len(listed) - len(rows) + (left_out if isinstance(left_out, int) else 0)
    rest = soft(f"… and {plural(more, 'more effect')}") if more > 0 else None
    return [soft(plural(len(rows) + more, "side effect")), grid("side effects", head, rows), rest]


def _votes(grade: Grade, budget: TextBudget) -> Node:
    """Return the vote of each juror, where a jury decided."""
    votes = _mapping(grade.details.get("jury")).get("votes")
    if not isinstance(votes, list) or not votes:
        return None
    items = []
    for vote in [_mapping(one) for one in votes[:20]]:
        status = vote.get("status")
        vote_mark = mark(status) if status in ("passed", "failed", "error") else None
        items.append(
            el(
                "li",
                vote_mark,
                " ",
                el("b", _word(vote.get("juror"))),
                " ",
                budget.line(_word(vote.get("feedback"), 1_000), 1_000),
            )
        )
    return el("div", soft("the jury"), el("ul", *items, class_="checks"))


def _people(grade: Grade) -> Node:
    """Return the question of a `human` grader."""
    human = _mapping(grade.details.get("human"))
    if not human:
        return None
    listed = human.get("criteria")
    criteria = [el("li", _word(one, 400)) for one in listed[:20]] if isinstance(listed, list) else []
    return el(
        "div",
        soft("people are asked"),
        el("p", _word(human.get("instructions"), 2_000)),
        el("ul", *criteria) if criteria else None,
    )


def _mapping(value: JSON) -> dict[str, JSON]:
    return value if isinstance(value, dict) else {}


def _word(value: JSON, most: int = 120) -> str:
    return "" if value is None else short(str(value), most)


# An alignment: expected calls next to those that were made, with lines between them, and as a table.

ROW = 30
"""The height of a row, in the drawing and in the style."""
MOST = 40
"""Expectations, and calls, that are drawn."""
_NAMED = re.compile(r'name="([^"]*)"(?: args: \[(.*)\])?')
_MARKS = {"matched": "✓", "absent": "✓", "undecided": "?"}


class AlignedCall(NamedTuple):
    """One expectation and the calls that match it."""

    label: str
    status: str
    calls: list[int]
    found: int | None
    nearest: int | None
    differences: list[tuple[str, str, str]]
    """Path, expected, found."""


class Drawing(NamedTuple):
    """An alignment as it was read."""

    order: str
    entries: list[AlignedCall]
    extra: list[int]
    names: Sequence[str]
    is_calls: bool
    """Whether what was made are tool calls, which have an address on the page."""


def read_alignment(grade: Grade, trace: Trace) -> Drawing | None:
    """Return the alignment stored with a grade; None where it has none."""
    alignment = grade.details.get("alignment")
    if not isinstance(alignment, dict) or not isinstance(alignment.get("expectations"), list):
        return None
    names: Sequence[str] = [event.tool_name for event in trace.tool_events or ()]
    is_calls = True
    for key in ("actual_skills", "actual_actions"):
        if isinstance(listed := grade.details.get(key), list):
            names, is_calls = [str(name) for name in listed], key == "actual_actions"
    entries = [_entry(entry) for entry in alignment["expectations"] if isinstance(entry, dict)]
    extra = [*_places(alignment.get("extra")), *_places(alignment.get("out_of_order"))]
    return Drawing(str(alignment.get("order") or "any"), entries, sorted(extra), names, is_calls)


def _entry(entry: dict[str, JSON]) -> AlignedCall:
    nearest = entry.get("nearest") if isinstance(entry.get("nearest"), dict) else {}
    assert isinstance(nearest, dict)
    stored = nearest.get("differences")
    differences = [_difference(one) for one in stored if isinstance(one, dict)] if isinstance(stored, list) else []
    return AlignedCall(
        label=_label(str(entry.get("expected") or "")),
        status=str(entry.get("status") or ""),
        calls=_places(entry.get("calls")),
        found=next(iter(_places([entry.get("found")])), None),
        nearest=next(iter(_places([nearest.get("call")])), None),
        differences=differences,
    )


def _label(text: str) -> str:
    """Return an expectation as a label: the tool's name, then the arguments that are checked."""
    match = _NAMED.fullmatch(text)
    return text if match is None else f"{match[1]} ({match[2]})" if match[2] else match[1]


def _difference(difference: dict[str, JSON]) -> tuple[str, str, str]:
    actual = "not given" if difference.get("missing") else "undecided" if difference.get("undecided") else None
    shown = actual or shown_value(difference.get("actual"), 400) or "nothing"
    return (
        str(difference.get("path") or ""),
        str(difference.get("why") or shown_value(difference.get("expected"), 400) or ""),
        shown,
    )


def _places(value: JSON) -> list[int]:
    """Return places from 0; anything else is no place."""
    if not isinstance(value, list):
        return []
    return [one for one in value if isinstance(one, int) and not isinstance(one, bool) and 0 <= one < 1_000_000]


def drawn(drawing: Drawing, address: str, budget: TextBudget) -> Element:
    """Return an alignment: expected on the left, made on the right, and what is nearest in words."""
    entries = drawing.entries[:MOST]
    used = {call for entry in drawing.entries for call in _linked(entry)}
    wanted = sorted({call for entry in entries for call in _linked(entry)} | set(drawing.extra))
    calls = [call for call in wanted if call < len(drawing.names)][:MOST]
    rows = {call: row for row, call in enumerate(calls)}
    lines = [line for row, entry in enumerate(entries) for line in _lines(row, entry, rows)]
    height = ROW * max(len(entries), len(calls), 1)
    left = el("ol", *(_expected(entry) for entry in entries), class_="expected")
    right = el("ol", *(_made(call, drawing, call in used, address) for call in calls), class_="made")
    picture = el("svg", *lines, height=height, width="100%", aria_hidden="true")
    heads = el(
        "div",
        el("span", "expected", class_="soft"),
        el("span"),
        el("span", "made", class_="soft"),
        class_="align heads",
    )
    more = max(0, len(drawing.entries) - MOST), max(0, len(wanted) - len(calls))
    rest = [f"{count:,} more {noun}" for count, noun in zip(more, ("expected", "made"), strict=True) if count]
    orders = {"any": "in any order", "in_order": "in this order", "exact": "in this order, and no others"}
    return el(
        "div",
        soft(f"{plural(len(drawing.entries), 'expectation')}, {orders.get(drawing.order, drawing.order)}"),
        heads,
        el("div", left, picture, right, class_="align"),
        soft(f"… {' and '.join(rest)}") if rest else None,
        *_nearest(entries, drawing, address, budget),
        fold("as a table", _table(drawing)),
        class_="alignment",
    )


def _linked(entry: AlignedCall) -> list[int]:
    return [*entry.calls, *(place for place in (entry.found, entry.nearest) if place is not None)]


def _lines(row: int, entry: AlignedCall, rows: dict[int, int]) -> list[Element]:
    ties = [(call, "fits") for call in entry.calls[:MOST]]
    ties += [(entry.found, "moved")] if entry.found is not None else []
    ties += [(entry.nearest, "near")] if entry.nearest is not None else []
    middle = ROW // 2
    return [
        el("line", x1="0", y1=ROW * row + middle, x2="100%", y2=ROW * rows[call] + middle, class_=f"tie {kind}")
        for call, kind in ties
        if call in rows
    ]


def _expected(entry: AlignedCall) -> Element:
    mark = _MARKS.get(entry.status, "✗")
    kind = {"✓": "passed", "?": "error"}.get(mark, "failed")
    note = "" if entry.status == "matched" else f" {entry.status.replace('_', ' ')}"
    words = f"{short(entry.label, 200)}{note}"
    return el("li", el("span", mark, class_=f"mark {kind}"), " ", el("span", words, class_="word", title=words))


def _made(call: int, drawing: Drawing, is_used: bool, address: str) -> Element:
    name = short(drawing.names[call], 80)
    label: Node = (
        el("a", f"{call + 1} {name}", href=f"{address}call={call + 1}#call-{call + 1}")
        if drawing.is_calls
        else f"{call + 1} {name}"
    )
    note = None if is_used else el("span", " not expected", class_="soft")
    return el("li", el("span", label, note, class_="word", title=f"{call + 1} {name}"))


def _nearest(entries: Sequence[AlignedCall], drawing: Drawing, address: str, budget: TextBudget) -> list[Node]:
    parts: list[Node] = []
    for entry in entries:
        if entry.nearest is None:
            continue
        link = el("a", f"call {entry.nearest + 1}", href=f"{address}call={entry.nearest + 1}#call-{entry.nearest + 1}")
        rows = [
            el(
                "tr",
                el("td", el("code", short(path, 200))),
                el("td", budget.line(wanted, 400)),
                el("td", budget.line(found, 400)),
            )
            for path, wanted, found in entry.differences[:20]
        ]
        head = [head_cell("argument"), head_cell("expected"), head_cell("found")]
        parts.append(el("p", "nearest to ", el("b", short(entry.label, 120)), ": ", link))
        parts.append(grid(f"how call {entry.nearest + 1} differs", head, rows))
    return parts


def _table(drawing: Drawing) -> Element:
    rows = [
        el(
            "tr",
            el("td", short(entry.label, 200)),
            el("td", entry.status.replace("_", " ")),
            el("td", _calls_text(entry)),
        )
        for entry in drawing.entries[: 2 * MOST]
    ]
    if drawing.extra:
        listed = ", ".join(str(call + 1) for call in drawing.extra[: 2 * MOST])
        more = "…" if len(drawing.extra) > 2 * MOST else ""
        rows.append(el("tr", el("td", "(not expected)"), el("td", "extra"), el("td", f"{listed}{more}")))
    return grid("alignment", [head_cell("expected"), head_cell("result"), head_cell("calls")], rows)


def _calls_text(entry: AlignedCall) -> str:
    parts = [", ".join(str(call + 1) for call in entry.calls[:20])] if entry.calls else []
    parts += [f"{entry.found + 1}, out of order"] if entry.found is not None else []
    parts += [f"nearest is {entry.nearest + 1}"] if entry.nearest is not None else []
    return "; ".join(parts) or "–"
