"""Stored runs: read one, list them, find one. Needs `model` alone, not the plug-ins that made the run.

`run.spec["file"]`, where the runner sets it, names the eval file that `newest_run` searches for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from sys import intern
from typing import Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from waza.compact import rare_collections
from waza.errors import StoreError, UsageError, did_you_mean
from waza.files.disk import probe, write_atomically
from waza.model import Result, Run
from waza.runs.folder import ARTIFACTS, JOURNAL, RUN, RunFolder, expanded, new_run_id, read_run_and_hash, read_run_json
from waza.runs.impact_records import CONTROL
from waza.runs.journal import End, Header, read_end, scan_journal
from waza.runs.lazy_results import LazyResults, Places, StoredResult
from waza.runs.outcomes import ResultView, costs_of, outcome_of, run_costs
from waza.runs.records import Piece, read_record, read_result_view
from waza.runs.signing import Chain
from waza.runs.start_order import in_start_order
from waza.runs.summary import Summary, summarize
from waza.spending import NO_COSTS, Costs, Spending

__all__ = [
    "ARTIFACTS",
    "JOURNAL",
    "RUN",
    "RunFolder",
    "StoredRun",
    "find_run",
    "list_runs",
    "new_run_id",
    "newest_run",
    "open_run",
    "probe",
    "read_run",
    "read_run_and_warnings",
    "summary_of",
    "write_atomically",
]


class StoredRun(Struct, frozen=True, kw_only=True):
    """A run as a listing shows it; one that cannot be read has the reason."""

    folder: str
    run: Run
    """Without its spec and results."""
    summary: Summary | None = None
    is_complete: bool = False
    problem: str = ""
    """Why there is no summary, for a person to read."""


def read_run(folder: str | Path) -> Run:
    """Return a stored run, finished or not; `read_run_and_warnings` also returns its problems."""
    return read_run_and_warnings(folder)[0]


@rare_collections()
def read_run_and_warnings(folder: str | Path) -> tuple[Run, list[str]]:
    """Return a stored run, and what a person should know: records cut or damaged, results of tasks since removed.

    Foreign records in the journal do not count: `Run.integrity` and the warnings report them.
    Results are in the spec's order; of two for one trial the later counts. Raises StoreError when it cannot be read.
    """
    found: list[Result] = []
    run, results, triggers, warnings = _read(
        Path(folder), read_record, Result, lambda _, result: result, costs_of, found
    )
    warnings += [run.integrity] if run.integrity else []
    lists = {"results": [found[place] for place in results], "triggers": [found[place] for place in triggers]}
    return replace(run, spec=expanded(run.spec), **lists), warnings


def open_run(folder: str | Path) -> Run:
    """Return a stored run whose results stay on the disk: each is read on access, its numbers are known.

    Raises StoreError when it cannot be read.
    """
    return open_run_and_warnings(folder)[0]


@rare_collections()
def open_run_and_warnings(folder: str | Path) -> tuple[Run, list[str]]:
    """Return the same, and what a person should know, as `read_run_and_warnings` does."""
    folder = Path(folder)
    places = Places()
    run, found, triggers, warnings = _read(
        folder, read_result_view, ResultView, _found, lambda found: found.outcome.costs, places
    )
    warnings += [run.integrity] if run.integrity else []
    results, answers = (LazyResults(folder / JOURNAL, places, some) for some in (found, triggers))
    return replace(run, results=results, triggers=answers), warnings


def _found(piece: Piece, result: ResultView) -> StoredResult:
    return StoredResult(piece.offset, len(piece.raw), outcome_of(result))


R = TypeVar("R", Result, ResultView)
T = TypeVar("T")


class _Growing(Protocol[T]):
    def append(self, entry: T, /) -> None: ...
    def __getitem__(self, place: int, /) -> T: ...
    def __len__(self) -> int: ...


def _read(
    folder: Path,
    read: Callable[[bytes], object],
    kind: type[R],
    entry: Callable[[Piece, R], T],
    costs: Callable[[T], Costs],
    entries: _Growing[T],
) -> tuple[Run, list[int], list[int], list[str]]:
    """Return a run without results, the places of these among `entries`, of its trigger tests', and warnings.

    Each result that fits is added to `entries`; one that a later result replaces is not among the places.
    """
    run, digest = read_run_and_hash(folder)
    if not (folder / JOURNAL).exists():
        return run, [], [], [f"{folder}: has no {JOURNAL}: the run ended before it began"]
    warnings: list[str] = []
    fits = run.suite.fingerprints
    latest: dict[tuple[str, int], int] = {}
    other_costs = control_costs(folder, run)
    is_complete = was_complete = False
    extended = 0
    chain, fitting = Chain(), list[str]()
    for piece, record in scan_journal(folder / JOURNAL, warnings, read, chain):
        if isinstance(record, kind):
            is_complete = False
            key, found = (intern(record.task_id), record.trial), entry(piece, record)
            if record.fingerprint in ("", fits.get(record.task_id, record.fingerprint)):
                extended += was_complete and key not in latest
                if key in latest:
                    other_costs += costs(entries[latest[key]])
                latest[key] = len(entries)
                entries.append(found)
            else:
                other_costs += costs(found)
        elif isinstance(record, End):
            is_complete = record.complete
            was_complete = was_complete or is_complete
        elif isinstance(record, Header):
            fitting = record.run_json or fitting
    is_changed = bool(fitting) and digest not in fitting
    triggers = [latest.pop(key) for key in trigger_order(run, latest)]
    keys, removed = in_order(run, latest)
    for key in latest.keys() - set(keys) if removed else ():
        other_costs += costs(entries[latest[key]])
    if removed:
        warnings.append(f"{folder}: results of {removed} trials of tasks that are not in the spec are left out")
    is_complete = is_complete and chain.is_whole and not is_changed
    integrity = chain.integrity(is_run_changed=is_changed)
    run = replace(run, complete=is_complete, integrity=integrity, other_costs=other_costs, extended=extended)
    return run, [latest[key] for key in keys], triggers, warnings


def control_costs(folder: Path, run: Run) -> Costs:
    """Return what the control arm of a run was billed; a run without one has none."""
    arm, control = run.suite.baseline.arm, folder / CONTROL
    if arm != "skill" or control.is_symlink() or not (control / RUN).is_file():
        return NO_COSTS
    try:
        return run_costs(open_run(control))
    except StoreError:
        return Costs(agent=Spending(count=1, without_cost=1))


def trigger_order(run: Run, keys: Collection[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return those ids and trials that belong to trigger tests, by the order of their prompts."""
    place = {str(prompt["id"]): number for number, prompt in enumerate(run.suite.trigger_prompts)}
    return sorted((key for key in keys if key[0] in place), key=lambda key: (place[key[0]], key[1]))


