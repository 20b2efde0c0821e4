"""Store a workspace as the agent left it, by content, so that a stored run can be graded again.

`take` copies a workspace once, after the agent has ended; `restore` writes it to a folder; `SnapshotFiles` reads it
from the store. A snapshot is a manifest: the entries, and in which object the content of each file is. No link is
followed, only regular files are read, and what was not copied is recorded with the reason.

Objects are stored by content: `objects/ab/abcd…` has the bytes with that SHA-256. An object is written whole or not at
all, once for all its users, and verified whenever it is read: a damaged one is an error, never other content.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec
from msgspec import Struct, field

from waza.errors import StoreError
from waza.files import tree
from waza.files.paths import inner_path
from waza.files.tree import open_regular, remove
from waza.files.workspace import MAX_FILE_BYTES, MAX_LINKS, Workspace
from waza.model import FileKind, Files, FolderListing
from waza.untrusted.text import well_formed

EMPTY = "empty"
"""The name of the snapshot of an empty workspace, which needs no object."""
MAX_ENTRIES = 100_000
MAX_STORED_FILE_BYTES = 256 * 1024**2
MAX_TOTAL_BYTES = 1024**3
Clean = Callable[[bytes], bytes]
"""Redacts secrets before something is stored."""
_NOWHERE = "/outside-of-the-workspace"
_RESTORE_ORDER = ("folder", "file", "other", "link", "outside")


class SnapshotItem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of a workspace."""

    path: str
    kind: Literal["file", "folder", "link", "outside", "other"]
    """`outside` is a hard link, whose other name may be outside; its content is never copied."""
    mode: int = 0
    size: int = 0
    sha256: str = ""
    """The object with a file's content."""
    target: str = ""
    """The target of a link; an absolute link into the workspace is stored as a relative one."""
    left_out: str = ""
    """Why the content of a file or folder was not copied."""


