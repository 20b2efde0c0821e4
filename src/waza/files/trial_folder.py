"""Make the folder of a trial, fresh and private, with copies of the input files, and copy workspaces for programs.

Input files are copied as regular files without special bits; links are kept where they stay in the workspace. A
copy of a workspace keeps modes (never setuid), times and inner links; links that lead outside, hard links and special
files are left out and named. A `.git` folder is copied without hooks, links and every setting that could start a
program; a `.git` that is a file or a link, and so may point to any folder, is left out.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from waza.errors import EngineError
from waza.files.paths import inner_path
from waza.files.pinned import PinnedFiles
from waza.files.tree import link_target, make_folder, make_link, open_regular, opened, remove, walk, writing
from waza.files.workspace import Workspace
from waza.model import Files, InputFile, Task, Trace
from waza.process.run_program import base_environment

MAX_INPUT_ENTRIES = 100_000
MAX_INPUT_BYTES = 1024**3
NOT_COPIED = (".git",)
"""Left out of a copied folder: history may have the answers, and hooks run. To have one, name it as an input file."""

_log = logging.getLogger(__name__)


class MockPrograms(NamedTuple):
    """Mocks that an agent gets in place of real tools."""

    programs: Path | None = None
    """A folder that is first on the agent's PATH."""
    servers: Mapping[str, Sequence[str]] = {}
    """MCP servers by name: the words that start one."""
    servers_file: Path | None = None
    """The same servers, in the file that most agents read: `mcpServers`."""
    readable: tuple[Path, ...] = ()
    """Paths that an isolated agent must be able to read to start them."""
    ask: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]] | None = None
    """Answers for the servers, for an engine that is in the same process and needs no program between."""

    def variables(self, path: str) -> dict[str, str]:
        """Return the variables that lead an agent to them; `path` is its PATH without them."""
        found = {} if self.programs is None else {"PATH": f"{self.programs}{os.pathsep}{path}"}
        return found | ({} if self.servers_file is None else {"WAZA_MCP_CONFIG": str(self.servers_file)})


class TrialFolder(NamedTuple):
    """Where one trial happens: a fresh folder with the task's input files, private to it."""

    workspace: Path
    """The folder that is graded afterwards."""
    workdir: Path
    """The folder the agent starts in: the workspace, or `inputs.workdir` in it."""
    home: Path
    """A private, empty folder for the agent's home and temporary files; not graded."""
    secrets: tuple[str, ...] = ()
    """Values that must never reach a file or the screen."""
    left_out: tuple[str, ...] = ()
    """What was not copied from the input files, a message each."""
    after_turn: Callable[[Sequence[Trace]], Awaitable[str]] | None = None
    """Awaited by engines before each follow-up prompt, with the turns so far; returns why to stop, or an empty text."""
    mock_programs: MockPrograms = MockPrograms()
    """Mocks in place of real tools."""

    def environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of a program in this trial folder: harmless ones, `extra`, and the paths to mocks."""
        variables = base_environment(extra, home=self.home)
        return variables | self.mock_programs.variables(variables["PATH"])


@contextmanager
def make_trial_folder(
    task: Task, *, keep: bool = False, parent: str | Path | None = None, pinned: PinnedFiles | None = None
) -> Iterator[TrialFolder]:
    """Make a folder for one trial and remove it at the end, unless it is to be kept.

    Raises EngineError when the task's input files cannot be copied, or have changed since they were `pinned`.
    """
    for source in [file.source for file in task.files if file.source and pinned]:
        if pinned and (changed := pinned.changed_below(Path(source))):
            raise EngineError(f"input files changed after the run began: {', '.join(changed[:5])}")
    try:
        if parent is not None:
            Path(parent).mkdir(0o700, exist_ok=True)  # an agent may have removed it
        place = Path(tempfile.mkdtemp(prefix="waza-", dir=parent)).resolve()
    except OSError as error:
        raise EngineError(f"no folder can be created for the trial: {error.strerror}") from None
    try:
        yield _prepared(task, place)
    finally:
        for trouble in [] if keep else remove(place):
            _log.warning("%s: %s", place, trouble)


_NOWHERE = Path(os.devnull) / "no-trial-folder"
NO_TRIAL_FOLDER = TrialFolder(workspace=_NOWHERE, workdir=_NOWHERE, home=_NOWHERE)
"""For a trial that uses no folder: paths that lead nowhere."""


def trial_folders_for(run: str) -> Path | None:
    """Return a private folder for the trial folders of one run, empty even if an earlier attempt was killed.

    None when another user has that name: then each trial gets a folder of its own.
    """
    place = Path(tempfile.gettempdir()).resolve() / f"waza-{run}"
    try:
        if place.is_dir() and not place.is_symlink() and place.stat().st_uid == os.getuid():
            remove(place)
        place.mkdir(0o700)
    except OSError:
        return None
    return place


def remove_trial_folders(place: Path) -> None:
    """Remove the folder of a run's trial folders with everything left in it; nearly always it is empty."""
    try:
        place.rmdir()
    except OSError:
        for trouble in remove(place):
            _log.warning("%s: %s", place, trouble)


