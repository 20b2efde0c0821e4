"""What a `command` agent printed, as a trace. Text is never more than text: only an author's word makes it events."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import replace

from waza.engines._start import crash_of, crash_reason, told
from waza.errors import EngineError, TraceError
from waza.model import JSON, Trace, decoded
from waza.sandbox.process import Finished

OutputFormat = Literal["text", "json", "jsonl"]
_ERROR_CHARS = 2_000


def read_turn(finished: Finished, prompt: str, how: OutputFormat, program: str) -> Trace:
    """Return the trace of one start of a program; raise EngineError when it did not run, or not as it promised.

    What it printed before is kept with the error, its output and its costs: they were paid for.
    """
    crash, said = crash_of(finished), told(finished)
    said = f"; {said}" if said else ""
    if finished.error or (finished.exit_code in (126, 127) and not finished.stdout.total_bytes):
        raise EngineError(f"the agent '{program}' could not run: {finished.trouble}{said}", is_started=False)
    is_short = bool(finished.stdout.omitted_bytes) or bool(finished.trouble)
    trace, fault = _printed(finished, prompt, how, is_whole=crash is None and not finished.timed_out and not is_short)
    trace = replace(trace, duration_ms=finished.duration_ms, leftovers=finished.leftovers)
    if finished.timed_out:
        trace = replace(trace, status="timeout", error=finished.trouble + said, crash=None)
    elif crash is not None:
        trace = replace(trace, status="failure", error=crash_reason(crash), crash=crash)
    elif error := _why_not(finished, trace, how, fault):
        raise EngineError(f"the agent '{program}' {error}" + (said if finished.trouble else ""), recorded=trace)
    if finished.isolation != "none":
        trace = replace(trace, extra=trace.extra | {"isolation": finished.isolation})
    return trace


def _why_not(finished: Finished, trace: Trace, how: OutputFormat, fault: str) -> str:
    """Return why a start of a program cannot be graded; empty if it can. `fault` is what is wrong with its output."""
    if finished.trouble:
        return f"could not run: {finished.trouble}"
    if finished.stdout.omitted_bytes:
        printed = f"{finished.stdout.total_bytes:,} bytes, more than are kept; what was cut out cannot be graded"
        return f"printed {printed}: raise max_output_mb"
    if fault:
        return f"did not keep to `output_format: {how}`: {fault}"
    return f"says that it could not run: {trace.error or 'it gives no reason'}" if trace.status == "error" else ""


def _printed(finished: Finished, prompt: str, how: OutputFormat, *, is_whole: bool) -> tuple[Trace, str]:
    """Return standard output as promised, and what is wrong with it; as much as can be read where it is not whole."""
    fault = ""
    for is_strict in (True, False) if is_whole else (False,):
        try:
            return read_stdout(finished.stdout.text, prompt, how, is_whole=is_strict), fault
        except TraceError as error:
            fault = fault or str(error)
    return read_stdout(finished.stdout.text, prompt, "text"), fault


def read_stdout(text: str, prompt: str, how: OutputFormat, *, is_whole: bool = True) -> Trace:
    """Return the trace that standard output is; raise TraceError when it is not in the promised format.

    With `is_whole` false the agent ended early: lines that are no events, such as one that was cut off or a crash
    report, are left out, unless no line is an event.
    """
    if how == "json":
        return _trace(_object(text, "standard output"), prompt)
    if how == "jsonl":
        return _read_lines(text, prompt, is_whole)
    return Trace(input=prompt, output=text.rstrip("\r\n"))


def _read_lines(text: str, prompt: str, is_whole: bool) -> Trace:
    events: list[JSON] = []
    calls: list[dict[str, JSON]] = []
    last: dict[str, JSON] | None = None
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    for number, line in lines:
        try:
            if last is not None:
                raise TraceError(f"line {number} stands after the line with `output`, which is the last one")
            item = _object(line, f"line {number}")
            if "type" in item:
                _follow(item, calls)
                events.append(item)
            elif "tool_name" in item:
                calls.append(item)
            elif "output" in item:
                last = item
            else:
                raise TraceError(f"line {number} has none of `type`, `tool_name` and `output`")
        except TraceError:
            if is_whole:
                raise
    if last is None and (is_whole or not (events or calls)):
        raise TraceError("there is no last line with `output`")
    calls = [{"sequence": number} | call for number, call in enumerate(calls, 1)]
    return _trace({"events": events or None, "tool_events": calls, "output": ""} | (last or {}), prompt)


def _follow(event: dict[str, JSON], calls: list[dict[str, JSON]]) -> None:
    """Make a tool call of a `tool_call` event, and give it what its `tool_result` says."""
    told = {key: value for key, value in event.items() if key != "type"}
    if event["type"] == "tool_call":
        calls.append(told)
    elif event["type"] == "tool_result":
        identity = event.get("tool_call_id")
        open_calls = [call for call in calls if identity is not None and call.get("tool_call_id") == identity]
        if not open_calls:
            raise TraceError(f"the result of a tool call that was not made: {identity!r}")
        open_calls[-1].update({key: told[key] for key in ("result", "success", "duration_ms", "error") if key in told})


def _object(text: str, where: str) -> dict[str, JSON]:
    try:
        value = decoded(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise TraceError(f"{where} is not JSON: {error}; logs belong on standard error") from None
    if not isinstance(value, dict):
        raise TraceError(f"{where} is not a JSON object")
    return value


def _trace(tree: dict[str, JSON], prompt: str) -> Trace:
    return Trace.from_json(tree | {"input": prompt})
