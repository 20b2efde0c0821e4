"""Running a program of the project over a trace, shared by `program` and `script`; nothing of the agent's interferes.

It starts in the eval file's folder and gets a private copy of the workspace. The graders decide which
program runs and what its exit code means.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Literal, NamedTuple, Self

from waza.errors import Undecidable
from waza.files.paths import SpecFolder
from waza.files.pinned import PinnedFiles, differing, unless_allowed
from waza.files.tree import remove
from waza.files.trial_folder import copy_workspace
from waza.model import JSON, Files, Trace
from waza.process.isolation_probes import Promise, unaccepted_gaps
from waza.process.run_program import Finished, base_environment, run_program

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
