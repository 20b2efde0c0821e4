"""List, write and remove trees of files that a hostile agent may have made, without following any link.

Every step goes through an open folder (`openat`), so swapping a folder for a link changes nothing, and no operation
has more than a few files open. An agent's files are read through `workspace`. Removal reports what it cannot remove and
raises nothing: a finished trial must not be lost over leftover files.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Container, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

MAX_PATH_BYTES = 1_000
"""A longer path below a tree's root is not entered; real file systems stop soon after."""

EntryKind = Literal["file", "folder", "link", "other"]

_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
OPEN_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NO_LINK
_NO_WAIT = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)


class TreeEntry(NamedTuple):
    """One thing in a tree."""

    path: str
    """Its path below the root; bytes that are not UTF-8 are surrogates."""
    kind: EntryKind
    info: os.stat_result
    trouble: str = ""
    """Why a folder could not be listed."""


@contextmanager
def opened(folder: str | Path) -> Iterator[int]:
    """Open a folder, which must not be a link itself."""
    root = os.open(folder, OPEN_FOLDER)
    try:
        yield root
    finally:
        os.close(root)


def walk(root: int, limit: int, closed: Container[str] = ()) -> Iterator[TreeEntry]:
    """Yield everything below an open folder, parents first, and stop after `limit` + 1 entries.

    A folder whose name is in `closed` is yielded, but not entered.
    """
    pending = _children(root, "", limit)
    count = 0
    while pending and count <= limit:
        entry = pending.pop()
        if entry.kind == "folder" and entry.path.rpartition("/")[2] not in closed:
            try:
                pending += _children(root, entry.path, limit)
            except OSError as error:
                entry = entry._replace(trouble=f"it cannot be listed: {error.strerror}")
        count += 1
        yield entry


def _children(root: int, path: str, limit: int) -> list[TreeEntry]:
    with _below(root, path) as folder, os.scandir(folder) as found:
        return [
            TreeEntry(f"{path}/{item.name}" if path else item.name, _kind(info), info)
            for item in islice(found, limit + 1)
            if (info := item.stat(follow_symlinks=False))
        ]


def _kind(info: os.stat_result) -> EntryKind:
    mode = info.st_mode
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    return "link" if stat.S_ISLNK(mode) else "other"


@contextmanager
def _below(root: int, path: str, *, create: bool = False) -> Iterator[int]:
    """Open the folder at `path`, one component at a time; with `create`, create the missing ones."""
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise OSError(errno.ENAMETOOLONG, f"the path has more than {MAX_PATH_BYTES} bytes")
    folder = os.dup(root)
    try:
        for part in path.split("/") if path else ():
            if create:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=folder)
            inner = os.open(part, OPEN_FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def open_regular(path: str | Path) -> BinaryIO:
    """Open a regular file for reading; a link is not followed, a pipe not waited for."""
    stream = os.fdopen(os.open(path, os.O_RDONLY | _NO_LINK | _NO_WAIT), "rb")
    if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        return stream
    stream.close()
    raise OSError(errno.EINVAL, "it is not a regular file")


@contextmanager
def writing(root: int, path: str, mode: int = 0o600) -> Iterator[BinaryIO]:
    """Write the regular file at `path` below an open folder, creating folders; nothing is written through a link."""
    above, _, name = path.rpartition("/")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _NO_LINK | _NO_WAIT
    with _below(root, above, create=True) as folder:
        file = os.open(name, flags, 0o600, dir_fd=folder)
    with os.fdopen(file, "wb") as stream:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "there is something that is not a regular file")
        os.fchmod(file, mode)
        yield stream


def make_folder(root: int, path: str) -> None:
    """Create the folder at `path` below an open folder, if it does not exist."""
    with _below(root, path, create=True):
        pass


def link_target(root: int, path: str) -> str:
    """Return the text of the link at `path` below an open folder."""
    above, _, name = path.rpartition("/")
    with _below(root, above) as folder:
        return os.readlink(name, dir_fd=folder)


def make_link(root: int, path: str, target: str) -> None:
    """Make a link at `path` below an open folder."""
    above, _, name = path.rpartition("/")
    with _below(root, above, create=True) as folder:
        os.symlink(target, name, dir_fd=folder)


