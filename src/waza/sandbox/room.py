"""The room of a trial: a fresh private folder with the task's input files, thrown away afterwards.

Input files are copied as regular files without special bits. Links are kept where they stay in the workspace. What an
agent may do in its room is not decided here.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from waza.errors import EngineError
from waza.model import InputFile, Task, Trace
from waza.sandbox.environment import base_environment
from waza.sandbox.folders import inner_path
from waza.sandbox.pinned import PinnedFiles
from waza.sandbox.removal import remove
from waza.sandbox.tree import link_target, make_folder, make_link, open_regular, opened, walk, writing
from waza.sandbox.workspace import Workspace

MAX_INPUT_ENTRIES = 100_000
MAX_INPUT_BYTES = 1024**3
NOT_COPIED = (".git",)
"""Left out of a copied folder: history holds answers, and hooks run. To have one, name it as an input file."""

_log = logging.getLogger(__name__)


class StandIns(NamedTuple):
    """What an agent is given in place of real tools."""

    programs: Path | None = None
    """A folder that is first on the agent's PATH."""
    servers: Mapping[str, Sequence[str]] = {}
    """MCP servers by name: the words that start one."""
    servers_file: Path | None = None
    """The same servers, in the file that most agents read: `mcpServers`."""
    readable: tuple[Path, ...] = ()
    """What an isolated agent must be able to read to start them."""
    ask: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]] | None = None
    """Answers for the servers, for an engine that is in the same process and needs no program between."""

    def variables(self, path: str) -> dict[str, str]:
        """Return the variables that lead an agent to them; `path` is its PATH without them."""
        found = {} if self.programs is None else {"PATH": f"{self.programs}{os.pathsep}{path}"}
        return found | ({} if self.servers_file is None else {"WAZA_MCP_CONFIG": str(self.servers_file)})


class Room(NamedTuple):
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
    """What was not copied from the input files, a sentence each."""
    after_turn: Callable[[Sequence[Trace]], Awaitable[str]] | None = None
    """What an engine awaits before each follow-up prompt, with the turns so far; it tells why to stop there, or not."""
    stand_ins: StandIns = StandIns()
    """What the agent gets in place of real tools."""

    def environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of a program that works in this room: harmless ones, `extra`, the way to stand-ins."""
        variables = base_environment(extra, home=self.home)
        return variables | self.stand_ins.variables(variables["PATH"])


@contextmanager
def make_room(
    task: Task, *, keep: bool = False, parent: str | Path | None = None, pinned: PinnedFiles | None = None
) -> Iterator[Room]:
    """Make a room for one trial and remove it at the end, unless it is to be kept.

    Raises EngineError when the task's input files cannot be laid out, or are not as they were `pinned`.
    """
    for source in [file.source for file in task.files if file.source and pinned]:
        if pinned and (changed := pinned.changed_below(Path(source))):
            raise EngineError(f"input files changed after the run began: {', '.join(changed[:5])}")
    try:
        if parent is not None:
            Path(parent).mkdir(0o700, exist_ok=True)  # an agent may have removed it
        place = Path(tempfile.mkdtemp(prefix="waza-", dir=parent)).resolve()
    except OSError as error:
        raise EngineError(f"no folder can be made for the trial: {error.strerror}") from None
    try:
        yield _furnished(task, place)
    finally:
        for trouble in [] if keep else remove(place):
            _log.warning("%s: %s", place, trouble)


_NOWHERE = Path(os.devnull) / "no-room"
NO_ROOM = Room(workspace=_NOWHERE, workdir=_NOWHERE, home=_NOWHERE)
"""For a trial that uses no folder: paths that lead nowhere."""


def rooms_for(run: str) -> Path | None:
    """Return a private folder for the rooms of one run, empty even if an earlier attempt at it was killed.

    None when a stranger holds that name: rooms then stand by themselves.
    """
    place = Path(tempfile.gettempdir()).resolve() / f"waza-{run}"
    try:
        if place.is_dir() and not place.is_symlink() and place.stat().st_uid == os.getuid():
            remove(place)
        place.mkdir(0o700)
    except OSError:
        return None
    return place


def remove_rooms(place: Path) -> None:
    """Remove the folder of a run's rooms with all that is left in it; nearly always it is empty."""
    try:
        place.rmdir()
    except OSError:
        for trouble in remove(place):
            _log.warning("%s: %s", place, trouble)


