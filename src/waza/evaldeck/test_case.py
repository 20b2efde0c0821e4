"""evaldeck's cases: the user's messages, turn by turn, and what is expected. Every key is enforced or refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeVar

import yaml
from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator

from waza.errors import SpecError, what
from waza.evaldeck.graders import configured
from waza.evaldeck.graders.base import BaseGrader
from waza.options import ZeroMeans
from waza.suites.evaldeck_cases import TYPES as JUDGED
from waza.suites.evaldeck_cases import case_files, documents, problems_in_case, unknown_grader
from waza.suites.graders import load_expected
from waza.suites.positions import Checked, Position, parse, unmarked

Made = TypeVar("Made")
Case = TypeVar("Case", bound="EvalCase")
_LEGACY = ("input", "expected", "graders")


_Limit = Annotated[int, BeforeValidator(lambda value: 0 if value == "none" else value)]


class _Declared(Checked):
    model_config = ConfigDict(extra="forbid")


class GraderConfig(_Declared):
    """A grader by type; any type of waza's is known, besides evaldeck's names.

    Its keys are in `params` (or `config`), or next to `type`.
    """

    type: str
    name: str | None = None
    """How its grades are called; the type if left out."""
    weight: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Its share in the score of a task when a project is run by waza; an Evaluator gives no such score."""
    params: dict[str, Any] = Field(default_factory=dict)
    prompt: str | None = None
    model: str | None = None
    threshold: float | None = None
    module: str | None = None
    function: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _keys_in_params(cls, data: Any) -> Any:
        if isinstance(data, str):
            raise ValueError(unknown_grader(data))
        if not isinstance(data, dict):
            return data
        if "params" in data and "config" in data:
            raise ValueError("'params' and 'config' both have the grader's keys; keep one of them")
        known = {key: value for key, value in data.items() if key in cls.model_fields and key != "params"}
        params = data.get("params", data.get("config", {}))
        if not isinstance(params, dict):
            raise ValueError(f"params is a mapping of keys, not {type(params).__name__}")
        others = {key: value for key, value in data.items() if key not in known and key not in ("params", "config")}
        if twice := set(others) & set(params):
            raise ValueError(f"{', '.join(sorted(twice))}: given twice; keep one of them")
        return known | {"params": params | others}

    @model_validator(mode="after")
    def _can_be_built(self) -> Self:
        self.build()
        return self

    def build(self, judge_model: str | None = None, judge_provider: str | None = None) -> BaseGrader:
        """Return the grader; raise ValueError when there is none of that kind.

        `judge_model` and `judge_provider` are used where a judged grader names no model itself.
        """
        if self.module or self.function:
            raise ValueError(f"'{self.type}' calls a function; give Evaluator a CustomGrader instead")
        more = {"prompt": self.prompt, "model": self.model, "threshold": self.threshold}
        given: dict[str, Any] = {key: value for key, value in more.items() if value is not None}
        if twice := set(given) & set(self.params):
            raise ValueError(f"{', '.join(sorted(twice))}: given twice; keep one of them")
        if self.type.lower() in JUDGED and "model" not in given and "model" not in self.params:
            judge = {"model": judge_model, "provider": judge_provider}
            given |= {key: value for key, value in judge.items() if value}
        grader = _refused_as_value_error(lambda: configured(self.type, given | self.params))
        if self.name:
            grader.name = self.name
        return grader


