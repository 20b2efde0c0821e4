"""Runs in an object store (`s3://`, `gs://`, `az://`): push, pull, list, read.

A run is always written to a local folder first, because a journal is appended and synced record by record and object
stores can do neither. The whole folder is sent afterwards, its journal last: a run is there when its journal is. What
is read is copied into a cache. Nothing here ever removes a run, on either side; one that is replaced is then exactly
the one that was sent.
"""

from __future__ import annotations

import hashlib
import shutil
import stat
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace as changed

from waza.errors import StoreError, UsageError, did_you_mean
from waza.files.disk import open_regular, why, write_atomically
from waza.files.trust import cache_folder
from waza.model import Run
from waza.runs.folder import ARTIFACTS, JOURNAL, RUN
from waza.runs.journal import read_end
from waza.runs.remote_store import Object, RemoteStore, checked_url, is_plain, is_url, require
from waza.runs.retention import TAGS, is_running, is_tag, locked, read_tags, tag_run, tags_of, write_tags
from waza.runs.store import StoredRun, summary_of

__all__ = ["checked_url", "is_url", "list_remote", "local_copy", "pull", "push", "require"]


_TAIL = 1 << 16
_AT_ONCE = 100


class Pushed(Struct, frozen=True, kw_only=True):
    """What was sent."""

    url: str
    """The run's own address."""
    sent: int
    """How many files."""
    left_out: list[str]
    """Files whose names waza does not give."""
    remarks: list[str]
    """What else a person should know."""


def push(folder: Path, url: str, *, replace: bool = False) -> Pushed:
    """Send a run's folder to the folder at `url` and return what was sent; artifacts that are there are not sent again.

    Raises UsageError when the run is still running, and StoreError when it cannot be sent or something else is there
    that would be lost (unless `replace`: then all that is not here goes). The local folder stays as it is, whatever
    happens, and it cannot be resumed meanwhile. Tags of the store's run are kept together with the local ones.
    """
    folder = folder.resolve()
    with locked(folder):
        if not is_plain(folder.name):
            raise UsageError(f"{folder}: could not be read again by that name; give the folder letters and digits")
        store = RemoteStore(url)
        there = store.objects(folder.name)
        if JOURNAL in there and not replace:
            _refuse_to_lose(store, folder, there[JOURNAL])
        return _send(store, folder, there, replace=replace)


def _send(store: RemoteStore, folder: Path, there: dict[str, Object], *, replace: bool) -> Pushed:
    """Send the files that the store lacks, the journal last; then remove what a replaced run had besides."""
    every = sorted(_files(folder))
    known = [name for name in every if _is_ours(name)]
    lacking = [name for name in journals_last(known) if replace or not _is_there(folder, name, there)]
    theirs = _other_tags(store, folder, there)
    with TemporaryDirectory() as temp:
        sources = {name: folder / name for name in lacking}
        if theirs and not replace and TAGS in lacking:
            write_tags(Path(temp), sorted({*tags_of(folder), *theirs}))
            sources[TAGS] = Path(temp) / TAGS
        for some in ([name for name in lacking if name != JOURNAL], [JOURNAL]):
            store.put([sources[name] for name in some], [f"{folder.name}/{name}" for name in some])
    if replace:
        store.remove([f"{folder.name}/{name}" for name in there if name not in known and _is_ours(name)])
    return Pushed(
        url=f"{store.url}/{folder.name}",
        sent=len(lacking),
        left_out=[name for name in every if name not in known],
        remarks=[f"{folder.name}: tags of the run that was replaced are gone: {', '.join(theirs)}"]
        if theirs and replace
        else [],
    )


def _is_ours(name: str) -> bool:
    return all(map(is_plain, name.split("/")))


def _other_tags(store: RemoteStore, folder: Path, there: dict[str, Object]) -> list[str]:
    """Return the tags of the store's run that the one here does not have."""
    if TAGS not in there or not there[TAGS].size:
        return []
    content = store.ranges([(f"{folder.name}/{TAGS}", 0, there[TAGS].size)])[0]
    return sorted({tag for tag in read_tags(content) if is_tag(tag)} - {*tags_of(folder)})


