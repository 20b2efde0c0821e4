"""A folder in an object store, through fsspec: its names and the few calls that waza makes; nothing about runs.

Names that come from a store are hostile: one that is not plain never becomes a path. Credentials come from the
environment, as each store's own library reads them; a URL that carries a password is refused.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from waza.errors import StoreError, UsageError, WazaError

_URL = re.compile(r"(?P<protocol>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>.*)", re.S)
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+@=~ -]{0,199}")
_NEEDS = {"s3": "s3", "gs": "gs", "gcs": "gs", "az": "az", "abfs": "az", "abfss": "az"}
"""Each protocol, and the extra that brings its library."""
_KEYS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, AWS_ENDPOINT_URL",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN",
}
_TAGS = ("ETag", "etag", "md5Hash", "LastModified", "last_modified", "mtime")
MOST_WORDS = 300


class Object(Struct, frozen=True, array_like=True):
    """A file of a store, as the store lists it."""

    size: int
    tag: str
    """Differs when the content does; empty where the store has none."""


def is_url(text: object) -> bool:
    """Return whether a text is an address and not a path."""
    return isinstance(text, str) and _URL.match(text) is not None


def checked_url(url: str) -> str:
    """Return the address of a folder without a slash at its end; raise UsageError when runs cannot be stored there."""
    found = _URL.fullmatch(url)
    if found is None:
        raise UsageError(f"'{url}' is no address of an object store, such as s3://bucket/runs")
    if found["protocol"] not in _NEEDS:
        raise UsageError(f"{url}: runs are kept in folders, or at {', '.join(f'{name}://' for name in _NEEDS)}")
    bucket, *parts = found["rest"].rstrip("/").split("/")
    if ":" in bucket or "?" in url or "#" in url:
        raise UsageError(f"{found['protocol']}://…: an address has no password and no '?'; {_environment(url)}")
    if not bucket or not all(map(is_plain, parts)):
        raise UsageError(f"{url}: a bucket and plain names are needed, such as {found['protocol']}://bucket/runs")
    return f"{found['protocol']}://{'/'.join([bucket, *parts])}"


def is_plain(part: str) -> bool:
    """Return whether a name may become one on a disk: letters, digits and few signs, no dot in front."""
    return _PART.fullmatch(part) is not None


class RemoteStore:
    """A folder in an object store, open for reading and writing."""

    def __init__(self, url: str) -> None:
        self.url = checked_url(url)
        self._files, self._root = _opened(self.url)

    def names(self) -> list[str]:
        """Return the names right below the folder, whatever they are."""
        with self._told("cannot be listed"):
            try:
                found = self._files.ls(self._root, detail=False)
            except FileNotFoundError:
                return self._none()
        return sorted({name.rstrip("/").rpartition("/")[2] for name in found} - {""})

    def objects(self, below: str = "") -> dict[str, Object]:
        """Return every file below the folder, or below one in it, by its name there, whatever that is."""
        start = f"{self._root}/{below}" if below else self._root
        with self._told("cannot be listed"):
            try:
                found = self._files.find(start, detail=True)
            except FileNotFoundError:
                self._none()
                return {}
        inside = {
            name.removeprefix(f"{start}/"): about for name, about in found.items() if name.startswith(f"{start}/")
        }
        return {name: _object(about) for name, about in sorted(inside.items()) if name and not name.endswith("/")}

    def get(self, names: Sequence[str], files: Sequence[Path]) -> None:
        """Fetch files, several at once."""
        if names:
            with self._told("cannot be fetched"):
                self._files.get([f"{self._root}/{name}" for name in names], [str(file) for file in files])

    def put(self, files: Sequence[Path], names: Sequence[str]) -> None:
        """Send files, several at once."""
        if names:
            with self._told("cannot be written"):
                self._files.put([str(file) for file in files], [f"{self._root}/{name}" for name in names])

    def remove(self, names: Sequence[str]) -> None:
        """Remove files; a name is never a pattern."""
        with self._told("cannot be removed"):
            for name in names:
                self._files.rm_file(f"{self._root}/{name}")

    def ranges(self, wanted: Sequence[tuple[str, int, int]]) -> list[bytes]:
        """Return parts of files, each from one byte up to another."""
        if not wanted:
            return []
        names, starts, ends = zip(*wanted, strict=True)
        with self._told("cannot be read"):
            paths = [f"{self._root}/{name}" for name in names]
            found: list[bytes] = self._files.cat_ranges(paths, [*starts], [*ends], on_error="raise")
        return found

    def _none(self) -> list[str]:
        """Return nothing, unless the bucket itself is not there."""
        if not self._files.exists(self._root.partition("/")[0]):
            raise FileNotFoundError("there is no such bucket")
        return []

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """Turn errors of a store's library into a message with a next step."""
        try:
            yield
        except WazaError:
            raise
        except FileNotFoundError as error:
            raise StoreError(f"{self.url}: {what}: {_words(error)}; make the bucket, or mend the address") from None
        except Exception as error:  # noqa: BLE001  each library has errors of its own
            raise StoreError(f"{self.url}: {what}: {_words(error)}; {_environment(self.url)}") from None


def require(url: str) -> None:
    """Raise UsageError unless the address is valid and its library is installed; the store is not contacted."""
    protocol = checked_url(url).partition(":")[0]
    try:
        from fsspec import get_filesystem_class  # a large library, and few runs are in a store

        get_filesystem_class(protocol)
    except ImportError as error:
        extra = _NEEDS[protocol]
        raise UsageError(f"{url}: needs a library ({_words(error)}): pip install 'waza[{extra}]'") from None


def _opened(url: str) -> tuple[Any, str]:
    """Return the store's own file system and the path there."""
    require(url)
    from fsspec.core import url_to_fs  # a large library, and few runs are in a store

    logging.getLogger("gcsfs").addHandler(logging.NullHandler())  # it would print what it raises
    try:
        files, root = url_to_fs(url, use_listings_cache=False)
    except Exception as error:  # noqa: BLE001  each library has errors of its own
        raise StoreError(f"{url}: cannot be opened: {_words(error)}; {_environment(url)}") from None
    return files, str(root).rstrip("/")


def _object(about: dict[str, Any]) -> Object:
    tag = next((str(about[key]) for key in _TAGS if about.get(key)), "")
    return Object(int(about.get("size") or 0), tag)


def _environment(url: str) -> str:
    return f"credentials come from the environment ({_KEYS[_NEEDS[url.partition(':')[0]]]})"


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:MOST_WORDS] or type(error).__name__
