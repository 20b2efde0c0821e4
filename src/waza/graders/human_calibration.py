"""The `human_calibration` grader: does another grader agree with people?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, PrivateAttr, model_validator

from waza.errors import StoreError, Undecidable
from waza.graders.base import Grader, Least, Text
from waza.graders.composed import AfterTurnGrader
from waza.model import JSON, Check, Trace
from waza.runs.verdicts import VERDICTS, HumanVerdict, label_of, question_of, standing_in
from waza.stats.agreement import Confusion, confusion

USUAL_KAPPA = 0.6
"""The bound where the original's `calibrate_grader` gives none: what is usually called substantial agreement."""


class HumanCalibrationGrader(Grader):
    """Check that a named grader agrees with the verdicts of people on the same outputs.

    People give their verdicts with `waza review --grader NAME`; each is stored with the grader's verdict. What most
    people say about an output counts; an even division counts for nothing. Only what the suite asks now is compared,
    all prompts and rubrics that it has under that name, and of a judge without a `model:` the one reviewed last:
    another prompt, rubric or model is another judge. With fewer than `min_items` outputs it is undecided. The grade is
    about the grader, so it is the same for every trial. `calibrate_grader` is the original's word for `grader`; with it
    `min_kappa` is 0.6 where no bound is given.

    ```yaml
    - type: human_calibration
      name: judge_can_be_believed
      config:
        grader: polite
        min_kappa: 0.6
        min_agreement: 0.8
        min_items: 30
    ```
    """

    depends_on_people: ClassVar[bool] = True
    all_passed: ClassVar[str] = "The grader agrees with people"
    needs_one_of: ClassVar[tuple[str, ...]] = ("min_kappa", "min_agreement")

    SHORT_FORMS: ClassVar[tuple[str, ...]] = ("calibrate_grader",)

    grader: Text
    """The name of the grader whose verdicts are compared with people's."""
    min_kappa: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    """The lowest Cohen's kappa that passes: agreement beyond chance, 0 for none, 1 for all."""
    min_agreement: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    """The lowest share of equal verdicts that passes; compare it with the base rate."""
    min_items: Least = 20
    """How many outputs both must have judged before the grade is decided."""

    _present: frozenset[tuple[str, str]] = PrivateAttr(default=frozenset())

    @model_validator(mode="before")
    @classmethod
    def _other_word(cls, given: Any) -> Any:
        if not isinstance(given, dict) or "calibrate_grader" not in given:
            return given
        if "grader" in given:
            raise ValueError("'grader' and 'calibrate_grader' mean the same; keep one of them")
        found = {("grader" if key == "calibrate_grader" else key): value for key, value in given.items()}
        bounds = {} if any(found.get(key) is not None for key in cls.needs_one_of) else {"min_kappa": USUAL_KAPPA}
        return found | bounds

    def among(self, graders: Iterable[Grader]) -> Self:
        """Return this grader for a suite with these graders: it compares what they ask now."""
        named = [grader for grader in graders if (grader.name or grader.type_name()) == self.grader]
        made = self.model_copy()
        made._present = frozenset((question_of(asked_of_people(one)), _model(one)) for one in named)
        return made

    @property
    def measured_grader(self) -> str:
        """The name of the grader whose verdicts are compared with people's."""
        return self.grader

    def checks(self, trace: Trace) -> Iterator[Check]:
        """Yield one check for each bound."""
        counts = self._counts()
        claims = [("agreement", self.min_agreement, counts.accuracy), ("kappa", self.min_kappa, counts.kappa)]
        for what, least, found in claims:
            if least is None:
                continue
            claim = f"{what} of {self.grader} with people is at least {least:g}"
            if counts.n < self.min_items:
                fact = f"people and {self.grader} have both judged {counts.n} of {self.min_items} outputs needed"
                yield Check(None, claim, f"{fact}; go on with `waza review --grader {self.grader}`")
            elif found is None:
                yield Check(
                    None, claim, f"{what} cannot be computed: all verdicts are the same; review outputs that fail"
                )
            else:
                baseline = f"always the same answer would agree on {counts.constant_accuracy:.0%}"
                fact = f"{what} is {found:.2f} on {counts.n} outputs, needed is {least:g} ({baseline})"
                yield Check(found >= least - 1e-12, claim, fact, least, found)

    def details(self, trace: Trace, checks: list[Check]) -> dict[str, JSON]:
        """Return `calibration`: the numbers the bounds are compared with."""
        counts = self._counts()
        table = {"both_pass": counts.true_pass, "false_pass": counts.false_pass}
        table |= {"false_fail": counts.false_fail, "both_fail": counts.true_fail}
        numbers: dict[str, JSON] = {"grader": self.grader, "n": counts.n, "agreement": counts.accuracy}
        numbers |= {"kappa": counts.kappa, "base_rate": counts.base_rate, "best_constant": counts.constant_accuracy}
        return {"calibration": numbers | {"confusion": table}}

    def _counts(self) -> Confusion:
        """Return the grader's verdicts against people's; raise Undecidable where the file cannot be read."""
        try:
            found = [
                verdicts
                for (name, _), verdicts in standing_in(self.folder.base / VERDICTS).items()
                if name == self.grader
            ]
        except StoreError as error:
            raise Undecidable(str(error)) from None
        judged = [[one for one in verdicts if one.said is not None] for verdicts in found]
        judges = self._judges(sorted((one for verdicts in judged for one in verdicts), key=lambda one: one.at))
        return confusion(_pairs([[one for one in verdicts if _judge(one) in judges] for verdicts in judged]))

    def _judges(self, given: list[HumanVerdict]) -> set[tuple[str, str, str]]:
        """Return the judges that count: for each question of the suite the last of these; without a suite the last."""
        if not self._present:
            return {_judge(one) for one in given[-1:]}
        open_ones = {question for question, model in self._present if not model}
        usual = next((one.model for one in reversed(given) if one.question in open_ones), "")
        wanted = {(question, model or usual) for question, model in self._present}
        last = {(one.question, one.model): _judge(one) for one in given if (one.question, one.model) in wanted}
        return set(last.values())


def asked_of_people(grader: Grader) -> str:
    """Return the question to people whose verdicts are compared with a grader's."""
    inner = grader.grader if isinstance(grader, AfterTurnGrader) else grader
    name = grader.name or grader.type_name()
    return str(getattr(inner, "question_text", "")) or f"Does this pass '{name}' ({inner.type_name()})?"


def _model(grader: Grader) -> str:
    """Return the model that a grader names, or its jury's; empty where it asks the suite's judge."""
    inner = grader.grader if isinstance(grader, AfterTurnGrader) else grader
    return ", ".join(juror.name for juror in getattr(inner, "jurors", ()))


def _judge(verdict: HumanVerdict) -> tuple[str, str, str]:
    """Return what makes a judge the same one."""
    return verdict.model, verdict.rubric, verdict.question


def _pairs(items: list[list[HumanVerdict]]) -> Iterator[tuple[bool, bool]]:
    """Yield the verdict of people and of the grader for each output on which people are not evenly split."""
    for verdicts in items:
        if verdicts and (label := label_of(verdicts)) is not None:
            yield label, max(verdicts, key=lambda one: one.at).said == "pass"
