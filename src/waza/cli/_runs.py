"""Where stored runs stand, and which one a word means."""

from __future__ import annotations

import os
from pathlib import Path

from waza.results.store import RUN, find_run
from waza.sandbox.folders import project_root
from waza.spec.project import read_project

DEPTH = 6
_SKIPPED = {"node_modules", "__pycache__", "artifacts", "venv"}


def runs_parents(start: Path) -> list[Path]:
    """Return the folders of run folders: the project's `paths.results`, and every `runs` folder below `start`."""
    root = project_root(start.resolve())
    project, _ = read_project(root)
    found = [root / project.paths.results] if project.paths.results else []
    base = start.resolve()
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
    """Return the run folder a person means, or the results.json that stands elsewhere."""
    path = Path(ref)
    return path if path.is_file() and not (path.parent / RUN).is_file() else the_run(ref)


def the_run(ref: str) -> Path:
    """Return the run folder a person means, looking below the current folder."""
    if (Path(ref) / RUN).is_file() or Path(ref).is_file():
        return find_run(ref)
    return find_run(ref, runs_parents(Path()))
