"""The `script` grader: a Python file of the project gets the trace and prints a verdict."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any, ClassVar, Self

import msgspec
from msgspec import Struct, field
from pydantic import Field, PrivateAttr, model_validator

from waza.errors import Undecidable, decoding_fact
from waza.files.pinned import PinnedFiles
from waza.graders._programs import (
    Isolation,
    PinnedFile,
    Ran,
    Watched,
    pin,
    refuse_changed,
    run_over,
    shown,
    trouble,
    unusual,
)
from waza.graders.base import Finding, Grader, Text
from waza.model import JSON, Check, GradeStatus, ToolEvent, Trace
from waza.options import ZeroMeans
from waza.process.isolation_probes import Promise, unaccepted_gaps
from waza.untrusted.json import parse_json

_RAISED = 126
"""What the launcher ends with after an uncaught exception: Python's own 1 could be the script's `sys.exit(1)`."""
_TRACEBACK = "Traceback (most recent call last)"
_LAUNCHER = f"""\
import sys as _sys
_sys.argv.pop(0)
__file__ = _sys.argv[0]
try:
    with open(__file__, "rb") as _file:
        _source = compile(_file.read(), __file__, "exec")
    exec(_source)
except SystemExit:
    raise
except BaseException as _error:
    _sys.excepthook(type(_error), _error, _error.__traceback__.tb_next or _error.__traceback__)
    _sys.exit({_RAISED})
"""
"""Runs a script as `python FILE` does, in the module `__main__`."""


class ScriptVerdict(Struct, frozen=True, forbid_unknown_fields=True):
    """What a script prints, as one JSON object."""

    score: float
    """A number from 0 to 1."""
    passed: bool
    message: str = ""
    details: dict[str, JSON] = field(default_factory=dict)


class ScriptGrader(Grader):
    """Let a Python script decide, with a score of its own.

    It runs with the Python that runs waza, in the eval file's folder. On standard input it gets one JSON object:
    `input`, `output`, `status`, `error`, `outcome`, `duration_ms`, `model`, `transcript`, `tool_events`, `tool_calls`
    (each with `name`, `arguments`, `result`, `success`, `id`), `usage`, `skill_invocations` and `workspace_dir`, a
    private copy of the workspace; null is "not recorded". It prints
    `{"score": 0.8, "passed": true, "message": "…", "details": {}}` and ends with code 0. A script that ends itself with
    another code fails, as a program does, with score 0. One that ends with an uncaught exception, with 126 or 127, by
    a signal, out of time or without a verdict decides nothing: the grade is an error.

    ```yaml
    - type: script
      name: quality
      config:
        script: graders/quality.py
        timeout: 60
    ```
    """

    needs_more_than_trace: ClassVar[bool] = True
    all_passed: ClassVar[str] = "Script passed"
    waits: ClassVar[bool] = True

    script: Text
    """The Python file, next to the eval file or at the project's root."""
    args: list[str] = []
    """Its arguments."""
    timeout: Annotated[float, Field(ge=1, le=86_400), ZeroMeans(30)] = 30
    """How many seconds it may take; 0 means the default."""
    isolation: Isolation = "none"
    """How the script is isolated; all but `none` close the network and let it write only to its workspace."""
    isolation_gaps: list[Promise] = []
    """What `isolation` may leave open where this machine cannot enforce it; `waza list isolation` shows that."""

    may_change: list[str] = []
    """Files next to the eval file or the script, as names or globs, that may change while agents work: what the program
    or a hook writes itself. A change of any other makes the grade an error."""

    _pinned: PinnedFile = PrivateAttr()
    _watched: Watched | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _find_script(self) -> Self:
        self._pinned = pin(self.folder.find(self.script))
        return self

    def unready(self) -> str:
        """Return which promises of the isolation this machine cannot keep."""
        return unaccepted_gaps(self.isolation, False, self.isolation_gaps)

    def pin(self, files: PinnedFiles) -> None:
        """Record the files in the script's folder and in the one it is started in."""
        self._watched = Watched.of(files, self.folder, [self._pinned], self.may_change)

    def reads(self) -> dict[str, str]:
        """Return the script."""
        return {self.script: self._pinned.digest}

    def evaluate(self, trace: Trace, judge: Any) -> Finding:
        """Return the verdict the script printed."""
        refuse_changed([self._pinned])
        path = self._pinned.path
        ran = run_over(
            trace,
            [sys.executable, "-s", "-P", "-c", _LAUNCHER, str(path), *self.args],
            folder=self.folder,
            stdin=lambda workspace: _written(_context(trace, workspace)),
            timeout_s=self.timeout,
            isolation=self.isolation,
            isolation_gaps=self.isolation_gaps,
            import_from=path.parent,
            watched=self._watched,
        )
        if not trouble(ran.finished) and ran.finished.exit_code:
            return self._ended(ran)
        verdict = self._verdict(ran)
        feedback = verdict.message or (self.all_passed if verdict.passed else f"{self.script} did not pass it")
        check = Check(verdict.passed, f"{self.script} passes it", "" if verdict.passed else feedback)
        status: GradeStatus = "passed" if verdict.passed else "failed"
        return Finding(status, verdict.score, feedback, [check], verdict.details | unusual(ran))

    def _ended(self, ran: Ran) -> Finding:
        """Return the failure of a script that ended itself with a code other than 0."""
        code = ran.finished.exit_code
        failure = f"{self.script} ended with code {code}{_stderr(ran)}"
        check = Check(False, f"{self.script} ends with code 0", failure, 0, code)
        return Finding("failed", 0.0, check.failure, [check], {"exit_code": code} | unusual(ran))

    def _verdict(self, ran: Ran) -> ScriptVerdict:
        """Return what the script printed; raise Undecidable when that is no verdict."""
        finished = ran.finished
        if why := trouble(finished):
            if finished.exit_code == _RAISED and _TRACEBACK in finished.stderr.text:
                why = "it ended with an uncaught exception"
            raise Undecidable(f"{self.script} decided nothing: {why}{_stderr(ran)}")
        try:
            printed = parse_json(finished.stdout.text)
        except ValueError as error:
            raise Undecidable(f"{self.script} printed no verdict: {error}; it must print one JSON object") from None
        try:
            verdict = msgspec.convert(printed, ScriptVerdict)
        except msgspec.ValidationError as error:
            fact = decoding_fact(error, printed)
            raise Undecidable(f"{self.script} printed no verdict: {fact}; it must print one JSON object") from None
        if not 0 <= verdict.score <= 1:
            raise Undecidable(f"{self.script} gave the score {verdict.score}, which is not between 0 and 1")
        return verdict