def _prepared(task: Task, place: Path) -> TrialFolder:
    workspace, home = place / "workspace", place / "home"
    workspace.mkdir(0o700)
    home.mkdir(0o700)
    left_out = lay_out(task.files, workspace) if task.files else ()
    return TrialFolder(workspace, _workdir(workspace, task.workdir), home, left_out=left_out)


def _workdir(workspace: Path, path: str) -> Path:
    """Return the folder the agent starts in, created if it does not exist."""
    if path in ("", "."):
        return workspace
    try:
        folder = workspace / inner_path(path)
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise EngineError(f"workdir '{path}' cannot be created: {_reason(error)}") from None
    if not folder.resolve().is_relative_to(workspace):
        raise EngineError(f"workdir '{path}' leaves the workspace")
    return folder


def lay_out(files: list[InputFile], workspace: Path) -> tuple[str, ...]:
    """Copy the input files into the workspace and return what was left out."""
    copy = _Copy()
    with opened(workspace) as root:
        for file in files:
            try:
                copy.add(root, file)
            except (OSError, ValueError) as error:
                raise EngineError(f"input file '{file.path}' cannot be copied: {_reason(error)}") from None
        copy.make_links(root, workspace)
    return tuple(copy.left_out)


class _Copy:
    """The copying of one task's input files: links come last, so that nothing is ever written through one."""

    def __init__(self) -> None:
        self.links: dict[str, str] = {}
        self.left_out: list[str] = []
        self._bytes = 0
        self._entries = 0

    def add(self, root: int, file: InputFile) -> None:
        if file.content is not None:
            with writing(root, inner_path(file.path)) as out:
                out.write(file.content.encode())
        elif file.source is None:
            raise ValueError("it has neither content nor a source")
        elif Path(file.source).is_dir():
            self._copy_folder(root, "" if file.path == "." else inner_path(file.path), file.source)
        else:
            self._copy_input(root, inner_path(file.path), Path(file.source))

    def make_links(self, root: int, workspace: Path) -> None:
        """Create the links and remove those that lead out, which depends on all of them together."""
        for path, target in self.links.items():
            try:
                make_link(root, path, target)
            except FileExistsError:
                self.left_out.append(f"{path!r} is a link, and another input file is there")
        files = Workspace(workspace)
        for path in [path for path in self.links if files.kind(path) == "outside"]:
            (workspace / path).unlink()
            self.left_out.append(f"{path!r} is a link that leads out of the workspace")

    def _copy_folder(self, root: int, path: str, source: str) -> None:
        make_folder(root, path)
        with opened(source) as tree:
            entries = list(walk(tree, MAX_INPUT_ENTRIES, closed=NOT_COPIED))
            self._count(entries=len(entries))
            for entry in entries:
                place = f"{path}/{entry.path}" if path else entry.path
                if entry.path.rpartition("/")[2] in NOT_COPIED:
                    self.left_out.append(f"{place!r} is not copied; name it as an input file to have it")
                elif entry.trouble:
                    raise OSError(f"{entry.path!r}: {entry.trouble}")
                elif entry.kind == "folder":
                    make_folder(root, place)
                elif entry.kind == "file":
                    self._copy_input(root, place, Path(source, entry.path))
                elif entry.kind == "link":
                    self.links[place] = link_target(tree, entry.path)
                else:
                    self.left_out.append(f"{place!r} is not a regular file")

    def _copy_input(self, root: int, path: str, source: Path) -> None:
        with open_regular(source) as file:
            info = os.fstat(file.fileno())
            self._count(size=info.st_size)
            with writing(root, path, (info.st_mode & 0o777) | 0o600) as out:
                shutil.copyfileobj(file, out)

    def _count(self, *, size: int = 0, entries: int = 0) -> None:
        self._bytes += size
        self._entries += entries
        if self._bytes > MAX_INPUT_BYTES:
            raise ValueError(f"the task's input files have more than {MAX_INPUT_BYTES // 1024**2} MiB")
        if self._entries > MAX_INPUT_ENTRIES:
            raise ValueError(f"the task's input files are more than {MAX_INPUT_ENTRIES}")


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


