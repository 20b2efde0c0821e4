"""The program inside a worker process: reads one question a line from stdin, writes one answer a line to stdout.

Started as a script, alone (`-I -S`), so it imports nothing of ours. It ends when stdin does, that is, with its parent,
and no question takes more than a second longer than its limit even if the parent has ended.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import json
import re
import sys
from collections.abc import Callable
from typing import Any

MEMORY_BYTES = 512 * 1024 * 1024
JS_MEMORY_BYTES = 128 * 1024 * 1024
JS_STACK_BYTES = 256 * 1024

Question = dict[str, Any]
Answer = dict[str, Any]

_RUN_JS = r"""(source, context, missing) => {
  let touched = "";
  const define = (name, descriptor) => Object.defineProperty(globalThis, name, descriptor);
  const frozen = JSON.parse(context, (_, value) => Object.freeze(value));
  for (const [name, value] of Object.entries(frozen)) define(name, {value});
  for (const name of JSON.parse(missing)) define(name, {get() { touched = name; throw new ReferenceError(name); }});
  const {stringify} = JSON;
  const answer = (kind, text = "") => stringify([touched ? "missing" : kind, touched || text.slice(0, 1000)]);
  try {
    const value = Function('"use strict"; return (\n' + source + "\n)")();
    if (typeof value === "function") return answer("a function");
    if (value instanceof Promise) return answer("a promise");
    return answer(value ? "true" : "false");
  } catch (error) {
    if (error === null) return answer("raised", "InternalError: no memory left to report what was thrown");
    return answer("raised", error instanceof Error ? `${error.name}: ${error.message}` : String(error));
  }
}"""


def answer_patterns(question: Question) -> Answer:
    """Compile a pattern and, where the question has a text, return whether it matches anywhere."""
    engine: Any = importlib.import_module(question["engine"])
    try:
        pattern = engine.compile(question["pattern"], engine.IGNORECASE if question["ignore_case"] else 0)
    except engine.error as error:
        # A pattern for `regex` was rewritten: its author does not know its positions.
        place = f" at position {error.pos + 1}" if engine is re and error.pos is not None else ""
        return {"refused": f"{error.msg}{place}"}
    except (RecursionError, OverflowError) as error:
        return {"refused": str(error)}
    text = question.get("text")
    return {"is": text is None or pattern.search(text) is not None}


def answer_javascript(question: Question) -> Answer:
    """Return whether a source is an expression, or its outcome in a context of its own."""
    import quickjs  # an extra, and only for JavaScript

    context = quickjs.Context()
    context.set_memory_limit(JS_MEMORY_BYTES)
    context.set_max_stack_size(JS_STACK_BYTES)
    context.set_time_limit(question["limit_s"] / 2)
    source = question["source"]
    try:
        if "context" in question:
            run = context.eval(_RUN_JS)
            return {"is": json.loads(run(source, question["context"], json.dumps(question["missing"])))}
        compile_only = context.eval("Function")
        for opening, closing in ("()", "[]"):
            compile_only(f'"use strict"; return {opening}\n{source}\n{closing}')
        return {"is": True}
    except quickjs.JSException as error:
        return _js_refusal(str(error), source)


def _js_refusal(text: str, source: str) -> Answer:
    """Return why a source does not compile, with its place; the wrapping adds three lines before it."""
    first, _, trace = text.partition("\n")
    if first in ("InternalError: interrupted", "InternalError: out of memory"):
        return {"lost": "ran out of time" if "interrupted" in first else "ran out of memory"}
    found = re.search(r"<input>:(\d+):(\d+)", trace)
    line, column = (int(found[1]) - 3, int(found[2])) if found else (1, 1)
    lines = source.count("\n") + 1
    if line > lines:
        line, column, first = lines, len(source.rsplit("\n", 1)[-1]) + 1, "the expression ends too early"
    place = f"column {column}" if lines == 1 else f"line {line}, column {column}"
    return {"refused": f"{place}: {first.removeprefix('SyntaxError: ')}"}


def answer(engine: Callable[[Question], Answer], line: bytes) -> Answer:
    """Return the engine's answer, or that memory ran out."""
    try:
        question = json.loads(line)
        faulthandler.dump_traceback_later(question["limit_s"] + 1, exit=True)
        return engine(question)
    except MemoryError:
        return {"lost": "ran out of memory"}
    finally:
        faulthandler.cancel_dump_traceback_later()


def limit_resources() -> None:
    """Limit the memory and forbid writing files, where the system can."""
    try:
        import resource  # not on Windows
    except ImportError:
        return
    limits = {resource.RLIMIT_AS: MEMORY_BYTES, resource.RLIMIT_FSIZE: 0, resource.RLIMIT_CORE: 0}
    for kind, most in limits.items():
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(kind, (most, most))


def main(module: str, folder: str) -> None:
    """Answer until stdin ends."""
    limit_resources()
    sys.path.append(folder)
    engine = answer_javascript if module == "quickjs" else answer_patterns
    sys.stdout.buffer.write(b"ready\n")
    sys.stdout.buffer.flush()
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(json.dumps(answer(engine, line)).encode("ascii") + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
