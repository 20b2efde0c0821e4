"""The records: frozen data that can be written as JSON and read back. No I/O, no rules about verdicts.

Task → Trial → Trace → Grade (made of Checks) → Result → Run. If a grader needs it, it is in the Trace.
`None` always means "not recorded"; an empty list means "observed, and there was none".
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, Protocol, Self, TypeVar, get_args

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import force_setattr

from waza.errors import TraceError, decoding_fact, what
from waza.spending import NO_COSTS, Costs, is_amount, sum_amounts

JSON = Any
"""A value made of dict, list, str, int, float, bool and None."""

GradeStatus = Literal["passed", "failed", "error"]
TraceStatus = Literal["success", "failure", "error", "timeout"]
ResultStatus = Literal["passed", "failed", "error", "skipped"]


FileKind = Literal["file", "hard_link", "folder", "outside", "other", "absent"]
"""What is at a path: `outside` is a link that leads out, `hard_link` a file with further names, perhaps outside."""


class FolderListing(NamedTuple):
    """What is in one folder; no link is followed."""

    identity: Hashable
    """Equal for two paths that lead to the same folder."""
    entries: list[tuple[str, Literal["file", "folder", "link", "other"]]]
    left_out: str = ""
    """Why there may be more than is listed."""


class Files(Protocol):
    """The files as the agent left them, read so that nothing outside can be reached."""

    def kind(self, path: str) -> FileKind:
        """Return what is at a workspace-relative path."""

    def read(self, path: str) -> bytes:
        """Return a regular file's bytes; raise OSError with a reason otherwise."""

    def paths(self) -> Iterator[str]:
        """Yield every file's workspace-relative path, sorted; those with further hard links too."""

    def list_folder(self, path: str) -> FolderListing:
        """Return what is in a folder, the workspace itself for an empty path; raise OSError with a reason otherwise."""

    @property
    def root(self) -> str:
        """The folder of the files, for programs that need a real path."""


_NUMBER = re.compile(r"[+-]?\d{1,300}(\.\d{1,300})?([eE][+-]?\d{1,4})?|[+-]?inf(inity)?|nan", re.I | re.A)


def numeric(value: JSON) -> JSON:
    """Return the number that a text such as "12" or "0.5" writes; anything else as it is."""
    if not isinstance(value, str) or not _NUMBER.fullmatch(found := value.strip()):
        return value
    return int(found) if found.lstrip("+-").isdecimal() else float(found)


def decoded(text: str | bytes) -> JSON:
    """Return JSON of another program, whatever its numbers; raise msgspec.DecodeError where it is none."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        try:
            return decode_any_numbers(text)
        except ValueError:
            pass
        raise


LARGEST = 1.7976931348623157e308
_LONGEST_INT = 300


def decode_any_numbers(text: str | bytes) -> JSON:
    """Return JSON whose numbers may be too large for any type (as the largest there is) or NaN (as null).

    Python's and JavaScript's programs write both, and one number is no reason to lose the rest. Raises ValueError.
    """

    def whole(digits: str) -> float | int:
        return int(digits) if len(digits) <= _LONGEST_INT else math.copysign(LARGEST, -1 if digits[0] == "-" else 1)

    def fraction(digits: str) -> float:
        return min(max(float(digits), -LARGEST), LARGEST)

    constants = {"Infinity": LARGEST, "-Infinity": -LARGEST}
    try:
        return json.loads(text, parse_int=whole, parse_float=fraction, parse_constant=constants.get)
    except RecursionError:
        raise ValueError("nested too deeply") from None


_EXTRA = "__extra__"
"""Where unknown fields are stored; a foreign trace that has such a field itself is read with care."""


class _ForeignRecord(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A record of a foreign stream: unknown fields are stored in `extra` and written back."""

    extra: Annotated[dict[str, JSON], Meta(min_length=1)] = field(default={}, name=_EXTRA)


