"""smolagents: the steps of a run (`agent.memory.get_full_steps()`, or a full result with its `steps`)."""

from __future__ import annotations

from waza.model import JSON
from waza.traces.aliases import exit_code_in
from waza.traces.base import Item, Reader
from waza.traces.fields import amount, arguments, mapping, mappings, name, text, written

ANSWER_TOOL = "final_answer"
_OUT_OF_STEPS = "AgentMaxStepsError"


class SmolagentsReader(Reader):
    """Steps of one run; `final_answer` is the answer, not a tool call. Calls of one step share its observation."""

    format = "smolagents steps"
    engine = "smolagents"
    end_mark = "final answer"

    @classmethod
    def recognises(cls, item: Item) -> bool:
        """Return whether this is a task, an action step, or a full result."""
        if "task" in item and "task_images" in item:
            return True
        if "step_number" in item:
            return "model_input_messages" in item or "observations" in item or "model_output_message" in item
        return "state" in item and any(map(cls.recognises, mappings(item.get("steps"))))

    def begins(self, item: Item) -> bool:
        """Return whether this is the task of another run."""
        return self.draft.ended is True and ("task" in item or "steps" in item)

    def feed(self, item: Item) -> None:
        """Read one step, or all of a full result."""
        if "steps" in item:
            for step in mappings(item["steps"]):
                self.feed(step)
            self._read_end(item)
        elif "task" in item:
            self.draft.add_prompt(text(item["task"]))
        elif "step_number" in item:
            self._read_step(item)
        self.draft.llm_calls = self.draft.answered

    def _read_step(self, step: Item) -> None:
        draft = self.draft
        draft.begin_answer(is_new=True)
        draft.add_text(text(step.get("model_output")))
        raw = mapping(mapping(step.get("model_output_message")).get("raw"))
        draft.model = name(raw.get("model")) or draft.model
        usage = mapping(step.get("token_usage"))
        draft.add_usage(input_tokens=usage.get("input_tokens"), output_tokens=usage.get("output_tokens"))
        timing = mapping(step.get("timing"))
        for key in ("start_time", "end_time"):
            draft.add_time(_seconds(timing.get(key)))
        for call in mappings(step.get("tool_calls")):
            self._read_call(call, step)
        problem = mapping(step.get("error"))
        if problem.get("type") == _OUT_OF_STEPS:
            draft.ended = True
            draft.fail(text(problem.get("message")), "timeout")

    def _read_call(self, call: Item, step: Item) -> None:
        function = mapping(call.get("function", call))
        args = arguments(function.get("arguments"))
        tool = text(function.get("name"))
        if tool == ANSWER_TOOL or step.get("is_final_answer") is True:
            self.draft.ended = True
            self.draft.output = _answer(step, args)
        if tool == ANSWER_TOOL:
            return
        identity = call.get("id")
        self.draft.add_call(identity, tool, args)
        result = step.get("observations")
        if result is None and step.get("error") is None and "is_final_answer" not in step:
            return
        problem = text(mapping(step.get("error")).get("message"))
        code = exit_code_in(result, tool)
        self.draft.add_result(identity, result, step.get("error") is None, error=problem or None, exit_code=code)

    def _read_end(self, item: Item) -> None:
        draft = self.draft
        if "output" in item and item["output"] is not None:
            draft.ended, draft.output = True, written(item["output"])
        if item.get("state") == "max_steps_error":
            draft.ended = True
            draft.fail("the agent reached its number of steps", "timeout")


def final_answer(args: JSON) -> JSON:
    """Return the answer that `final_answer` was called with, by name or as its only argument; None without one."""
    given = mapping(args)
    return given.get("answer", next(iter(given.values()), None) if len(given) == 1 else None)


def _answer(step: Item, args: JSON) -> str:
    answer = final_answer(args)
    if answer is None:
        answer = step.get("action_output")
    return written(step.get("observations") if answer is None else answer)


def _seconds(value: JSON) -> float | None:
    seconds = amount(value)
    return None if seconds is None else seconds * 1000
