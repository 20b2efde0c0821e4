"""The base class of graders: typed options, checks on a trace, one verdict; and the types of options they share.

A grader yields checks; score, feedback and status are computed here, once. A grader with a score of its own
overrides `verdict`. The types of options refuse what could never fail. Nothing here knows YAML: `waza.suites.graders`
builds graders from specs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, cached_property
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, ClassVar, Literal, Self

from msgspec import Struct
from msgspec.structs import replace
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError, PydanticKnownError

from waza.errors import Undecidable
from waza.files.paths import SpecFolder, inner_path
from waza.files.pinned import PinnedFiles
from waza.files.workspace import Workspace
from waza.model import JSON, Check, Files, Grade, GradeStatus, ToolEvent, Trace
from waza.options import Options
from waza.plugins import Folder
from waza.untrusted.patterns import Pattern, name_glob

GRADERS = Folder("graders", "Grader")
WRAPPER = ("name", "weight", "folder")
"""Fields of every grader that are not keys of its `config:`."""
SOURCE = "source_context"
"""The key of `Trace.extra` with the source context during grading; the runner takes it from the task."""


class Finding(Struct, frozen=True):
    """The verdict of a grader, without its name and weight."""

    status: GradeStatus
    score: float
    feedback: str
    checks: list[Check] = []
    details: dict[str, JSON] = {}


class Grader(Options):
    """Check one aspect of a trace."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    all_passed: ClassVar[str] = "All checks passed"
    """The feedback when all checks pass."""
    waits: ClassVar[bool] = False
    """Whether grading waits for another process; such a grader gets a thread of its own in a run."""
    checks_behavior: ClassVar[bool] = False
    """Whether it checks what the agent did (tools, skills, limits): the metrics `behavior_quality` and `efficiency`."""
    checks_skill_use: ClassVar[bool] = False
    """Whether it checks if a skill was used, so that a control arm without the skill cannot pass it."""
    asks_judge: ClassVar[bool] = False
    """Whether a judge decides, so that people can review its verdicts."""
    asks_people: ClassVar[bool] = False
    """Whether people decide, with `waza review`."""
    depends_on_people: ClassVar[bool] = False
    """Whether its verdict depends on verdicts of people."""
    needs_more_than_trace: ClassVar[bool] = False
    """Whether it needs a program, a stored snapshot or a file of the project, which a run folder does not have."""
    part_keys: ClassVar[tuple[str, ...]] = ()
    """Options that are graders themselves, one or a list of them."""
    needs_one_of: ClassVar[tuple[str, ...]] = ()
    """Options of which at least one must be given and not empty, or the grader would check nothing."""

    name: str = ""
    """The name of the grade in results; the type if left out."""
    weight: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """Its share in the composite score; 0 leaves it out. It never decides passed or failed."""
    folder: SkipJsonSchema[SpecFolder] = Field(default_factory=SpecFolder, exclude=True)
    """Where relative paths of this grader start."""

    def __init__(self, *values: Any, **options: Any) -> None:
        if values:
            own = [name for name in type(self).model_fields if name not in WRAPPER]
            if len(values) > len(own) or set(own[: len(values)]) & set(options):
                raise TypeError(f"{type(self).__name__} takes each of these once, in this order: {', '.join(own)}")
            options |= dict(zip(own, values, strict=False))
        super().__init__(**options)

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # loading from data does not pass here

    @model_validator(mode="after")
    def _checks_something(self) -> Self:
        if self.needs_one_of and not any(getattr(self, option) for option in self.needs_one_of):
            options = ", ".join(self.needs_one_of)
            raise ValueError(f"this grader checks nothing; give at least one of: {options}{self._hint_at_zero()}")
        return self

    def _hint_at_zero(self) -> str:
        """Return a hint for each limit that is given as 0."""
        return "".join(f"; {ZERO_LIMIT.format(key)}" for key in self.zero_limits())

    def zero_limits(self) -> list[str]:
        """Return the options that are written as 0 and so set no limit."""
        given = self.model_fields_set
        return [key for key in _limits(type(self)) if key in given and getattr(self, key) == 0]

    def option_warnings(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield what an author should know about single options, each with the path to it."""
        for key in self.zero_limits():
            yield (key,), ZERO_LIMIT.format(key)

    @classmethod
    def type_name(cls) -> str:
        """Return the YAML `type:`, made from the class's name: ToolCallsGrader is `tool_calls`."""
        return _type_name(cls.__name__)

    @property
    def parts(self) -> Sequence[Grader]:
        """The graders it is made of; none for most."""
        return ()

    def unready(self) -> str:
        """Return why this grader cannot grade on this machine, empty if it can; called before a run starts."""
        return ""

    def checks(self, trace: Trace) -> Iterable[Check]:
        """Yield one check per claim this grader makes about the trace."""
        raise NotImplementedError(f"{type(self).__name__} has no checks")

    def verdict(self, trace: Trace, checks: list[Check]) -> tuple[float, bool]:
        """Return the score and whether the trace passed: the share of checks that passed, and whether all did."""
        passed = 0
        for check in checks:
            if check.ok:
                passed += 1
        return passed / len(checks), passed == len(checks)

    def details(self, trace: Trace, checks: list[Check]) -> dict[str, JSON]:
        """Return facts for people and programs besides the checks."""
        return {}

    def grade(
        self, trace: Trace, task: Any = None, *, workspace: str | Path | Files | None = None, judge: Any = None
    ) -> Grade:
        """Return the verdict on `trace`; `workspace` is the folder as the agent left it.

        `task` is accepted for callers shaped like evaldeck's; our graders need nothing but the trace.
        """
        started = perf_counter()
        if workspace is not None:
            files = Workspace(workspace) if isinstance(workspace, (str, Path)) else workspace
            trace = replace(trace, files=files)
        try:
            finding = self.evaluate(trace, judge)
        except Undecidable as reason:
            finding = Finding("error", 0.0, str(reason))
        except Exception as error:  # noqa: BLE001  one broken grader must not discard the other grades of a trial
            finding = Finding("error", 0.0, f"the grader broke: {type(error).__name__}: {error}")
        return self._as_grade(finding, started)

    async def agrade(
        self, trace: Trace, task: Any = None, *, workspace: str | Path | Files | None = None, judge: Any = None
    ) -> Grade:
        """Return what `grade` returns, for callers that have an event loop; it awaits a judge without a thread."""
        if self.asks() is None:
            return self.grade(trace, task, workspace=workspace, judge=judge)
        started = perf_counter()
        if workspace is not None:
            files = Workspace(workspace) if isinstance(workspace, (str, Path)) else workspace
            trace = replace(trace, files=files)
        try:
            finding = await self.aevaluate(trace, judge)
        except Undecidable as reason:
            finding = Finding("error", 0.0, str(reason))
        except Exception as error:  # noqa: BLE001  as above
            finding = Finding("error", 0.0, f"the grader broke: {type(error).__name__}: {error}")
        return self._as_grade(finding, started)

    def asks(self) -> list[str] | None:
        """Return the hashes of the rubrics a judge decides by; None where no judge is needed.

        A run gives its judge only to graders that return a list here, which may be empty.
        """
        return None

    def pin(self, files: PinnedFiles) -> None:
        """Record the files of the project it depends on, before the first agent of a run starts."""

    def reads(self) -> dict[str, str]:
        """Return the files of the project that it reads: a hash of the content by the name in the spec.

        They are stored with a run, so that results from before a file changed are not reused.
        """
        return {}

    def with_source(self, source: str) -> Self:
        """Return this grader for a task with a source context, which matters to those that ask people."""
        return self

    def among(self, graders: Iterable[Grader]) -> Self:
        """Return this grader for a suite with these graders, which matters to those that measure another one."""
        return self

    @cached_property
    def needs_files_before(self) -> bool:
        """Whether it, or a grader it is made of, compares files with those before the agent started.

        A run records `Trace.files_before` only for tasks that have such a grader.
        """
        return any(part.needs_files_before for part in self.parts)

    @property
    def measured_grader(self) -> str:
        """The name of the grader of the same suite whose verdicts it measures; empty if none."""
        return ""

    @property
    def continues(self) -> bool:
        """Whether the agent itself is asked, in its session, and not the run's judge."""
        return False

    async def aevaluate(self, trace: Trace, judge: Any) -> Finding:
        """Return what `evaluate` returns; graders that ask a judge await it here."""
        return self.evaluate(trace, judge)

    def _as_grade(self, finding: Finding, started: float) -> Grade:
        """Return a finding as a grade with this grader's name and weight."""
        kind = self.type_name()
        return Grade(
            name=self.name or kind,
            type=kind,
            status=finding.status,
            score=finding.score,
            weight=self.weight,
            feedback=finding.feedback,
            checks=finding.checks,
            details=finding.details,
            duration_ms=(perf_counter() - started) * 1000,
        )

    def evaluate(self, trace: Trace, judge: Any) -> Finding:
        """Return the verdict of the checks: a failed check decides, otherwise an undecided one makes it an error."""
        made = self.checks(trace)
        checks = made if isinstance(made, list) else list(made)
        if not checks:
            return Finding("error", 0.0, "the grader checked nothing")
        score, passed = self.verdict(trace, checks)
        if not 0.0 <= score <= 1.0:
            return Finding("error", 0.0, f"the grader gave the score {score}, which is not between 0 and 1")
        details = self.details(trace, checks)
        not_passed = [check for check in checks if not check.ok]
        if not not_passed:
            return Finding("passed" if passed else "failed", score, self.all_passed, checks, details)
        failed = [check for check in not_passed if check.ok is False]
        feedback = "; ".join(dict.fromkeys(check.failure or f"not so: {check.claim}" for check in failed or not_passed))
        if failed:
            return Finding("passed" if passed else "failed", score, feedback, checks, details)
        return Finding("error", 0.0, feedback, checks, details)


@cache
def _limits(cls: type[Grader]) -> list[str]:
    return [name for name, field in cls.model_fields.items() if has_no_limit_at_zero(field)]


def content_hash(content: bytes) -> str:
    """Return a hash of a file's content."""
    return hashlib.sha256(content).hexdigest()


@cache
def _type_name(class_name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", class_name.removesuffix("Grader")).lower()


def tool_events(trace: Trace) -> list[ToolEvent]:
    """Return the tool calls; raise Undecidable when the engine could not observe them."""
    if trace.tool_events is None:
        raise Undecidable("tool calls were not recorded: this engine cannot observe them")
    return trace.tool_events


def turns_are_known(trace: Trace) -> bool:
    """Return whether the turns of the calls were recorded: 1, the default, may mean that they were not."""
    calls = trace.tool_events or []
    if len(calls) < 2 or (trace.usage is not None and trace.usage.turns is not None):
        return True
    first = calls[0].turn
    return any(call.turn != first for call in calls)


def files_of(trace: Trace) -> Files:
    """Return the workspace; raise Undecidable when there is none."""
    if trace.files is None:
        raise Undecidable("no workspace: the files the agent left were not recorded")
    return trace.files


def undecided(claims: Iterable[str], reason: str) -> Iterator[Check]:
    """Yield one undecided check per claim, all for the same reason."""
    for claim in claims:
        yield Check(None, claim, f"cannot tell whether {claim}: {reason}")


_LISTS = re.compile(r"\{[^{}/]*(?:,|\.\.)[^{}/]*\}|(?<=[*?])[^/]*?(\[[^\]/]+\])|(\[[^\]/]+\])(?=[^/]*[*?])")
_STARS = re.compile(r"\*\*+")


def _pattern(value: Any) -> Pattern:
    return _compile(value, ignore_case=False)


def _folding_pattern(value: Any) -> Pattern:
    return _compile(value, ignore_case=True)


def _python_pattern(value: Any) -> Pattern:
    return _compile(value, python=True)


def _compile(value: Any, **how: bool) -> Pattern:
    if isinstance(value, Pattern):
        return value
    if not isinstance(value, str):
        raise ValueError(f"a pattern is a text, found {type(value).__name__}")
    pattern = Pattern(value, **how)
    if pattern.matches_no_text():
        hint = "; `^` and `$` are the ends of the text, those of a line with (?m)" if {"^", "$"} & set(value) else ""
        raise ValueError(f"the pattern '{value}' can match no text: the check could come out only one way{hint}")
    return pattern


def _can_fail(pattern: Pattern) -> Pattern:
    return _not_always(pattern, "the check could never fail; write what must be there, such as '.+' for any text")


def _can_pass(pattern: Pattern) -> Pattern:
    return _not_always(pattern, "the check could never pass; write what must not be there")


def _not_always(pattern: Pattern, outcome: str) -> Pattern:
    if pattern.matches_every_text():
        raise ValueError(f"the pattern '{pattern.source}' matches every text, an empty one too: {outcome}")
    return pattern


def _tool_pattern(value: Any) -> Pattern:
    if not isinstance(value, str):
        return _folding_pattern(value)
    return _folding_pattern(_not_blank(value))


def _not_blank(text: str) -> str:
    """Return a name without the white space around it."""
    if not (trimmed := text.strip()):
        raise ValueError("must not be empty or blank: a name is needed")
    return trimmed


def _tool_name(value: str) -> str:
    hint = (
        "list the names, use `*` and `?`, or give a pattern as `tool:` under `expect`, `expect_tools` or `reject_tools`"
    )
    return _plain_name(value, "tool", hint)


def _skill_name(value: str) -> str:
    return _plain_name(value, "skill", "list the names, or use `*` and `?`")


def _plain_name(value: str, noun: str, hint: str) -> str:
    name = _not_blank(value)
    if "|" in name:
        raise ValueError(f"'{name[:60]}' is one name, and no {noun}'s name has '|' in it; {hint}")
    name_glob(name)  # compiled now, so that grading finds it ready
    return name


def _is_none(value: Any) -> bool:
    return isinstance(value, str) and value == "none"


def _limit(value: Any) -> int | Literal["none"]:
    if _is_none(value):
        return "none"
    if type(value) is not int:
        raise PydanticCustomError("limit_type", "a whole number or `none` is needed")
    if value < 0:
        raise PydanticKnownError("greater_than_equal", {"ge": 0})
    return value


def _bound(value: Any) -> int:
    limit = _limit(value)
    return 0 if limit == "none" else limit


def _not_none(value: Any) -> Any:
    if _is_none(value):
        raise ValueError("`none` is for upper limits; leave this key out where there is no minimum")
    return value


def _inner_path(path: str) -> str:
    """Return a path or glob as it is; raise ValueError for one that would name another file than its author means."""
    inner_path(path)
    if path.strip() != path:
        raise ValueError(f"'{path}' has white space around it, which no file's name has; write '{path.strip()}'")
    if "\\" in path:
        with_slashes = path.replace("\\", "/")
        raise ValueError(f"'{path}' has a backslash; folders are separated by '/': write '{with_slashes}'")
    if glued := next((part for part in path.split("/") if "**" in part and part != "**"), None):
        name = _STARS.sub("*", glued)
        deep, flat = (path.replace(glued, written, 1) for written in (f"**/{name}", name))
        fact = f"'{glued}': `**` is any number of folders only where it is alone between slashes"
        raise ValueError(f"{fact}; write '{deep}' for every folder, or '{flat}' for this one")
    return path


def not_a_list(path: str) -> str:
    """Return a sentence about braces or brackets that look like a list of names but are themselves; empty if none."""
    found = _LISTS.search(path)
    if found is None:
        return ""
    part = found[1] or found[2] or found[0]
    return f"'{part}' in '{path}' is part of the name, not a list; give one path for each, or use `*` and `?`"


def _one_file(path: str) -> str:
    if "*" in path or "?" in path:
        raise ValueError(f"'{path}' is one file's path, not a glob; name each file, or use the `file` grader")
    return _inner_path(path)


_AS_SOURCE = PlainSerializer(lambda pattern: pattern.source, return_type=str)
_PATTERN_SCHEMA = WithJsonSchema({"type": "string", "format": "regex", "minLength": 1})

Text = Annotated[str, Field(min_length=1)]
"""A text that is not empty."""
Needles = list[Text]
"""Texts to search for; an empty one would always be found."""
PatternField = Annotated[Pattern, BeforeValidator(_pattern), _AS_SOURCE, _PATTERN_SCHEMA]
"""An RE2 pattern, compiled when the spec is loaded."""
RequiredPattern = Annotated[PatternField, AfterValidator(_can_fail)]
"""An RE2 pattern that a text must match; one that every text matches is refused."""
RequiredPatterns = list[RequiredPattern]
"""RE2 patterns that a text must match."""
ForbiddenPatterns = list[Annotated[PatternField, AfterValidator(_can_pass)]]
"""RE2 patterns that a text must not match; one that every text matches is refused."""
FoldingPattern = Annotated[Pattern, BeforeValidator(_folding_pattern), _AS_SOURCE, _PATTERN_SCHEMA]
"""An RE2 pattern that ignores case."""
PythonPattern = Annotated[
    Pattern, BeforeValidator(_python_pattern), AfterValidator(_can_fail), _AS_SOURCE, _PATTERN_SCHEMA
]
"""A pattern with the syntax and meaning of Python's `re` that a text must match."""
InnerPath = Annotated[str, AfterValidator(_inner_path)]
"""A path in the workspace that cannot leave it, or a glob."""
InnerFile = Annotated[str, AfterValidator(_one_file)]
"""The path of one file in the workspace."""
ToolPattern = Annotated[Pattern, BeforeValidator(_tool_pattern), _AS_SOURCE, _PATTERN_SCHEMA]
"""An RE2 pattern for a tool's name: it ignores case, and white space around it is trimmed."""
_NAME_SCHEMA = WithJsonSchema({"type": "string", "pattern": r"^[^|]*[^|\s][^|]*$"})
ToolName = Annotated[str, AfterValidator(_tool_name), _NAME_SCHEMA]
"""A tool's name, trimmed; `*` in it matches any characters and `?` one."""
SkillName = Annotated[str, AfterValidator(_skill_name), _NAME_SCHEMA]
"""A skill's name, trimmed; `*` in it matches any characters and `?` one."""
_ZERO_IS_NO_LIMIT = "0 is no limit"
ZERO_LIMIT = "`{}: 0` means no limit; write `none` for none"
_LIMIT_SCHEMA = WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"const": "none"}]})
Limit = Annotated[int | Literal["none"], PlainValidator(_limit), _LIMIT_SCHEMA, _ZERO_IS_NO_LIMIT]
"""A whole number, where 0 means no limit, or `none`, a limit of zero; see `bound_of`."""
Bound = Annotated[int, PlainValidator(_bound), _LIMIT_SCHEMA]
"""A whole number that is a real bound, 0 too; `none` is 0."""
Minimum = Annotated[int, Field(ge=0), BeforeValidator(_not_none)]
"""A whole number that must be reached; 0 means no minimum."""
Least = Annotated[int, Field(ge=1), BeforeValidator(_not_none)]
"""A whole number that must be reached; 0 always is."""


def bound_of(limit: int | Literal["none"]) -> int | None:
    """Return the number that a limit allows: 0 for `none`, None where there is no limit."""
    return 0 if limit == "none" else limit or None


def has_no_limit_at_zero(field: FieldInfo) -> bool:
    """Return whether 0 means no limit in an option."""
    return _ZERO_IS_NO_LIMIT in field.metadata