class Manifest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All entries of a workspace, sorted by path."""

    items: list[SnapshotItem] = field(default_factory=list)
    left_out: str = ""
    """Why there was more than is listed."""


def take(workspace: Path, store: Path, clean: Clean | None = None) -> str:
    """Copy a workspace into a store and return the snapshot's name; `clean` redacts secrets in contents and names.

    A workspace that the agent removed or replaced counts as empty. What cannot be read, even the whole workspace, is
    recorded as left out: an agent must not be able to void its trial this way. Raises StoreError.
    """
    manifest = _read(workspace, store, clean)
    if manifest == Manifest():
        return EMPTY
    return store_bytes(json.dumps(msgspec.to_builtins(manifest), separators=(",", ":")).encode(), store)


def _read(workspace: Path, store: Path, clean: Clean | None) -> Manifest:
    """Copy the files of a workspace and return its manifest."""
    try:
        root = os.open(workspace, tree.OPEN_FOLDER)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return Manifest()
        return Manifest(left_out=f"the workspace cannot be read: {error.strerror or error}")
    entries: list[tree.TreeEntry] = []
    more = ""
    try:
        for entry in tree.walk(root, MAX_ENTRIES):
            entries.append(entry)
        if len(entries) > MAX_ENTRIES:
            more = f"the workspace has more than {MAX_ENTRIES} files and folders"
    except OSError as error:
        more = f"the workspace cannot be read: {error.strerror or error}"
    try:
        copy = _SnapshotCopy(workspace, root, store, clean)
        items = sorted(map(copy.item, entries[:MAX_ENTRIES]), key=lambda item: item.path)
    finally:
        os.close(root)
    return Manifest(items=items, left_out=more)


class _SnapshotCopy:
    """The copying of one workspace, within its limits."""

    def __init__(self, workspace: Path, root: int, store: Path, clean: Clean | None) -> None:
        self.files = Workspace(workspace)
        self.root = root
        self.store = store
        self.clean = clean
        self.allowance = MAX_TOTAL_BYTES

    def item(self, entry: tree.TreeEntry) -> SnapshotItem:
        path, mode = self._text(entry.path), entry.info.st_mode & 0o777
        try:
            if entry.kind == "folder":
                return SnapshotItem(path=path, kind="folder", mode=mode, left_out=entry.trouble)
            if entry.kind == "link":
                return SnapshotItem(path=path, kind="link", target=self._text(self._target(entry.path)))
            if entry.kind == "other":
                return SnapshotItem(path=path, kind="other")
            if entry.info.st_nlink > 1:
                return SnapshotItem(path=path, kind="outside")
            sha256, size = self._keep(entry.path, entry.info.st_size)
            return SnapshotItem(path=path, kind="file", mode=mode, size=size, sha256=sha256)
        except OSError as error:
            kind: Literal["file", "other"] = "file" if entry.kind == "file" else "other"
            return SnapshotItem(path=path, kind=kind, mode=mode, left_out=error.strerror or str(error))

    def _target(self, path: str) -> str:
        return self.files.link_target(path) or tree.link_target(self.root, path)

    def _text(self, text: str) -> str:
        if self.clean is None:
            return text
        return self.clean(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    def _keep(self, path: str, size: int) -> tuple[str, int]:
        if size > MAX_STORED_FILE_BYTES:
            raise OSError(errno.EFBIG, f"it is larger than {MAX_STORED_FILE_BYTES // 1024**2} MiB")
        if size > self.allowance:
            raise OSError(errno.EFBIG, f"the workspace is larger than {MAX_TOTAL_BYTES // 1024**2} MiB")
        self.allowance -= size
        with self.files.open(f"./{path}") as file:  # so that a name such as `~a` is not taken for a home
            if self.clean is None:
                return store_file(file, size, self.store), size
            content = self.clean(file.read(size))
            return store_bytes(content, self.store), len(content)


def restore(store: Path, name: str, folder: Path) -> None:
    """Write a snapshot to an empty folder, created if it does not exist.

    Entries that graders may not read are replaced by others that they may not read: a hard link by a link that leads
    out, a device or socket by a pipe. Raises StoreError when content is missing, was left out or is damaged.
    """
    try:
        manifest = read_manifest(store, name)
        for what, why in _gaps(manifest):
            raise OSError(errno.ENODATA, f"{what} was not copied: {why}")
        folder.mkdir(0o700, parents=True, exist_ok=True)
        with tree.opened(folder) as root:
            for item in sorted(manifest.items, key=lambda item: _RESTORE_ORDER.index(item.kind)):
                _restore_item(root, item, store)
            for item in reversed([item for item in manifest.items if item.kind == "folder"]):
                tree.set_mode(root, item.path, item.mode)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise StoreError(f"the stored workspace cannot be restored: {reason}") from error


def _restore_item(root: int, item: SnapshotItem, store: Path) -> None:
    path = item.path
    if not set(path.split("/")).isdisjoint(("", ".", "..")):
        raise ValueError(f"{path!r} is not a path in a workspace")
    if item.kind == "folder":
        tree.make_folder(root, path)
    elif item.kind == "file":
        with tree.writing(root, path, item.mode & 0o777) as out:
            for chunk in read_chunks(store, item.sha256):
                out.write(chunk)
    elif item.kind == "other":
        tree.make_pipe(root, path)
    else:
        tree.make_link(root, path, item.target or _NOWHERE)


def _gaps(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Yield what the workspace had and the snapshot does not, with the reason."""
    if manifest.left_out:
        yield "not all of it", manifest.left_out
    yield from ((repr(item.path), item.left_out) for item in manifest.items if item.left_out)


def left_out(store: Path, name: str) -> list[str]:
    """Return a message for each thing that the workspace had and the snapshot does not."""
    return [f"{what}: {why}" for what, why in _gaps(read_manifest(store, name))]


def read_manifest(store: Path, name: str) -> Manifest:
    """Return a stored manifest; raise OSError when it is missing or damaged."""
    if name == EMPTY:
        return Manifest()
    try:
        return msgspec.convert(json.loads(read_object(store, name)), Manifest)
    except (ValueError, RecursionError) as error:
        raise OSError(errno.EINVAL, f"that is not a stored workspace: {error}") from None


