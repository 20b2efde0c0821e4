"""A run folder being written: `run.json` (written once), `journal.jsonl` (the authority), `artifacts/`.

A folder's name is an id of ours: nothing a task, an agent or a page says ever becomes part of a path. Reading stored
runs is the business of `store.py`.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Self

import msgspec
from msgspec.structs import replace

from waza.errors import StoreError
from waza.model import Run
from waza.results.disk import DISK, Disk, open_regular, why, write_atomically
from waza.results.frames import Piece
from waza.results.journal import End, Journal, Record
from waza.results.plain import encode, json_pieces
from waza.results.start_order import next_start, note_start
from waza.results.stored_spec import refuse_odd, spec_from
from waza.results.summary import Summary

RUN = "run.json"
JOURNAL = "journal.jsonl"
ARTIFACTS = "artifacts"


class _File(Run, frozen=True, kw_only=True):
    """`run.json` as it is read: of the spec only the names of its parts."""

    spec: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict)


_DECODER = msgspec.json.Decoder(_File)
_SPEC = b'"spec":{}'
"""How an empty spec is written; nothing else in the file can read so, as a text's own quotes are escaped."""


class RunFolder:
    """A run being written: its folder, what it was made from, and its journal."""

    def __init__(self, path: Path, run: Run, journal: Journal, disk: Disk) -> None:
        self.path = path
        self.run = run
        self.journal = journal
        self._disk = disk

    @classmethod
    def create(cls, parent: str | Path, run: Run, disk: Disk = DISK) -> Self:
        """Return a new folder for `run` under `parent`, which is made if it is not there.

        The run gets an id if it has none. Raises StoreError when anything cannot be written: nothing was run then.
        """
        path = Path(parent)
        try:
            path = _new_folder(Path(parent), run.id, disk)
            run = replace(run, id=path.name, folder=str(path), results=[], complete=False)
            digest = _write_run(path, run, disk)
            return cls(path, run, Journal.open(path / JOURNAL, disk, run_json=digest), disk)
        except BaseException as error:
            if path != Path(parent):
                shutil.rmtree(path, ignore_errors=True)
            if isinstance(error, OSError):
                raise StoreError(f"{parent}: no run can be stored there: {why(error)}; nothing was run") from error
            if isinstance(error, StoreError) and "nothing was run" not in str(error):
                raise StoreError(f"{error}; nothing was run") from error
            raise

    @classmethod
    def open(cls, path: str | Path, disk: Disk = DISK) -> Self:
        """Return a folder that has been written before, to go on with it; its journal is locked, checked, repaired.

        Raises StoreError when another process holds it or it cannot be written.
        """
        path = Path(path)
        run, digest = read_run_and_hash(path)
        return cls(path, run, Journal.open(path / JOURNAL, disk, run_json=digest), disk)

    @property
    def artifacts(self) -> Path:
        """Where workspace snapshots stand, by their content."""
        return self.path / ARTIFACTS

    def append(self, *records: Record) -> list[Piece]:
        """Put results or notes on the disk; when this returns they are safe. Raises StoreError otherwise."""
        try:
            return self.journal.append(*records)
        except StoreError:
            if self.path.is_dir() and not (self.path / RUN).exists():
                _write_run(self.path, self.run, self._disk)
            raise

    def finish(self, summary: Summary, *, complete: bool = True, reason: str = "") -> None:
        """Write down how the run ended, so that a listing needs no full read."""
        self.append(End(run=self.run, summary=summary, complete=complete, reason=reason))

    def respec(self, run: Run) -> None:
        """Replace what the run was made from, where a resume runs changed tasks again.

        The journal names the new file before it is there, so that an end in between leaves one that fits.
        """
        self.run = replace(run, id=self.path.name, folder=str(self.path), results=[], triggers=[], complete=False)
        new = hash_of(_encoded(self.run))
        self.journal.bind(read_run_and_hash(self.path)[1], new)
        _write_run(self.path, self.run, self._disk)
        self.journal.bind(new)

    def write(self, name: str, chunks: Iterable[bytes]) -> Path:
        """Write a derived file such as `results.json`, whole or not at all, and return its path."""
        write_atomically(self.path / name, chunks, self._disk, lasts=False)
        return self.path / name

    def close(self) -> None:
        """Give back the journal's lock."""
        self.journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_run_json(folder: Path) -> Run:
    """Return the run without its results. Raises StoreError when the folder holds none."""
    return read_run_and_hash(folder)[0]


def read_run_and_hash(folder: Path) -> tuple[Run, str]:
    """Return the run without its results, and the hash of the file. Raises StoreError when the folder holds none."""
    path = folder / RUN
    try:
        with open_regular(path) as file:
            content = file.read()
        run = _run_in(content)
    except FileNotFoundError:
        raise StoreError(f"{folder}: is not a run folder: it has no {RUN}") from None
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {why(error)}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StoreError(f"{path}: is damaged: {error}; the results in {JOURNAL} are another file") from None
    return replace(run, folder=str(folder), results=[], complete=False, integrity=""), hash_of(content)


def _run_in(content: bytes) -> Run:
    """Return the run that a `run.json` holds; raise msgspec.DecodeError when it is none."""
    file = _DECODER.decode(content)
    try:
        spec = spec_from(file.spec)
    except msgspec.ValidationError:
        refuse_odd(msgspec.json.decode(content)["spec"])  # which says in what place
        raise
    return Run(**{name: getattr(file, name) for name in Run.__struct_fields__ if name != "spec"}, spec=spec)


def _encoded(run: Run) -> Iterator[bytes]:
    """Yield the text of `run.json` in pieces."""
    before, after = encode(replace(run, folder="", integrity="", spec={})).split(_SPEC, 1)
    yield before + b'"spec":{'
    for number, (key, part) in enumerate(run.spec.items()):
        yield (b"," if number else b"") + encode(key) + b":"
        yield from json_pieces(part)
    yield b"}" + after + b"\n"


def _write_run(folder: Path, run: Run, disk: Disk) -> str:
    """Write `run.json` and return its hash."""
    digest = sha256()

    def hashed() -> Iterator[bytes]:
        for piece in _encoded(run):
            digest.update(piece)
            yield piece

    write_atomically(folder / RUN, hashed(), disk)
    return digest.hexdigest()[:32]


def hash_of(content: bytes | Iterable[bytes]) -> str:
    """Return the hash by which a journal names its `run.json`."""
    digest = sha256()
    for piece in [content] if isinstance(content, bytes) else content:
        digest.update(piece)
    return digest.hexdigest()[:32]


def _new_folder(parent: Path, run_id: str, disk: Disk) -> Path:
    """Make and return a folder nobody else has, readable by its owner alone; git ignores it and its neighbours."""
    if not parent.is_dir():
        parent.mkdir(parents=True, exist_ok=True)
        parent.chmod(0o700)
    if not (parent / ".gitignore").exists():
        write_atomically(parent / ".gitignore", "*\n", disk, lasts=False)
    # An arm of a run stands inside that run's folder and is not a run of its own.
    start = None if (parent / RUN).exists() else next_start(parent, disk)
    while True:
        path = parent / (run_id or new_run_id())
        try:
            path.mkdir()
        except FileExistsError:
            if run_id:
                raise
            continue
        path.chmod(0o700)
        (path / ARTIFACTS).mkdir()
        (path / ARTIFACTS).chmod(0o700)
        if start is not None:
            note_start(path, start, disk)
        disk.sync_folder(parent)
        return path


def new_run_id() -> str:
    """Return a name with the time in it that no other run has."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S-%f}"[:-3] + f"-{secrets.token_hex(4)}"