class ExpectedBehavior(_Declared):
    """What must be true of one turn; the keys of waza's `expected:` block."""

    tools_called: list[str] | None = None
    tools_not_called: list[str] | None = None
    tool_call_order: list[str] | None = None
    output_contains: list[str] | None = None
    output_not_contains: list[str] | None = None
    output_contains_any: list[str] | None = None
    output_equals: str | None = None
    output_matches: str | None = None
    max_steps: _Limit | None = None
    min_steps: int | None = None
    max_tool_calls: _Limit | None = None
    max_llm_calls: _Limit | None = None
    task_completed: bool | None = None
    tool_calls: list[Any] | None = None
    outcomes: list[Any] | None = None
    behavior: dict[str, Any] | None = None
    graders: list[GraderConfig] | None = Field(default=None, min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _can_be_enforced(cls, data: Any) -> Any:
        given = {key: value for key, value in data.items() if value is not None} if isinstance(data, dict) else {}
        if "custom" in given:
            raise ValueError("'custom' is checked by nothing; give Evaluator a CustomGrader instead")
        if shorthand := {key: value for key, value in given.items() if key != "graders"}:
            _refused_as_value_error(lambda: load_expected(shorthand))
        return data


def _refused_as_value_error(make: Callable[[], Made]) -> Made:
    try:
        return make()
    except SpecError as error:
        raise ValueError(str(error)) from None


class Turn(_Declared):
    """A message of the user, and what is expected of the answer."""

    user: str
    expected: ExpectedBehavior | None = None
    graders: list[GraderConfig] = Field(default_factory=list)

    @field_validator("expected", mode="before")
    @classmethod
    def _expects_something(cls, given: Any) -> Any:
        if given == {}:
            raise ValueError("nothing is expected, so nothing could fail; name what must be true, or leave it out")
        return given


class EvalCase(_Declared):
    """One case: a conversation of one or more turns.

    `input`, `expected` and `graders` may be keys of the case itself: as its only turn, or, next to `turns`, what is
    expected after the last one.
    """

    SHORT_FORMS: ClassVar[tuple[str, ...]] = _LEGACY
    """Keys that are no fields: they become the only turn."""

    name: str
    description: str | None = None
    turns: list[Turn] = Field(default_factory=list)
    timeout: Annotated[Annotated[float, Field(gt=0)] | None, ZeroMeans(None)] = None
    retries: int | None = Field(default=None, ge=0)
    tags: list[str] = Field(default_factory=list)
    metadata: dict[str, Any] = Field(default_factory=dict)
    reference_output: str | None = None
    reference_tools: list[Any] | None = None

    @model_validator(mode="before")
    @classmethod
    def _turns_of_legacy(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not any(key in data for key in _LEGACY):
            return data
        rest = {key: value for key, value in data.items() if key not in _LEGACY}
        given = {key: data[key] for key in _LEGACY if data.get(key) is not None}
        if not rest.get("turns"):
            if "input" not in given:
                raise ValueError("'input' is missing; or give 'turns'")
            if not isinstance(given["input"], str):
                raise ValueError(f"'input': a text is needed, found {what(given['input'])}")
            return rest | {"turns": [{"user": given.pop("input", None), **given}]}
        if "input" in given:
            raise ValueError("'input' and 'turns' are both given; keep one of them")
        *before, last = rest["turns"]
        last = dict(last)
        for key in given:
            if last.get(key):
                raise ValueError(f"'{key}' is given at the case and in its last turn; keep one of them")
        return rest | {"turns": [*before, last | given]}

    @property
    def expected(self) -> ExpectedBehavior:
        """What the first turn expects."""
        return (self.turns[0].expected if self.turns else None) or ExpectedBehavior()

    @property
    def graders(self) -> list[GraderConfig]:
        """The graders of the first turn."""
        return self.turns[0].graders if self.turns else []

    @property
    def input(self) -> str:
        """What the first turn asks."""
        return self.turns[0].user if self.turns else ""

    @property
    def is_multi_turn(self) -> bool:
        """Whether there are several turns."""
        return len(self.turns) > 1

    @classmethod
    def from_yaml(cls, path: str | Path) -> Self:
        """Return the one case in a file; raise SpecError with every mistake in it."""
        found = _read(cls, Path(path).read_bytes(), str(path))
        if len(found) != 1:
            raise SpecError(f"{path}: {len(found)} cases; EvalSuite.from_directory reads files with several")
        return found[0]

    @classmethod
    def from_yaml_string(cls, text: str) -> Self:
        """Return the one case in a text; raise SpecError with every mistake in it."""
        found = _read(cls, text.encode(), "case")
        if len(found) != 1:
            raise SpecError(f"{len(found)} cases in one text; one is needed")
        return found[0]

    def to_yaml(self) -> str:
        """Return the case as YAML that `from_yaml_string` reads."""
        data = self.model_dump(mode="json", exclude_none=True, exclude_unset=True)
        return yaml.safe_dump(data, sort_keys=False, allow_unicode=True)


def _read(cls: type[Case], text: bytes, name: str) -> list[Case]:
    """Return the cases in a text, one a YAML document."""
    found, problems = documents(text, name)
    for document in found:
        problems += problems_in_case(document, Position(name, document))
    if problems:
        raise SpecError(problems)
    return [cls.model_validate(unmarked(document)) for document in found]


class _Defaults(_Declared):
    timeout: float | None = Field(default=None, gt=0)
    retries: int | None = Field(default=None, ge=0)


class EvalSuite(_Declared):
    """Cases that are run together."""

    name: str
    description: str | None = None
    test_cases: list[EvalCase] = Field(default_factory=list)
    defaults: dict[str, Any] = Field(default_factory=dict)
    """`timeout` and `retries` of cases that have none of their own."""
    tags: list[str] = Field(default_factory=list)

    @field_validator("defaults")
    @classmethod
    def _are_known(cls, given: dict[str, Any]) -> dict[str, Any]:
        checked, problems = parse(_Defaults, given, Position())
        if checked is None:
            raise ValueError("; ".join(map(str, problems)))
        return checked.model_dump(exclude_unset=True)

    @property
    def cases(self) -> list[EvalCase]:
        """The documentation's name for `test_cases`."""
        return self.test_cases

    @classmethod
    def from_directory(cls, path: str | Path, name: str | None = None) -> Self:
        """Return the cases in all YAML files below a folder; names that begin with `_` or `.` are left out."""
        folder = Path(path)
        if not folder.is_dir():
            raise SpecError(f"{path}: no such folder")
        cases: list[EvalCase] = []
        for file in case_files(folder):
            cases += _read(EvalCase, file.read_bytes(), str(file))
        return cls(name=name or folder.name, test_cases=cases)

    def filter_by_tags(self, tags: list[str]) -> Self:
        """Return the suite with the cases that have any of the tags; the suite's own are those of all its cases."""
        selected = [case for case in self.test_cases if set(tags) & {*self.tags, *case.tags}]
        return self.model_copy(update={"test_cases": selected})
