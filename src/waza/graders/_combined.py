"""Graders made of other graders: which parts decide the whole, in which order they are graded, and what is shown.

A combination passes when at least `need` of its parts pass; `all_of` needs all, `any_of` one. Verdicts are
three-valued: an undecided part counts neither way, and matters only where it could change the outcome.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from time import perf_counter
from typing import Annotated, Any, ClassVar, Self

import msgspec
from pydantic import Field, PlainSerializer, WithJsonSchema, model_validator

from waza.files.pinned import PinnedFiles
from waza.graders.base import Finding, Grader
from waza.model import JSON, Check, Grade, GradeStatus, Trace
from waza.runs.outcomes import merged_tool_facts

MAX_DEPTH = 8
MAX_PARTS = 64
NOT_ASKED = "not asked: it cannot change the outcome"
_ANY: frozenset[GradeStatus] = frozenset(("passed", "failed", "error"))
Statuses = frozenset[GradeStatus]
Known = dict[int, Grade]
"""The grades of parts that are no combinations, by the identity of the grader."""


def _as_data(grader: Grader) -> dict[str, JSON]:
    """Return a part as the mapping it could be loaded from."""
    config = grader.model_dump(mode="json", exclude={"name", "weight", "folder"}, exclude_defaults=True, by_alias=True)
    data: dict[str, JSON] = {"type": grader.type_name(), "name": grader.name, "config": config}
    return data | ({} if grader.weight == 1 else {"weight": grader.weight})


_PART_SCHEMA: dict[str, JSON] = {"type": "object", "required": ["type"], "title": "Grader"}
Part = Annotated[Grader, PlainSerializer(_as_data, return_type=dict), WithJsonSchema(_PART_SCHEMA)]
"""A grader as in a suite's `graders`: `type`, `name` and `config`, or the keys next to `type`."""
Parts = Annotated[list[Part], Field(min_length=1)]
"""Graders as in a suite's `graders`."""


