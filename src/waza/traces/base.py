"""The base class of readers, and the draft of a trace that they write to.

A reader recognises a format by its first items, reads one item after the other and returns traces. An item is one JSON
object: a line of a stream, a member of a list, or a whole document. The folder is the registry: `traces/codex.py` has
`CodexReader`.

Readers add prompts, texts, calls, results and usage in the order of the recording. Turns, numbers, times and the final
answer are derived by the draft, the same way for all formats, which also notes what is missing in the recording.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

from waza.model import JSON, SkillInvocation, ToolEvent, Trace, TraceStatus, Usage
from waza.spending import sum_amounts
from waza.traces import READERS
from waza.traces.aliases import invocations
from waza.traces.fields import amount, reported, written

Item = dict[str, Any]


class Reader:
    """Read one recording; a new reader is made for each."""

    format: ClassVar[str]
    """The name of the format in messages."""
    engine: ClassVar[str | None] = None
    """The agent program or framework that writes it."""
    end_mark: ClassVar[str] = ""
    """What ends every complete recording; empty where the format has no such mark."""
    tools: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """The names of the agent's built-in tools, by kind (`shell`, `read`, …); see `aliases.py`."""
    reads_skill_files: ClassVar[bool] = False
    """Whether the agent has no skill tool, so that its model reads SKILL.md files."""
    provider: ClassVar[str] = ""
    """The vendor of the agent's models, by OpenTelemetry's name; empty where it may be any."""

    def __init__(self) -> None:
        self.draft = DraftTrace(engine=self.engine)
        if self.end_mark:
            self.draft.ended, self.draft.end_mark = False, self.end_mark

    @classmethod
    def recognises(cls, item: Item) -> bool:
        """Return whether an item is of this format, by what is in it."""
        raise NotImplementedError(f"{cls.__name__} recognises nothing")

    def begins(self, item: Item) -> bool:
        """Return whether an item starts another recording than the one read so far."""
        return False

    def feed(self, item: Item) -> None:
        """Read the next item."""
        raise NotImplementedError(f"{type(self).__name__} reads nothing")

    def traces(self) -> Iterable[Trace]:
        """Return the traces, after the last item."""
        return [self.draft.trace()]

    @property
    def ended(self) -> bool:
        """Whether the recording is known to be complete."""
        return self.draft.ended is True


@cache
def readers() -> list[type[Reader]]:
    """Return every reader, ours and other packages'."""
    return [READERS.load(name) for name in READERS.names()]


def reader_for(item: Item) -> Reader | None:
    """Return a new reader for an item's format; None when no reader recognises it."""
    return next((kind() for kind in readers() if kind.recognises(item)), None)


MAX_NOTES = 20
_ERROR_CHARS = 2_000


class Notes:
    """Notes on a recording, each once; those beyond `MAX_NOTES` are only counted."""

    def __init__(self) -> None:
        self._notes: dict[str, None] = {}
        self._more = 0

    def add(self, note: str) -> None:
        """Add a note, unless it is a duplicate."""
        if note in self._notes:
            return
        if len(self._notes) < MAX_NOTES:
            self._notes[note] = None
        else:
            self._more += 1

    def take(self) -> list[str]:
        """Return the notes and remove them."""
        notes = [*self._notes, f"and {self._more} more"] if self._more else [*self._notes]
        self._notes, self._more = {}, 0
        return notes


@dataclass
class DraftCall:
    """One tool call, with its result if there is one."""

    name: str
    args: JSON
    turn: int
    identity: str | None
    at_ms: float | None
    extra: dict[str, JSON]
    result: JSON = None
    success: bool = False
    error: str | None = None
    duration_ms: float | int | None = None
    has_result: bool = False
    skill_folder: str | None = None
    """The folder of the skill that this call used, if the recording has it outside the result."""


@dataclass
class _AgentThread:
    """The agent, or one of its sub-agents, and where it is in its conversation."""

    key: str = ""
    turn: int = 0
    has_input: bool = True
    """Whether a message or result came since the last model output: the next output is another answer."""


