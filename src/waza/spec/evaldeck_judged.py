"""evaldeck's judged graders as ours: what their prompts, rubrics and thresholds mean here.

evaldeck pastes what the agent wrote into the prompt. Here a judge always sees the task, the answer and, where asked
for, the tool calls, fenced and named as data; so `{output}` in a prompt becomes words that point there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

DEFAULT_MODEL = "gpt-4o-mini"
"""Who judges where nobody is named."""
TYPES = ("llm", "llm_rubric")
KEYS = ("name", "weight", "prompt", "model", "threshold", "rubric", "pass_threshold", "needs", "reasoning_effort")
_PROMPT = "Decide whether the agent did what it was asked to do, correctly and completely."
_NAME = re.compile(r"\{\{\s*(\w+)\s*\}\}|\{(\w+)\}")
_POINTERS = {
    "input": "(the task input, below)",
    "output": "(the candidate output, below)",
    "trace": "(the tool calls, below)",
    "task": "(the task input, below)",
}


def judged(options: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the keys of our `prompt` grader, or, with a threshold, of our `llm` grader.

    `names` are what else `{name}` in a prompt may mean. Raises ValueError for what cannot be judged by.
    """
    found = dict(options)
    rubric = found.pop("rubric", None)
    if isinstance(rubric, Mapping):
        if "prompt" in found:
            raise ValueError("a rubric of criteria and a prompt both say what is judged; keep one of them")
        if found.get("threshold") is not None and "pass_threshold" in found:
            raise ValueError("'threshold' and 'pass_threshold' are both given; keep one of them")
        found["prompt"] = _criteria(rubric)
        given = found.pop("pass_threshold", found.get("threshold"))
        found["threshold"] = 0.7 if given is None else given
    elif rubric is not None:
        found["rubric"] = rubric
    written = found.get("prompt")
    if isinstance(written, str) and not written.strip():
        raise ValueError("the prompt is empty: it says nothing to judge by")
    written = written or ("" if "rubric" in found else _PROMPT)
    if isinstance(written, str) and written:
        known = _POINTERS | dict(names)
        found["prompt"] = _NAME.sub(lambda match: known.get(match[1] or match[2], match[0]), written)
        if any("trace" in match.groups() for match in _NAME.finditer(written)):
            needs = found.get("needs")
            found["needs"] = list(dict.fromkeys([*(needs if isinstance(needs, list) else []), "tool_events"]))
    if found.get("threshold") is None:
        found.pop("threshold", None)
        return {"type": "prompt"} | found
    return {"type": "llm"} | found | {"threshold": _share(found["threshold"])}


def _criteria(rubric: Mapping[str, Any]) -> str:
    if not rubric or not all(isinstance(text, str) and text.strip() for text in rubric.values()):
        raise ValueError("a rubric is a mapping of criteria, each with a sentence")
    lines = [f"- {name}: {text}" for name, text in rubric.items()]
    return "\n".join(["Give one score for how well all of these criteria are met together:", *lines])


def _share(threshold: Any) -> float:
    """Return a threshold on the scale from 0 to 1; above 1 it is on the judge's own scale from 1 to 5."""
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 < threshold <= 5:
        raise ValueError(f"a threshold is a share above 0 up to 1, or a score up to 5; found {threshold!r}")
    return float(threshold) if threshold <= 1 else (threshold - 1) / 4
