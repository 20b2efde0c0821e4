"""A run folder being written: `run.json` (written once), `journal.jsonl` (the authority), `artifacts/`.

A folder's name is an id made here: no text of a task, an agent or a page ever becomes part of a path. Stored runs are
read in `store.py`.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from waza.compact import CompactDict, CompactList, CompactView
from waza.errors import StoreError
from waza.files.disk import DISK, Disk, open_regular, why, write_atomically
from waza.model import JSON, Run, StoredBaseline
from waza.runs.journal import End, Journal, Record
from waza.runs.records import Piece
from waza.runs.start_order import next_start, note_start
from waza.runs.summary import Summary
from waza.runs.triggers import TriggerPrompt
from waza.untrusted.json import encode, json_pieces

RUN = "run.json"
JOURNAL = "journal.jsonl"
ARTIFACTS = "artifacts"


class _File(Run, frozen=True, kw_only=True):
    """`run.json` as it is read: of the spec only the names of its parts."""

    spec: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict)


_DECODER = msgspec.json.Decoder(_File)
_SPEC = b'"spec":{}'
"""How an empty spec is written; nothing else in the file matches it, as quotes in texts are escaped."""


class RunFolder:
    """A run being written: its folder, what it was made from, and its journal."""

    def __init__(self, path: Path, run: Run, journal: Journal, disk: Disk) -> None:
        self.path = path
        self.run = run
        self.journal = journal
        self._disk = disk

    @classmethod
    def create(cls, parent: str | Path, run: Run, disk: Disk = DISK) -> Self:
        """Return a new folder for `run` under `parent`, which is created if it does not exist.

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
        """Return an existing folder, to continue its run; its journal is locked, checked and repaired.

        Raises StoreError when another process has it locked or it cannot be written.
        """
        path = Path(path)
        run, digest = read_run_and_hash(path)
        return cls(path, run, Journal.open(path / JOURNAL, disk, run_json=digest), disk)

    @property
    def artifacts(self) -> Path:
        """The folder of workspace snapshots, by their content."""
        return self.path / ARTIFACTS

    def append(self, *records: Record) -> list[Piece]:
        """Write results or notes to the disk; when this returns they are durable. Raises StoreError otherwise."""
        try:
            return self.journal.append(*records)
        except StoreError:
            if self.path.is_dir() and not (self.path / RUN).exists():
                _write_run(self.path, self.run, self._disk)
            raise

    def finish(self, summary: Summary, *, complete: bool = True, reason: str = "") -> None:
        """Record how the run ended, so that a listing needs no full read."""
        self.append(End(run=self.run, summary=summary, complete=complete, reason=reason))

    def respec(self, run: Run) -> None:
        """Replace what the run was made from, where a resume runs changed tasks again.

        The journal names the new file before it is written, so that a crash in between leaves a valid pair.
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
        """Release the journal's lock."""
        self.journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_run_json(folder: Path) -> Run:
    """Return the run without its results. Raises StoreError when the folder has none."""
    return read_run_and_hash(folder)[0]


def read_run_and_hash(folder: Path) -> tuple[Run, str]:
    """Return the run without its results, and the hash of the file. Raises StoreError when the folder has none."""
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
    """Return the run in a `run.json`; raise msgspec.DecodeError when it is none."""
    file = _DECODER.decode(content)
    try:
        spec = spec_from(file.spec)
    except msgspec.ValidationError:
        refuse_odd(msgspec.json.decode(content)["spec"])  # which names the place
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
    """Create and return a new folder, readable by its owner alone; git ignores it and its siblings."""
    if not parent.is_dir():
        parent.mkdir(parents=True, exist_ok=True)
        parent.chmod(0o700)
    if not (parent / ".gitignore").exists():
        write_atomically(parent / ".gitignore", "*\n", disk, lasts=False)
    # The folder of an arm is inside the folder of its run and is not listed as a run.
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


# The shape of a stored spec that readers rely on; other files are refused when they are read. Other keys may have any
# value; what summaries do with odd values is described in `summary.py`.

MAX_TRIALS = 1_000_000
"""A file with more trials a task is damaged; counting them would take forever."""
_Share = Annotated[float, Meta(ge=0, le=1)]


class _Config(Struct, frozen=True):
    trials_per_task: Annotated[int, Meta(ge=0, le=MAX_TRIALS)] | None = None
    timeout_seconds: float | None = None
    pass_rule: Literal["all", "any"] | _Share = "all"
    min_pass_rate: _Share | None = None
    max_failures: Annotated[int, Meta(ge=0)] | None = None
    group_by: str | None = None
    on_agent_crash: str | None = None
    judge_model: str | None = None
    reasoning_effort: str | None = None
    judge_reasoning_effort: str | None = None


