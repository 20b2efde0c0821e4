"""ATIF, the Agent Trajectory Interchange Format (Harbor and others)."""

from __future__ import annotations

from waza.model import JSON
from waza.traces.aliases import exit_code_in
from waza.traces.base import Item, Reader
from waza.traces.fields import arguments, mapping, mappings, millis, name, plain, text, texts


class AtifReader(Reader):
    """One trajectory; the agent's name is the engine. Success is not told: an exit code or `is_error` in `extra` is."""

    format = "ATIF trajectory"

    @classmethod
    def recognises(cls, item: Item) -> bool:
        """Say whether this names its schema, or has steps with a source."""
        if text(item.get("schema_version")).startswith("ATIF"):
            return True
        steps = mappings(item.get("steps"))
        return isinstance(item.get("agent"), dict) and any("step_id" in step and "source" in step for step in steps)

    def begins(self, item: Item) -> bool:
        """Say whether this is another trajectory, which every one is."""
        return True

    def feed(self, item: Item) -> None:
        """Take the trajectory."""
        draft = self.draft
        agent = mapping(item.get("agent"))
        draft.engine = name(agent.get("name"))
        draft.model = name(agent.get("model_name"))
        draft.session_id = name(item.get("session_id"))
        for step in mappings(item.get("steps")):
            self._takes_step(step)
        draft.llm_calls = draft.answered
        self._takes_totals(mapping(item.get("final_metrics")))

    def _takes_step(self, step: Item) -> None:
        draft = self.draft
        at_ms = millis(step.get("timestamp"))
        draft.saw(at_ms)
        said = texts(step.get("message"))
        if step.get("source") == "user":
            draft.asks(said)
        elif step.get("source") == "agent":
            draft.answers(is_new=True)
            draft.model = name(step.get("model_name")) or draft.model
            draft.says(said)
            draft.spent[str(step.get("step_id"))] = _tokens(mapping(step.get("metrics")))
            for call in mappings(step.get("tool_calls")):
                draft.calls_tool(call.get("tool_call_id"), call.get("function_name"), arguments(call.get("arguments")))
            self._takes_outcomes(step)

    def _takes_outcomes(self, step: Item) -> None:
        """Take a step's results; one without an id belongs to the step's only call."""
        calls = mappings(step.get("tool_calls"))
        only = calls[0].get("tool_call_id") if len(calls) == 1 else None
        for seen in mappings(mapping(step.get("observation")).get("results")):
            identity: JSON = seen.get("source_call_id") or only
            call = self.draft.called(identity)
            result = plain(seen.get("content"))
            code = exit_code_in(result, call.name) if call else None
            failed = mapping(seen.get("extra")).get("is_error") is True
            self.draft.hears(identity, result, not failed, exit_code=code)

    def _takes_totals(self, totals: Item) -> None:
        self.draft.uses(
            input_tokens=totals.get("total_prompt_tokens"),
            output_tokens=totals.get("total_completion_tokens"),
            cache_read_tokens=totals.get("total_cached_tokens"),
        )
        self.draft.costs(totals.get("total_cost_usd"))


def _tokens(metrics: Item) -> Item:
    return {
        "input_tokens": metrics.get("prompt_tokens"),
        "output_tokens": metrics.get("completion_tokens"),
        "cache_read_tokens": metrics.get("cached_tokens"),
    }