class CombinedGrader(Grader):
    """Combine the verdicts of other graders."""

    weighs_parts: ClassVar[bool] = False
    """Whether the weights of parts have an effect."""

    @property
    def need(self) -> int:
        """How many parts must pass."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _is_within_limits(self) -> Self:
        if _depth(self) > MAX_DEPTH:
            raise ValueError(f"graders are nested more than {MAX_DEPTH} deep")
        if sum(1 for _ in _inner(self)) > MAX_PARTS:
            raise ValueError(f"a combination has at most {MAX_PARTS} graders")
        if not self.weighs_parts:
            for part in self.parts:
                if "weight" in part.model_fields_set:
                    raise ValueError(f"'weight' has no effect inside {self.type_name()}")
        elif not any(part.weight for part in self.parts):
            raise ValueError("all graders have weight 0, so there is no score; give one of them a weight above 0")
        asking = [leaf for leaf in _leaves(self) if leaf.asks() is not None]
        if any(leaf.continues for leaf in asking) and not all(leaf.continues for leaf in asking):
            raise ValueError("graders that ask a judge cannot be combined with those that continue the agent's session")
        return self

    @property
    def waits(self) -> bool:  # type: ignore[override]
        """Whether any part waits for another process."""
        return any(part.waits for part in self.parts)

    @property
    def checks_behavior(self) -> bool:  # type: ignore[override]
        """Whether any part checks what the agent did."""
        return any(part.checks_behavior for part in self.parts)

    @property
    def checks_skill_use(self) -> bool:  # type: ignore[override]
        """Whether any part checks if a skill was used."""
        return any(part.checks_skill_use for part in self.parts)

    @property
    def depends_on_people(self) -> bool:  # type: ignore[override]
        """Whether the verdict of any part depends on people."""
        return any(part.depends_on_people or part.asks_people for part in self.parts)

    @property
    def needs_more_than_trace(self) -> bool:  # type: ignore[override]
        """Whether any part needs more than a run folder has."""
        return any(part.needs_more_than_trace for part in self.parts)

    @property
    def continues(self) -> bool:
        """Whether the agent itself is asked, in its session."""
        return any(part.continues for part in self.parts)

    def unready(self) -> str:
        """Return the first reason why a part could not grade here."""
        return next(filter(None, (part.unready() for part in self.parts)), "")

    def asks(self) -> list[str] | None:
        """Return the rubrics of the parts that ask a judge."""
        rubrics = [hashes for part in self.parts if (hashes := part.asks()) is not None]
        return [one for hashes in rubrics for one in hashes] if rubrics else None

    def pin(self, files: PinnedFiles) -> None:
        """Record the files of all parts."""
        for part in self.parts:
            part.pin(files)

    def reads(self) -> dict[str, str]:
        """Return the files that any part reads."""
        return {name: digest for part in self.parts for name, digest in part.reads().items()}

    def evaluate(self, trace: Trace, judge: Any) -> Finding:
        """Return the combined verdict; judges are asked last, and only where they could change it."""
        steps = self._steps()
        try:
            leaf = next(steps)
            while True:
                leaf = steps.send(leaf.grade(trace, judge=judge))
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]

    async def aevaluate(self, trace: Trace, judge: Any) -> Finding:
        """Return what `evaluate` returns, awaiting each judge."""
        steps = self._steps()
        try:
            leaf = next(steps)
            while True:
                leaf = steps.send(await leaf.agrade(trace, judge=judge))
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]

    def _steps(self) -> Generator[Grader, Grade, Finding]:
        """Yield the parts to grade, one by one, and take their grades; return the verdict."""
        known: Known = {}
        for leaf in _leaves(self):
            if leaf.asks() is None:
                known[id(leaf)] = yield leaf
        while (asked := self._next_to_ask(known)) is not None:
            known[id(asked)] = yield asked
        return self._finding(known)

    def _next_to_ask(self, known: Known) -> Grader | None:
        """Return the first part not graded yet that could change the outcome."""
        if len(self._possible(known)) == 1:
            return None
        for part in self.parts:
            if isinstance(part, CombinedGrader):
                if (found := part._next_to_ask(known)) is not None:
                    return found
            elif id(part) not in known:
                return part
        return None

    def _possible(self, known: Known) -> Statuses:
        """Return the statuses that are still possible while some parts are not graded."""
        parts = [
            part._possible(known)
            if isinstance(part, CombinedGrader)
            else frozenset((known[id(part)].status,))
            if id(part) in known
            else _ANY
            for part in self.parts
        ]
        return self.possible_status(parts)

    def possible_status(self, parts: Sequence[Statuses]) -> Statuses:
        """Return the statuses that are possible where each part has one of some statuses."""
        found: set[GradeStatus] = set()
        certain = sum(part == {"passed"} for part in parts)
        open_ = sum(part == {"passed", "failed"} for part in parts)
        unknown = sum("error" in part for part in parts)
        if sum("passed" in part for part in parts) >= self.need:
            found.add("passed")
        if sum("failed" not in part for part in parts) < self.need:
            found.add("failed")
        if unknown and certain < self.need <= min(certain + open_, self.need - 1) + unknown:
            found.add("error")
        return frozenset(found)

    def _finding(self, known: Known) -> Finding:
        grades = [self._grade_of(part, known) for part in self.parts]
        names = _names(grades)
        [status] = self.possible_status([frozenset((grade.status,)) for grade in grades])
        score = 0.0 if status == "error" else self.score(status, grades)
        checks = self.part_checks(status, grades, names)
        parts: list[JSON] = [_part_details(name, grade) for name, grade in zip(names, grades, strict=True)]
        return Finding(
            status, score, self.feedback(status, grades, names), checks, {"parts": parts, **self.facts(grades)}
        )

    def _grade_of(self, part: Grader, known: Known) -> Grade:
        if isinstance(part, CombinedGrader):
            return part._as_grade(part._finding(known), perf_counter())
        if id(part) in known:
            return known[id(part)]
        kind = part.type_name()
        return Grade(
            name=part.name or kind, type=kind, status="error", score=0.0, weight=part.weight, feedback=NOT_ASKED
        )

    def facts(self, grades: Sequence[Grade]) -> dict[str, JSON]:
        """Return what the parts found out about tool calls, for the suite's metrics."""
        return merged_tool_facts((grade.details for grade in grades), is_choice=self.need < len(grades))

    def score(self, status: GradeStatus, grades: Sequence[Grade]) -> float:
        """Return the score of a decided combination."""
        raise NotImplementedError

    def claim(self, names: Sequence[str]) -> str:
        """Return what is claimed about the parts."""
        return f"at least {self.need} of {len(names)} graders pass"

    def part_checks(self, status: GradeStatus, grades: Sequence[Grade], names: Sequence[str]) -> list[Check]:
        """Return the checks: one about the whole."""
        ok = {"passed": True, "failed": False, "error": None}[status]
        return [Check(ok, self.claim(names), "" if ok else self.feedback(status, grades, names))]

    def feedback(self, status: GradeStatus, grades: Sequence[Grade], names: Sequence[str]) -> str:
        """Return the verdict in words, with the parts that explain it."""
        named = list(zip(names, grades, strict=True))
        passed = sum(grade.passed for grade in grades)
        if status == "passed":
            return f"passed: {', '.join(name for name, grade in named if grade.passed)}"
        wanted = "failed" if status == "failed" else "error"
        reasons = "; ".join(f"{name}: {grade.feedback}" for name, grade in named if grade.status == wanted)
        if status == "failed":
            return f"{passed} of {len(grades)} graders passed, {self.need} needed: {reasons}"
        return f"cannot tell whether {self.claim(names)}: {reasons}"


def _part_details(name: str, grade: Grade) -> dict[str, JSON]:
    facts: dict[str, JSON] = {
        "name": name,
        "type": grade.type,
        "status": grade.status,
        "score": grade.score,
        "feedback": grade.feedback,
        "checks": msgspec.to_builtins(grade.checks),
    }
    return facts | ({"details": grade.details} if grade.details else {})


def _names(grades: Sequence[Grade]) -> list[str]:
    """Return the names of parts; those that share one are numbered."""
    seen: dict[str, int] = {}
    names = []
    for grade in grades:
        seen[grade.name] = seen.get(grade.name, 0) + 1
        names.append(grade.name if seen[grade.name] == 1 else f"{grade.name}#{seen[grade.name]}")
    return names


def _inner(grader: Grader) -> Iterator[Grader]:
    for part in grader.parts if isinstance(grader, CombinedGrader) else ():
        yield part
        yield from _inner(part)


def _leaves(grader: Grader) -> Iterator[Grader]:
    """Yield the parts that are no combinations."""
    return (part for part in _inner(grader) if not isinstance(part, CombinedGrader))


def _depth(grader: Grader) -> int:
    return 1 + max(map(_depth, grader.parts)) if isinstance(grader, CombinedGrader) else 0