class ToolEvent(_ForeignRecord, frozen=True, kw_only=True, gc=False):
    """One tool call with what came of it."""

    tool_name: str
    args: JSON = {}
    result: JSON = None
    success: bool = True
    turn: int = 1
    sequence: int | None = None
    tool_call_id: str | None = None
    start_ms: float | int | None = None
    """When it began, in milliseconds since the trace began."""
    duration_ms: float | int | None = None
    error: str | None = None

    def __post_init__(self) -> None:
        for name, unknown in (("duration_ms", None), ("start_ms", None), ("sequence", None), ("turn", 1)):
            value = getattr(self, name)
            if value is not None and not is_amount(value):
                force_setattr(self, name, unknown)


class Usage(_ForeignRecord, frozen=True, kw_only=True, gc=False):
    """What the agent consumed; each number is None where it was not recorded, or cannot be true."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    turns: int | None = None
    llm_calls: int | None = None
    cost_usd: float | int | None = None
    invalid_numbers: dict[str, JSON] = {}
    """Numbers that cannot be true (negative, above a trillion, NaN), by their names, as they were reported."""

    def __post_init__(self) -> None:
        if self.invalid_numbers:
            items = self.invalid_numbers.items()
            invalid = {name: _reported(value) for name, value in items if getattr(self, name, None) is None}
            force_setattr(self, "invalid_numbers", invalid)
        for name in USAGE_NUMBERS:
            value = getattr(self, name)
            if value is not None and not is_amount(value):
                force_setattr(self, name, None)
                force_setattr(self, "invalid_numbers", self.invalid_numbers | {name: _reported(value)})

    @property
    def total_tokens(self) -> int | None:
        """Input plus output tokens (cached ones are not counted twice); None where one of them is not known."""
        if self.input_tokens is None or self.output_tokens is None:
            return None
        return self.input_tokens + self.output_tokens

    @property
    def least_tokens(self) -> int | None:
        """The tokens that were certainly used: the total, or the part that is known; None where a part is invalid."""
        if "input_tokens" in self.invalid_numbers or "output_tokens" in self.invalid_numbers:
            return None
        known = [part for part in (self.input_tokens, self.output_tokens) if part is not None]
        return sum(known) if known else None


USAGE_NUMBERS = tuple(name for name in Usage.__struct_fields__ if name not in ("extra", "invalid_numbers"))
"""The fields of Usage that are numbers."""


class SkillInvocation(_ForeignRecord, frozen=True, kw_only=True, gc=False):
    """One use of a skill by the agent."""

    name: str
    path: str | None = None


class Crash(_ForeignRecord, frozen=True, kw_only=True, gc=False):
    """How an agent broke down: it exited with a failure, was ended by a signal such as SIGSEGV, or raised."""

    exit_code: int | None = None
    signal: int | None = None
    exception: str | None = None
    stderr: str = ""
    """The last lines of standard error, without control characters."""
    omitted_bytes: int = 0
    """How much of its output was cut off; checks on the output cannot be trusted then."""


class Trace(_ForeignRecord, frozen=True, kw_only=True):
    """What happened: output, tool calls, usage, time, files."""

    input: str
    output: str
    status: TraceStatus = "success"
    error: str | None = None
    duration_ms: float | int | None = None
    session_id: str | None = None
    model: str | None = None
    engine: str | None = None
    outcome: dict[str, JSON] = {}
    events: list[dict[str, JSON]] | None = None
    tool_events: list[ToolEvent] | None = None
    usage: Usage | None = None
    skill_invocations: list[SkillInvocation] | None = None
    available_skills: list[str] | None = None
    steps: int | None = None
    leftovers: int | None = None
    """Processes the agent left behind; they were ended before grading."""
    baseline_output: str | None = None
    crash: Crash | None = None
    """How the agent broke down; None where it came to its end, or could not run at all."""
    turns: list[Trace] | None = None
    """Each prompt's own trace, in a conversation of several prompts."""
    files_before: dict[str, str] | None = None
    """The workspace's regular files before the agent started: the SHA-256 of each by its path; None: not recorded."""
    files: Files | None = None
    """The workspace, while grading; it is never part of the trace's JSON."""

    def __post_init__(self) -> None:
        invalid = self.usage.invalid_numbers if self.usage is not None else {}
        for name in ("duration_ms", "steps"):
            value = getattr(self, name)
            if value is not None and not is_amount(value):
                force_setattr(self, name, None)
                invalid = invalid | {name: _reported(value)}
        if invalid:
            self._note_invalid(invalid)

    def _note_invalid(self, invalid: dict[str, JSON]) -> None:
        """Keep a note about each number that cannot be true, so that its reader learns why it does not count."""
        notes = self.extra.get("reading_notes")
        notes = list(notes) if isinstance(notes, list) else []
        for name, value in invalid.items():
            note = f"{name} is {value}, which cannot be true: it counts as not recorded"
            notes += [] if note in notes else [note]
        force_setattr(self, "extra", self.extra | {"reading_notes": notes})

    @classmethod
    def from_json(cls, source: str | bytes | dict[str, JSON]) -> Self:
        """Return the trace written in JSON text or a dict; our own shape, or evaldeck's (`steps` is a list)."""
        try:
            trace = msgspec.convert(source, cls) if isinstance(source, dict) else msgspec.json.decode(source, type=cls)
            if not _has_extra(trace):
                return trace
        except (msgspec.DecodeError, TypeError):
            pass  # fields we do not know, another shape, numbers out of range, or no trace at all
        except (UnicodeDecodeError, RecursionError) as error:
            raise TraceError(f"not a trace: {error}") from None
        return cls._from_foreign(source)

    @classmethod
    def _from_foreign(cls, source: str | bytes | dict[str, JSON]) -> Self:
        """Read a trace that has fields we do not know, or evaldeck's shape."""
        try:
            tree = source if isinstance(source, dict) else decoded(source)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise TraceError(f"not a trace: {decoding_fact(error)}") from None
        if not isinstance(tree, dict):
            raise TraceError(f"not a trace: a JSON object is needed, found {what(tree)}")
        if isinstance(tree.get("steps"), list):
            tree = _from_evaldeck(tree)
        tree = _with_numbers(tree)
        try:
            return msgspec.convert(_with_extra(tree, cls), cls)
        except msgspec.ValidationError as error:
            known = {"status": get_args(TraceStatus)}
            raise TraceError(f"not a trace: {decoding_fact(error, tree, known)}") from None

    def to_dict(self) -> dict[str, JSON]:
        """Return the trace as JSON-ready data, unknown fields included."""
        tree: dict[str, JSON] = msgspec.to_builtins(msgspec.structs.replace(self, files=None))
        return _without_extra(tree)

    def to_json(self) -> str:
        """Return the trace as JSON text, unknown fields included."""
        return msgspec.json.encode(self.to_dict()).decode()