class _StoredTask(Struct, frozen=True):
    id: str
    name: str | None = None
    tags: list[str] | None = None


class _StoredGrader(Struct, frozen=True):
    name: str | None = None
    type: str = ""


class _StoredMetric(Struct, frozen=True):
    name: str
    threshold: float | None = None
    weight: Annotated[float, Meta(ge=0, le=1e15)] | None = None
    grader: str | None = None
    tag: str | None = None


class _Prompt(TriggerPrompt, frozen=True):
    confidence: Literal["high", "medium"] = "high"


class _Triggers(Struct, frozen=True):
    prompts: list[_Prompt] | None = None
    tasks: list[_StoredTask] | None = None
    skills: list[str] | None = None
    threshold: float | None = None
    heuristic: dict[str, dict[str, float]] | None = None


class _NotSelected(Struct, frozen=True):
    tasks: list[_StoredTask] | None = None
    trigger_tests: bool = False


class _Spec(Struct, frozen=True):
    file: str = ""
    config: _Config | None = None
    tasks: list[_StoredTask] | None = None
    graders: dict[str, list[_StoredGrader]] | None = None
    grader_facts: dict[str, list[str]] | None = None
    metrics: list[_StoredMetric] | None = None
    triggers: _Triggers | None = None
    fingerprints: dict[str, str] | None = None
    places: dict[str, dict[str, JSON] | None] | None = None
    judge: dict[str, JSON] | None = None
    judged: dict[str, list[str]] | None = None
    judge_cards: list[JSON] | None = None
    baseline: StoredBaseline | None = None
    given: dict[str, JSON] | None = None
    auto_trials: dict[str, JSON] | None = None
    not_selected: _NotSelected | None = None


class _StoredRun(Struct, frozen=True):
    spec: _Spec


_SHAPES: dict[str, Any] = {
    "tasks": list[_StoredTask],
    "graders": dict[str, list[_StoredGrader]],
    "fingerprints": dict[str, str],
    "places": dict[str, dict[str, JSON] | None],
}
"""The parts of a spec that have an entry for each task."""
_ENTRIES = {name: msgspec.json.Decoder(shape.__args__[-1]) for name, shape in _SHAPES.items()}
_ANY = msgspec.json.Decoder()
_CACHED_ENTRIES = 64
"""How many different entries are cached: most tasks have the suite's graders and no others."""


def spec_from(parts: dict[str, msgspec.Raw]) -> dict[str, JSON]:
    """Return a stored spec from its parts as they are in the file; those with an entry for each task are compact.

    Raises msgspec.ValidationError when a part has a shape that readers do not expect.
    """
    spec: dict[str, JSON] = {}
    known: CompactDict[JSON] | None = None
    for key, raw in parts.items():
        start = bytes(memoryview(raw)[:1])
        if key == "tasks" and start == b"[":
            entries = _list_decoder.decode(raw)
            spec[key] = CompactList(map(_entry_reader(key), entries))
        elif key in _SHAPES and start == b"{":
            read, by_id = _entry_reader(key), _dict_decoder.decode(raw)
            spec[key] = known = CompactDict(((task_id, read(entry)) for task_id, entry in by_id.items()), known)
        else:
            spec[key] = _ANY.decode(raw)
    small = {key: value for key, value in spec.items() if not isinstance(value, CompactList | CompactDict)}
    msgspec.convert({"spec": small}, _StoredRun)
    return spec


_list_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_dict_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _entry_reader(key: str) -> Callable[[msgspec.Raw], JSON]:
    """Return a function that reads an entry of a part; equal entries share one object."""
    check, cache = _ENTRIES[key].decode, dict[bytes, JSON]()

    def read(raw: msgspec.Raw) -> JSON:
        text = bytes(raw)
        if text not in cache:
            if len(cache) == _CACHED_ENTRIES:
                cache.clear()
            check(text)
            cache[text] = _ANY.decode(text)
        return cache[text]

    return read


def expanded(spec: dict[str, JSON]) -> dict[str, JSON]:
    """Return a spec made of lists and dicts alone, for callers that need standard types."""
    return {key: _expanded(value) for key, value in spec.items()}


def _expanded(value: JSON) -> JSON:
    if isinstance(value, CompactList | CompactView):
        return list(value)
    return dict(value.pairs()) if isinstance(value, CompactDict) else value


def refuse_odd(spec: dict[str, JSON]) -> None:
    """Raise msgspec.ValidationError when a part of a stored spec has a shape that readers do not expect."""
    msgspec.convert({"spec": spec}, _StoredRun)
