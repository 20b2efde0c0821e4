"""The grades of a trial: what each claims, what was expected and found, who judged by which rubric."""

from __future__ import annotations

from collections.abc import Sequence

from waza.dashboard.alignment import drawn, read_alignment
from waza.dashboard.markup import Element, Node, el, short
from waza.dashboard.parts import fold, mark, soft
from waza.dashboard.room import Room
from waza.model import JSON, Check, Grade, Result
from waza.reports._faults import shown_value
from waza.reports._text import plural, score, seconds
from waza.results.outcomes import shown_names

MOST_GRADES = 60
MOST_CHECKS = 60
FEW_CHECKS = 12
"""So many checks that held are shown without being asked for."""
MOST_VALUE = 3_000
_STATUS = {True: "passed", False: "failed", None: "error"}


def grades(result: Result, address: str, room: Room) -> Node:
    """Return every grade of a trial, what did not pass first and open."""
    named = sorted(zip(shown_names(result), result.grades, strict=True), key=lambda one: one[1].status == "passed")
    if not named:
        return soft("No grader looked at this trial.")
    shown = [
        _grade(name, number, grade, result, address, room) for number, (name, grade) in enumerate(named[:MOST_GRADES])
    ]
    more = len(named) - MOST_GRADES
    return [*shown, soft(f"… and {plural(more, 'more grade')}: waza show has all") if more > 0 else None]


def _grade(name: str, number: int, grade: Grade, result: Result, address: str, room: Room) -> Element:
    weight = f" · weight {grade.weight:g}" if grade.weight != 1.0 else ""
    kind = f" {short(grade.type, 60)}" if grade.type != name else ""
    rubric = _mapping(grade.details.get("rubric"))
    by = f" · rubric {_word(rubric.get('name'), 60)} {_word(rubric.get('version'), 20)}" if rubric else ""
    facts = el("span", f"{kind} · score {score(grade.score)}{weight}{by}", class_="soft")
    head: list[Node] = [mark(grade.status), " ", el("b", short(name, 100)), facts]
    inner: list[Node] = [_judged(grade)]
    if grade.feedback and not _says_the_same(grade):
        inner.append(room.text(grade.feedback, MOST_VALUE))
    inner.append(_checks(grade.checks, room))
    if (drawing := read_alignment(grade, result.trace)) is not None:
        inner.append(drawn(drawing, address, room))
    inner += [_votes(grade, room), _people(grade)]
    is_open, anchor = grade.status != "passed", f"grade-{number}"
    return el("details", el("summary", *head), *inner, open=is_open, id=anchor, class_="grade")


def _says_the_same(grade: Grade) -> bool:
    """Say whether the checks tell already what the feedback does."""
    wrong = [check.failure or check.claim for check in grade.checks if check.ok is not True]
    return (bool(wrong) and all(words in grade.feedback for words in wrong)) or (grade.passed and bool(grade.checks))


def numbers_of(result: Result) -> dict[str, int]:
    """Return by a grade's name the number under which it stands on the page."""
    named = sorted(zip(shown_names(result), result.grades, strict=True), key=lambda one: one[1].status == "passed")
    return {name: number for number, (name, _) in enumerate(named[:MOST_GRADES])}


def _judged(grade: Grade) -> Node:
    """Return by whom and by what a judged grade was given: model, rubric with its version, what it took."""
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


def _checks(checks: Sequence[Check], room: Room) -> Node:
    """Return checks, those that did not hold first and with their values; those that held are folded if many."""
    wrong = [check for check in checks if check.ok is not True]
    held = [check for check in checks if check.ok is True]
    parts: list[Node] = [_listed(wrong, room)] if wrong else []
    if held:
        listed = _listed(held, room)
        is_short = not wrong and len(held) <= FEW_CHECKS
        parts.append(listed if is_short else fold(f"{plural(len(held), 'check')} held", listed))
    return parts


def _listed(checks: Sequence[Check], room: Room) -> Element:
    """Return as many checks as there is room for."""
    items: list[Node] = []
    for check in checks[:MOST_CHECKS]:
        if room.is_full:
            break
        items.append(_check(check, room))
    more = len(checks) - len(items)
    rest = soft(f"… and {plural(more, 'more check')}: waza show has all") if more else None
    return el("div", el("ul", *items, class_="checks") if items else None, rest)


def _check(check: Check, room: Room) -> Element:
    status = _STATUS[check.ok]
    words = check.claim if check.ok else check.failure or check.claim
    parts: list[Node] = [mark(status), " ", el("span", room.line(words, 1_500))]
    if check.ok is not True and check.failure and check.claim and check.claim != check.failure:
        parts.append(el("div", "claim: ", room.line(check.claim, 600), class_="soft claim"))
    values = [
        (label, shown_value(value, 100_000)) for label, value in (("expected", check.expected), ("found", check.actual))
    ]
    known = [
        el("div", el("span", label, class_="soft"), room.text(value, MOST_VALUE))
        for label, value in values
        if value is not None
    ]
    if known and check.ok is not True:
        parts.append(el("div", *known, class_="pair"))
    return el("li", *parts)


def _votes(grade: Grade, room: Room) -> Node:
    """Return what each juror said, where a jury decided."""
    votes = _mapping(grade.details.get("jury")).get("votes")
    if not isinstance(votes, list) or not votes:
        return None
    items = []
    for vote in [_mapping(one) for one in votes[:20]]:
        status = vote.get("status")
        told = mark(status) if status in ("passed", "failed", "error") else None
        items.append(
            el(
                "li",
                told,
                " ",
                el("b", _word(vote.get("juror"))),
                " ",
                room.line(_word(vote.get("feedback"), 1_000), 1_000),
            )
        )
    return el("div", soft("the jury"), el("ul", *items, class_="checks"))


def _people(grade: Grade) -> Node:
    """Return what a `human` grader asks."""
    asked = _mapping(grade.details.get("human"))
    if not asked:
        return None
    listed = asked.get("criteria")
    criteria = [el("li", _word(one, 400)) for one in listed[:20]] if isinstance(listed, list) else []
    return el(
        "div",
        soft("people are asked"),
        el("p", _word(asked.get("instructions"), 2_000)),
        el("ul", *criteria) if criteria else None,
    )


def _mapping(value: JSON) -> dict[str, JSON]:
    return value if isinstance(value, dict) else {}


def _word(value: JSON, most: int = 120) -> str:
    return "" if value is None else short(str(value), most)