_NESTED: dict[str, type[_ForeignRecord]] = {
    "tool_events": ToolEvent,
    "skill_invocations": SkillInvocation,
    "usage": Usage,
}
_NESTED |= {"turns": Trace, "crash": Crash}


def _has_extra(trace: Trace) -> bool:
    """Return whether a foreign trace itself uses the name under which we store unknown fields."""
    events, skills, turns = trace.tool_events or (), trace.skill_invocations or (), trace.turns or ()
    return bool(
        trace.extra
        or [event for event in events if event.extra]
        or (trace.usage and trace.usage.extra)
        or (trace.crash and trace.crash.extra)
        or [skill for skill in skills if skill.extra]
        or [turn for turn in turns if _has_extra(turn)]
    )


def _with_extra(tree: dict[str, JSON], record: type[_ForeignRecord]) -> dict[str, JSON]:
    """Return `tree` with the fields `record` does not know moved under `__extra__`, at every level."""
    known = _known_to(record)
    out: dict[str, JSON] = {}
    extra: dict[str, JSON] = {}
    for key, value in tree.items():
        if key not in known:
            extra[key] = value
        elif (nested := _NESTED.get(key)) and isinstance(value, dict):
            out[key] = _with_extra(value, nested)
        elif nested and isinstance(value, list):
            out[key] = [_with_extra(item, nested) if isinstance(item, dict) else item for item in value]
        elif value is not None or key in ("input", "output", "args"):
            out[key] = value
    return out | ({_EXTRA: extra} if extra else {})


