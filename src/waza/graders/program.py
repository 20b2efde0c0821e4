"""The `program` grader: a program of the project checks the output and the workspace; its exit code decides.

`run_over`, which `script` uses too, runs a program over a trace so that nothing of the agent's interferes: it starts in
the eval file's folder and gets a private copy of the workspace.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, PrivateAttr, model_validator

from waza.errors import Undecidable
from waza.files.paths import SpecFolder
from waza.files.pinned import PinnedFiles, differing, unless_allowed
from waza.files.tree import remove
from waza.files.trial_folder import copy_workspace
from waza.graders.base import Finding, Grader, Text
from waza.model import JSON, Check, Files, GradeStatus, Trace
from waza.options import ZeroMeans
from waza.process.isolation_probes import Promise, unaccepted_gaps
from waza.process.run_program import Finished, base_environment, run_program

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


MAX_SHOWN_CHARS = 10_000
Isolation = Literal["none", "landlock", "bwrap"]
_CAREFUL = {
    "PYTHONSAFEPATH": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONPYCACHEPREFIX": str(Path(os.devnull) / "pycache"),
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.bareRepository",
    "GIT_CONFIG_VALUE_0": "explicit",
}
"""No imports from the folder Python is started in, no byte code of others, and no bare repository that only
looks like one."""


class PinnedFile(NamedTuple):
    """A file of the project as it was when the spec was loaded."""

    path: Path
    digest: str


class Ran(NamedTuple):
    """A program that has ended, the workspace it was given and what that lacks."""

    finished: Finished
    workspace: str
    left_out: list[str]


def pin(path: Path) -> PinnedFile:
    """Return the file with the digest of its content; raise ValueError when it is not a file that can be read."""
    if not path.is_file():
        raise ValueError(f"'{path.name}' is not a file")
    try:
        return PinnedFile(path, hashlib.sha256(path.read_bytes()).hexdigest())
    except OSError as error:
        raise ValueError(f"'{path.name}' cannot be read: {error.strerror}") from None


def refuse_changed(pinned: Sequence[PinnedFile]) -> None:
    """Raise Undecidable for a file that is not what it was when the spec was loaded."""
    for before in pinned:
        try:
            same = pin(before.path) == before
        except ValueError:
            same = False
        if not same:
            raise Undecidable(f"{before.path.name} was changed after the spec was loaded; did the agent reach it?")


class Watched(NamedTuple):
    """Folders of the project whose files decide with a program: its own, and the one it is started in."""

    files: PinnedFiles
    folders: list[Path]
    may_change: list[str]

    @classmethod
    def of(cls, files: PinnedFiles, folder: SpecFolder, programs: Sequence[PinnedFile], may_change: list[str]) -> Self:
        """Return the folders of a program, noted as they are."""
        folders = list(dict.fromkeys([folder.base, *(program.path.parent for program in programs)]))
        for one in folders:
            files.pin(one)
        return cls(files, folders, may_change)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Raise Undecidable where a file is not as it was before the first agent started, or is changed meanwhile."""
        before = {folder: self.files.scan(folder) for folder in self.folders}
        self._refuse([name for folder, found in before.items() for name in self.files.changed(folder, found)])
        quiet = self.files.quiet()
        yield
        after = {folder: self.files.scan(folder) for folder in self.folders}
        if quiet is not None and quiet == self.files.quiet():  # no agent was there to do it: the program did
            for folder in self.folders:
                self.files.accept(folder, before[folder], after[folder])
            return
        self._refuse([name for folder in self.folders for name in differing(before[folder], after[folder])])

    def _refuse(self, names: list[str]) -> None:
        if changed := unless_allowed(list(dict.fromkeys(names)), self.may_change):
            more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
            raise Undecidable(
                f"changed after the run began: {', '.join(changed[:5])}{more}; did the agent reach it? "
                "What the program or a hook writes itself can be named under `may_change`"
            )


def run_over(
    trace: Trace,
    argv: Sequence[str],
    *,
    folder: SpecFolder,
    stdin: Callable[[str], bytes],
    timeout_s: float,
    isolation: Isolation,
    isolation_gaps: list[Promise],
    import_from: Path | None = None,
    watched: Watched | None = None,
) -> Ran:
    """Run a program over a trace and return how it went; `stdin` is given the workspace's folder, empty without one.

    Raises Undecidable when the workspace cannot be copied, the isolation is not enforced here, or what is `watched` was
    changed.
    """
    if why := unaccepted_gaps(isolation, False, isolation_gaps):
        raise Undecidable(why)
    with watched.unchanged() if watched else nullcontext(), ExitStack() as until_end:
        workspace, left_out = _copied(trace.files, until_end)
        extra = {"WAZA_WORKSPACE_DIR": workspace, **_CAREFUL}
        if import_from is not None:
            extra["PYTHONPATH"] = str(import_from)
        home = None if isolation == "none" else until_end.enter_context(_private_folder())
        try:
            finished = run_program(
                argv,
                cwd=folder.base,
                env=base_environment(extra, home=home),
                stdin=stdin(workspace),
                timeout_s=timeout_s,
                isolation=isolation,
                readable=[folder.root],
                writable=[path for path in (workspace, home) if path],
            )
        except ValueError as error:
            raise Undecidable(str(error)) from None
    return Ran(finished, workspace, left_out)


def trouble(finished: Finished) -> str:
    """Return a sentence when the program came to no verdict: any exit code but 126 and 127 is one."""
    return finished.trouble or ("it has no exit code" if finished.exit_code is None else "")


def shown(text: str, limit: int = MAX_SHOWN_CHARS) -> str:
    """Return a text, or its head and tail when it is long."""
    if len(text) <= limit:
        return text
    return f"{text[: limit // 2]}\n… {len(text) - limit} characters left out …\n{text[-(limit // 2) :]}"


def unusual(ran: Ran) -> dict[str, JSON]:
    """Return what a grade's details say only where there is something: files left out, processes left behind."""
    return {name: found for name, found in (("left_out", ran.left_out), ("leftovers", ran.finished.leftovers)) if found}


@contextmanager
def _private_folder() -> Iterator[Path]:
    """Give an empty folder for one run, and remove it afterwards, whatever was done to it."""
    folder = Path(tempfile.mkdtemp(prefix="waza-")).resolve()
    try:
        yield folder
    finally:
        remove(folder)


def _copied(files: Files | None, until_end: ExitStack) -> tuple[str, list[str]]:
    """Return the folder of a private copy of the workspace and what it lacks; an empty name without a workspace."""
    if files is None:
        return "", []
    try:
        place = until_end.enter_context(_private_folder())
        return str(place), copy_workspace(files, place)
    except OSError as error:
        raise Undecidable(f"the workspace cannot be copied: {error.strerror or error}") from None
