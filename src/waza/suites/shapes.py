"""Shapes of the YAML files: `eval.yaml`, tasks, `trigger_tests.yaml`, `.waza.yaml`; keys and types, no file is read."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, model_validator

from waza.engines.mock import MockFile, MockScript
from waza.engines.mocks.shapes import CommandMock, McpMock
from waza.graders.base import SkillName
from waza.graders.names import ToolNames
from waza.options import Options, ZeroMeans
from waza.untrusted.patterns import name_glob


def _said(text: str) -> str:
    if not text.strip():
        raise ValueError("the prompt is empty")
    return text


_Seconds = Annotated[float, Field(gt=0, le=1e7, allow_inf_nan=False)]
Asked = Annotated[str, AfterValidator(_said)]


def _one_skill(name: str) -> str:
    if name_glob(name) is not None:
        raise ValueError(f"'{name}' is a glob; trigger tests are about one skill, by its exact name")
    return name


def _confidence(value: Any) -> Any:
    return value or "high" if isinstance(value, str) else value


class TriggerPromptShape(Options):
    """A prompt, and how sure its author is."""

    prompt: Asked
    """What the agent is asked."""
    reason: str = ""
    """Why, for readers."""
    confidence: Annotated[Literal["high", "medium"], BeforeValidator(_confidence)] = "high"
    """`high` counts 1; `medium`, for borderline prompts, counts 0.5."""
    phrasing: Literal["explicit", "keyword", "generic", "indirect"] | None = None
    """The rung of the wording ladder: names the skill, has its keywords, is general, or only hints at the need."""


class ControlsShape(Options):
    """The two prompts that show whether use of the skill can be seen at all; they count in no number."""

    explicit: Asked | None = None
    """Names the skill outright; a sentence of waza's own if left out. Unless it registers, the run is INVALID."""
    unrelated: Asked | None = None
    """Has nothing to do with the skill; a sum to work out if left out."""


class TriggerShape(Options):
    """The keys of `trigger_tests.yaml`."""

    skill: Annotated[SkillName, AfterValidator(_one_skill)]
    """The skill whose use is tested, by its exact name."""
    should_trigger_prompts: list[TriggerPromptShape] = []
    """Prompts for which the agent should use the skill."""
    should_not_trigger_prompts: list[TriggerPromptShape] = []
    """Prompts for which it should not."""
    controls: ControlsShape = ControlsShape.model_construct()
    """Other controls than waza's own."""
    stop_at: Literal["any_skill", "this_skill"] = "any_skill"
    """When a trial ends: at the first use of any skill, or only of this one (for agents that load others first)."""
    timeout_seconds: Annotated[_Seconds | None, ZeroMeans(None)] = None
    """How long the agent may work on one prompt; the suite's `timeout_seconds` if left out."""

    @model_validator(mode="after")
    def _has_prompts(self) -> Self:
        if not self.should_trigger_prompts and not self.should_not_trigger_prompts:
            raise ValueError("no prompt: give should_trigger_prompts or should_not_trigger_prompts")
        return self

    @model_validator(mode="after")
    def _does_not_contradict_itself(self) -> Self:
        wanted = {item.prompt.strip() for item in self.should_trigger_prompts}
        if both := next(
            (item.prompt for item in self.should_not_trigger_prompts if item.prompt.strip() in wanted), None
        ):
            raise ValueError(f"{both!r} is in both lists: using the skill cannot be both right and wrong")
        return self


# The shapes of the files authors write: `eval.yaml`, task files, `.waza.yaml`. Only keys and types; no files are read.
#
# The field names are the keys of the original; the text under each field is its documentation and its hint in editors.

Whole = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, le=1e7, allow_inf_nan=False)]
Timeout = Annotated[Seconds | None, ZeroMeans(None)]
"""Seconds; 0 is the same as leaving the key out."""
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Words = Annotated[str, Field(min_length=1)]
Scalar = Annotated[str, BeforeValidator(lambda value: str(value) if type(value) in (int, float) else value)]
"""A text; a number is taken as it is written."""