def _with_numbers(tree: dict[str, JSON]) -> dict[str, JSON]:
    """Return a trace's data with numbers that were written as text, and without those that cannot be true."""
    out = {key: numeric(value) if key in ("duration_ms", "steps") else value for key, value in tree.items()}
    out = _with_counts(out)
    if isinstance(crash := out.get("crash"), dict):
        out["crash"] = _with_counts(crash)
    if isinstance(events := out.get("tool_events"), list):
        out["tool_events"] = [_with_counts(event) if isinstance(event, dict) else event for event in events]
    if isinstance(reported := out.get("usage"), dict):
        usage = {key: _whole(numeric(value)) if key in USAGE_NUMBERS else value for key, value in reported.items()}
        wrong = {
            key: _reported(value)
            for key in USAGE_NUMBERS
            if _is_invalid(value := usage.get(key)) or (isinstance(value, float) and key != "cost_usd")
        }
        if wrong and isinstance(known := usage.get("invalid_numbers", {}), dict):
            usage |= dict.fromkeys(wrong) | {"invalid_numbers": known | wrong}
        out["usage"] = usage
    if isinstance(turns := out.get("turns"), list):
        out["turns"] = [_with_numbers(turn) if isinstance(turn, dict) else turn for turn in turns]
    return out


def _reported(value: JSON) -> JSON:
    """Return a number that cannot be true in a form that JSON has."""
    if isinstance(value, int):
        # Longer ones fit into no other program's integers, and Python refuses to print the longest.
        short = abs(value).bit_length() < 64
        return value if short else f"about {'-' if value < 0 else ''}1e{int(value.bit_length() * math.log10(2))}"
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


_COUNTS = ("steps", "leftovers", "turn", "sequence", "exit_code", "signal", "omitted_bytes")


def _with_counts(record: dict[str, JSON]) -> dict[str, JSON]:
    """Return a record's data with whole numbers as such, and without counts that are invalid or out of range."""
    out = dict(record)
    for key in _COUNTS:
        if isinstance(value := out.get(key), float):
            out[key] = _whole(value)
            if isinstance(out[key], float):
                del out[key]
    return out


def _whole(value: JSON) -> JSON:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is_invalid(value: JSON) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not is_amount(value)


@cache
def _known_to(record: type[_ForeignRecord]) -> frozenset[str]:
    return frozenset(record.__struct_encode_fields__) - {"files", _EXTRA}


def _without_extra(tree: dict[str, JSON]) -> dict[str, JSON]:
    """Return a record's data with the fields we do not know back in their places."""
    extra: dict[str, JSON] = tree.get(_EXTRA, {})
    out = {key: value for key, value in tree.items() if key != _EXTRA}
    for key in _NESTED:
        if isinstance(value := out.get(key), dict):
            out[key] = _without_extra(value)
        elif isinstance(value, list):
            out[key] = [_without_extra(item) for item in value]
    return out | extra