def _files(folder: Path) -> Iterator[str]:
    """Yield the names of a run's files; links are left out, wherever they lead, and what is only half written."""
    if not _is_regular(folder / JOURNAL):
        raise UsageError(f"{folder}: is no run that could be sent: it has no {JOURNAL}")
    for path in folder.rglob("*"):
        if _is_regular(path) and not path.name.startswith("."):
            yield path.relative_to(folder).as_posix()


def _is_regular(path: Path) -> bool:
    """Return whether a file, and no link to one, is at a path."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _is_there(folder: Path, name: str, there: dict[str, Object]) -> bool:
    """Return whether the store has a file that is named after its content."""
    is_named_so = ARTIFACTS in name.split("/")[:-1]
    return is_named_so and name in there and there[name].size == (folder / name).stat().st_size


def _refuse_to_lose(store: RemoteStore, folder: Path, journal: Object) -> None:
    """Raise StoreError unless the local journal begins with everything in the store's."""
    size = (folder / JOURNAL).stat().st_size
    common = min(size, journal.size)
    start = max(0, common - _TAIL)
    with open_regular(folder / JOURNAL) as file:
        file.seek(start)
        here = file.read(common - start)
    place = f"{store.url}/{folder.name}"
    if here != store.ranges([(f"{folder.name}/{JOURNAL}", start, common)])[0]:
        raise StoreError(f"{place}: has other results than {folder}; `waza runs push --replace` overwrites them")
    if journal.size > size:
        raise StoreError(f"{place}: has more results than {folder}; fetch them with: waza runs pull {place}")


def pull(url: str, parent: Path) -> Path:
    """Copy a run from a store into a folder under `parent` and return it; raise StoreError if it exists.

    An existing run is updated where the store's journal continues its own; it keeps its tags.
    """
    copy = local_copy(url)
    target = parent / copy.name
    try:
        if target.exists():
            _refuse_to_overwrite(copy, target)
            own = tags_of(target)
            _copy(copy, target)
            if own:
                tag_run(target, own)
            return target
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with TemporaryDirectory(dir=parent, prefix=".") as temp:
            _copy(copy, Path(temp) / copy.name)
            (Path(temp) / copy.name).rename(target)
    except OSError as error:
        raise StoreError(f"{target}: cannot be written: {why(error)}") from error
    return target


def _refuse_to_overwrite(copy: Path, target: Path) -> None:
    if is_running(target):
        raise UsageError(f"{target}: is still running; pull it when it has ended")
    if not _journal_of(copy).startswith(_journal_of(target)):
        raise StoreError(f"{target}: has results that the store does not; push it, or pull --to another folder")


def _journal_of(folder: Path) -> bytes:
    """Return the bytes of a run's journal."""
    if not folder.is_dir():
        return b""
    with open_regular(folder / JOURNAL) as file:
        return file.read()