class SnapshotFiles:
    """The files of a stored workspace, with the interface of `Workspace`."""

    def __init__(self, store: str | Path, name: str, turns: Mapping[str, str] | None = None) -> None:
        self._store = store if isinstance(store, Path) else Path(store)
        self._name = name
        self._turns = turns or {}

    def __repr__(self) -> str:
        return f"SnapshotFiles({self._name!r})"

    def after_turn(self, number: int) -> SnapshotFiles | None:
        """Return the files as they were after one of several prompts, where that was stored."""
        name = self._turns.get(str(number))
        return SnapshotFiles(self._store, name) if name else None

    def kind(self, path: str) -> FileKind:
        """Return the kind of the entry at `path`; raise OSError when that was not recorded."""
        found = self._find(path)
        return found if isinstance(found, str) else "file"

    def read(self, path: str) -> bytes:
        """Return the bytes of the regular file at `path`; raise OSError with a reason otherwise."""
        found = self._find(path)
        if isinstance(found, str):
            raise OSError(errno.ENOENT if found == "absent" else errno.EINVAL, _REFUSALS[found], path)
        if found.left_out or found.size > MAX_FILE_BYTES:
            raise OSError(errno.EFBIG, found.left_out or f"larger than {MAX_FILE_BYTES} bytes", path)
        return read_object(self._store, found.sha256)

    def sha256(self, path: str) -> str:
        """Return the SHA-256 of the regular file at `path`, which is stored; raise OSError with a reason otherwise."""
        found = self._find(path)
        if isinstance(found, str):
            raise OSError(errno.ENOENT if found == "absent" else errno.EINVAL, _REFUSALS[found], path)
        if found.left_out:
            raise OSError(errno.ENODATA, found.left_out, path)
        return found.sha256

    def paths(self) -> Iterator[str]:
        """Yield the path of every regular file, sorted; raise OSError when not all were recorded."""
        for item in self._manifest.items:
            if item.kind == "folder" and item.left_out:
                raise OSError(errno.ENODATA, item.left_out, item.path)
        if self._manifest.left_out:
            raise OSError(errno.EFBIG, self._manifest.left_out)
        yield from (item.path for item in self._manifest.items if item.kind in ("file", "outside"))

    def list_folder(self, path: str) -> FolderListing:
        """Return what was in the folder at `path`, or in the root for an empty one; raise OSError otherwise."""
        found, real = self._walk(path) if path else ("folder", "")
        if found != "folder":
            kind = found if isinstance(found, str) else "file"
            raise OSError(errno.ENOTDIR, "is not a folder" if kind == "file" else _REFUSALS[kind], path)
        item = self._items.get(real)
        return FolderListing(
            real, self._children.get(real, []), (item.left_out if item else "") or self._manifest.left_out
        )

    @cached_property
    def _children(self) -> dict[str, list[tuple[str, Literal["file", "folder", "link", "other"]]]]:
        """The names in each folder."""
        children: dict[str, list[tuple[str, Literal["file", "folder", "link", "other"]]]] = {}
        for item in self._manifest.items:
            above, _, name = item.path.rpartition("/")
            children.setdefault(above, []).append((name, "file" if item.kind == "outside" else item.kind))
        return children

    @cached_property
    def root(self) -> str:
        """A private copy of the files, made at first use and removed with this object."""
        place = Path(tempfile.mkdtemp(prefix="waza-")).resolve()
        weakref.finalize(self, remove, place)
        try:
            restore(self._store, self._name, place)
        except StoreError as error:
            raise OSError(errno.ENODATA, str(error)) from None
        return str(place)

    @cached_property
    def _manifest(self) -> Manifest:
        return read_manifest(self._store, self._name)

    @cached_property
    def _items(self) -> dict[str, SnapshotItem]:
        return {item.path: item for item in self._manifest.items}

    def _find(self, path: str) -> SnapshotItem | Literal["hard_link", "folder", "outside", "other", "absent"]:
        """Return the file at `path`, links followed, or the kind of what is there instead."""
        return self._walk(path)[0]

    def _walk(
        self, path: str
    ) -> tuple[SnapshotItem | Literal["hard_link", "folder", "outside", "other", "absent"], str]:
        """Return what `_find` returns, and for a folder where it really is."""
        try:
            ahead = inner_path(path).split("/")[::-1]
        except ValueError:
            return "outside", ""
        here: list[str] = []
        links, is_link = 0, False
        while ahead:
            name = ahead.pop()
            if name == ".." and not here:
                return "outside", ""
            if name in ("", ".", ".."):
                here = here[:-1] if name == ".." else here
                continue
            item = self._items.get("/".join([*here, name]))
            if item is None:
                return self._missing(here, is_link), ""
            if item.kind == "link":
                links, is_link = links + 1, is_link or not any(ahead)
                if item.target.startswith("/") or links > MAX_LINKS:
                    return "outside" if links <= MAX_LINKS else "other", ""
                ahead += item.target.split("/")[::-1]
            elif item.kind == "folder":
                here.append(name)
            elif any(ahead):
                return self._missing(here, is_link), ""
            else:
                return item if item.kind == "file" else "other" if item.kind == "other" else "hard_link", ""
        return "folder", "/".join(here)

    def _missing(self, here: list[str], is_link: bool) -> Literal["other", "absent"]:
        """Return the kind of a missing entry; raise OSError when the folder was not listed."""
        above = self._items.get("/".join(here))
        unknown = (above.left_out if above else "") or self._manifest.left_out
        if unknown:
            raise OSError(errno.ENODATA, unknown, "/".join(here))
        return "other" if is_link else "absent"