def _from_evaldeck(tree: dict[str, JSON]) -> dict[str, JSON]:
    """Return evaldeck's trace (`steps` of llm_call, tool_call, reasoning, human_input) in our shape."""
    steps = [step for step in tree["steps"] if isinstance(step, dict)]
    calls = [step for step in steps if step.get("type") == "tool_call"]
    models = [step for step in steps if step.get("type") == "llm_call"]
    tokens = [step["tokens"] for step in models if isinstance(step.get("tokens"), dict)]
    usage: dict[str, JSON] = {"llm_calls": len(models)}
    if tokens:
        counts = [[_count(item.get(f"{part}_tokens")) for part in ("prompt", "completion", "total")] for item in tokens]
        if len(tokens) == len(models) and _has_each(tokens, "prompt_tokens"):
            usage["input_tokens"] = sum_amounts(prompt for prompt, _, _ in counts)
        if len(tokens) == len(models) and _has_each(tokens, "completion_tokens"):
            usage["output_tokens"] = sum_amounts(output_tokens(*three) for three in counts)
    rest = {key: value for key, value in tree.items() if key not in ("steps", "output", "framework", "agent_name")}
    return rest | {
        "output": tree.get("output") or "",
        "steps": len(steps),
        "usage": usage,
        "events": steps,
        "tool_events": [
            {
                "tool_name": step.get("tool_name") or "",
                "args": step.get("tool_args") or {},
                "result": step.get("tool_result"),
                "success": step.get("status", "success") == "success",
                "sequence": number,
            }
            for number, step in enumerate(calls, 1)
        ],
    }


def output_tokens(prompt: float, completion: float, total: float) -> float:
    """Return the tokens of one model call besides its prompt: those that only the total counts are among them."""
    for part in (completion, total):
        if not is_amount(part):
            return part
    return max(completion, total - prompt) if is_amount(prompt) else completion


def _has_each(calls: Sequence[dict[str, JSON]], key: str) -> bool:
    """Return whether a number of tokens is known of every model call, by itself or as part of a total."""
    return all(call.get(key) is not None or call.get("total_tokens") is not None for call in calls)


def _count(value: JSON) -> int | float:
    number = _whole(numeric(value))
    return number if (isinstance(number, int) and not isinstance(number, bool)) or _is_invalid(number) else 0


class Check(Struct, frozen=True, omit_defaults=True, gc=False):
    """One claim about a trace and whether it is true: True (passed), False (failed), or None (undecided)."""

    ok: bool | None
    claim: str
    failure: str = ""
    """The message for people when the check failed or is undecided."""
    expected: JSON = None
    actual: JSON = None


class Grade(Struct, frozen=True, kw_only=True):
    """A grader's verdict on one trace."""

    name: str
    type: str
    status: GradeStatus
    score: float
    feedback: str
    weight: float = 1.0
    checks: list[Check] = field(default_factory=list)
    details: dict[str, JSON] = field(default_factory=dict)
    duration_ms: float = 0.0

    @property
    def passed(self) -> bool:
        """True when every check passed."""
        return self.status == "passed"


class InputFile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file or folder laid into the workspace before the agent starts."""

    path: str
    """Its path in the workspace."""
    content: str | None = None
    """The text to write; None means it is copied from `source`."""
    source: str | None = None
    """An absolute path to copy from, checked when the spec was loaded."""


class Task(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the agent is asked, from the spec."""

    id: str
    prompt: str
    name: str = ""
    description: str = ""
    tags: list[str] = field(default_factory=list)
    golden: bool = False
    timeout_s: float = 300.0
    follow_up_prompts: list[str] = field(default_factory=list)
    files: list[InputFile] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    context: dict[str, JSON] = field(default_factory=dict)
    workdir: str = ""
    mock: JSON = None
    """The script of the `mock` engine, where the task carries one."""
    mocks: JSON = None
    """Mocks of tools, with their replies: `servers` and `commands`; None where the task has none."""
    skill_directories: list[str] | None = None
    """Folders with skills, in place of the suite's; None where the task names none."""
    instruction_files: list[str] = field(default_factory=list)
    """Files added to the agent's instructions, after the suite's."""
    metadata: dict[str, JSON] = field(default_factory=dict)
    """For readers: columns of a dataset that are no fields of a task, or the task's own values."""
    until_skill: str = ""
    """A trigger test: the trial ends at the first use of this skill (`*`: of any). Empty for every other task."""