def _furnished(task: Task, place: Path) -> Room:
    workspace, home = place / "workspace", place / "home"
    workspace.mkdir(0o700)
    home.mkdir(0o700)
    left_out = lay_out(task.files, workspace) if task.files else ()
    return Room(workspace, _workdir(workspace, task.workdir), home, left_out=left_out)


def _workdir(workspace: Path, path: str) -> Path:
    """Return the folder the agent starts in, made if it is not there."""
    if path in ("", "."):
        return workspace
    try:
        folder = workspace / inner_path(path)
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise EngineError(f"workdir '{path}' cannot be made: {_reason(error)}") from None
    if not folder.resolve().is_relative_to(workspace):
        raise EngineError(f"workdir '{path}' leaves the workspace")
    return folder


def lay_out(files: list[InputFile], workspace: Path) -> tuple[str, ...]:
    """Lay the input files into the workspace and return what was left out."""
    copy = _Copy()
    with opened(workspace) as root:
        for file in files:
            try:
                copy.lay(root, file)
            except (OSError, ValueError) as error:
                raise EngineError(f"input file '{file.path}' cannot be laid out: {_reason(error)}") from None
        copy.lay_links(root, workspace)
    return tuple(copy.left_out)


class _Copy:
    """One copying of input files: links come last, so that nothing is ever written through one."""

    def __init__(self) -> None:
        self.links: dict[str, str] = {}
        self.left_out: list[str] = []
        self._bytes = 0
        self._entries = 0

    def lay(self, root: int, file: InputFile) -> None:
        if file.content is not None:
            with writing(root, inner_path(file.path)) as out:
                out.write(file.content.encode())
        elif file.source is None:
            raise ValueError("it has neither content nor a source")
        elif Path(file.source).is_dir():
            self._lay_folder(root, "" if file.path == "." else inner_path(file.path), file.source)
        else:
            self._lay_file(root, inner_path(file.path), Path(file.source))

    def lay_links(self, root: int, workspace: Path) -> None:
        """Make the links that were met and take away again those that lead out, judged with all of them in place."""
        for path, target in self.links.items():
            try:
                make_link(root, path, target)
            except FileExistsError:
                self.left_out.append(f"{path!r} is a link, and another input file stands there")
        files = Workspace(workspace)
        for path in [path for path in self.links if files.kind(path) == "outside"]:
            (workspace / path).unlink()
            self.left_out.append(f"{path!r} is a link that leads out of the workspace")

    def _lay_folder(self, root: int, path: str, source: str) -> None:
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
                    self._lay_file(root, place, Path(source, entry.path))
                elif entry.kind == "link":
                    self.links[place] = link_target(tree, entry.path)
                else:
                    self.left_out.append(f"{place!r} is not a regular file")

    def _lay_file(self, root: int, path: str, source: Path) -> None:
        with open_regular(source) as file:
            info = os.fstat(file.fileno())
            self._count(size=info.st_size)
            with writing(root, path, (info.st_mode & 0o777) | 0o600) as out:
                shutil.copyfileobj(file, out)

    def _count(self, *, size: int = 0, entries: int = 0) -> None:
        self._bytes += size
        self._entries += entries
        if self._bytes > MAX_INPUT_BYTES:
            raise ValueError(f"the task's input files hold more than {MAX_INPUT_BYTES // 1024**2} MiB")
        if self._entries > MAX_INPUT_ENTRIES:
            raise ValueError(f"the task's input files are more than {MAX_INPUT_ENTRIES}")


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