def in_order(run: Run, keys: Collection[tuple[str, int]]) -> tuple[list[tuple[str, int]], int]:
    """Return tasks' ids and trials by the spec's order of tasks; and how many belong to no task of it."""
    place = {intern(task_id): number for number, task_id in enumerate(run.suite.task_ids)}
    if not place:
        return sorted(keys), 0
    known = [key for key in keys if key[0] in place]
    return sorted(known, key=lambda key: (place[key[0]], key[1])), len(keys) - len(known)


def summary_of(folder: str | Path) -> StoredRun:
    """Return a run as a listing shows it, from the journal's last records where it has ended; never raises."""
    folder = Path(folder)
    try:
        ended = read_end(folder / JOURNAL) if (folder / RUN).is_file() else None
        if ended is not None and ended.end.summary.is_current:
            end = ended.end
            run = replace(end.run, folder=str(folder), complete=end.complete, integrity=ended.integrity)
            return StoredRun(folder=str(folder), run=run, summary=end.summary, is_complete=end.complete)
        run = open_run(folder)
        short = replace(run, spec={}, results=[], triggers=[])
        return StoredRun(folder=str(folder), run=short, summary=summarize(run), is_complete=run.complete)
    except Exception as error:  # noqa: BLE001  the damaged files of one run must not hide all the others
        problem = str(error) if isinstance(error, StoreError) else f"{folder}: {_unreadable(error)}"
        unknown = Run(id=folder.name, name="", started_at="", engine="", complete=False, folder=str(folder))
        return StoredRun(folder=str(folder), run=unknown, problem=problem)