class Trial(Struct, frozen=True, kw_only=True):
    """One planned attempt at a task."""

    task: Task
    number: int = 1
    model: str = ""


class Attempt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One start of a trial's agent, graded or not, with what it was billed."""

    status: ResultStatus
    reason: str = ""
    started_at: str = ""
    duration_ms: float = 0.0
    costs: Costs = NO_COSTS


class Result(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A trial with what happened and every grade."""

    task_id: str
    trial: int
    status: ResultStatus
    trace: Trace
    grades: list[Grade] = field(default_factory=list)
    reason: str = ""
    """The reason for the status where the grades do not give it: `timeout`, an engine's error."""
    attempts: int = 1
    attempt_log: list[Attempt] = field(default_factory=list)
    """Every attempt, this result's own last; empty in results of versions that did not write it."""
    started_at: str = ""
    duration_ms: float = 0.0
    """The whole trial: its folder, the agent, the graders. The agent's own time is `trace.duration_ms`."""
    grader_duration_ms: float | None = None
    """Time in graders that ask no judge; None where that was not recorded."""
    judge_duration_ms: float | None = None
    """Time in graders that ask a judge; None where that was not recorded."""
    fingerprint: str = ""
    """What the result was made from: task, graders, engine. Results that no longer fit the run's spec do not count."""
    snapshot: str = ""
    """The workspace as the agent left it: a name under the run folder's `artifacts/`."""
    turn_snapshots: dict[str, str] = field(default_factory=dict)
    """By the number of a prompt: the workspace as it was before the next one, where a checkpoint grades it."""

    @property
    def decided(self) -> list[Grade]:
        """The grades that came to a verdict."""
        return [grade for grade in self.grades if grade.status != "error"]

    @property
    def undecided(self) -> list[Grade]:
        """The undecided grades."""
        return [grade for grade in self.grades if grade.status == "error"]


class StoredConfig(Struct, frozen=True, kw_only=True):
    """The settings of a stored suite that readers need."""

    trials_per_task: int = 1
    pass_rule: Literal["all", "any"] | float = "all"
    min_pass_rate: float | None = None
    max_failures: int | None = None
    group_by: str = ""
    on_agent_crash: str = ""
    timeout_seconds: float = 0
    judge_model: str = ""
    reasoning_effort: str = ""
    judge_reasoning_effort: str = ""

    @property
    def trials(self) -> int:
        """How many trials a task was to have, one at least."""
        return int(self.trials_per_task) or 1


class StoredTriggers(Struct, frozen=True, kw_only=True):
    """The trigger tests of a stored suite."""

    prompts: Sequence[dict[str, JSON]] = ()
    tasks: Sequence[dict[str, JSON]] = ()
    skills: Sequence[str] = ()
    threshold: float = 0.6
    heuristic: dict[str, dict[str, float]] = {}
    """By prompt and skill: the relevance that word overlap gives."""


class StoredBaseline(Struct, frozen=True, kw_only=True):
    """Which arm of a baseline run a run is; `arm` is empty for a plain run."""

    arm: Literal["skill", "control", ""] = ""
    skill: str = ""
    these_tasks: bool = False
    injected: bool = False


class NotSelected(Struct, frozen=True, kw_only=True):
    """What a suite has beyond a run of it."""

    tasks: Sequence[dict[str, JSON]] = ()
    trigger_tests: bool = False


class StoredSuite(Struct, frozen=True, kw_only=True):
    """What a run says about the suite it was made from.

    What runs of older versions and results.json files do not have is empty or None. Tasks and graders stay mappings:
    there may be a million, and `waza.compact` keeps them encoded.
    """

    file: str = ""
    """The eval file, relative to the folder of the runs."""
    config: StoredConfig = StoredConfig()
    tasks: Sequence[dict[str, JSON]] = ()
    graders: Mapping[str, Sequence[dict[str, JSON]]] | None = None
    """By task; None where the run does not say, as a results.json."""
    grader_facts: Mapping[str, Sequence[str]] | None = None
    metrics: Sequence[dict[str, JSON]] = ()
    triggers: StoredTriggers | None = None
    fingerprints: Mapping[str, str] = {}
    places: Mapping[str, dict[str, JSON] | None] = {}
    judge: dict[str, JSON] | None = None
    judged: Mapping[str, Sequence[str]] = {}
    """By task: the hashes of the rubrics that judge it."""
    judge_cards: Sequence[JSON] = ()
    canaries: Sequence[JSON] = ()
    judge_probes: Sequence[JSON] = ()
    """Requests to judges before the first trial."""
    baseline: StoredBaseline = StoredBaseline()
    given: dict[str, JSON] = {}
    """What the caller gave in addition to the suite."""
    auto_trials: dict[str, JSON] | None = None
    """The limits of `trials_per_task: auto`; None where the number of trials is fixed."""
    not_selected: NotSelected | None = None
    graded_from: str | None = None
    """Of a run that no agent made: the run it was graded from, or `traces`."""

    @classmethod
    def of(cls, spec: Mapping[str, JSON]) -> Self:
        """Return what a stored spec says."""
        parts = {name: _known(kind, spec[name]) if spec.get(name) else None for name, kind in _SUITE_PARTS.items()}
        return _known(cls, {**spec, **parts})

    @property
    def task_ids(self) -> Iterator[str]:
        """The ids of its tasks, in order."""
        return (str(task["id"]) for task in self.tasks)

    @property
    def trigger_prompts(self) -> Sequence[dict[str, JSON]]:
        """The prompts of its trigger tests, if it has any."""
        return self.triggers.prompts if self.triggers else ()

    @property
    def trigger_tasks(self) -> Sequence[dict[str, JSON]]:
        """The tasks that put the prompts of its trigger tests to the agent, if it has any."""
        return self.triggers.tasks if self.triggers else ()

    @property
    def every_grader(self) -> Iterator[dict[str, JSON]]:
        """The graders of all tasks; one that tasks share comes once for each."""
        return (grader for graders in (self.graders or {}).values() for grader in graders)

    def graders_of(self, task_id: str) -> Sequence[dict[str, JSON]] | None:
        """Return the graders of a task; None where they are not listed."""
        return (self.graders or {}).get(task_id)


_SUITE_PARTS: dict[str, type[Struct]] = {
    "config": StoredConfig,
    "triggers": StoredTriggers,
    "baseline": StoredBaseline,
    "not_selected": NotSelected,
}
_Part = TypeVar("_Part", bound=Struct)


def _known(kind: type[_Part], stored: Mapping[str, JSON]) -> _Part:
    """Return a record of those fields that are stored; the rest, and null, are its defaults."""
    return kind(**{name: stored[name] for name in kind.__struct_fields__ if stored.get(name) is not None})


class Run(Struct, frozen=True, kw_only=True):
    """All results of one invocation, with what they were made from."""

    id: str
    name: str
    started_at: str
    engine: str
    model: str = ""
    skill: str = ""
    spec: dict[str, JSON] = field(default_factory=dict)
    """The resolved spec: config, tasks, graders, metrics; enough to read and grade again without the files."""
    fingerprint: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    results: Sequence[Result] = field(default_factory=list)
    triggers: Sequence[Result] = field(default_factory=list)
    """Results of the prompts of `trigger_tests.yaml`; `spec["triggers"]` says what each prompt is for."""
    complete: bool = True
    folder: str = ""
    integrity: str = ""
    """Of a stored run: "unverified" or "altered", a colon and a sentence, where its records are not all its own."""
    other_costs: Costs = NO_COSTS
    """What results were billed that are not among these: replaced by later ones, of removed tasks, of a control arm."""
    extended: int = 0
    """Of a stored run: trials that were added after it had been complete."""

    @property
    def suite(self) -> StoredSuite:
        """What `spec` says, typed."""
        return StoredSuite.of(self.spec)
