"""By what the tasks of stored runs were graded, and whether that is the same in two of them."""

from __future__ import annotations

from waza.model import JSON

FILES = "files"
"""Where a stored grader notes the files it reads: by name a hash of what each held. Older runs do not have it."""


def graded_alike(one: dict[str, JSON], other: dict[str, JSON], task_id: str) -> bool:
    """Say whether two specs grade a task by the same graders, rubrics and judge."""
    if not same_graders(*((spec.get("graders") or {}).get(task_id) for spec in (one, other))):
        return False
    asked, others = ((spec.get("judged") or {}).get(task_id) for spec in (one, other))
    return bool(asked == others and (asked is None or one.get("judge") == other.get("judge")))


def same_graders(one: JSON, other: JSON) -> bool:
    """Say whether two lists of stored graders are the same, as far as both note it."""
    if one == other:
        return True
    if not one or not other or len(one) != len(other):
        return False
    return all(mine == its or _same_without_files(mine, its) for mine, its in zip(one, other, strict=True))


def _same_without_files(one: dict[str, JSON], other: dict[str, JSON]) -> bool:
    return (FILES in one) is not (FILES in other) and without_files(one) == without_files(other)


def without_files(grader: dict[str, JSON]) -> dict[str, JSON]:
    """Return a stored grader without what the files it reads held."""
    return {key: value for key, value in grader.items() if key != FILES}