class ConfigShape(Options):
    """How a suite is run. The keys of the engine in use belong here too."""

    SHORT_FORMS: ClassVar[tuple[str, ...]] = ("max_workers",)

    trials_per_task: Whole | Literal["auto"] = 1
    """How often each task is tried; `auto` tries a task until its pass rate is settled against `pass_rule`."""
    max_trials: Whole = 20
    """How often `auto` tries one task at most."""
    trials_budget: Whole | None = None
    """How many trials `auto` may spend on all tasks together; no limit if left out."""
    timeout_seconds: Annotated[Seconds, ZeroMeans(300)] = 300
    """How long an agent may work on one task; 0 means the default."""
    parallel: bool = False
    """Run several tasks at once."""
    workers: Annotated[int, Field(ge=0)] = 0
    """How many trials run at once; 0 means 4 with `parallel`, else 1."""
    trials_per_minute: Annotated[int, Field(ge=0)] = 0
    """How many trials are started in a minute, all workers together, for a vendor's limit; 0 means no limit."""
    executor: Words | None = None
    """The engine that runs the agent; `waza list engines` names them."""
    model: str = ""
    """The model the agent uses."""
    judge: Annotated[str, Field(min_length=1)] | dict[str, Any] | None = None
    """Who judges, where a grader needs a judge: a model, or a mapping with `type` and its settings."""
    judge_model: str = ""
    """The model that judges, where `judge` names none."""
    judge_reasoning_effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    """How hard the judge's model thinks, where `judge` does not say."""
    canaries: Annotated[int, Field(ge=0, le=20)] = 2
    """How many goldens of each rubric in use are judged in every run, never from the cache; 0 for none."""
    max_attempts: Whole = 1
    """How often a trial is started again after an infrastructure error; a failed trial is never repeated."""
    on_agent_crash: Literal["fail", "error", "grade"] = "fail"
    """What becomes of a trial whose agent crashed (exited with a failure, was ended by a signal such as SIGSEGV, or
    raised): `fail` whatever the grades, `error`, or let the grades decide. A crash is never tried again."""
    fail_fast: bool = False
    """Stop once a task can no longer pass by `pass_rule`."""
    group_by: Literal["model", "tags", "task"] | None = None
    """Show results grouped by this."""
    skill_directories: list[Words] = []
    """Folders that hold skills."""
    pass_rule: Literal["all", "any"] | Share = "all"
    """When a task passes: `all` its trials pass, `any` of them, or a rate such as 0.8."""
    min_pass_rate: Annotated[float, Field(gt=0, le=1)] | None = None
    """The run passes when at least this share of its tasks passed; all of them if left out."""
    max_failures: Annotated[int, Field(ge=0)] | None = None
    """The run passes with up to this many failed tasks; none if left out."""
    tool_names: ToolNames = "known"
    """How graders that do not say it themselves take tool names: `known` or `exact` (see `tool_calls`)."""

    @model_validator(mode="before")
    @classmethod
    def _other_words(cls, given: Any) -> Any:
        """Take `max_workers` for `workers`, and `group_by: task_id` for `task`."""
        if not isinstance(given, dict):
            return given
        found = {key: value for key, value in given.items() if key != "max_workers"}
        if "max_workers" in given and found.setdefault("workers", given["max_workers"]) != given["max_workers"]:
            raise ValueError("'max_workers' and 'workers' differ; they mean the same: keep one of them")
        return found | ({"group_by": "task"} if found.get("group_by") == "task_id" else {})


class AgentShape(Options):
    """Keys of `config:` that only engines with a real agent read; others say that they have no effect."""

    first_event_timeout_seconds: Annotated[float, Field(ge=0)] | None = None
    """How long to wait for an agent's first sign of life."""
    reasoning_effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    """How hard the agent's model thinks."""
    instruction_files: list[Words] | None = None
    """Files added to the agent's instructions."""
    inject_skill_body: bool | None = None
    """Put the text of the suite's SKILL.md into the agent's instructions; it is then there without being chosen."""
    trigger_skill_routing: bool | None = None
    """Add an instruction on choosing skills."""
    required_skills: list[Words] | None = None
    """Skills that must be there."""
    disabled_skills: list[Words] | None = None
    """Skills that must not be loaded; `*` means all."""
    mcp_servers: dict[str, Any] | None = None
    """MCP servers the agent gets."""


