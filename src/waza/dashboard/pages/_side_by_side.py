"""Two trials of one task, one of each run: grades, trajectories aligned where they part, answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from waza.dashboard import blocks
from waza.dashboard.beside import beside
from waza.dashboard.markup import Element, Node, el, href, short
from waza.dashboard.pages.task import the_result
from waza.dashboard.parts import grid, head_cell, mark, soft
from waza.dashboard.registry import Ask
from waza.dashboard.room import Room
from waza.dashboard.store import Opened
from waza.model import Grade, Result
from waza.reports._compare_words import flip_lines
from waza.reports._text import plural, score
from waza.results.outcomes import outcomes_of, shown_names
from waza.results.stats.changes import Comparison

LETTERS = "ABCDEF"
MOST_GRADERS = 20


def side_by_side(ask: Ask, runs: Sequence[Opened], found: Sequence[Comparison], task: str) -> Iterator[Node]:
    """Yield two trials of one task, aligned at the first call in which they part."""
    place = min(max(1, ask.number("with", 1)), len(runs) - 1)
    before, after = runs[0], runs[place]
    change = next((one for one in found[place - 1].tasks if one.id == task), None)
    told = change.details if change else None
    one = the_result(before, task, ask.number("a", told.trial_before if told else _first(before, task)))
    other = the_result(after, task, ask.number("b", told.trial_after if told else _first(after, task)))
    yield el("h1", short(task, 160))
    yield el("p", *_named("A", before, one), " → ", *_named(LETTERS[place], after, other))
    yield _trial_links(runs, place, task, one, other)
    if told and (one.trial, other.trial) == (told.trial_before, told.trial_after):
        yield blocks.items(list(flip_lines(told))[:20])
    yield _verdicts(one, other, LETTERS[place])
    yield el("h2", "Trajectories", id="trajectories")
    if one.trace.tool_events is None or other.trace.tool_events is None:
        yield soft("Tool calls of one of them were not recorded.")
    else:
        labels = (f"A, trial {one.trial}", f"{LETTERS[place]}, trial {other.trial}")
        address = (
            href("compare", run=[run.listed.key for run in runs], task=task, with_=place, a=one.trial, b=other.trial)
            + "&"
        )
        yield beside(one.trace.tool_events, other.trace.tool_events, labels, ask.number("skip", 0), address)
    room = Room(150_000)
    yield el("h2", "Answers")
    yield el(
        "div",
        *(el("div", room.text(result.trace.output or "(nothing)", 10_000)) for result in (one, other)),
        class_="talk",
    )


def _first(opened: Opened, task: str) -> int:
    return next((one.trial for one in outcomes_of(opened.run.results) if one.task_id == task), 1)


def _named(letter: str, opened: Opened, result: Result) -> list[Node]:
    address = href("runs", opened.listed.key, "task", id=result.task_id, trial=result.trial)
    made = short(opened.listed.model or opened.listed.engine, 60)
    return [mark(result.status), " ", el("a", f"{letter}: {made}, trial {result.trial}", href=address)]


def _trial_links(runs: Sequence[Opened], place: int, task: str, one: Result, other: Result) -> Node:
    """Return links to the other trials of both sides."""
    keys = [run.listed.key for run in runs]
    lines: list[Node] = []
    for letter, opened, key, shown in (("A", runs[0], "a", one), (LETTERS[place], runs[place], "b", other)):
        trials = sorted(
            (found.trial, found.status) for found in outcomes_of(opened.run.results) if found.task_id == task
        )
        if len(trials) < 2:
            continue
        links: list[Node] = [el("span", f"{letter}: ", class_="soft")]
        for trial, status in trials[:50]:
            chosen = {"a": one.trial, "b": other.trial} | {key: trial}
            address = href("compare", run=keys, task=task, with_=place, **chosen)
            links.append(
                el("a", mark(status), f"{trial}", href=address, aria_current="true" if trial == shown.trial else None)
            )
        lines.append(el("span", *links, class_="around"))
    return el("nav", *lines, aria_label="trials") if lines else None


def _grade_cell(grade: Grade | None) -> Element:
    return el("td", mark(grade.status), f" {score(grade.score)}") if grade else el("td", "–")


def _verdicts(one: Result, other: Result, letter: str) -> Node:
    """Return the grades of both, those that differ first."""
    ones, others = (dict(zip(shown_names(side), side.grades, strict=True)) for side in (one, other))
    names = list(dict.fromkeys([*ones, *others]))[:MOST_GRADERS]
    pairs = [(name, ones.get(name), others.get(name)) for name in names]
    pairs.sort(key=lambda pair: (pair[1] and pair[1].status) == (pair[2] and pair[2].status))
    rows = [el("tr", el("th", short(name, 80), scope="row"), *map(_grade_cell, both)) for name, *both in pairs]
    if not rows:
        return None
    differ = sum((before and before.status) != (after and after.status) for _, before, after in pairs)
    told = f"{plural(differ, 'grade')} of {len(pairs)} came out otherwise"
    return [
        el("h2", "Grades"),
        soft(told),
        grid("grades", [head_cell("grader"), head_cell("A"), head_cell(letter)], rows),
    ]
