"""The `github` report: the body of a pull request's comment, the job's summary, annotations on the suite's lines."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

from waza.model import Run
from waza.reports.base import Report
from waza.reports.failed_checks import headline
from waza.reports.interpretation import spot_of
from waza.reports.markdown import change, failed_first, failures, head, impact, task_rows, within
from waza.reports.run_before import EarlierRun
from waza.runs.summary import summarize, trigger_verdict
from waza.runs.tasks import TaskSummary, summarize_tasks
from waza.untrusted.text import clipped, visible

COMMENT_CHARACTERS = 60_000
"""Characters; GitHub takes 65,536 in a comment."""
SUMMARY_CHARACTERS = 250_000
"""Characters; GitHub takes 1 MiB of summary in a step, and a character is up to four bytes."""
MOST_ANNOTATIONS = 10
"""GitHub shows at most this many errors, and this many warnings, of one step."""


class GithubReport(Report):
    """For GitHub: the body of a pull request's comment; the job's summary and annotations are written too."""

    file = "comment.md"

    def render(self, run: Run, before: EarlierRun | None = None) -> Iterator[bytes]:
        """Yield the body of a comment: changes first, then failed checks, as much as fits."""
        yield _body(run, before, COMMENT_CHARACTERS).encode()

    def publish(self, run: Run, before: EarlierRun | None = None) -> Iterator[str]:
        """Add to the job's summary where there is one, and yield the annotations."""
        if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
            with Path(summary).open("a", encoding="utf-8") as file:
                file.write(_body(run, before, SUMMARY_CHARACTERS - min(SUMMARY_CHARACTERS - 2_000, file.tell())))
        yield from notices(run)


def _body(run: Run, before: EarlierRun | None, most: int) -> str:
    tasks = summarize_tasks(run)
    marker = f"<!-- waza {_word(run.name)} {_word(run.model)} -->\n"
    changed = chain(impact(run), change(before, tasks) if before else ())
    wrong = within(failures(run, tasks), most * 6 // 10, "\n… more tasks failed than fit here.\n\n")
    pieces = chain([marker], head(run, summarize(run, tasks=tasks)), changed, [wrong], task_rows(tasks))
    return within(pieces, most, "\n… the rest did not fit here; `waza show` and the other reports have all of it.\n")


def _word(text: str) -> str:
    """Return a name as one harmless word, so that a comment can be found again and brought up to date."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", text).strip("-") or "x"


def notices(run: Run) -> Iterator[str]:
    """Yield a workflow command for each task that did not pass, on the line where the task is written."""
    tasks = list(failed_first(run, summarize_tasks(run)))
    for kind, status in (("error", "failed"), ("warning", "error")):
        some = [(task, places) for task, places in tasks if task.status == status]
        for task, places in islice(some, MOST_ANNOTATIONS):
            yield _annotation(run, kind, task, headline(run.results[places[0]]) if places else task.reason)
    status, why = trigger_verdict(summarize(run))
    if status != "passed":
        kind = "error" if status == "failed" else "warning"
        yield f"::{kind} title=trigger tests::{_escaped(visible(clipped(why, 1_000), lines=True))}"


def _annotation(run: Run, kind: str, task: TaskSummary, why: str) -> str:
    spot = spot_of(run, task.id)
    root = Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd())
    where = f"file={_property(visible(spot.relative_to(root)))},line={spot.line}," if spot else ""
    state = "failed" if kind == "error" else "undecided"
    title = _property(visible(clipped(f"{task.id}: {state}", 120)))
    return f"::{kind} {where}title={title}::{_escaped(visible(clipped(why or 'not run', 1_000), lines=True))}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
