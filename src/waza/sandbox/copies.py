"""A private, writable copy of a workspace, for programs that look into it; what they change there is thrown away.

Modes (never setuid), times and inner links are kept. Left out and named: what leads outside, hard links, and what is
neither file nor folder. A `.git` folder comes without hooks, links and every setting that could start a program; a
`.git` that is a file or a link, and so may stand for any folder, is left out.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path
from typing import BinaryIO

from waza.model import Files
from waza.sandbox.workspace import Workspace

MAX_COPY_BYTES = 4 * 1024**3
_CHUNK = 1024 * 1024
_SECTION = re.compile(r"\[\s*([A-Za-z0-9-]+)\s*\]\s*")
_SETTING = re.compile(r"\s*([A-Za-z0-9-]+)\s*=\s*([A-Za-z0-9]+)\s*")
_HARMLESS = {
    "core": {"repositoryformatversion", "filemode", "bare", "ignorecase", "symlinks", "precomposeunicode", "autocrlf"},
    "extensions": {"objectformat", "refstorage"},
}


def copy_workspace(files: Files, target: Path, limit: int = MAX_COPY_BYTES) -> list[str]:
    """Copy the files into the empty folder `target` and return a sentence for each thing left out.

    Raises OSError when the workspace has more than `limit` bytes or cannot be read.
    """
    source = files if isinstance(files, Workspace) else Workspace(files.root)
    left_out: list[str] = []
    links: list[str] = []
    room = limit
    for path, info in source.entries():
        parts = path.lower().split("/")
        if _may_start_programs(parts, info.st_mode):
            if parts[-1] == ".git":
                left_out.append(f"{path}: a .git that is not a folder may stand for any folder")
        elif stat.S_ISDIR(info.st_mode):
            (target / path).mkdir()
            (target / path).chmod(0o700 | stat.S_IMODE(info.st_mode) & 0o777)
        elif stat.S_ISLNK(info.st_mode):
            links.append(path)
        elif not stat.S_ISREG(info.st_mode) or info.st_nlink > 1:
            left_out.append(f"{path}: {'a hard link' if stat.S_ISREG(info.st_mode) else 'not a regular file'}")
        else:
            room -= _copy_file(source, path, info, target / path, room)
    return left_out + [f"{path}: a link that leads outside" for path in links if not _copy_link(source, path, target)]


def _copy_file(source: Workspace, path: str, info: os.stat_result, place: Path, room: int) -> int:
    """Copy one file, at most `room` bytes, and return how many bytes it has."""
    if info.st_size > room:
        raise OSError(errno.EFBIG, "the workspace is too large to be copied", path)
    with source.open(f"./{path}") as file, place.open("xb") as copy:
        if _is_git_settings(path.lower().split("/")):
            size = copy.write(_harmless_settings(file))
        else:
            size = 0
            while chunk := file.read(_CHUNK):
                size += len(chunk)
                if size > room:
                    raise OSError(errno.EFBIG, "the workspace is too large to be copied", path)
                copy.write(chunk)
    place.chmod(0o600 | stat.S_IMODE(info.st_mode) & 0o777)
    os.utime(place, ns=(info.st_atime_ns, info.st_mtime_ns))
    return size


def _copy_link(source: Workspace, path: str, target: Path) -> bool:
    """Make the link again in the copy and say whether it stays inside; judged in the copy, where nobody else writes."""
    said = source.link_target(path)
    if said is None:
        return False
    (target / path).symlink_to(said)
    if Workspace(target).kind(f"./{path}") != "outside":
        return True
    (target / path).unlink()
    return False


def _may_start_programs(parts: list[str], mode: int) -> bool:
    """Say whether a path is one of git's hooks, or can make git read its settings from any folder."""
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
    section, kept = "", []
    for line in file.read(_CHUNK).decode("utf-8", "replace").splitlines():
        if header := _SECTION.fullmatch(line):
            section = header[1].lower()
            kept.append(f"[{section}]")
        elif line.lstrip().startswith("["):
            section = ""
        elif (setting := _SETTING.fullmatch(line)) and setting[1].lower() in _HARMLESS.get(section, ()):
            kept.append(f"\t{setting[1]} = {setting[2]}")
    return ("\n".join(kept) + "\n").encode()
