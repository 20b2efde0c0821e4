"""The `mock` engine: a scripted agent, offline and free; and the shapes of its scripts and of `mock.yaml`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, Self, TypeVar

from msgspec.structs import replace
from pydantic import AfterValidator, Field, ValidationError, model_validator

from waza.engines.base import Engine, Options, TrialFolder
from waza.errors import EngineError, Problem, SpecError, validation_fact
from waza.files.paths import inner_path
from waza.files.tree import opened, writing
from waza.model import JSON, SkillInvocation, Task, ToolEvent, Trace, Trial, Usage
from waza.traces.conversation import converse
from waza.untrusted.patterns import Pattern

ECHO = "Mock response for: {prompt}"
"""What the original waza's mock answers. It is opt-in here, because a check that looks for a word of the prompt would
pass on every echo."""
_NEXT_STEP = "choose an agent with --engine, or echo prompts with `default: {echo: true}` in mock.yaml"
_NEXT_TRIGGER_STEP = "mock.yaml has no rule (`triggers`) and no script for the skills that are used"

_InnerPath = Annotated[str, AfterValidator(inner_path)]
_Count = Annotated[int, Field(ge=0)]
_Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Name = Annotated[str, Field(min_length=1)]


class MockToolEvent(Options):
    """One tool call with its result, as in a trace."""

    tool_name: _Name
    """The tool."""
    args: Any = {}
    """What it was called with."""
    result: Any = None
    """What it returned."""
    success: bool = True
    """Whether it worked."""
    turn: Annotated[int, Field(ge=1)] = 1
    """The turn of the conversation it belongs to."""
    sequence: int | None = None
    """Its place among all calls; counted from 1 if left out."""
    tool_call_id: str | None = None
    """An id that ties the call to its result."""
    start_ms: _Amount | None = None
    """When it began, in milliseconds since the trace began."""
    duration_ms: _Amount | None = None
    """How long it took."""
    error: str | None = None
    """What went wrong."""


class MockUsage(Options):
    """What the agent consumed; a number that is left out was not recorded."""

    input_tokens: _Count | None = None
    """Tokens read."""
    output_tokens: _Count | None = None
    """Tokens written."""
    cache_read_tokens: _Count | None = None
    """Tokens read from a cache."""
    cache_write_tokens: _Count | None = None
    """Tokens written to a cache."""
    turns: _Count | None = None
    """Turns of the conversation."""
    llm_calls: _Count | None = None
    """Calls of a model."""
    cost_usd: _Amount | None = None
    """The price."""


class MockSkill(Options):
    """One use of a skill."""

    name: _Name
    """The skill."""
    path: str | None = None
    """Its file."""


class MockTurn(Options):
    """What the agent does on one prompt."""

    output: str = ""
    """The agent's answer."""
    echo: bool = False
    """Answer `Mock response for:` and the prompt, as the original waza's mock does. Tool calls and skills are
    then not recorded, unless the script names them."""
    tool_events: list[MockToolEvent] = []
    """The tools it calls, in order."""
    skill_invocations: list[_Name | MockSkill] = []
    """The skills it uses: names, or name and path."""
    available_skills: list[str] | None = None
    """The skills it could have used."""
    files: dict[_InnerPath, str] = {}
    """Files it writes into the workspace: path and content."""
    usage: MockUsage | None = None
    """What it consumes; not recorded if left out."""
    events: list[dict[str, Any]] | None = None
    """The transcript; made from the tool calls and the output if left out."""
    steps: _Count | None = None
    """How many steps it takes; the number of events if left out."""
    outcome: dict[str, Any] = {}
    """Structured state it ends with."""
    status: Literal["success", "failure", "timeout"] = "success"
    """How it ends. For an agent that could not run at all use `error`."""
    error: str = ""
    """Why the agent could not run; the trial is then an error, and the rest of the script is ignored."""
    delay_s: _Amount = 0
    """How long it takes to answer. Beyond the task's time limit the status is `timeout`: files and tool calls are
    recorded, the output is not."""
    duration_ms: _Amount | None = None
    """The recorded duration; measured if left out."""


class MockTrial(MockTurn):
    """What the agent does in one trial."""

    turns: Annotated[list[MockTurn], Field(min_length=1)] | None = None
    """What differs from prompt to prompt in a task with `follow_up_prompts`, one entry each; the other keys apply to
    all. If left out, the script is what happens in the whole conversation, and turns are not recorded."""


_NOT_BEHAVIOUR = {"delay_s", "duration_ms", "usage", "steps", "available_skills"}
"""Keys of a script that do not describe what the agent did: with these alone negative checks would pass."""