class HookShape(Options):
    """A command run before or after the run or a task; split like a shell line, started without a shell."""

    command: Words
    """The program and its arguments; quotes are understood."""
    working_directory: str = ""
    """Where it runs: the eval file's folder, or a folder below the project's root."""
    exit_codes: list[int] = [0]
    """Exit codes that count as success."""
    error_on_fail: bool = False
    """Whether a failure makes the run or the task an error."""


class HooksShape(Options):
    """Commands around a run."""

    before_run: list[HookShape] = []
    """Run once before the first task."""
    after_run: list[HookShape] = []
    """Run once after the last task, whatever happened."""
    before_task: list[HookShape] = []
    """Run before each trial."""
    after_task: list[HookShape] = []
    """Run after each trial, whatever happened."""


class MetricShape(Options):
    """A number over the whole run; with a threshold it gates the run."""

    name: Words
    """`task_completion`, `trigger_accuracy`, `behavior_quality`, `efficiency`, or the name of a grader or tag."""
    weight: Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)] = 1.0
    """Its share in `summary.metrics_score`; never a gate."""
    threshold: Share | None = None
    """The run fails when the metric stays below this."""
    description: str = ""
    """For readers."""
    enabled: bool = True
    """Switch the metric off without deleting it."""
    grader: Words | None = None
    """Take the mean score of this grader."""
    tag: Words | None = None
    """Take the mean score of the tasks with this tag."""


class EvalShape(Options):
    """The keys of `eval.yaml`."""

    name: str = ""
    """The suite's name; its folder's name if left out."""
    description: str = ""
    """For readers."""
    skill: str = ""
    """The skill under test."""
    scenario: str = ""
    """A suite without a skill: what it is about."""
    schema_version: Scalar | None = Field(default=None, alias="schemaVersion")
    """The original's schema version, 1.x or 2.0."""
    version: Scalar = ""
    """The suite's own version; for readers."""
    config: dict[str, Any] = {}
    """How the suite is run."""
    hooks: HooksShape = HooksShape.model_construct()
    """Commands around the run."""
    inputs: dict[str, Scalar] = {}
    """Values for `{{name}}` in prompts; `{{.Vars.name}}` is the same, in hooks and rows of `tasks_from` too."""
    tasks: list[Any] = []
    """Globs of task files, `task_files:` lists, or whole tasks."""
    tasks_from: Annotated[Words | None, BeforeValidator(lambda path: None if path == "" else path)] = None
    """A CSV or JSONL file with one task a row."""
    range: Annotated[
        Annotated[list[Whole], Field(min_length=2, max_length=2)] | None,
        BeforeValidator(lambda rows: None if rows == [0, 0] else rows),
    ] = None
    """The rows of `tasks_from` to take: first and last, counted from 1; all of them if left out or `[0, 0]`."""
    graders: list[Any] = []
    """Graders of every task."""
    metrics: list[MetricShape] = []
    """Numbers over the run, with thresholds that gate it."""
    baseline: bool = False
    """Run every task without the skill too, as `waza run --baseline` does."""
    mcp_mocks: list[McpMock] = []
    """MCP servers that the agent gets, with tools whose answers are written down here."""
    command_mocks: list[CommandMock] = []
    """Programs that the agent finds first on PATH, with answers that are written down here."""


class FileShape(Options):
    """One file or folder laid into the workspace."""

    path: Words
    """Its path in the workspace, and in the fixture folder it is copied from."""
    content: str | None = None
    """The text to write instead of copying a fixture."""


class InputsShape(Options):
    """What the agent is given."""

    prompt: str | None = None
    """What the agent is asked."""
    prompt_file: Words | None = None
    """A file with the prompt, next to the task file."""
    files: list[FileShape] = []
    """Fixtures."""
    environment: dict[str, Scalar] = {}
    """Environment variables of the agent."""
    context: dict[str, Any] = {}
    """Free values for `{{name}}` in the prompt; `fixture` names a file or folder to copy, `source` is for judges."""
    workdir: str = ""
    """The folder in the workspace the agent starts in."""
    follow_up_prompts: list[Words] = []
    """What the agent is asked next, in the same workspace."""


class CheckpointShape(Options):
    """What must be true in the middle of a conversation."""

    after_turn: Whole
    """After which prompt, counted from 1; what came later is ignored."""
    expected: dict[str, Any] | None = None
    """What must be true then, in short."""
    graders: list[Any] = []
    """Graders of the conversation so far, with the files as they were then: written out, or names of the suite's."""
    on_failure: Literal["continue", "stop"] = "continue"
    """Whether the conversation goes on when one of them fails, or ends there."""


