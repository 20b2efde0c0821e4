"""Inspect: an evaluation log as JSON, or the members of an `.eval` file."""

from __future__ import annotations

from waza.model import JSON, Trace
from waza.traces.aliases import exit_code_in
from waza.traces.base import DraftTrace, Item, Reader
from waza.traces.fields import amount, arguments, mapping, mappings, name, text, text_of_blocks, texts

_ATTACHED = "attachment://"


class InspectLogReader(Reader):
    """One log: a trace per sample and epoch, with the sample's id as `task_id` and its scores in `outcome`."""

    format = "Inspect log"

    def __init__(self) -> None:
        super().__init__()
        self._traces: list[Trace] = []

    @classmethod
    def recognises(cls, item: Item) -> bool:
        """Return whether this is a log with its spec and samples."""
        spec = mapping(item.get("eval"))
        return isinstance(item.get("samples"), list) and ("task" in spec or "model" in spec or "run_id" in spec)

    def begins(self, item: Item) -> bool:
        """Return whether this is another log, which each one is."""
        return True

    def feed(self, item: Item) -> None:
        """Read the log."""
        model = name(mapping(item.get("eval")).get("model"))
        self._traces = [_sample(sample, model) for sample in mappings(item.get("samples"))]

    def traces(self) -> list[Trace]:
        """Return a trace per sample."""
        return self._traces


def _sample(sample: Item, model: str | None) -> Trace:
    draft = DraftTrace(model=model)
    attached = mapping(sample.get("attachments"))
    for message in mappings(_resolved(sample.get("messages"), attached)):
        _read_message(draft, message)
    draft.llm_calls = draft.answered
    prompt = _resolved(sample.get("input"), attached)
    draft.input = draft.input or texts(prompt)
    output = mapping(_resolved(sample.get("output"), attached))
    draft.model = name(output.get("model")) or draft.model
    draft.output = name(output.get("completion")) or draft.output
    seconds = amount(sample.get("total_time"))
    draft.duration_ms = None if seconds is None else seconds * 1000
    for usage in mappings(list(mapping(sample.get("model_usage")).values())):
        _read_usage(draft, usage)
    scores = {key: mapping(score).get("value") for key, score in mapping(sample.get("scores")).items()}
    draft.outcome = {"scores": scores} if scores else {}
    _read_end(draft, sample, output)
    draft.extra = {"task_id": str(sample.get("id", ""))}
    return draft.trace()


def _read_message(draft: DraftTrace, message: Item) -> None:
    match message.get("role"):
        case "user":
            draft.add_prompt(texts(message.get("content")))
        case "assistant":
            draft.begin_answer(is_new=True)
            draft.add_text(texts(message.get("content")))
            for made in mappings(message.get("tool_calls")):
                draft.add_call(made.get("id"), made.get("function"), arguments(made.get("arguments")))
        case "tool":
            identity = message.get("tool_call_id")
            call = draft.call_with_id(identity)
            result = text_of_blocks(message.get("content"))
            problem = mapping(message.get("error"))
            code = exit_code_in(result, call.name) if call else None
            draft.add_result(identity, result, not problem, error=name(problem.get("message")), exit_code=code)


def _read_usage(draft: DraftTrace, usage: Item) -> None:
    draft.add_usage(
        input_tokens=usage.get("input_tokens"),
        output_tokens=usage.get("output_tokens"),
        cache_read_tokens=usage.get("input_tokens_cache_read"),
        cache_write_tokens=usage.get("input_tokens_cache_write"),
    )


def _read_end(draft: DraftTrace, sample: Item, output: Item) -> None:
    problem = sample.get("error")
    if problem:
        draft.fail(text(mapping(problem).get("message")) or text(problem) or "the sample failed")
    elif sample.get("limit"):
        draft.fail(f"the {text(mapping(sample['limit']).get('type')) or 'sample'} limit was reached", "timeout")
    elif output.get("error"):
        draft.fail(text(output["error"]) or "the model failed")


def _resolved(value: JSON, attached: Item) -> JSON:
    """Return a value with its attachments (long texts) put back in their place."""
    if not attached:
        return value
    if isinstance(value, str) and value.startswith(_ATTACHED):
        return attached.get(value.removeprefix(_ATTACHED), value)
    if isinstance(value, list):
        return [_resolved(item, attached) for item in value]
    if isinstance(value, dict):
        return {key: _resolved(item, attached) for key, item in value.items()}
    return value
