"""results.json: the original's (schema 1.0 to 1.5) and ours; one trace per trial."""

from __future__ import annotations

from typing import Any, get_args

from waza.model import JSON, Crash, SkillInvocation, ToolEvent, Trace, TraceStatus, Usage
from waza.traces.base import Item, Reader
from waza.traces.fields import amount, arguments, count, mapping, mappings, name, reported, text

_RENAMED = {"arguments": "args", "tool_result": "result"}
_TOOL_FIELDS = ("turn", "sequence", "tool_call_id", "tool_name", "args", "result", "success", "error", "duration_ms")
_TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "turns", "llm_calls")


class WazaResultsReader(Reader):
    """One results file: each trial with the id of its task as `task_id`.

    Before schema 1.1 there are no `tool_events`: the calls of the digest are taken, which keeps at most five arguments.
    """

    format = "results.json"

    def __init__(self) -> None:
        super().__init__()
        self._traces: list[Trace] = []

    @classmethod
    def recognises(cls, item: Item) -> bool:
        """Return whether this is an outcome with tasks that have runs."""
        tasks = mappings(item.get("tasks"))
        is_outcome = "eval_id" in item or "eval_name" in item or "schemaVersion" in item
        return (
            is_outcome and (not tasks or any("runs" in task for task in tasks)) and isinstance(item.get("tasks"), list)
        )

    def begins(self, item: Item) -> bool:
        """Return whether this is another file, which each one is."""
        return True

    def feed(self, item: Item) -> None:
        """Read the file."""
        config = mapping(item.get("config"))
        for task in mappings(item.get("tasks")):
            for run in mappings(task.get("runs")):
                self._traces.append(_trial(run, text(task.get("test_id")), config))

    def traces(self) -> list[Trace]:
        """Return a trace per trial."""
        return self._traces


def _trial(run: Item, task_id: str, config: Item) -> Trace:
    digest = mapping(run.get("session_digest"))
    engine = name(run.get("engine")) or name(config.get("engine_type"))
    events = [
        {_RENAMED.get(key, key): value for key, value in event.items()} for event in mappings(run.get("transcript"))
    ]
    return Trace(
        input=text(run.get("prompt")),
        output=text(run.get("final_output")),
        status=_status(run),
        error=name(run.get("error_msg")),
        duration_ms=amount(run.get("duration_ms")),
        session_id=name(digest.get("session_id")),
        model=name(run.get("model")) or name(config.get("model_id")),
        engine=engine,
        outcome=_outcome(run),
        events=events if isinstance(run.get("transcript"), list) else None,
        tool_events=_tool_events(run, digest),
        usage=_usage(mapping(run.get("usage")) or mapping(digest.get("usage"))),
        skill_invocations=_skills(run, engine),
        available_skills=_names(run.get("available_skills")),
        steps=count(run.get("steps")),
        crash=_crash(run),
        baseline_output=name(run.get("baseline_output")),
        files_before=_files_before(run),
        extra={"task_id": task_id} if task_id else {},
    )


def _files_before(run: Item) -> dict[str, str] | None:
    """Return the hashes of the files before the agent started; None where the file has none, or other values."""
    found = run.get("files_before")
    is_known = isinstance(found, dict) and all(isinstance(digest, str) for digest in found.values())
    return found if is_known else None


def _outcome(run: Item) -> dict[str, JSON]:
    """Return the free state, with the calls of mocked programs where the file has them elsewhere."""
    outcome = mapping(run.get("outcome"))
    if "mocks" in outcome or not isinstance(run.get("command_invocations"), list):
        return outcome
    calls = [
        {"command": text(call.get("command") or call.get("name")), "args": call.get("args") or [], "answer": None}
        | {key: call[key] for key in ("exit_code", "error") if key in call}
        for call in mappings(run["command_invocations"])
    ]
    return outcome | {"mocks": {"calls": calls}}


def _crash(run: Item) -> Crash | None:
    """Return how the agent crashed, where the file has it."""
    crash = mapping(run.get("crash"))
    if not crash:
        return None
    return Crash(
        exit_code=count(crash.get("exit_code")),
        signal=count(crash.get("signal")),
        exception=name(crash.get("exception")),
        stderr=text(crash.get("stderr")),
        omitted_bytes=count(crash.get("omitted_bytes")) or 0,
    )


def _status(run: Item) -> TraceStatus:
    """Return how the agent ended; in the original's files only an error is the agent's, a failure may be a check's."""
    if run.get("trace_status") in get_args(TraceStatus):
        return run["trace_status"]  # type: ignore[no-any-return]
    return "error" if run.get("status") == "error" else "success"


def _tool_events(run: Item, digest: Item) -> list[ToolEvent] | None:
    events = run.get("tool_events")
    if isinstance(events, list):
        return [_event(event, number) for number, event in enumerate(mappings(events), 1)]
    if not digest or ("tool_call_count" in digest and digest["tool_call_count"] is None):
        return None
    return [_call(call, number) for number, call in enumerate(mappings(digest.get("tool_calls")), 1)]


def _event(event: Item, number: int) -> ToolEvent:
    return ToolEvent(
        tool_name=text(event.get("tool_name")),
        args=event.get("args"),
        result=event.get("result"),
        success=event.get("success") is not False,
        turn=count(event.get("turn")) or 1,
        sequence=count(event.get("sequence")) or number,
        tool_call_id=name(event.get("tool_call_id")),
        duration_ms=amount(event.get("duration_ms")),
        error=name(event.get("error")),
        extra={key: value for key, value in event.items() if key not in _TOOL_FIELDS},
    )


def _call(call: Item, number: int) -> ToolEvent:
    return ToolEvent(
        tool_name=text(call.get("name")),
        args=arguments(call.get("arguments")),
        result=call.get("result"),
        success=call.get("success") is not False,
        sequence=number,
        tool_call_id=name(call.get("id")),
    )


def _usage(usage: Item) -> Usage | None:
    if not usage:
        return None
    counts: dict[str, Any] = {key: reported(usage.get(key)) for key in _TOKENS}
    cost = amount(usage.get("cost_usd"))
    invalid = mapping(usage.get("invalid_numbers"))
    return Usage(**counts, cost_usd=reported(usage.get("cost_usd")) if cost is None else cost, invalid_numbers=invalid)


def _skills(run: Item, engine: str | None) -> list[SkillInvocation] | None:
    """Return the skills used; the original waza omits the field where its one real engine used none."""
    skills: JSON = run.get("skill_invocations")
    if skills is None:
        return [] if engine == "copilot-sdk" and "grades" not in run else None
    return [SkillInvocation(name=text(skill.get("name")), path=name(skill.get("path"))) for skill in mappings(skills)]


def _names(value: JSON) -> list[str] | None:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else None