_EVENT = ("turn", "tool_name", "args", "result", "success", "duration_ms", "sequence", "tool_call_id", "error")


def _context(trace: Trace, workspace: str) -> dict[str, JSON]:
    known, calls = trace.to_dict(), trace.tool_events
    names = ("input", "output", "error", "duration_ms", "model", "usage", "skill_invocations")
    return {name: known.get(name) for name in names} | {
        "status": trace.status,
        "outcome": trace.outcome,
        "transcript": trace.events,
        "tool_events": None if calls is None else [{key: getattr(call, key) for key in _EVENT} for call in calls],
        "tool_calls": None if calls is None else [_call(call) for call in calls],
        "workspace_dir": workspace or None,
    }


def _written(context: dict[str, JSON]) -> bytes:
    """Return the context as ASCII JSON; half a surrogate pair, which is no character, becomes a question mark."""
    return json.dumps(json.loads(json.dumps(context, ensure_ascii=False).encode("utf-8", "replace"))).encode()


def _call(event: ToolEvent) -> dict[str, JSON]:
    known = {"name": event.tool_name, "arguments": event.args, "result": event.result}
    return known | {"success": event.success, "id": event.tool_call_id}


def _stderr(ran: Ran) -> str:
    """Return the end of a sentence: what the script wrote on standard error."""
    stderr = shown(ran.finished.stderr.text.strip(), 2_000)
    return f"; stderr: {stderr}" if stderr else ""