MAX_COPY_BYTES = 4 * 1024**3
_CHUNK = 1024 * 1024
_SECTION = re.compile(r"\[\s*([A-Za-z0-9-]+)\s*\]\s*")
_SETTING = re.compile(r"\s*([A-Za-z0-9-]+)\s*=\s*([A-Za-z0-9]+)\s*")
_HARMLESS = {
    "core": {"repositoryformatversion", "filemode", "bare", "ignorecase", "symlinks", "precomposeunicode", "autocrlf"},
    "extensions": {"objectformat", "refstorage"},
}


def copy_workspace(files: Files, target: Path, limit: int = MAX_COPY_BYTES) -> list[str]:
    """Copy a workspace into the empty folder `target` for programs, and return a message for each thing left out.

    Raises OSError when the workspace has more than `limit` bytes or cannot be read.
    """
    source = files if isinstance(files, Workspace) else Workspace(files.root)
    left_out: list[str] = []
    links: list[str] = []
    bytes_left = limit
    for path, info in source.entries():
        parts = path.lower().split("/")
        if _may_start_programs(parts, info.st_mode):
            if parts[-1] == ".git":
                left_out.append(f"{path}: a .git that is not a folder may point to any folder")
        elif stat.S_ISDIR(info.st_mode):
            (target / path).mkdir()
            (target / path).chmod(0o700 | stat.S_IMODE(info.st_mode) & 0o777)
        elif stat.S_ISLNK(info.st_mode):
            links.append(path)
        elif not stat.S_ISREG(info.st_mode) or info.st_nlink > 1:
            left_out.append(f"{path}: {'a hard link' if stat.S_ISREG(info.st_mode) else 'not a regular file'}")
        else:
            bytes_left -= _copy_file(source, path, info, target / path, bytes_left)
    return left_out + [f"{path}: a link that leads outside" for path in links if not _copy_link(source, path, target)]


def _copy_file(source: Workspace, path: str, info: os.stat_result, place: Path, bytes_left: int) -> int:
    """Copy one file, at most `bytes_left` bytes, and return its size."""
    if info.st_size > bytes_left:
        raise OSError(errno.EFBIG, "the workspace is too large to be copied", path)
    with source.open(f"./{path}") as file, place.open("xb") as copy:
        if _is_git_settings(path.lower().split("/")):
            size = copy.write(_harmless_settings(file))
        else:
            size = 0
            while chunk := file.read(_CHUNK):
                size += len(chunk)
                if size > bytes_left:
                    raise OSError(errno.EFBIG, "the workspace is too large to be copied", path)
                copy.write(chunk)
    place.chmod(0o600 | stat.S_IMODE(info.st_mode) & 0o777)
    os.utime(place, ns=(info.st_atime_ns, info.st_mtime_ns))
    return size


def _copy_link(source: Workspace, path: str, target: Path) -> bool:
    """Recreate the link in the copy, which nothing else changes, and return whether it stays inside there."""
    link = source.link_target(path)
    if link is None:
        return False
    (target / path).symlink_to(link)
    if Workspace(target).kind(f"./{path}") != "outside":
        return True
    (target / path).unlink()
    return False


def _may_start_programs(parts: list[str], mode: int) -> bool:
    """Return whether a path is one of git's hooks, or can make git read its settings from any folder."""
    if parts[-1] == ".git":
        return not stat.S_ISDIR(mode)
    inside = _inside_git(parts)
    return bool(inside) and (stat.S_ISLNK(mode) or "hooks" in inside or inside[-1] == "commondir")


def _is_git_settings(parts: list[str]) -> bool:
    return _inside_git(parts)[-1:] in (["config"], ["config.worktree"])


def _inside_git(parts: list[str]) -> list[str]:
    """Return the part of a path below its innermost `.git`, but nothing for branches, which may have any name."""
    if ".git" not in parts:
        return []
    inside = parts[len(parts) - parts[::-1].index(".git") :]
    return [] if inside[:1] in (["refs"], ["logs"]) else inside


def _harmless_settings(file: BinaryIO) -> bytes:
    """Return the settings of a git config file that a repository needs to be read and that start nothing."""
    section, harmless = "", []
    for line in file.read(_CHUNK).decode("utf-8", "replace").splitlines():
        if header := _SECTION.fullmatch(line):
            section = header[1].lower()
            harmless.append(f"[{section}]")
        elif line.lstrip().startswith("["):
            section = ""
        elif (setting := _SETTING.fullmatch(line)) and setting[1].lower() in _HARMLESS.get(section, ()):
            harmless.append(f"\t{setting[1]} = {setting[2]}")
    return ("\n".join(harmless) + "\n").encode()
