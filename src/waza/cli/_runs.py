"""Find stored runs: folders of runs, and the run that a name or URL refers to."""

from __future__ import annotations

import os
from pathlib import Path

from waza.cli._screen import remark
from waza.errors import StoreError, UsageError
from waza.files.paths import PROJECT_FILE, project_root
from waza.runs.remote_store import checked_url, is_plain, is_url
from waza.runs.store import StoredRun, find_run, holds_run, list_runs

DEPTH = 6
_SKIPPED = {"node_modules", "__pycache__", "artifacts", "venv"}


def runs_parents(start: Path) -> list[Path]:
    """Return the folders of run folders: the project's `paths.results`, and every `runs` folder below `start`."""
    base = start.resolve()
    results = _results_setting(base)
    found = [project_root(base) / results] if results and not is_url(results) else []
    for folder, names, _ in os.walk(base):
        depth = len(Path(folder).relative_to(base).parts)
        names[:] = [] if depth >= DEPTH else sorted(n for n in names if n not in _SKIPPED and not n.startswith("."))
        if "runs" in names:
            names.remove("runs")
            found.append(Path(folder) / "runs")
    if base.name == "runs":
        found.append(base)
    return [folder for folder in dict.fromkeys(found) if folder.is_dir()]


def run_or_file(ref: str) -> Path:
    """Return the run folder of a reference, or a results.json that is not in a run folder."""
    path = Path(ref)
    return path if path.is_file() and not holds_run(path.parent) else the_run(ref)


def the_run(ref: str) -> Path:
    """Return the run folder of a reference, for reading: below the current folder, else a copy from a store."""
    if is_url(ref):
        from waza.runs.remote import local_copy  # only runs in a store need it

        return local_copy(ref)
    try:
        return own_run(ref)
    except UsageError:
        if (store := project_store(Path())) is None or not is_plain(ref):
            raise
        from waza.runs.remote import local_copy  # only runs in a store need it

        return local_copy(f"{store}/{ref}")


def run_for(ref: str, parent: Path) -> Path:
    """Return the run folder of a reference among a suite's own runs, or a copy from a store; for reading."""
    return the_run(ref) if is_url(ref) else find_run(ref, [parent])


def own_run(ref: str) -> Path:
    """Return the run folder of a reference, for writing; one in a store must be fetched first."""
    if is_url(ref):
        raise UsageError(f"{ref}: is in a store and cannot be changed there; fetch it with: waza runs pull {ref}")
    if holds_run(Path(ref)) or Path(ref).is_file():
        return find_run(ref)
    return find_run(ref, runs_parents(Path()))


def project_store(start: Path) -> str | None:
    """Return the URL that the project's runs are sent to, if it has one."""
    results = _results_setting(start.resolve())
    return results if results and is_url(results) else None


def _results_setting(start: Path) -> str | None:
    """Return `paths.results` of the project that a folder belongs to."""
    root = project_root(start)
    if not (root / PROJECT_FILE).is_file():
        return None
    from waza.suites.positions import read_project  # it loads pydantic, half of the start-up time

    return read_project(root)[0].paths.results


def where_to_look(text: str | Path) -> str | Path:
    """Return an existing folder, or the URL of a store."""
    if isinstance(text, str) and is_url(text):
        return checked_url(text)
    if not Path(text).exists():
        raise UsageError(f"{text}: does not exist")
    return Path(text)


def runs_here(start: Path) -> list[StoredRun]:
    """Return the runs below a folder."""
    return [run for parent in runs_parents(start) for run in list_runs(parent)]


def every_run(where: str | Path) -> list[StoredRun]:
    """Return the runs at a URL; or those below a folder, with those of its project's store that are not there."""
    here, store = ([], where) if isinstance(where, str) else (runs_here(where), project_store(where))
    if store is None:
        return here
    from waza.runs.remote import list_remote  # only runs in a store need it

    if isinstance(where, str):
        return list_remote(where)
    try:
        known = {Path(run.folder).name for run in here}
        return here + [run for run in list_remote(store) if Path(run.folder).name not in known]
    except StoreError as error:
        remark(f"{error}; only runs on this machine are listed", "yellow")
        return here