class MockVariant(MockTrial):
    """What differs from another script."""

    trials: Annotated[list[MockTrial], Field(min_length=1)] | None = None
    """What differs from trial to trial; the other keys apply to all. After the last entry the first comes again."""

    @model_validator(mode="after")
    def _is_not_empty(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("the script is empty; give at least `output`, or `echo: true`")
        if self.echo and self.output:
            raise ValueError("`echo: true` is the output; leave `output` out")
        return self

    def of_trial(self, number: int) -> MockTrial:
        """Return what happens in the trial with this number, counted from 1."""
        if not self.trials:
            return self
        return _with(self, self.trials[(number - 1) % len(self.trials)])


class MockScript(MockVariant):
    """What the agent does on one task."""

    without_skill: MockVariant | None = None
    """What differs without the suite's skill, as in the control arm of `--baseline`."""

    @model_validator(mode="after")
    def _describes_behaviour(self) -> Self:
        if not self.model_fields_set - _NOT_BEHAVIOUR - (set() if self.echo else {"echo"}):
            raise ValueError("the script does not say what the agent does; give at least `output`, or `echo: true`")
        return self


Script = TypeVar("Script", bound=MockTurn)


def _with(script: Script, own: MockTurn) -> Script:
    """Return the script with the keys of `own` in place of its own."""
    return script.model_copy(update={key: getattr(own, key) for key in own.model_fields_set})


def _pattern(source: str) -> str:
    Pattern(source)
    return source


class MockTrigger(Options):
    """A rule on when the agent uses a skill."""

    skill: _Name
    """The skill."""
    when: Annotated[str, AfterValidator(_pattern)]
    """A pattern; the skill is used for every prompt it is found in, whatever the case of letters."""


class MockFile(Options):
    """The scripts of a suite, in `mock.yaml` next to the eval file."""

    default: MockScript | None = None
    """The script of every task that has no other."""
    tasks: dict[_Name, MockScript] = {}
    """Scripts by task id; a key may be a pattern such as `greet-*`."""
    triggers: list[MockTrigger] | None = None
    """The skills the agent uses for prompts of `trigger_tests.yaml` that have no script: every rule that matches, in
    order. If left out, the trigger test of such a prompt is undecided."""


def unused_patterns(file: MockFile, task_ids: Sequence[str]) -> list[str]:
    """Return the keys of `tasks:` that match none of the tasks."""
    known = set(task_ids)
    return [key for key in file.tasks if key not in known and not any(fnmatchcase(one, key) for one in task_ids)]


def script_for(file: MockFile, task_id: str) -> MockScript | None:
    """Return a task's script: the one under its id, else under the first pattern that matches, else the default."""
    if task_id in file.tasks:
        return file.tasks[task_id]
    matching = (script for pattern, script in file.tasks.items() if fnmatchcase(task_id, pattern))
    return next(matching, file.default)


def trigger_script(file: MockFile, task_id: str, prompt: str) -> MockScript | None:
    """Return the script of a trigger test: the one under its id, else one made from the rules that match its prompt."""
    if script := script_for(file.model_copy(update={"default": None}), task_id):
        return script
    if file.triggers is None:
        return None
    used: list[str | MockSkill] = [
        rule.skill for rule in file.triggers if Pattern(rule.when, ignore_case=True).search(prompt)
    ]
    return MockScript(output="mock engine: its rules say which skills are used", skill_invocations=used)


class MockEngine(Engine):
    """Follow the task's `mock:` script, or its entry in `mock.yaml` next to the eval file. Costs nothing.

    ```yaml
    config:
      executor: mock
    tasks:
      - id: greet
        prompt: Say hello
        mock:
          output: Hello there
          tool_events: [{tool_name: read_file, args: {path: names.txt}}]
    ```

    A task without a script is an error; `default: {echo: true}` in `mock.yaml` lets every other task answer as the
    original waza's mock does. For trigger tests `mock.yaml` may have rules instead:
    `triggers: [{skill: csv-report, when: "report|csv"}]`.
    """

    mocks = None
    takes_skill = True
    has_only_given_skills = True

    def ready(self, tasks: Sequence[Task] = ()) -> None:
        """Raise SpecError for a script whose number of turns differs from the task's number of prompts."""
        problems = []
        for task in tasks:
            prompts = 1 + len(task.follow_up_prompts)
            for script in (task.mock, *task.mock.get("trials", ())) if task.mock else ():
                if (turns := script.get("turns")) and len(turns) != prompts:
                    fact = f"the mock script of task '{task.id}' has {len(turns)} turns, the task has {prompts} prompts"
                    problems.append(Problem(fact, path="tasks"))
        if problems:
            raise SpecError(problems)

    def needs_trial_folder(self, trial: Trial) -> bool:
        """Return whether the script writes files."""
        return _writes_files(trial.task.mock or {})

    def undecided(self, tasks: Sequence[Task]) -> str:
        """Return a message with the number of tasks that have no script."""
        missing = [task.id for task in tasks if task.mock is None]
        if not missing:
            return ""
        return f"{len(missing)} of {len(tasks)} tasks have no mock script (the first: '{missing[0]}'); {_NEXT_STEP}"

    def may_recover(self, trial: Trial) -> bool:
        """Return whether there is a script at all."""
        return trial.task.mock is not None

    async def run(self, trial: Trial, trial_folder: TrialFolder) -> Trace:
        """Return the script's trace for this trial, and write its files into the workspace."""
        if trial.task.mock is None:
            step = _NEXT_TRIGGER_STEP if trial.task.until_skill else _NEXT_STEP
            raise EngineError(f"no mock script for task '{trial.task.id}'; {step}")
        whole = _script(trial.task)
        script = whole.of_trial(trial.number)
        if whole.without_skill is not None and self.skill_folder is None:
            script = _with(script, whole.without_skill.of_trial(trial.number))

        async def play(prompt: str, before: Sequence[Trace], left_s: float) -> Trace:
            scripted = _with(script, script.turns[len(before)]) if script.turns else script
            return await _turn(prompt, scripted, left_s, trial, trial_folder)

        if script.turns is None and not (script.echo and trial.task.follow_up_prompts):
            return await _turn(trial.task.prompt, script, trial.task.timeout_s, trial, trial_folder)
        return replace(await converse(trial, trial_folder, play), engine="mock", model=trial.model or None)


def _writes_files(script: dict[str, Any]) -> bool:
    other = script.get("without_skill")
    parts = [*(script.get("trials") or ()), *(script.get("turns") or ()), *([other] if other else ())]
    return "files" in script or any(map(_writes_files, parts))


async def _turn(prompt: str, script: MockTurn, left_s: float, trial: Trial, trial_folder: TrialFolder) -> Trace:
    """Return the script's trace for one prompt, or for a whole conversation, and write its files."""
    started = time.perf_counter()
    if script.error:
        raise EngineError(script.error, recorded=_trace(prompt, trial, script, 0.0) if script.usage else None)
    _write_files(script.files, trial_folder)
    if script.delay_s:
        import asyncio  # checking a suite loads this file, and needs no event loop

        await asyncio.sleep(min(script.delay_s, max(left_s, 0)))
    if script.delay_s > left_s:
        script = script.model_copy(update={"status": "timeout", "output": ""})
    return _trace(prompt, trial, script, (time.perf_counter() - started) * 1000)


def _trace(prompt: str, trial: Trial, script: MockTurn, measured_ms: float) -> Trace:
    tool_events = [_tool_event(event, number) for number, event in enumerate(script.tool_events, 1)]
    is_echo = script.echo and script.status != "timeout"
    is_observed = not script.echo or bool(tool_events)
    output = ECHO.format(prompt=prompt) if is_echo else script.output
    return Trace(
        input=prompt,
        output=output,
        status=script.status,
        duration_ms=measured_ms if script.duration_ms is None else script.duration_ms,
        model=trial.model or None,
        engine="mock",
        outcome=script.outcome,
        events=_transcript(tool_events, output) if script.events is None and is_observed else script.events,
        tool_events=tool_events if is_observed else None,
        usage=Usage(**script.usage.model_dump()) if script.usage else None,
        skill_invocations=_skills(script, trial.task.until_skill),
        available_skills=script.available_skills,
        steps=script.steps,
    )


def _script(task: Task) -> MockScript:
    try:
        return MockScript.model_validate(task.mock)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "mock"
        raise EngineError(f"the script of task '{task.id}' is wrong: {place}: {validation_fact(first)}") from None


def _write_files(files: dict[str, str], trial_folder: TrialFolder) -> None:
    if not files:
        return
    with opened(trial_folder.workspace) as root:
        for path, content in files.items():
            try:
                with writing(root, path, 0o644) as out:
                    out.write(content.encode())
            except (OSError, UnicodeEncodeError) as error:
                raise EngineError(f"the mock cannot write its file '{path}': {error}") from None


def _tool_event(event: MockToolEvent, number: int) -> ToolEvent:
    return ToolEvent(**(event.model_dump() | {"sequence": number if event.sequence is None else event.sequence}))


def _skills(script: MockTurn, until: str) -> list[SkillInvocation] | None:
    """Return the skills a script uses, up to the one a trigger test ends at; None where it names none."""
    used = [_skill(skill) for skill in script.skill_invocations]
    if (until or script.echo) and "skill_invocations" not in script.model_fields_set:
        return None
    if not until:
        return used
    last = next((place for place, skill in enumerate(used) if until in ("*", skill.name)), len(used))
    return used[: last + 1]


def _skill(skill: str | MockSkill) -> SkillInvocation:
    return SkillInvocation(name=skill) if isinstance(skill, str) else SkillInvocation(name=skill.name, path=skill.path)


def _transcript(tool_events: list[ToolEvent], output: str) -> list[dict[str, JSON]]:
    """Return the events of a trial that called these tools and then answered."""
    events: list[dict[str, JSON]] = []
    for tool in tool_events:
        about = {
            "turn": tool.turn,
            "tool_name": tool.tool_name,
            "tool_call_id": tool.tool_call_id or f"{tool.sequence}",
        }
        events.append({"type": "tool_call", **about, "args": tool.args})
        events.append({"type": "tool_result", **about, "result": tool.result, "success": tool.success})
    turn = max((tool.turn for tool in tool_events), default=1)
    return events + ([{"type": "assistant_message", "turn": turn, "content": output}] if output else [])