def _copy(source: Path, target: Path) -> None:
    """Copy a run's files, the journal last."""
    for name in journals_last(list(_files(source))):
        (target / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temp = (target / name).with_name(f".{Path(name).name}.tmp")
        shutil.copyfile(source / name, temp)
        temp.chmod(0o600)
        temp.replace(target / name)
    (target / ARTIFACTS).mkdir(mode=0o700, exist_ok=True)


def local_copy(url: str) -> Path:
    """Return a folder with a copy of the run at `url`; its last part may be the start of an id, `latest` or `previous`.

    In a store runs of several folders meet: these two go by the time in the names.
    Read-only: changes there are not uploaded. Raises UsageError when there is no such run.
    """
    parent, _, ref = checked_url(url).rpartition("/")
    if parent.endswith("/"):
        raise UsageError(f"{url}: names a bucket, not a run in it")
    store = RemoteStore(parent)
    objects = store.objects(ref)
    if not {RUN, JOURNAL} <= objects.keys():
        ref = _meant(store, ref)
        objects = store.objects(ref)
    missing = next((name for name in (RUN, JOURNAL) if name not in objects), None)
    if missing:
        raise StoreError(f"{store.url}/{ref}: has no {missing}: it was not sent to its end; push it again")
    copy = cache_of(store.url) / ref
    take(store, {f"{ref}/{name}": object for name, object in objects.items()}, copy.parent)
    forget(copy, objects)
    return copy


def _meant(store: RemoteStore, ref: str) -> str:
    """Return the name of the run that an argument means."""
    names = [name for name in store.names() if is_plain(name)]
    if not names:
        raise UsageError(f"there are no runs at {store.url}")
    fitting = [name for name in names if name == ref] or [name for name in names if name.startswith(ref)]
    if ref == "latest" or (ref == "previous" and len(names) > 1):
        return names[-1 if ref == "latest" else -2]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise UsageError(f"'{ref}' is the start of {len(fitting)} runs: {', '.join(fitting[:5])}; give more of it")
    raise UsageError(f"no run '{ref}' at {store.url}; {did_you_mean(ref, names[-5:])}")


def list_remote(url: str) -> list[StoredRun]:
    """Return every run below an address, the newest first; those that cannot be read are among them.

    Of a journal only its end is fetched, and only if it has changed since the last listing.
    """
    store = RemoteStore(url)
    runs: dict[str, dict[str, Object]] = {}
    for name, object in store.objects().items():
        run, slash, rest = name.partition("/")
        if slash:
            runs.setdefault(run, {})[rest] = object
    cache = cache_of(store.url)
    known = read_listing(cache)
    whole = {run: found for run, found in runs.items() if is_plain(run) and {RUN, JOURNAL} <= found.keys()}
    take(store, {f"{run}/{TAGS}": found[TAGS] for run, found in whole.items() if TAGS in found}, cache)
    for run in (run for run, found in whole.items() if TAGS not in found):
        (cache / run / TAGS).unlink(missing_ok=True)
    lacking = [run for run, found in whole.items() if not found[JOURNAL].tag or not _is_known(known, run, found)]
    for start in range(0, len(lacking), _AT_ONCE):
        some = {run: whole[run] for run in lacking[start : start + _AT_ONCE]}
        known |= {run: RemoteRun(some[run][JOURNAL], stored) for run, stored in _read(store, some, cache).items()}
    if lacking:
        write_listing(cache, {run: known[run] for run in whole})
    listed = [known[run].stored if run in whole else _unread(store, run, runs[run], cache) for run in runs]
    return sorted(listed, key=lambda stored: Path(stored.folder).name, reverse=True)


def _is_known(known: dict[str, RemoteRun], run: str, found: dict[str, Object]) -> bool:
    return run in known and known[run].journal == found[JOURNAL]


def _read(store: RemoteStore, runs: dict[str, dict[str, Object]], cache: Path) -> dict[str, StoredRun]:
    """Return runs as a listing shows them: from the ends of their journals, or whole where that is not enough."""
    sizes = {run: found[JOURNAL].size for run, found in runs.items()}
    ends = store.ranges([(f"{run}/{JOURNAL}", max(0, size - _TAIL), size) for run, size in sizes.items()])
    listed = {run: _from_end(cache / run, end) for run, end in zip(runs, ends, strict=True)}
    for run in [run for run, stored in listed.items() if stored is None]:
        try:
            take(store, {f"{run}/{name}": runs[run][name] for name in (RUN, JOURNAL)}, cache)
            listed[run] = summary_of(cache / run)
        except StoreError as error:
            listed[run] = _problem(cache / run, str(error))
    return {run: stored for run, stored in listed.items() if stored is not None}


def _from_end(folder: Path, end: bytes) -> StoredRun | None:
    """Return a run by the end of its journal; None when it has not ended, or the end is longer than that."""
    with TemporaryDirectory() as temp:
        journal = Path(temp) / JOURNAL
        journal.write_bytes(end)
        try:
            ended = read_end(journal, is_tail=True)
        except StoreError as error:
            return _problem(folder, str(error).removeprefix(f"{journal}: "))
    if ended is None:
        return None
    found = ended.end
    run = changed(found.run, folder=str(folder), complete=found.complete, integrity=ended.integrity)
    return StoredRun(folder=str(folder), run=run, summary=found.summary, is_complete=found.complete)


def _unread(store: RemoteStore, run: str, found: dict[str, Object], cache: Path) -> StoredRun:
    """Return the listing of a folder without a whole run; an odd name never becomes a path."""
    if is_plain(run):
        missing = next(name for name in (RUN, JOURNAL) if name not in found)
        return _problem(cache / run, f"{store.url}/{run}: has no {missing}: it was not sent to its end")
    return _problem(cache / "-", odd_name(store.url, run))


def _problem(folder: Path, problem: str) -> StoredRun:
    unknown = Run(id=folder.name, name="", started_at="", engine="", complete=False, folder=str(folder))
    return StoredRun(folder=str(folder), run=unknown, problem=problem)


LISTING = "listing.json"
_COPIED = ".copied.json"
T = TypeVar("T")


class RemoteRun(msgspec.Struct, frozen=True):
    """A run as a listing shows it, and of which journal that was read."""

    journal: Object
    stored: StoredRun


def cache_of(url: str) -> Path:
    """Return the cache folder of the runs below an address."""
    return cache_folder() / "runs" / hashlib.sha256(url.encode()).hexdigest()[:16]


def take(store: RemoteStore, wanted: Mapping[str, Object], cache: Path) -> None:
    """Bring copies up to date, named `RUN/...` as in the store: each file is the old one or the new one, never half.

    Raises StoreError for a name that is not plain, before anything is fetched, and for a truncated file.
    """
    if odd := next((name for name in wanted if not all(map(is_plain, name.split("/")))), None):
        raise StoreError(f"{odd_name(store.url, odd)}; nothing was fetched")
    cached = {
        run: _read_cached(cache / run / _COPIED, dict[str, Object])
        for run in {name.partition("/")[0] for name in wanted}
    }
    lacking = [name for name in journals_last(wanted) if not _is_cached(name, wanted[name], cached, cache)]
    if not lacking:
        return
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        with TemporaryDirectory(dir=cache, prefix=".") as temp:
            fetched = [Path(temp) / str(number) for number in range(len(lacking))]
            store.get(lacking, fetched)
            for name, file in zip(lacking, fetched, strict=True):
                _put(store, name, wanted[name], file, cache)
                run, _, rest = name.partition("/")
                cached[run] = cached[run] | {rest: wanted[name]}
    except OSError as error:
        raise StoreError(f"{cache}: copies of runs cannot be stored there: {why(error)}") from error
    for run in {name.partition("/")[0] for name in lacking}:
        write_atomically(cache / run / _COPIED, msgspec.json.encode(cached[run]), lasts=False)


def forget(folder: Path, names: Container[str]) -> None:
    """Remove from a run's copy what is not in the store any more."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.name.startswith(".") and path.relative_to(folder).as_posix() not in names:
            path.unlink(missing_ok=True)


def odd_name(url: str, name: str) -> str:
    """Return an error message about a name that waza never gives, and that therefore never becomes a path."""
    return f"{url}: has a name that is not waza's ({name[:80]!r}); remove it there"


def journals_last(names: Mapping[str, Object] | list[str]) -> list[str]:
    """Return names so that a run's journal comes after all that it refers to, its own after its control arm's."""
    return sorted(names, key=lambda name: (name.endswith(JOURNAL), -name.count("/"), name))


def _is_cached(name: str, object: Object, cached: Mapping[str, dict[str, Object]], cache: Path) -> bool:
    run, _, rest = name.partition("/")
    try:
        return bool(object.tag) and cached[run].get(rest) == object and (cache / name).stat().st_size == object.size
    except OSError:
        return False


def _put(store: RemoteStore, name: str, object: Object, file: Path, cache: Path) -> None:
    size = file.stat().st_size
    if size != object.size:
        raise StoreError(f"{store.url}/{name}: {size} of {object.size} bytes arrived; try again")
    target = cache / name
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.chmod(0o600)
    file.replace(target)


def read_listing(cache: Path) -> dict[str, RemoteRun]:
    """Return what was listed before; nothing where that cannot be read."""
    return _read_cached(cache / LISTING, dict[str, RemoteRun])


def write_listing(cache: Path, listed: Mapping[str, RemoteRun]) -> None:
    """Keep a listing for the next time."""
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{cache}: copies of runs cannot be stored there: {why(error)}") from error
    write_atomically(cache / LISTING, msgspec.json.encode(listed), lasts=False)


def _read_cached(path: Path, kind: type[dict[str, T]]) -> dict[str, T]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return {}
