"""`waza serve`: the dashboard."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import click

from waza.cli._runs import runs_parents
from waza.cli._screen import remark, say
from waza.errors import EXIT_PASSED, SpecError, UsageError
from waza.runner.regrade import eval_of
from waza.runner.reviewing import reviewable, settle, verdicts_file
from waza.runs.folder import JOURNAL
from waza.runs.store import open_run
from waza.server.store import Pile
from waza.suites.load import load_spec


@click.command(epilog="Example:  waza serve  ·  waza serve results --port 9000 --open")
@click.argument("path", type=click.Path(path_type=Path, exists=True, file_okay=False), default=Path())
@click.option("--port", type=click.IntRange(0, 65535), help="The port; without it the first free one from 8731 on.")
@click.option("--open", "is_open", is_flag=True, help="Open the page in the browser.")
@click.option("--review", is_flag=True, help="Let a person give verdicts on the page; without it nothing is written.")
@click.option("--rebuild", is_flag=True, help="Throw the index away and make it anew.")
def command(path: Path, port: int | None, is_open: bool, review: bool, rebuild: bool) -> int:
    """Show the runs below PATH (default: here) as pages: what failed and why, trends, a run while it goes on.

    Only this machine can ask, and only a browser that was opened with the printed link, which works once.
    """
    try:
        from waza.server.serve import (  # it loads the web server, which --help does without
            dashboard,
            has_terminal,
            index_file,
            new_links_on_enter,
        )
    except ImportError as error:
        raise UsageError(f"the dashboard needs {error.name}: pip install 'waza[dashboard]'") from None
    index = index_file(path)
    if rebuild:
        index.unlink(missing_ok=True)
    review_queue = None
    if review:
        # suites and graders are needed for this alone

        review_queue = StoredReviewQueue(path)
    with dashboard(
        lambda: runs_parents(path), port=port, index=index, can_review=review, review_queue=review_queue
    ) as made:
        link = made.link()
        say(f"{link}\nThe link opens once{'; press Enter for another' if has_terminal() else ''}. Ctrl-C stops it.")
        if is_open and click.launch(link) != 0:
            remark("no browser could be opened; use the link", "yellow")
        new_links_on_enter(made, say)
        with suppress(KeyboardInterrupt):  # this is how one stops it
            made.run()
    return EXIT_PASSED


KEPT = 4
"""Runs whose outputs are remembered: naming the evidence of each reads every file that was left."""


class StoredReviewQueue:
    """Outputs of stored runs by the suites they were made from, as far as those are below `root`.

    A run folder may come from anywhere, and names its suite itself: verdicts are written next to it.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._kept: OrderedDict[tuple[object, ...], Pile] = OrderedDict()

    def pile(self, folder: Path, graders: Sequence[str]) -> Pile:
        """Return what `human` graders ask, or what the named graders have judged."""
        file = self._file(folder)
        key = (folder, tuple(graders), *_stamp(file), *_stamp(folder / JOURNAL))
        if key not in self._kept:
            spec = load_spec(file, only_look=True)
            self._kept[key] = Pile(reviewable(open_run(folder), spec, graders), verdicts_file(spec))
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return self._kept[key]

    def settle(self, folder: Path) -> int:
        """Grade again what waits for people, and return how many results changed."""
        return settle(folder, load_spec(self._file(folder), only_look=True))

    def _file(self, folder: Path) -> Path:
        """Return the eval file of a run; raise SpecError for one elsewhere."""
        file = eval_of(open_run(folder), folder).resolve()
        if not file.is_relative_to(self._root):
            raise SpecError(f"the eval file of this run is not below {self._root}; serve the folder that holds it")
        return file


def _stamp(file: Path) -> tuple[int, int]:
    seen = file.stat()
    return seen.st_mtime_ns, seen.st_size