class TaskShape(Options):
    """The keys of a task."""

    id: Scalar = ""
    """The task's name in results; must be unique in the suite."""
    name: str = ""
    """For readers."""
    description: str = ""
    """For readers."""
    tags: list[Words] = []
    """For `--tags` and groups."""
    enabled: bool = True
    """Switch the task off without deleting it."""
    golden: bool = False
    """A task that must pass at every gate."""
    prompt: str | None = None
    """Short for `inputs.prompt`."""
    allow_empty_prompt: bool = False
    """Accept an empty prompt; with files or follow-up prompts it is accepted anyway."""
    metadata: dict[str, Any] = {}
    """For readers; kept with the results. Other columns of `tasks_from` become part of it."""
    inputs: InputsShape = Field(default_factory=InputsShape)
    """What the agent is given."""
    expected: dict[str, Any] | None = None
    """What must be true afterwards, in short."""
    graders: list[Any] = []
    """Graders of this task, in addition to the suite's."""
    checkpoints: list[CheckpointShape] = []
    """What must be true after a prompt, before the next one."""
    context_dir: str | None = None
    """The folder fixtures are copied from; `fixtures` next to the eval file if left out."""
    timeout_seconds: Timeout = None
    """How long the agent may work on this task."""
    skill_directories: list[Words] | None = None
    """Folders that hold skills, instead of the suite's; the suite's own `skill` is found without."""
    instruction_files: list[Words] = []
    """Files added to the agent's instructions, after the suite's."""
    mock: MockScript | None = None
    """What the `mock` engine does on this task."""
    command_mocks: list[CommandMock] | None = None
    """Mocked programs, instead of the suite's; an empty list means none."""


class PathsShape(Options):
    """Where a project keeps things."""

    skills: str = "skills"
    """Skills."""
    evals: str = "evals"
    """Suites."""
    results: str | None = None
    """Run folders; next to each eval file if left out. A URL (`s3://bucket/runs`): finished runs are sent there."""


class DefaultsShape(Options):
    """What holds where a suite does not say."""

    engine: str | None = None
    """The engine."""
    model: str = ""
    """The agent's model."""
    judge_model: str = Field(default="", alias="judgeModel")
    """The judge's model."""
    timeout: Timeout = None
    """Seconds an agent may work on one task."""
    parallel: bool | None = None
    """Run several tasks at once."""
    workers: Annotated[int, Field(ge=0)] | None = None
    """How many trials run at once."""
    verbose: bool = False
    """Show every check."""
    session_log: bool = Field(default=False, alias="sessionLog")
    """The original's; the journal takes its place."""


class ProjectGradersShape(Options):
    """Defaults of graders."""

    program_timeout: Timeout = Field(default=None, alias="programTimeout")
    """The original's; not used: a `program` grader says its own `timeout`."""


class ProjectShape(Options):
    """The keys of `.waza.yaml`."""

    paths: PathsShape = PathsShape.model_construct()
    """Where things are."""
    defaults: DefaultsShape = DefaultsShape.model_construct()
    """What holds where a suite does not say."""
    graders: ProjectGradersShape = ProjectGradersShape.model_construct()
    """Defaults of graders."""
    judge: Annotated[str, Field(min_length=1)] | dict[str, Any] | None = None
    """Who judges, where a grader needs a judge: a model, or a mapping with `type` and its settings."""
    allow_local_code: bool = False
    """No effect: a project cannot allow its own Python to be imported; `waza trust` does, given by its user."""
    files: dict[str, Any] = {}
    """The original's; not used."""
    cache: dict[str, Any] = {}
    """The original's; not used."""
    server: dict[str, Any] = {}
    """The original's; not used."""
    dev: dict[str, Any] = {}
    """The original's; not used."""
    tokens: dict[str, Any] = {}
    """The original's; not used."""
    storage: dict[str, Any] = {}
    """The original's; not used."""
    registries: list[Any] = []
    """The original's; not used."""


FILES: dict[str, type[BaseModel]] = {"eval": EvalShape, "task": TaskShape, "project": ProjectShape, "mock": MockFile}
FILES["trigger_tests"] = TriggerShape
"""Each kind of file and its shape."""
