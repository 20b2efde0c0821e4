"""Inspect: an evaluation log as JSON, or the members of an `.eval` file."""

from __future__ import annotations

from waza.model import JSON, Trace
from waza.traces._draft import DraftTrace
from waza.traces.aliases import exit_code_in
from waza.traces.base import Item, Reader
from waza.traces.fields import amount, arguments, mapping, mappings, name, plain, text, texts

_ATTACHED = "attachment://"


class InspectLogReader(Reader):
    """One log: a trace per sample and epoch, with the sample's id as `task_id` and its scores in `outcome`."""

    format = "Inspect log"

    def __init__(self) -> None:
        super().__init__()
        self._traces: list[Trace] = []

    @classmethod
    def recognises(cls, item: Item) -> bool:
        """Say whether this is a log with its spec and samples."""
        spec = mapping(item.get("eval"))
        return isinstance(item.get("samples"), list) and ("task" in spec or "model" in spec or "run_id" in spec)

    def begins(self, item: Item) -> bool:
        """Say whether this is another log, which every one is."""
        return True

    def feed(self, item: Item) -> None:
        """Take the log."""
        model = name(mapping(item.get("eval")).get("model"))
        self._traces = [_sample(sample, model) for sample in mappings(item.get("samples"))]

    def traces(self) -> list[Trace]:
        """Return a trace per sample."""
        return self._traces


def _sample(sample: Item, model: str | None) -> Trace:
    draft = DraftTrace(model=model)
    attached = mapping(sample.get("attachments"))
    for message in mappings(_resolved(sample.get("messages"), attached)):
        _takes_message(draft, message)
    draft.llm_calls = draft.answered
    asked = _resolved(sample.get("input"), attached)
    draft.input = draft.input or texts(asked)
    output = mapping(_resolved(sample.get("output"), attached))
    draft.model = name(output.get("model")) or draft.model
    draft.output = name(output.get("completion")) or draft.output
    seconds = amount(sample.get("total_time"))
    draft.duration_ms = None if seconds is None else seconds * 1000
    for usage in mappings(list(mapping(sample.get("model_usage")).values())):
        _takes_usage(draft, usage)
    scores = {key: mapping(score).get("value") for key, score in mapping(sample.get("scores")).items()}
    draft.outcome = {"scores": scores} if scores else {}
    _takes_end(draft, sample, output)
    draft.extra = {"task_id": str(sample.get("id", ""))}
    return draft.trace()


def _takes_message(draft: DraftTrace, message: Item) -> None:
    match message.get("role"):
        case "user":
            draft.asks(texts(message.get("content")))
        case "assistant":
            draft.answers(is_new=True)
            draft.says(texts(message.get("content")))
            for made in mappings(message.get("tool_calls")):
                draft.calls_tool(made.get("id"), made.get("function"), arguments(made.get("arguments")))
        case "tool":
            identity = message.get("tool_call_id")
            call = draft.called(identity)
            result = plain(message.get("content"))
            problem = mapping(message.get("error"))
            code = exit_code_in(result, call.name) if call else None
            draft.hears(identity, result, not problem, error=name(problem.get("message")), exit_code=code)


def _takes_usage(draft: DraftTrace, usage: Item) -> None:
    draft.uses(
        input_tokens=usage.get("input_tokens"),
        output_tokens=usage.get("output_tokens"),
        cache_read_tokens=usage.get("input_tokens_cache_read"),
        cache_write_tokens=usage.get("input_tokens_cache_write"),
    )


def _takes_end(draft: DraftTrace, sample: Item, output: Item) -> None:
    problem = sample.get("error")
    if problem:
        draft.fails(text(mapping(problem).get("message")) or text(problem) or "the sample failed")
    elif sample.get("limit"):
        draft.fails(f"the {text(mapping(sample['limit']).get('type')) or 'sample'} limit was reached", "timeout")
    elif output.get("error"):
        draft.fails(text(output["error"]) or "the model failed")


def _resolved(value: JSON, attached: Item) -> JSON:
    """Return a value with the texts that stand apart, long ones, put back in their place."""
    if not attached:
        return value
    if isinstance(value, str) and value.startswith(_ATTACHED):
        return attached.get(value.removeprefix(_ATTACHED), value)
    if isinstance(value, list):
        return [_resolved(item, attached) for item in value]
    if isinstance(value, dict):
        return {key: _resolved(item, attached) for key, item in value.items()}
    return value
