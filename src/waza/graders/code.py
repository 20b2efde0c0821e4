"""The `code` grader: assertions in Python or JavaScript about what the agent did."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, ValidationInfo

from waza.errors import did_you_mean
from waza.graders.base import Grader, Text
from waza.model import JSON, Check, ToolEvent, Trace
from waza.untrusted import python_assertions
from waza.untrusted.python_expressions import BUILT_IN_NAMES, CONTEXT_NAMES, read_expression, unknown_names

Language = Literal["python", "javascript"]
_COMMAND = re.compile(r"""\[\s*(['"`])command\1\s*\]|\.command\b""")
"""How an assertion reads the command of a call, as the original's do of any call."""


def _sandbox(language: Language) -> ModuleType:
    """Return the module that checks and evaluates assertions of a language."""
    if language == "python":
        return python_assertions
    from waza.untrusted import javascript_assertions  # most assertions are Python

    return javascript_assertions


def _assertion(source: str, info: ValidationInfo) -> str:
    if language := info.data.get("language"):
        _sandbox(language).check_assertion(source)
    return source


class CodeGrader(Grader):
    r"""Check that expressions about the output, the tool calls and the transcript are true.

    Each assertion is one expression with fresh data; it runs outside the process, without files, network or
    processes, for at most 2 seconds and 512 MB. One that raises is a failed check, one that runs out of time or memory
    is undecided. Names: `output`, `outcome`, `transcript`, `tool_calls` (each with `name`, `arguments`, `result`,
    `success`, `id`), `errors`, `duration_ms`. Read as `call['arguments']['command']`, the command of a call that has
    none is `""`. In Python also `len any all str int float bool list dict re sum min max
    sorted set tuple abs round enumerate zip range isinstance`.

    A Python assertion means what it means in CPython, `re` included. Not available, and refused when the suite is
    loaded: Python's other functions (`hash`, `repr`, `type`, `divmod`, ...); attributes that begin with an
    underscore, names that begin with two, `await` and `yield`; of `re` everything but `search match fullmatch split
    findall finditer sub subn compile escape Pattern Match` and the flags `A I M S U X NOFLAG` with their long
    names; attributes of generators and functions; `.format` that is not called at once; encodings other than UTF-7,
    -8, -16 and -32, ASCII, Latin-1, cp1252, cp437, punycode and the escapes. Where this shows only at run time, the
    assertion is undecided.

    An assertion with the same value whatever the agent did is refused too: a constant, a text, a tuple, list, set
    or dict display, a `lambda` or a function that is not called, `... or 'text'`, `'text' in 'output'` and all that
    is made of literals alone; in JavaScript an array, object, function or regular expression, `new ...`, `typeof ...`,
    `({a: 1}).a`. Comparisons of numbers, and other Python assertions that read nothing of the trace, get a warning, as
    do unknown names: those raise. An assertion whose value turns out to be a function, a type, a module or a
    generator fails.

    ```yaml
    - type: code
      name: output_quality
      config:
        language: python
        assertions:
          - "len(output) > 100"
          - "any(call['name'] == 'bash' for call in tool_calls)"
          - 're.search(r"def \w+", output)'
    ```
    """

    waits: ClassVar[bool] = True
    all_passed: ClassVar[str] = "All assertions passed"

    language: Language = "python"
    """The language of the assertions."""
    assertions: list[Annotated[Text, AfterValidator(_assertion)]] = Field(min_length=1)
    """Expressions that must be true; each is parsed when the spec is loaded."""

    def option_warnings(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield the Python assertions that read nothing of the trace, and those that read an unknown name."""
        yield from super().option_warnings()
        for at, source in enumerate(self.assertions if self.language == "python" else ()):
            unknown = unknown_names(source)
            if unknown:
                hint = did_you_mean(unknown[0], [*CONTEXT_NAMES, *BUILT_IN_NAMES])
                yield ("assertions", at), f"'{unknown[0]}' is not known in assertions, so this one raises; {hint}"
            elif not read_expression(source).names & set(CONTEXT_NAMES):
                fact = "reads nothing of what the agent did, so it comes to the same in every trial"
                yield ("assertions", at), f"'{source[:80]}' {fact}; use {', '.join(CONTEXT_NAMES)}"

    def checks(self, trace: Trace) -> Iterator[Check]:
        """Yield one check per assertion."""
        # Only where a command is read, so that `arguments == {}` and `len(arguments)` keep their meaning elsewhere.
        context = _context(trace, with_command=any(map(_COMMAND.search, self.assertions)))
        outcomes = _sandbox(self.language).evaluate(self.assertions, context, _missing(trace))
        for source, (ok, message) in zip(self.assertions, outcomes, strict=True):
            verdict = "Cannot tell" if ok is None else "Failed"
            failure = f"{verdict}: {source}" + (f": {message}" if message else "")
            yield Check(ok, source, "" if ok else failure)

    def details(self, trace: Trace, checks: list[Check]) -> dict[str, JSON]:
        """Return the counts and which engine ran the assertions."""
        passed = sum(check.ok is True for check in checks)
        engine = _sandbox(self.language).ENGINE
        return {"total_assertions": len(checks), "passed_assertions": passed, "engine": engine}


def _context(trace: Trace, *, with_command: bool) -> dict[str, JSON]:
    """Return the values of the names; `with_command` each call has a command, which is empty where it runs none."""
    events = trace.events or []
    return {
        "output": trace.output,
        "outcome": trace.outcome,
        "transcript": events,
        "tool_calls": [_call(event, with_command=with_command) for event in trace.tool_events or []],
        "errors": [event for event in events if _is_error(event)],
        "duration_ms": int(_duration(trace) or 0),
    }


def _missing(trace: Trace) -> dict[str, str]:
    """Return why names have no value; `errors` is the exception: without events it is empty."""
    missing = {}
    if trace.events is None:
        missing["transcript"] = "the transcript was not recorded"
    if trace.tool_events is None:
        missing["tool_calls"] = "tool calls were not recorded: this engine cannot observe them"
    if _duration(trace) is None:
        missing["duration_ms"] = "the duration was not recorded"
    return missing


def _call(event: ToolEvent, *, with_command: bool) -> dict[str, JSON]:
    args = event.args
    return {
        "name": event.tool_name,
        "arguments": {"command": ""} | args if with_command and isinstance(args, dict) else args,
        "result": event.result,
        "success": event.success,
        "id": event.tool_call_id,
    }


def _duration(trace: Trace) -> float | None:
    duration = trace.duration_ms
    return duration if duration is not None and math.isfinite(duration) else None


def _is_error(event: JSON) -> bool:
    """Return whether an event's type or content mentions an error; an event of another shape does not count."""
    return isinstance(event, dict) and any("error" in str(event.get(key, "")) for key in ("type", "content"))
