"""What is known about the verdicts of a run's judges, a line each: canaries, cards, calibrations, split juries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from waza.model import Grade, Run
from waza.reports._calibration import believed
from waza.reports._text import plural
from waza.results.canaries import canaries_of, canary_line
from waza.results.costs import cache_use

MOST_TASKS = 3


def judging_lines(run: Run) -> Iterator[str]:
    """Yield what a reader of this run's verdicts should know about who gave them, and by what."""
    yield from _rubrics(run)
    yield from _cache_lines(run)
    if line := canary_line(canaries_of(run)):
        yield line
    for entry in run.spec.get("judge_cards") or ():
        if isinstance(entry, dict) and isinstance(entry.get("line"), str):
            yield f"judge card: {entry['line']}"
    yield from believed(run)
    yield from _juries(run)


def _cache_lines(run: Run) -> Iterator[str]:
    found = cache_use(run)
    if found.cached:
        yield f"{plural(found.cached, 'verdict')} of {found.verdicts} from cache; --no-judge-cache asks again"
    if found.refused:
        entries = "1 entry" if found.refused == 1 else f"{found.refused} entries"
        yield f"{entries} of the judge cache not signed with your key and ignored: the judge was asked"


def _rubrics(run: Run) -> Iterator[str]:
    """Yield name, version and description of each rubric that judged, with the graders that used it."""
    if not any((run.spec.get("judged") or {}).values()):
        return
    used: dict[tuple[str, str], dict[str, None]] = {}
    for result in run.results:
        for grade in result.grades:
            if rubric := rubric_of(grade):
                used.setdefault(rubric, {})[grade.name] = None
    for (rubric_name, description), graders in used.items():
        yield f"rubric {rubric_name} ({', '.join(graders)}){f': {description}' if description else ''}"


def rubric_of(grade: Grade) -> tuple[str, str] | None:
    """Return name with version, and description of the rubric a grade was given by; None where there is none."""
    rubric = grade.details.get("rubric")
    if not isinstance(rubric, dict):
        return None
    name, version, description = (str(rubric.get(key) or "") for key in ("name", "version", "description"))
    return f"{name} {version}".strip(), description


def _juries(run: Run) -> Iterator[str]:
    """Yield how often the jury of each grader was not of one mind."""
    if not any(_has_jury(entry) for entries in (run.spec.get("graders") or {}).values() for entry in entries):
        return
    given: Counter[str] = Counter()
    split: dict[str, list[str]] = {}
    for result in run.results:
        for grade in result.grades:
            if isinstance(jury := grade.details.get("jury"), dict):
                given[grade.name] += 1
                if jury.get("is_unanimous") is False:
                    split.setdefault(grade.name, []).append(result.task_id)
    for name, count in given.items():
        tasks = list(dict.fromkeys(split.get(name, ())))
        more = f" and {len(tasks) - MOST_TASKS} more" if len(tasks) > MOST_TASKS else ""
        where = f" ({', '.join(tasks[:MOST_TASKS])}{more})" if tasks else ""
        yield f"jury {name}: {len(split.get(name, ()))} of {count} verdicts not of one mind{where}"


def _has_jury(entry: object) -> bool:
    config = entry.get("config") if isinstance(entry, dict) else None
    return isinstance(config, dict) and ("judges" in config or isinstance(config.get("grader"), dict))


def split_jury(grade: Grade) -> str:
    """Return who said what in a jury that was not of one mind; empty where it was, or there is none."""
    jury = grade.details.get("jury")
    return grade.feedback if isinstance(jury, dict) and jury.get("is_unanimous") is False else ""
