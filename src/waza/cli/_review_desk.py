"""What `waza serve --review` puts on the review page: the same outputs as `waza review`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from waza.dashboard.desk import Pile
from waza.errors import SpecError
from waza.results.folder import JOURNAL
from waza.results.store import open_run
from waza.runner.regrade import eval_of
from waza.runner.reviewing import reviewable, settle, verdicts_file
from waza.spec.load import load_spec

KEPT = 4
"""Runs whose outputs are remembered: naming the evidence of each reads every file that was left."""


class ReviewDesk:
    """Outputs of stored runs by the suites they were made from, as far as those stand below `root`.

    A run folder may come from anywhere, and names its suite itself: verdicts are written beside it.
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
