"""Read a workspace safely: no link is followed out of it, and only regular files are read.

A path is walked one name at a time from the root's own descriptor and no step follows a link; a link is read and walked
in the same way. A path that is swapped meanwhile can make a read fail, but never leads out. Where the system has no
such calls (Windows), real paths are compared before and after opening: safe against links, not against a racing writer.
A file with a second name (a hard link) is never read: its other name may be outside.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

from waza.files import tree
from waza.files.paths import inner_path
from waza.model import FileKind, Files, FolderListing

MAX_FILE_BYTES = 64 * 1024 * 1024
MAX_ENTRIES = 200_000
MAX_LINKS = 40
HAS_DESCRIPTORS = {os.open, os.stat, os.readlink} <= os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")

_READ = os.O_RDONLY
for _flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"):
    _READ |= getattr(os, _flag, 0)
_PASS = _READ | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_PATH", 0)
_GONE = (FileNotFoundError, NotADirectoryError)


class Workspace:
    """The files below one folder, as the agent left them."""

    def __init__(self, root: str | Path, *, descriptors: bool = HAS_DESCRIPTORS) -> None:
        self._given = Path(root).absolute()
        self._root = self._given.resolve()
        self._by_descriptor = descriptors
        self._find = self._walk if descriptors else self._compare

    def __repr__(self) -> str:
        return f"Workspace({str(self._root)!r})"

    @property
    def root(self) -> str:
        """The folder itself, for programs that need a real path."""
        return str(self._root)

    def kind(self, path: str) -> FileKind:
        """Return the kind of the entry at `path`; raise OSError if it is unknown (no permission, changed meanwhile)."""
        try:
            with self._find(inner_path(path)) as place:
                return place.kind
        except ValueError:
            return "outside"

    def read(self, path: str, limit: int = MAX_FILE_BYTES) -> bytes:
        """Return the bytes of the regular file at `path`; raise OSError with a reason otherwise."""
        with self.open(path) as file:
            if os.fstat(file.fileno()).st_size <= limit and len(data := file.read(limit + 1)) <= limit:
                return data
        raise OSError(errno.EFBIG, f"larger than {limit} bytes", path)

    def open(self, path: str) -> BinaryIO:
        """Return the regular file at `path`, open for reading; raise OSError with a reason otherwise."""
        try:
            place = self._find(inner_path(path))
        except ValueError as error:
            raise PermissionError(errno.EPERM, str(error)) from None
        with place as found:
            if found.kind != "file":
                raise _refusal(found, path)
            descriptor = os.open(found.name, _READ, dir_fd=found.folder)
            file = os.fdopen(descriptor, "rb")
            opened = _classify(os.fstat(descriptor))
            if opened.kind == "file" and (found.folder is not None or self._still(found, descriptor)):
                return file
            file.close()
            raise _refusal(opened, path)

    def paths(self) -> Iterator[str]:
        """Yield the path of every regular file, sorted, those with further hard links too; links are not followed."""
        yield from sorted(path for path, info in self.entries() if stat.S_ISREG(info.st_mode))

    def list_folder(self, path: str) -> FolderListing:
        """Return what is in the folder at `path`, or in the root for an empty one; raise OSError otherwise."""
        try:
            place = self._find(inner_path(path) if path else "")
        except ValueError as error:
            raise PermissionError(errno.EPERM, str(error)) from None
        with place as found:
            if found.kind != "folder":
                raise _refusal(found, path)
            if found.folder is None:
                with os.scandir(found.name) as names:
                    return FolderListing(found.name, [(name.name, _own_kind(name)) for name in names])
            folder = os.open(found.name, tree.OPEN_FOLDER, dir_fd=found.folder)
            try:
                info = os.fstat(folder)
                with os.scandir(folder) as names:
                    return FolderListing((info.st_dev, info.st_ino), [(name.name, _own_kind(name)) for name in names])
            finally:
                os.close(folder)

    def entries(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield everything below the root with its own status, a folder before what is in it; no link is followed.

        Raises OSError when not all can be listed.
        """
        for count, (path, info) in enumerate(self._below() if self._by_descriptor else self._below_by_name(), 1):
            if count > MAX_ENTRIES:
                raise OSError(errno.EFBIG, f"more than {MAX_ENTRIES} files and folders", self.root)
            yield path, info

    def _below(self) -> Iterator[tuple[str, os.stat_result]]:
        with tree.opened(self._root) as root:
            for entry in tree.walk(root, MAX_ENTRIES):
                if entry.trouble:
                    raise OSError(errno.EACCES, entry.trouble, entry.path)
                yield entry.path, entry.info

    def _below_by_name(self) -> Iterator[tuple[str, os.stat_result]]:
        for folder, folders, names in os.walk(self._root):
            for name in folders + names:
                place = Path(folder) / name
                yield place.relative_to(self._root).as_posix(), place.lstat()

    def link_target(self, path: str) -> str | None:
        """Return the target of the link at `path`, relative to its folder; None for an absolute one that leads out."""
        here, _, name = path.rpartition("/")
        with self._find(here) as found:
            target = os.readlink(Path(found.name) / name, dir_fd=found.folder)
        if not Path(target).is_absolute():
            return target
        inner = self._inside(target)
        return None if inner is None else os.path.relpath(inner, here or ".")

    def _inside(self, target: str) -> str | None:
        """Return an absolute link's target relative to the root, or None if it is not below it."""
        for root in (self._root, self._given):
            if Path(target).is_relative_to(root):
                return str(Path(target).relative_to(root))
        return None

    @contextmanager
    def _walk(self, path: str) -> Iterator[_WalkedPath]:
        """Yield the entry at `path`, with its open parent folder."""
        folders = [os.open(self._root, _PASS)]
        try:
            yield self._descend(folders, path)
        finally:
            for descriptor in folders:
                os.close(descriptor)

    def _descend(self, folders: list[int], path: str) -> _WalkedPath:
        """Return the entry at `path`; `folders` are the descriptors of the folders on the way, the root first."""
        ahead, links, is_link = path.split("/")[::-1], 0, False
        while ahead:
            name = ahead.pop()
            if name == "..":
                if len(folders) == 1:
                    return _LEADS_OUT
                os.close(folders.pop())
            if name in ("", ".", ".."):
                continue
            info = _status(name, folders[-1])
            if info is None:
                return _missing(is_link)
            if stat.S_ISLNK(info.st_mode):
                links, is_link = links + 1, is_link or not any(ahead)
                target = self._follow(name, folders)
                if target is None or links > MAX_LINKS:
                    return _LEADS_OUT if target is None else _TOO_MANY_LINKS
                ahead += target.split("/")[::-1]
            elif not any(ahead):
                return _classify(info, name, folders[-1])
            elif stat.S_ISDIR(info.st_mode):
                folders.append(os.open(name, _PASS, dir_fd=folders[-1]))
            else:
                return _missing(is_link)
        return _WalkedPath("folder", "is a folder", ".", folders[-1])

    def _follow(self, name: str, folders: list[int]) -> str | None:
        """Return where a link leads from the last of `folders`, or None; an absolute one reduces them to the root."""
        target = os.readlink(name, dir_fd=folders[-1])
        if not Path(target).is_absolute():
            return target
        while len(folders) > 1:
            os.close(folders.pop())
        return self._inside(target)

    @contextmanager
    def _compare(self, path: str) -> Iterator[_WalkedPath]:
        """Yield the entry at `path` by comparing real paths, for systems without descriptors of folders."""
        yield self._resolve(path)

    def _resolve(self, path: str) -> _WalkedPath:
        try:
            real = (self._root / path).resolve(strict=True)
            if not real.is_relative_to(self._root):
                return _LEADS_OUT
            return _classify(real.stat(), str(real))
        except _GONE:
            return _missing(os.path.lexists(self._root / path))
        except RuntimeError:
            return _TOO_MANY_LINKS

    def _still(self, found: _WalkedPath, descriptor: int) -> bool:
        """Return whether an opened file is still the one that was checked, with every link resolved."""
        real = Path(found.name)
        return real.resolve() == real and os.path.samestat(real.stat(), os.fstat(descriptor))