def _unreadable(error: Exception) -> str:
    return f"its numbers or records cannot be read: {type(error).__name__}: {error}; the file may have been changed"


def list_runs(parent: str | Path) -> list[StoredRun]:
    """Return every run folder under `parent`, the newest first; those that cannot be read are among them."""
    return [summary_of(folder) for folder in run_folders(parent)]


def newest_first(runs: Iterable[StoredRun]) -> list[StoredRun]:
    """Return runs as `latest` counts them: the one that was started last in front."""
    by_folder = {Path(stored.folder): stored for stored in runs}
    return [by_folder[folder] for folder in reversed(in_start_order(by_folder))]


def run_folders(parent: str | Path) -> list[Path]:
    """Return the folders under `parent` that may be runs, the last started first."""
    try:
        entries = [entry for entry in Path(parent).iterdir() if entry.is_dir() and not entry.name.startswith(".")]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"{parent}: cannot be listed: {error.strerror}") from error
    return in_start_order(entries)[::-1]


def newest_run(
    parent: str | Path, name: str | None = None, *, file: str | None = None, model: str | None = None
) -> Path | None:
    """Return the newest run under `parent` of that eval (name, eval file, model, where given), or None."""
    for folder in run_folders(parent):
        try:
            run = read_run_json(folder)
        except StoreError:
            continue
        wanted = {"name": name, "file": file, "model": model}
        found = {"name": run.name, "file": run.suite.file, "model": run.model}
        if all(value is None or value == found[key] for key, value in wanted.items()):
            return folder
    return None


def run_before(folder: Path) -> Path:
    """Return the run of the same suite that was started before this one; raise UsageError when there is none."""
    wanted, found = read_run_json(folder), False
    for other in run_folders(folder.resolve().parent):
        if not found:
            found = other.name == folder.resolve().name
            continue
        try:
            run = read_run_json(other)
        except StoreError:
            continue
        if (run.name, run.suite.file) == (wanted.name, wanted.suite.file):
            return other
    raise UsageError(f"there is no run of '{wanted.name}' before {folder.name}; name two runs to compare")


def holds_run(folder: Path) -> bool:
    """Return whether a run was written here, readable or not: a damaged one is reported, not skipped."""
    return (folder / RUN).is_file() or (folder / JOURNAL).is_file()


def find_run(ref: str, parents: Sequence[str | Path] = ()) -> Path:
    """Return the folder a person means: a run folder, a file in one, an id or the start of one, `latest` or `previous`.

    `latest` was started last, `previous` is the run of the same suite before it: `start_order.py` has the rule.
    Raises UsageError when that is none or several of the runs under `parents`.
    """
    path = Path(ref)
    for candidate in (path, path.parent):
        if ref and holds_run(candidate) and (candidate == path or path.is_file()):
            return candidate
    every = (folder for parent in parents for folder in run_folders(parent))
    folders = in_start_order(filter(holds_run, every))
    if not folders:
        raise UsageError(f"no run '{ref}': there are no runs in {', '.join(map(str, parents)) or 'any known folder'}")
    if ref == "latest":
        return folders[-1]
    if ref == "previous":
        return run_before(folders[-1])
    exact = [folder for folder in folders if folder.name == ref]
    fitting = exact or [folder for folder in folders if ref and folder.name.startswith(ref)]
    if len(fitting) == 1:
        return fitting[0]
    ids = [folder.name for folder in fitting or folders[-5:]]
    if fitting:
        raise UsageError(f"'{ref}' is the start of {len(fitting)} runs: {', '.join(ids)}; give more of it")
    raise UsageError(f"no run '{ref}'; {did_you_mean(ref, ids)}")
