"""One small question to each model that will judge, before any agent runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from waza.judges._asking import Question, Unanswered, answer
from waza.judges._base import Judge
from waza.judges._fence import Data
from waza.judges._loop import wait_for_judge
from waza.judges._verdicts import PASS_FAIL
from waza.spec.judges import jurors_of
from waza.spec.suite import EvalSpec

_ASKED = "Does the candidate output give the right answer? If so, call set_waza_grade_pass, else set_waza_grade_fail."
_PARTS: list[str | Data] = [_ASKED, Data("Task input", "What is two plus two?"), Data("Candidate output", "Four.")]


class Sign(NamedTuple):
    """What a judge's model showed."""

    model: str
    is_alive: bool
    text: str


def signs_of_life(spec: EvalSpec) -> Iterator[Sign]:
    """Ask every model that graders of the suite would ask, and yield what it showed. Raises SpecError."""
    judge = spec.judge()
    if judge is None:
        return
    jurors = jurors_of(spec.asking)
    for model in dict.fromkeys(juror.model or judge.model for juror in jurors if juror.judge is None):
        yield _sign(judge, model)
    for juror in jurors:
        if juror.judge is not None:
            yield _sign(juror.judge, juror.model)


def _sign(judge: Judge, model: str) -> Sign:
    name = f"judge {judge.type_name()}" + (f" {model}" if model else "")
    try:
        got = wait_for_judge(answer(judge, Question(_PARTS, model), PASS_FAIL))
    except Unanswered as error:
        cost = error.judge["cost_usd"]
        return Sign(model, False, f"{name}: {error}" + (f"; ${cost:.6f}" if cost else ""))
    facts = got.judge
    tokens = facts["tokens"]
    told = [f"answered in {facts['seconds']:.1f} s"]
    told += [f"by {facts['answered_by']}"] if facts["answered_by"] else []
    told += [f"{tokens['input']} + {tokens['output']} tokens"] if tokens["input"] is not None else []
    told += [f"${facts['cost_usd']:.6f}"] if facts["cost_usd"] else []
    told += ["after a reminder"] if facts["reminders"] else []
    if got.verdict.failures:
        told.append("but it called a right answer wrong: its verdicts may mean little")
    return Sign(model, True, f"{name}: {', '.join(told)}")