class _WalkedPath(NamedTuple):
    """The result of a walk: the kind, the reason for it, and the name and open folder to reach the entry by."""

    kind: FileKind
    why: str
    name: str = ""
    folder: int | None = None


_LEADS_OUT = _WalkedPath("outside", "leads outside the workspace")
_TOO_MANY_LINKS = _WalkedPath("other", "is a chain of too many links")


def _status(name: str, folder: int) -> os.stat_result | None:
    """Return the own status of a name in an open folder, or None if there is nothing."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except _GONE:
        return None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return None
        raise


def _classify(info: os.stat_result, name: str = "", folder: int | None = None) -> _WalkedPath:
    if stat.S_ISDIR(info.st_mode):
        return _WalkedPath("folder", "is a folder", name, folder)
    if not stat.S_ISREG(info.st_mode):
        return _WalkedPath("other", "is not a regular file", name, folder)
    if info.st_nlink > 1:
        why = "has further hard links, so that its content may be that of a file outside the workspace"
        return _WalkedPath("hard_link", why, name, folder)
    return _WalkedPath("file", "", name, folder)


def _own_kind(entry: os.DirEntry[str]) -> Literal["file", "folder", "link", "other"]:
    """Return the kind of an entry of a folder; no link is followed."""
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


def _missing(is_link: bool) -> _WalkedPath:
    return _WalkedPath("other", "is a link to nothing") if is_link else _WalkedPath("absent", "is not there")


def _refusal(place: _WalkedPath, path: str) -> OSError:
    codes = {"absent": errno.ENOENT, "folder": errno.EISDIR, "outside": errno.EPERM, "hard_link": errno.EPERM}
    return OSError(codes.get(place.kind, errno.EINVAL), place.why, path)


def live_root(files: Files | None) -> str:
    """Return the folder of a live workspace, else an empty text: a stored one would have to be restored first."""
    return files.root if isinstance(files, Workspace) else ""
