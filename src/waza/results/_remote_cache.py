"""Copies of runs that stand in a store, among a person's caches: what has not changed there is not fetched twice."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import msgspec

from waza.errors import StoreError
from waza.results._remote_store import Object, Store, is_plain
from waza.results.disk import why, write_atomically
from waza.results.folder import JOURNAL
from waza.results.store import StoredRun
from waza.sandbox.user_folders import cache_folder

LISTING = "listing.json"
_COPIED = ".copied.json"
T = TypeVar("T")


class Listed(msgspec.Struct, frozen=True):
    """A run as a listing shows it, and of which journal that was read."""

    journal: Object
    stored: StoredRun


def cache_of(url: str) -> Path:
    """Return where copies of the runs below an address are kept."""
    return cache_folder() / "runs" / hashlib.sha256(url.encode()).hexdigest()[:16]


def take(store: Store, wanted: Mapping[str, Object], cache: Path) -> None:
    """Bring copies up to date, named `RUN/...` as in the store: each file is the old one or the new one, never half.

    Raises StoreError for a name that is not plain, before anything is fetched, and for a file that came short.
    """
    if odd := next((name for name in wanted if not all(map(is_plain, name.split("/")))), None):
        raise StoreError(f"{odd_name(store.url, odd)}; nothing was fetched")
    held = {run: _read(cache / run / _COPIED, dict[str, Object]) for run in {name.partition("/")[0] for name in wanted}}
    lacking = [name for name in journals_last(wanted) if not _is_held(name, wanted[name], held, cache)]
    if not lacking:
        return
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        with TemporaryDirectory(dir=cache, prefix=".") as temp:
            came = [Path(temp) / str(number) for number in range(len(lacking))]
            store.get(lacking, came)
            for name, file in zip(lacking, came, strict=True):
                _put(store, name, wanted[name], file, cache)
                run, _, rest = name.partition("/")
                held[run] = held[run] | {rest: wanted[name]}
    except OSError as error:
        raise StoreError(f"{cache}: copies of runs cannot be kept there: {why(error)}") from error
    for run in {name.partition("/")[0] for name in lacking}:
        write_atomically(cache / run / _COPIED, msgspec.json.encode(held[run]), lasts=False)


def forget(folder: Path, names: Container[str]) -> None:
    """Remove from a run's copy what is not in the store any more."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.name.startswith(".") and path.relative_to(folder).as_posix() not in names:
            path.unlink(missing_ok=True)


def odd_name(url: str, name: str) -> str:
    """Return a sentence about a name that waza never gives, and that therefore never becomes a path."""
    return f"{url}: holds a name that is not waza's ({name[:80]!r}); remove it there"


def journals_last(names: Mapping[str, Object] | list[str]) -> list[str]:
    """Return names so that a run's journal comes after all that it speaks of, its own after its control arm's."""
    return sorted(names, key=lambda name: (name.endswith(JOURNAL), -name.count("/"), name))


def _is_held(name: str, object: Object, held: Mapping[str, dict[str, Object]], cache: Path) -> bool:
    run, _, rest = name.partition("/")
    try:
        return bool(object.tag) and held[run].get(rest) == object and (cache / name).stat().st_size == object.size
    except OSError:
        return False


def _put(store: Store, name: str, object: Object, file: Path, cache: Path) -> None:
    size = file.stat().st_size
    if size != object.size:
        raise StoreError(f"{store.url}/{name}: {size} of {object.size} bytes came; try again")
    target = cache / name
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.chmod(0o600)
    file.replace(target)


def read_listing(cache: Path) -> dict[str, Listed]:
    """Return what was listed before; nothing where that cannot be read."""
    return _read(cache / LISTING, dict[str, Listed])


def write_listing(cache: Path, listed: Mapping[str, Listed]) -> None:
    """Keep a listing for the next time."""
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{cache}: copies of runs cannot be kept there: {why(error)}") from error
    write_atomically(cache / LISTING, msgspec.json.encode(listed), lasts=False)


def _read(path: Path, kind: type[dict[str, T]]) -> dict[str, T]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return {}