_REFUSALS = {
    "absent": "is not there",
    "folder": "is a folder",
    "hard_link": "has further hard links, so that its content may be that of a file outside the workspace",
    "other": "is not a regular file",
    "outside": "leads outside the workspace",
}


def file_sha256(files: Files, path: str) -> str:
    """Return the SHA-256 of a regular file of any size; raise OSError with a reason when it cannot be read."""
    if isinstance(files, SnapshotFiles):
        return files.sha256(path)
    if not isinstance(files, Workspace):
        return hashlib.sha256(files.read(path)).hexdigest()
    digest = hashlib.sha256()
    with files.open(path) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def hash_files(files: Files, clean: Clean | None = None) -> dict[str, str] | None:
    """Return the SHA-256 of every regular file by its path; None when not all can be read.

    With `clean` they are those of a snapshot that is taken with it, so that the two can be compared.
    """
    found = {}
    try:
        for path in files.paths():
            inner = f"./{path}"  # so that a name such as `~a` is not taken for a home
            if clean is None or not isinstance(files, Workspace):
                found[well_formed(path)] = file_sha256(files, inner)
            else:
                name = clean(path.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")
                content = clean(files.read(inner, MAX_STORED_FILE_BYTES))
                found[well_formed(name)] = hashlib.sha256(content).hexdigest()
    except OSError:
        return None
    return found


_CHUNK = 1024 * 1024
_NAME = re.compile(r"[0-9a-f]{64}")


def store_file(file: BinaryIO, size: int, store: Path) -> str:
    """Store the first `size` bytes of an open file, unless it has them already, and return their name."""
    digest = hashlib.sha256()
    for chunk in _chunks(file, size):
        digest.update(chunk)
    if _has(store, digest.hexdigest(), size):
        return digest.hexdigest()
    file.seek(0)
    return _write(_chunks(file, size), store)


def store_bytes(content: bytes, store: Path) -> str:
    """Store bytes, unless it has them already, and return their name."""
    name = hashlib.sha256(content).hexdigest()
    return name if _has(store, name, len(content)) else _write([content], store)


def read_object(store: Path, name: str) -> bytes:
    """Return an object's bytes; raise OSError when it is missing or damaged."""
    return b"".join(read_chunks(store, name))


def read_chunks(store: Path, name: str) -> Iterator[bytes]:
    """Yield an object's bytes piece by piece; raise OSError, at the latest at the end, when it is damaged."""
    digest = hashlib.sha256()
    with open_regular(_place(store, name)) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            yield chunk
    if digest.hexdigest() != name:
        raise OSError(errno.EIO, "the stored copy is damaged")


def _write(chunks: Iterable[bytes], store: Path) -> str:
    """Write an object to a temporary file, rename it after the hash of what was written, and return that name."""
    try:
        (store / "objects").mkdir(0o700, parents=True, exist_ok=True)
        handle, temp = tempfile.mkstemp(prefix=".", dir=store / "objects")
        try:
            digest = hashlib.sha256()
            with os.fdopen(handle, "wb") as out:
                for chunk in chunks:
                    digest.update(chunk)
                    out.write(chunk)
            place = _place(store, digest.hexdigest())
            place.parent.mkdir(0o700, exist_ok=True)
            Path(temp).replace(place)
        finally:
            Path(temp).unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"{store}: a copy of the workspace cannot be written: {error.strerror}") from error
    return digest.hexdigest()


def _chunks(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield at most `size` bytes, so that reading ends even if the file grows."""
    left = size
    while left > 0 and (chunk := file.read(min(left, _CHUNK))):
        left -= len(chunk)
        yield chunk


def _has(store: Path, name: str, size: int) -> bool:
    """Return whether an object is in the store; a truncated one has another size and is written again."""
    try:
        return _place(store, name).stat().st_size == size
    except OSError:
        return False


def _place(store: Path, name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise OSError(errno.EINVAL, "that is not the name of a stored copy")
    return store / "objects" / name[:2] / name
