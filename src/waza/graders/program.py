"""The `program` grader: a program of the project checks the output and the workspace; its exit code decides."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, PrivateAttr, model_validator

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
from waza.model import JSON, Check, GradeStatus, Trace
from waza.options import ZeroMeans
from waza.process.isolation_probes import Promise, unaccepted_gaps

_INTERPRETER = re.compile(r"(python|pypy)[0-9.]*|bash|sh|zsh|dash|node|ruby|perl|pwsh", re.ASCII)
_IMPORT_HINT = "Python does not import from the folder it is started in; say so if it should: PYTHONPATH=. python …"


class ProgramGrader(Grader):
    """Let a program decide: it gets the output on standard input, and exit code 0 passes.

    It is started without a shell, in the eval file's folder. `WAZA_WORKSPACE_DIR` is a private copy of the workspace;
    what it changes there is thrown away. Codes 1 to 255 fail, except 126 and 127. A program that ends with one of
    these two, cannot be started, is ended by a signal or runs out of time decides nothing: the grade is an error.

    Nothing of the agent's runs by accident: Python does not import from the folder it is started in, and the copy's
    `.git` has no hooks. To run the agent's code on purpose, say so: `PYTHONPATH=. python -m unittest`.

    ```yaml
    - type: program
      name: lint_check
      config:
        command: python3
        args: ["scripts/grade.py"]
        timeout: 60
    ```
    """

    needs_more_than_trace: ClassVar[bool] = True
    all_passed: ClassVar[str] = "Program exited successfully"
    waits: ClassVar[bool] = True

    command: Text
    """The program: a name on the PATH, or a path in the project."""
    args: list[str] = []
    """Its arguments; the script of an interpreter is searched next to the eval file, then at the project's root."""
    timeout: Annotated[float, Field(ge=1, le=86_400), ZeroMeans(30)] = 30
    """How many seconds it may take; 0 means the default."""
    isolation: Isolation = "none"
    """How the program is isolated; all but `none` close the network and let it write only to its workspace."""
    isolation_gaps: list[Promise] = []
    """What `isolation` may leave open where this machine cannot enforce it; `waza list isolation` shows that."""

    may_change: list[str] = []
    """Files next to the eval file or the script, as names or globs, that may change while agents work: what the program
    or a hook writes itself. A change of any other makes the grade an error."""

    _argv: list[str] = PrivateAttr()
    _watched: Watched | None = PrivateAttr(default=None)
    _pinned: list[PinnedFile] = PrivateAttr(default_factory=list)
    _import_from: Path | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _find_files(self) -> Self:
        self._argv = [self.command, *self.args]
        if "/" in self.command and not Path(self.command).is_absolute():
            program = self._pin(self.folder.find(self.command))
            if not os.access(program, os.X_OK):
                raise ValueError(f"'{self.command}' is not executable; `chmod +x` it, or name its interpreter")
            self._argv[0] = str(program)
        elif interpreter := _INTERPRETER.fullmatch(Path(self.command).name):
            script = self._script()
            if script is not None:
                self._argv[1] = str(self._pin(script))
            if interpreter[1]:
                self._import_from = self.folder.base if script is None else script.parent
        return self

    def _script(self) -> Path | None:
        """Return the script an interpreter is given as its first argument; raise ValueError when it is missing."""
        first = self.args[0] if self.args else ""
        if not first or first.startswith("-") or Path(first).is_absolute():
            return None
        try:
            found = self.folder.find(first)
        except ValueError:
            if Path(first).suffix:
                raise
            return None
        return found if found.is_file() else None

    def _pin(self, path: Path) -> Path:
        self._pinned.append(pin(path))
        return path

    def unready(self) -> str:
        """Return which promises of the isolation this machine cannot keep."""
        return unaccepted_gaps(self.isolation, False, self.isolation_gaps)

    def pin(self, files: PinnedFiles) -> None:
        """Record the files in the folder of the program and in the one it is started in."""
        self._watched = Watched.of(files, self.folder, self._pinned, self.may_change)

    def reads(self) -> dict[str, str]:
        """Return the program or the script of an interpreter, where it is a file of the project."""
        named = [word for word, path in zip([self.command, *self.args], self._argv, strict=True) if word != path]
        return {word: pinned.digest for word, pinned in zip(named, self._pinned, strict=True)}

    def evaluate(self, trace: Trace, judge: Any) -> Finding:
        """Return the verdict of the program's exit code."""
        refuse_changed(self._pinned)
        ran = run_over(
            trace,
            self._argv,
            folder=self.folder,
            stdin=lambda workspace: trace.output.encode("utf-8", "replace"),
            timeout_s=self.timeout,
            isolation=self.isolation,
            isolation_gaps=self.isolation_gaps,
            import_from=self._import_from,
            watched=self._watched,
        )
        check = self._check(ran)
        status: GradeStatus = "passed" if check.ok else "error" if check.ok is None else "failed"
        output = shown(ran.finished.stdout.text.strip(), 2_000) or self.all_passed
        return Finding(status, float(status == "passed"), check.failure or output, [check], self._details(ran))

    def _check(self, ran: Ran) -> Check:
        claim, code = f"{self.command} ends with code 0", ran.finished.exit_code
        if why := trouble(ran.finished):
            return Check(None, claim, f"{self.command} decided nothing: {why}{_stderr(ran)}", 0, code)
        failure = f"Program exited with error: exit status {code}{_stderr(ran)}" if code else ""
        return Check(code == 0, claim, failure, 0, code)

    def _details(self, ran: Ran) -> dict[str, JSON]:
        finished = ran.finished
        found: dict[str, JSON] = {
            "command": self.command,
            "args": self.args,
            "stdout": shown(finished.stdout.text),
            "stderr": shown(finished.stderr.text),
            "workspace_dir": ran.workspace,
            "exit_code": finished.exit_code,
            "isolation": finished.isolation,
        }
        if finished.exit_code != 0:
            found["exit_error"] = trouble(finished) or f"exit status {finished.exit_code}"
        return found | unusual(ran)


def _stderr(ran: Ran) -> str:
    """Return the end of a feedback: what the program wrote to standard error."""
    stderr = shown(ran.finished.stderr.text.strip(), 2_000)
    hint = f" ({_IMPORT_HINT})" if "ModuleNotFoundError" in stderr else ""
    return f"; stderr: {stderr}{hint}" if stderr else ""