def make_pipe(root: int, path: str) -> None:
    """Make a named pipe at `path` below an open folder."""
    above, _, name = path.rpartition("/")
    with _below(root, above, create=True) as folder:
        os.mkfifo(name, 0o600, dir_fd=folder)


def set_mode(root: int, path: str, mode: int) -> None:
    """Give the folder at `path` its rights, without any special bit."""
    with _below(root, path) as folder:
        os.fchmod(folder, mode & 0o777)


def clear(folder: Path) -> list[str]:
    """Remove everything in a folder; return a message for each thing that could not be removed."""
    try:
        with _parent(folder) as above, _unlocked(above, folder.name) as root:
            return list(_strip_all(root))
    except OSError as error:
        return [_message(folder.name, error)]


def remove(folder: Path) -> list[str]:
    """Remove a folder with everything in it; return a message for each thing that could not be removed."""
    troubles: list[str] = []
    try:
        with _parent(folder) as above:
            if _is_folder(above, folder.name):
                with _unlocked(above, folder.name) as root:
                    troubles += _strip_all(root)
                os.rmdir(folder.name, dir_fd=above)
            else:
                os.unlink(folder.name, dir_fd=above)
    except FileNotFoundError:
        pass
    except OSError as error:
        troubles.append(_message(folder.name, error))
    return troubles


@contextmanager
def _parent(folder: Path) -> Iterator[int]:
    above = os.open(folder.parent, os.O_RDONLY)
    try:
        yield above
    finally:
        os.close(above)


def _is_folder(above: int, name: str) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode)


def _strip_all(root: int) -> Iterator[str]:
    """Empty an open folder. Every deeper folder is first moved up into it, so that paths never get too long."""
    token = secrets.token_hex(8)
    waiting: list[tuple[str, str]] = []
    moved = 0

    def strip(folder: int) -> Iterator[str]:
        nonlocal moved
        with os.scandir(folder) as found:
            entries = [(item.name, item.is_dir(follow_symlinks=False)) for item in found]
        for name, is_folder in entries:
            try:
                if not is_folder:
                    os.unlink(name, dir_fd=folder)
                elif folder == root:
                    waiting.append((name, name))
                elif not _remove_if_empty(name, folder):
                    moved += 1
                    _move(name, folder, f".{token}-{moved}", root)
                    waiting.append((f".{token}-{moved}", name))
            except OSError as error:
                yield _message(name, error)

    yield from strip(root)
    while waiting:
        name, original = waiting.pop()
        try:
            if not _remove_if_empty(name, root):
                with _unlocked(root, name) as folder:
                    yield from strip(folder)
                os.rmdir(name, dir_fd=root)
        except OSError as error:
            yield _message(original, error)


def _remove_if_empty(name: str, above: int) -> bool:
    """Remove a folder if it is empty, the common case, and return whether it was."""
    try:
        os.rmdir(name, dir_fd=above)
    except OSError:
        return False
    return True


def _move(name: str, folder: int, new: str, root: int) -> None:
    """Move a folder; moving one to another parent needs the right to write in it."""
    try:
        os.rename(name, new, src_dir_fd=folder, dst_dir_fd=root)
    except PermissionError:
        _allow(folder, name)
        os.rename(name, new, src_dir_fd=folder, dst_dir_fd=root)


@contextmanager
def _unlocked(above: int, name: str) -> Iterator[int]:
    """Open a folder by name with all rights of its owner, whatever the agent took away."""
    try:
        folder = os.open(name, OPEN_FOLDER, dir_fd=above)
    except PermissionError:
        _allow(above, name)
        folder = os.open(name, OPEN_FOLDER, dir_fd=above)
    try:
        with contextlib.suppress(OSError):
            os.fchmod(folder, 0o700)
        yield folder
    finally:
        os.close(folder)


def _allow(above: int, name: str) -> None:
    """Give the owner all rights to a folder that cannot be opened; never to the target of a link."""
    if not hasattr(os, "O_PATH"):
        os.chmod(name, 0o700, dir_fd=above, follow_symlinks=False)
        return
    handle = os.open(name, os.O_PATH | OPEN_FOLDER, dir_fd=above)
    try:
        Path(f"/proc/self/fd/{handle}").chmod(0o700)
    finally:
        os.close(handle)


def _message(name: str, error: OSError) -> str:
    return f"{name!r} could not be removed: {error.strerror}"
