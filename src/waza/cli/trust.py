"""`waza trust`: which folders may have their Python imported into waza."""

from __future__ import annotations

from pathlib import Path

import click

from waza.cli._screen import say
from waza.errors import EXIT_PASSED, UsageError
from waza.files.paths import project_root
from waza.files.trust import MAX_FILES, TrustRecord, changes_in, covering, forget, read_records, trust, trust_file
from waza.untrusted.text import plural


@click.command(epilog="Example:  waza trust  ·  waza trust ~/src/refund-agent  ·  waza trust --list")
@click.argument("path", type=click.Path(path_type=Path), required=False)
@click.option("--list", "only_list", is_flag=True, help="Name the trusted folders.")
@click.option("--remove", is_flag=True, help="Trust the folder no longer.")
def command(path: Path | None, only_list: bool, remove: bool) -> int:
    """Trust the project at PATH (default: here): Python of it may be imported into waza.

    Graders in Python files (`type: ./graders/mine.py`) and agents of the `python` engine need it. What is trusted is
    the project's root, the nearest folder at or above PATH with a .waza.yaml or .git, with everything below it,
    repositories in it too. Only you can give trust: it is recorded in your configuration, and no file of a project
    counts. Files that change later are reported by `check` and `run`; call this again when you have looked at them.
    Where it cannot be called, such as in CI, --trust of `run`, `check` and `grade` does it for one call.
    """
    if only_list and (path or remove):
        raise UsageError("--list goes alone")
    if only_list:
        _list()
        return EXIT_PASSED
    if remove:
        folder = _to_remove(path or Path())
        forget(folder)
        say(f"no longer trusted: {folder}")
        return EXIT_PASSED
    given = (path or Path()).resolve()
    if not given.exists():
        raise UsageError(f"{given} is not there; name the folder of a project")
    root = project_root(given if given.is_dir() else given.parent)
    _say_trusted(root, trust(root))
    return EXIT_PASSED


def _say_trusted(root: Path, record: TrustRecord) -> None:
    if record.files is None:
        noted = f"it has more than {MAX_FILES} Python files, so later changes in them are not reported"
    else:
        noted = f"{plural(len(record.files), 'Python file')} noted; later changes in them are reported"
    say(f"trusted: {root} and everything below it", "green")
    say(f"{noted}. Recorded in {trust_file()}; waza trust --remove {root} takes it back.", "dim")


def _to_remove(path: Path) -> Path:
    """Return the trusted folder that a path means: itself, which may be gone by now, or its project's root."""
    given = path.resolve()
    root = project_root(given) if given.is_dir() else given
    return root if root in read_records() else given


def _list() -> None:
    records = read_records()
    if not records:
        say("no folder is trusted")
    for folder, record in sorted(records.items()):
        above = covering(folder.parent, records) if folder != folder.parent else None
        state = "gone" if not folder.is_dir() else _state(folder)
        inside = f", inside {above}" if above else ""
        say(f"{folder}  (since {record.trusted_at or 'unknown'}{inside}{state and ', ' + state})")


def _state(folder: Path) -> str:
    changes = changes_in(folder)
    if changes is None:
        return "changes are not followed"
    count = sum(map(len, changes))
    return f"{plural(count, 'Python file')} changed since" if count else ""
