"""OpenAI Agents SDK: the items of a run (`result.new_items`), each with its class and its raw item."""

from __future__ import annotations

from waza.traces._messages import read_item
from waza.traces.base import Item, Reader
from waza.traces.fields import mapping, name, text

_CLASSES = (
    "MessageOutputItem",
    "ToolCallItem",
    "ToolCallOutputItem",
    "ReasoningItem",
    "HandoffCallItem",
    "HandoffOutputItem",
    "MCPListToolsItem",
)


class OpenaiAgentsReader(Reader):
    """Items of one run, as `{"type": class name, "raw": item.raw_item}`; there are no tokens, times or prompt."""

    format = "OpenAI Agents SDK items"
    engine = "openai-agents"

    @classmethod
    def recognises(cls, item: Item) -> bool:
        """Return whether the class's name is one of the SDK's and a raw item is there."""
        return item.get("type") in _CLASSES and isinstance(_raw(item), dict)

    def feed(self, item: Item) -> None:
        """Read one item."""
        raw = mapping(_raw(item))
        read_item(self.draft, raw)
        if text(raw.get("role")) == "assistant" or item.get("type") == "ToolCallItem":
            self.draft.model = name(mapping(raw.get("provider_data")).get("model")) or self.draft.model
        self.draft.llm_calls = self.draft.answered


def _raw(item: Item) -> object:
    return item.get("raw", item.get("raw_item"))
