"""A finished run sent to the project's object store, where it names one; the local folder stays whatever happens."""

from __future__ import annotations

import shlex
from pathlib import Path

from waza.cli._screen import remark, say
from waza.errors import EXIT_PASSED, EXIT_UNDECIDED, WazaError
from waza.model import Run
from waza.results._remote_store import is_url
from waza.spec.project import shown
from waza.spec.suite import EvalSpec


def store_of(spec: EvalSpec) -> str | None:
    """Return the address finished runs of a suite are sent to; raise UsageError now where that could never work."""
    url = spec.project.paths.results
    if not url or not is_url(url):
        return None
    from waza.results.remote import require  # most projects keep their runs in a folder

    require(url)
    return url


def sent(run: Run, url: str | None, code: int, *, quiet: bool = False) -> int:
    """Send a run to `url`, if there is one; return the exit code: 3 for a run that passed and could not be sent."""
    if url is None:
        return code
    from waza.results.remote import push  # most projects keep their runs in a folder

    try:
        pushed = push(Path(run.folder), url)
    except WazaError as error:
        folder = shown(Path(run.folder).resolve())
        again = shlex.join(["waza", "runs", "push", folder, "--to", url])
        remark(f"not sent: {error}\nthe run is safe in {folder}; send it with:  {again}", "bold red")
        return EXIT_UNDECIDED if code == EXIT_PASSED else code
    if not quiet:
        say(f"sent: {pushed.url}", "dim")
    return code
