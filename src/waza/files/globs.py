"""Globs over the files of a workspace: `*` and `?` within one folder, `**` for any number of folders.

Nothing else is special: brackets and braces are themselves, names that begin with a dot are names, case counts. Links
that stay in the workspace are followed, each folder once; links that lead out are never followed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from waza.files.paths import inner_path
from waza.model import FileKind, Files, FolderListing
from waza.untrusted.patterns import fits_name

MAX_GLOB_ENTRIES = 200_000
"""How many names one search visits; in a larger workspace the rest is unknown."""


class GlobMatch(NamedTuple):
    """One match, or a folder that could not be listed (`unknown`)."""

    path: str
    kind: FileKind | Literal["unknown"]
    why: str = ""


def is_glob(path: str) -> bool:
    """Return whether a path has a wildcard."""
    return "*" in path or "?" in path


class GlobSearch:
    """Finds what matches in one workspace; folders are listed once for all globs."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._listings: dict[str, FolderListing | OSError] = {}
        self._left = MAX_GLOB_ENTRIES

    def find(self, path: str) -> Iterator[GlobMatch]:
        """Yield what a path or glob matches; a path without wildcards that is absent yields nothing."""
        literal = self._found(inner_path(path))
        if not is_glob(path):
            yield from [literal] if literal.kind != "absent" else []
            return
        if literal.kind not in ("absent", "outside", "unknown"):
            yield literal  # a name may have a `*` in it
        yield from (found for found in self._walk(_segments(path)) if found.path != literal.path)

    def _walk(self, segments: list[str]) -> Iterator[GlobMatch]:
        waiting = [("", 0)]
        visited: set[tuple[object, int]] = set()
        while waiting:
            folder, index = waiting.pop()
            listing = self._listing(folder)
            if isinstance(listing, OSError):
                yield GlobMatch(folder, "unknown", listing.strerror or str(listing))
                continue
            if (listing.identity, index) in visited:
                continue
            visited.add((listing.identity, index))
            if listing.left_out:
                yield GlobMatch(folder, "unknown", listing.left_out)
            inner: list[tuple[str, int]] = [(folder, index + 1)] if segments[index] == "**" else []
            for found in self._in_folder(folder, listing, segments[index]):
                if index + 1 == len(segments) or found.kind == "unknown":
                    yield found
                elif found.kind == "folder":
                    inner.append((found.path, index + (segments[index] != "**")))
                elif found.kind == "outside" and segments[index] != "**":
                    yield found
            waiting += reversed(inner)

    def _in_folder(self, folder: str, listing: FolderListing, segment: str) -> Iterator[GlobMatch]:
        """Yield the entries of a folder that a segment matches, links resolved; `**` matches every name."""
        for name, kind in listing.entries:
            if segment == "**" and kind not in ("folder", "link"):
                continue
            if segment == "**" or fits_name(segment, name):
                path = f"{folder}/{name}" if folder else name
                yield self._found(path) if kind == "link" else GlobMatch(path, kind)

    def _found(self, path: str) -> GlobMatch:
        try:
            return GlobMatch(path, self._files.kind(f"./{path}"))  # so that a name such as `~a` is not taken for a home
        except OSError as error:
            return GlobMatch(path, "unknown", error.strerror or str(error))

    def _listing(self, folder: str) -> FolderListing | OSError:
        if folder not in self._listings:
            self._listings[folder] = self._listed(folder)
        return self._listings[folder]

    def _listed(self, folder: str) -> FolderListing | OSError:
        if self._left <= 0:
            return OSError(f"more than {MAX_GLOB_ENTRIES:,} files and folders were visited")
        try:
            listing = self._files.list_folder(f"./{folder}" if folder else "")
        except OSError as error:
            return error
        self._left -= len(listing.entries)
        return listing._replace(entries=sorted(listing.entries))


def _segments(path: str) -> list[str]:
    """Return the parts of a glob; a `**` at the end means everything below."""
    parts: list[str] = []
    for part in inner_path(path).split("/"):
        if part != "**" or parts[-1:] != ["**"]:
            parts.append(part)
    return [*parts, "*"] if parts[-1] == "**" else parts
