"""ATIF, the Agent Trajectory Interchange Format (Harbor and others)."""

from __future__ import annotations

from waza.model import JSON
from waza.traces.aliases import exit_code_in
from waza.traces.base import Item, Reader
from waza.traces.fields import arguments, mapping, mappings, millis, name, text, text_of_blocks, texts


class AtifReader(Reader):
    """One trajectory; the agent's name is the engine. Success is an exit code or `is_error` in `extra`."""

    format = "ATIF trajectory"

    @classmethod
    def recognises(cls, item: Item) -> bool:
        """Return whether this names its schema, or has steps with a source."""
        if text(item.get("schema_version")).startswith("ATIF"):
            return True
        steps = mappings(item.get("steps"))
        return isinstance(item.get("agent"), dict) and any("step_id" in step and "source" in step for step in steps)

    def begins(self, item: Item) -> bool:
        """Return whether this is another trajectory, which each one is."""
        return True

    def feed(self, item: Item) -> None:
        """Read the trajectory."""
        draft = self.draft
        agent = mapping(item.get("agent"))
        draft.engine = name(agent.get("name"))
        draft.model = name(agent.get("model_name"))
        draft.session_id = name(item.get("session_id"))
        for step in mappings(item.get("steps")):
            self._read_step(step)
        draft.llm_calls = draft.answered
        self._read_totals(mapping(item.get("final_metrics")))

    def _read_step(self, step: Item) -> None:
        draft = self.draft
        at_ms = millis(step.get("timestamp"))
        draft.add_time(at_ms)
        message = texts(step.get("message"))
        if step.get("source") == "user":
            draft.add_prompt(message)
        elif step.get("source") == "agent":
            draft.begin_answer(is_new=True)
            draft.model = name(step.get("model_name")) or draft.model
            draft.add_text(message)
            draft.usage_by_answer[str(step.get("step_id"))] = _tokens(mapping(step.get("metrics")))
            for call in mappings(step.get("tool_calls")):
                draft.add_call(call.get("tool_call_id"), call.get("function_name"), arguments(call.get("arguments")))
            self._read_results(step)

    def _read_results(self, step: Item) -> None:
        """Read a step's results; one without an id belongs to the step's only call."""
        calls = mappings(step.get("tool_calls"))
        only = calls[0].get("tool_call_id") if len(calls) == 1 else None
        for observed in mappings(mapping(step.get("observation")).get("results")):
            identity: JSON = observed.get("source_call_id") or only
            call = self.draft.call_with_id(identity)
            result = text_of_blocks(observed.get("content"))
            code = exit_code_in(result, call.name) if call else None
            failed = mapping(observed.get("extra")).get("is_error") is True
            self.draft.add_result(identity, result, not failed, exit_code=code)

    def _read_totals(self, totals: Item) -> None:
        self.draft.add_usage(
            input_tokens=totals.get("total_prompt_tokens"),
            output_tokens=totals.get("total_completion_tokens"),
            cache_read_tokens=totals.get("total_cached_tokens"),
        )
        self.draft.add_cost(totals.get("total_cost_usd"))


def _tokens(metrics: Item) -> Item:
    return {
        "input_tokens": metrics.get("prompt_tokens"),
        "output_tokens": metrics.get("completion_tokens"),
        "cache_read_tokens": metrics.get("cached_tokens"),
    }
