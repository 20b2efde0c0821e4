"""Remove what an agent left: any depth, any name, any mode; no link is followed and nothing outside is touched.

What cannot be removed is told, never raised: a trial that is over must not be lost over its litter.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from waza.sandbox.tree import OPEN_FOLDER


def clear(folder: Path) -> list[str]:
    """Remove all that stands in a folder; return a sentence for each thing that could not be removed."""
    try:
        with _parent(folder) as above, _unlocked(above, folder.name) as root:
            return list(_strip_all(root))
    except OSError as error:
        return [_sentence(folder.name, error)]


def remove(folder: Path) -> list[str]:
    """Remove a folder with all that stands in it; return a sentence for each thing that could not be removed."""
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
        troubles.append(_sentence(folder.name, error))
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
    """Empty an open folder. Every deeper folder is first moved up into it, so that depth never matters."""
    token = secrets.token_hex(8)
    waiting: list[tuple[str, str]] = []
    made = 0

    def strip(folder: int) -> Iterator[str]:
        nonlocal made
        with os.scandir(folder) as found:
            entries = [(item.name, item.is_dir(follow_symlinks=False)) for item in found]
        for name, is_folder in entries:
            try:
                if not is_folder:
                    os.unlink(name, dir_fd=folder)
                elif folder == root:
                    waiting.append((name, name))
                elif not _is_gone(name, folder):
                    made += 1
                    _move(name, folder, f".{token}-{made}", root)
                    waiting.append((f".{token}-{made}", name))
            except OSError as error:
                yield _sentence(name, error)

    yield from strip(root)
    while waiting:
        name, called = waiting.pop()
        try:
            if not _is_gone(name, root):
                with _unlocked(root, name) as folder:
                    yield from strip(folder)
                os.rmdir(name, dir_fd=root)
        except OSError as error:
            yield _sentence(called, error)


def _is_gone(name: str, above: int) -> bool:
    """Remove a folder if it is empty, the common case, and say whether that was so."""
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
    """Give the owner all rights to a folder that cannot be opened; never to what a link leads to."""
    if not hasattr(os, "O_PATH"):
        os.chmod(name, 0o700, dir_fd=above, follow_symlinks=False)
        return
    handle = os.open(name, os.O_PATH | OPEN_FOLDER, dir_fd=above)
    try:
        Path(f"/proc/self/fd/{handle}").chmod(0o700)
    finally:
        os.close(handle)


def _sentence(name: str, error: OSError) -> str:
    return f"{name!r} could not be removed: {error.strerror}"