@dataclass
class DraftTrace:
    """A trace as far as it was read."""

    engine: str | None = None
    input: str = ""
    output: str | None = None
    """The final answer where the recording marks it; else the last text is used."""
    status: TraceStatus = "success"
    error: str | None = None
    model: str | None = None
    session_id: str | None = None
    duration_ms: float | int | None = None
    ended: bool | None = None
    """Whether the recording has its end mark; None where the format has none."""
    end_mark: str = ""
    llm_calls: int | None = None
    turns: int | None = None
    steps: int | None = None
    """The number of steps, where the recording has more than answers and calls."""
    cost_usd: float | int | None = None
    available_skills: list[str] | None = None
    skills: list[SkillInvocation] | None = None
    """Skill use where the recording has it; else it is derived from the calls."""
    outcome: dict[str, JSON] = field(default_factory=dict)
    extra: dict[str, JSON] = field(default_factory=dict)
    answered: int = 0
    """The number of model answers, those of sub-agents included."""
    calls: list[DraftCall] = field(default_factory=list)
    events: list[dict[str, JSON]] = field(default_factory=list)
    notes: Notes = field(default_factory=Notes)
    tokens: dict[str, int] = field(default_factory=dict)
    _not_recorded: set[str] = field(default_factory=set)
    """Input or output tokens, if a model call does not report them: then the sum is unknown."""
    usage_by_answer: dict[str, dict[str, JSON]] = field(default_factory=dict)
    """Usage of single model answers, by their id; added up where the recording has no total."""
    _open: dict[str, DraftCall] = field(default_factory=dict)
    _threads: dict[str, _AgentThread] = field(default_factory=dict)
    _last_text: str = ""
    _is_final: bool = False
    _times: list[float] = field(default_factory=list)

    @property
    def turn(self) -> int:
        """The number of the agent's own model answers so far."""
        return self._thread("").turn

    def add_time(self, at_ms: float | None) -> None:
        """Add a time; the first and the last one give the duration."""
        if at_ms is not None:
            self._times = [min([at_ms, *self._times[:1]]), max([at_ms, *self._times[1:]])]

    def add_prompt(self, text: str, thread: str = "") -> None:
        """Add a message of the user; the first one is the input."""
        self._thread(thread).has_input = True
        if not thread:
            self.input = self.input or text
            self.events.append({"type": "user_message", "turn": max(self.turn, 1), "content": text})

    def begin_answer(self, key: str = "", thread: str = "", *, is_new: bool = False) -> None:
        """Begin a model answer, unless this continues the last one: same key, or no input in between."""
        state = self._thread(thread)
        if state.turn and not is_new and (not state.has_input or (key and key == state.key)):
            state.key = key or state.key
            return
        state.key = key
        state.turn += 1
        state.has_input = False
        self.answered += 1

    def add_text(self, text: str, thread: str = "") -> None:
        """Add a text of the agent; the last one without a call after it is the final answer."""
        if text and not thread:
            self._last_text, self._is_final = text, True
            self.events.append({"type": "assistant_message", "turn": max(self.turn, 1), "content": text})

    def add_call(
        self, identity: JSON, name: JSON, args: JSON, *, at_ms: float | None = None, thread: str = "", **extra: JSON
    ) -> None:
        """Add a tool call; `thread` is the call that started the sub-agent which makes it."""
        known = identity if isinstance(identity, str) and identity else None
        parent = self._open.get(thread)
        call = DraftCall(
            name=name if isinstance(name, str) else "",
            args=args,
            turn=parent.turn if parent else max(self.turn, 1),
            identity=known,
            at_ms=at_ms,
            extra={key: value for key, value in extra.items() if value is not None}
            | ({"parent_tool_call_id": thread} if thread else {}),
        )
        self.calls.append(call)
        if known:
            self._open[known] = call
        self._is_final = self._is_final and bool(thread)
        about = {"turn": call.turn, "tool_name": call.name} | ({"tool_call_id": known} if known else {})
        self.events.append({"type": "tool_call", **about, "args": args})

    def call_with_id(self, identity: JSON) -> DraftCall | None:
        """Return the call with this id, if there was one."""
        return self._open.get(identity) if isinstance(identity, str) else None

    def add_result(
        self,
        identity: JSON,
        result: JSON,
        success: bool,
        *,
        at_ms: float | None = None,
        error: str | None = None,
        duration_ms: JSON = None,
        exit_code: JSON = None,
    ) -> None:
        """Add the result of a call; an exit code other than 0 is a failure, whatever `success` is."""
        call = self.call_with_id(identity)
        if call is None:
            return
        failed = isinstance(exit_code, int) and not isinstance(exit_code, bool) and exit_code != 0
        call.result, call.success, call.has_result = result, success and not failed, True
        if not call.success:
            message = error or (f"exit code {exit_code}" if failed else "" if result is None else written(result))
            call.error = message[:_ERROR_CHARS] or None
        took = amount(duration_ms)
        if took is None and at_ms is not None and call.at_ms is not None and at_ms > call.at_ms:
            took = round(at_ms - call.at_ms, 3)
        call.duration_ms = took
        self._thread(str(call.extra.get("parent_tool_call_id", ""))).has_input = True
        about = {"turn": call.turn, "tool_call_id": identity}
        self.events.append({"type": "tool_result", **about, "result": result, "success": call.success})

    def add_usage(self, **tokens: JSON) -> None:
        """Add tokens: `input_tokens` (cached ones included), `output_tokens`, …"""
        counted = {key: number for key, value in tokens.items() if (number := reported(value)) is not None}
        for key, number in counted.items():
            self.tokens[key] = sum_amounts([self.tokens.get(key, 0), number])
        if halves := counted.keys() & {"input_tokens", "output_tokens"}:
            self._not_recorded |= {"input_tokens", "output_tokens"} - halves

    def add_cost(self, usd: JSON) -> None:
        """Add to the cost."""
        paid = amount(usd)
        if paid is None and reported(usd) is not None:
            paid = reported(usd)
        if paid is not None:
            self.cost_usd = sum_amounts([self.cost_usd or 0, paid])

    def fail(self, error: str, status: TraceStatus = "error") -> None:
        """Record that the agent did not finish, and why."""
        self.status, self.error = status, error[:_ERROR_CHARS] or None

    def trace(self) -> Trace:
        """Return the trace as far as it was read."""
        self._conclude()
        notes = self.notes.take()
        tool_events = [self._event(number, call) for number, call in enumerate(self.calls, 1)]
        skills = invocations(self.engine, self.calls) if self.skills is None else self.skills
        return Trace(
            input=self.input,
            output=self._final_text(),
            status=self.status,
            error=self.error,
            duration_ms=self._duration(),
            session_id=self.session_id,
            model=self.model,
            engine=self.engine,
            outcome=self.outcome,
            events=self.events,
            tool_events=tool_events,
            usage=self._usage(),
            skill_invocations=skills,
            available_skills=self.available_skills,
            steps=self.answered + len(self.calls) if self.steps is None else self.steps,
            extra=self.extra | ({"reading_notes": notes} if notes else {}),
        )

    def _conclude(self) -> None:
        lost = [call for call in self.calls if not call.has_result]
        if lost:
            names = ", ".join(dict.fromkeys(call.name or "unnamed" for call in lost))
            self.notes.add(f"{len(lost)} of {len(self.calls)} tool calls have no result: {names}")
        if self.ended is False:
            missing = f"the recording ends early: its {self.end_mark} is missing"
            self.notes.add(missing)
            if self.status == "success":
                self.fail(missing)
        elif self.ended is None and self.output is None and not self._is_final and self.status == "success":
            self.notes.add("the recording ends without a final answer")

    def _final_text(self) -> str:
        if self.output is not None:
            return self.output
        return self._last_text if self._is_final or self.ended else ""

    def _duration(self) -> float | int | None:
        if self.duration_ms is None and len(self._times) == 2 and self._times[1] > self._times[0]:
            return round(self._times[1] - self._times[0], 3)
        return self.duration_ms

    def _usage(self) -> Usage:
        if not self.tokens:
            for tokens in self.usage_by_answer.values():
                self.add_usage(**tokens)
        turns = self.turn if self.turns is None else self.turns
        totals: dict[str, Any] = {key: count for key, count in self.tokens.items() if key not in self._not_recorded}
        return Usage(**totals, turns=turns, llm_calls=self.llm_calls, cost_usd=self.cost_usd)

    def _since_begin(self, at_ms: float | None) -> float | None:
        begin = self._times[0] if self._times else None
        return round(at_ms - begin, 3) if at_ms and begin is not None and at_ms >= begin else None

    def _thread(self, name: str) -> _AgentThread:
        return self._threads.setdefault(name, _AgentThread())

    def _event(self, number: int, call: DraftCall) -> ToolEvent:
        return ToolEvent(
            tool_name=call.name,
            args=call.args,
            result=call.result,
            success=call.success,
            turn=call.turn,
            sequence=number,
            tool_call_id=call.identity,
            start_ms=self._since_begin(call.at_ms),
            duration_ms=call.duration_ms,
            error=call.error,
            extra=call.extra,
        )
