"""The `table` report, for the terminal: each task in a line, below it its failed checks, expected next to found."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from waza.compact import where
from waza.model import JSON, Check, Grade, Result, Run
from waza.reports.base import Report
from waza.reports.document import MARKS, Block, ForeignText, Grid, Words, is_ascii, print_document, terminal_mark
from waza.reports.failed_checks import ANY, ending, places_of
from waza.reports.interpretation import headline_rate, numbers_line, rate_line, repeats_line
from waza.reports.judging import judging_lines, rubric_of, split_jury
from waza.reports.run_before import EarlierRun
from waza.runs.impact import stored_impact
from waza.runs.impact_records import WinRate, win_rates
from waza.runs.outcomes import outcomes_of
from waza.runs.summary import Summary, summarize
from waza.runs.tasks import TaskSummary, summarize_tasks
from waza.untrusted.text import clipped, percent, plural, score, seconds, visible

_NOT_PASSED = ("failed", "error", "skipped")
FILE_COLUMNS = 120
"""How wide lines are in a file."""
MOST_DEPTH = 8
"""How deep the parts of a grade are shown."""
MOST_TASKS = 100
"""In a larger suite the tasks that passed are counted, not listed, unless `verbose`."""
MOST_FAILURES = 20
"""How many tasks are shown in full before the report says how many more there are."""
MOST_TRIALS = 10
"""How many trials of one task are shown in full."""
_GAP = 2
_NAME = 24, 44
"""The width of a task's name: at least, next to other columns, and at most."""
_WIDTHS = {"score": 8, "time": 10, "trials": 17}
"""The columns next to the name."""
_AUTO = 15
"""How many more characters the trials of `auto` take."""


class TableReport(Report):
    """Text, as the terminal shows it: each task in a line, below it its failed checks."""

    def __init__(self, *, verbose: bool = False, quiet: bool = False) -> None:
        self.verbose = verbose
        self.quiet = quiet

    def render(self, run: Run, before: EarlierRun | None = None) -> Iterator[bytes]:
        """Yield what a terminal would show, without colours."""
        console = Console(file=io.StringIO(), width=FILE_COLUMNS, markup=False, highlight=False, emoji=False)
        with console.capture() as captured:
            self.print(run, console)
        yield captured.get().encode()

    def print(self, run: Run, console: Console) -> None:
        """Print the run; no control character of an agent reaches the terminal."""
        summary = summarize(run)
        if not self.quiet:
            console.print(Group(*self._body(run, console)))
        if summary.triggers is not None:
            from waza.reports.triggers import Detail, trigger_document  # most runs test no triggers

            detail: Detail = "short" if self.quiet else "verbose" if self.verbose else "normal"
            print_document(trigger_document(run, summary.triggers, detail=detail), console)
            console.print()
        for line in summary_lines(summary, run):
            console.print(line)
        if impact := stored_impact(run):
            from waza.reports.impact import impact_document  # most runs have no control arm

            blocks = impact_document(impact, whole=self.verbose)
            print_document(islice(blocks, 1, 2) if self.quiet else blocks, console)

    def _body(self, run: Run, console: Console) -> Iterator[RenderableType]:
        by_task = places_of(run, ANY if self.verbose else _NOT_PASSED)
        yield heading(run)
        shown, repeated = 0, dict[str, int]()
        tasks = summarize_tasks(run)
        if len(tasks) > MOST_TASKS and not self.verbose:
            passed = sum(task.status == "passed" and task.settled is not False for task in tasks)
            yield Text(
                f"  {plural(passed, 'task')} passed and {'is' if passed == 1 else 'are'} not listed", style="dim"
            )
            tasks = where(tasks, lambda task: task.status != "passed" or task.settled is False)
        for task in tasks:
            yield task_line(task, console)
            if task.status == "passed" and not self.verbose:
                if task.attempts > 1:
                    yield Padding(Text(plural(task.attempts, "attempt"), style="dim"), (0, 0, 0, 6))
                continue
            if not self.verbose and (same := _same_error(task)):
                repeated[same] = repeated.get(same, 0) + 1
                if repeated[same] > 1:
                    continue
            shown += 1
            if shown <= MOST_FAILURES or self.verbose:
                yield from self._details(run, task, by_task.get(task.id, []), console)
        for times in (times - 1 for times in repeated.values() if times > 1):
            yield Text(f"  … the same error in {plural(times, 'more task')}", style="dim")
        if shown > MOST_FAILURES and not self.verbose:
            yield Text(f"  … the checks of {shown - MOST_FAILURES} more tasks: waza show {run.id}", style="dim")
        yield from [Text()] if tasks else []

    def _details(
        self, run: Run, task: TaskSummary, places: Sequence[int], console: Console
    ) -> Iterator[RenderableType]:
        """Yield the trials at these places in the run's results, the first ones in full."""
        several = task.passed + task.failed + task.errors + task.skipped > 1
        for place in places if self.verbose else places[:MOST_TRIALS]:
            yield from result_lines(run.results[place], console, verbose=self.verbose, with_trial=several)
        if len(places) > MOST_TRIALS and not self.verbose:
            yield Padding(
                Text(
                    f"… {len(places) - MOST_TRIALS} more trials: waza show {run.id} --task {visible(task.id)}",
                    style="dim",
                ),
                (0, 0, 0, 4),
            )


def _same_error(task: TaskSummary) -> str:
    """Return the error of a task of which nothing else is known, its own name left out; empty for any other task."""
    if task.status != "error" or task.score.value is not None or task.passed + task.failed + task.skipped:
        return ""
    return task.reason.replace(f"'{task.id}'", "''")


def heading(run: Run) -> Text:
    """Return the line that says what was run with what."""
    tasks = len({outcome.task_id for outcome in outcomes_of(run.results)})
    counted = [plural(tasks, "task")] if tasks or not run.triggers else []
    parts = [run.name, run.engine, *([run.model] if run.model else []), *counted]
    if len(run.results) > tasks:
        parts.append(plural(len(run.results), "trial"))
    return Text(" · ".join(visible(part) for part in parts) + "\n", style="bold")


def task_line(task: TaskSummary, console: Console) -> RenderableType:
    """Return a task in one line: status, name, score, time, trials; the last three as far as they fit."""
    trials = task.passed + task.failed + task.errors + task.skipped
    counted = f"{task.passed} of {trials}" if trials > 1 else ""
    counted += ", auto" if task.settled is not None and counted else ""
    flaky = Text("flaky", style="yellow") if task.is_flaky else Text()
    if task.settled is False:
        flaky = Text.assemble(Text("unsettled", style="yellow"), "  ", flaky)
    cells = {
        "score": Text(score(task.score.weighted)),
        "time": Text(seconds(task.duration_ms), style="dim"),
        "trials": Text.assemble(Text(counted, style="dim"), "  ", flaky),
    }
    mark_width = 4 if is_ascii(console) else 1
    name_width, shown = _columns(
        console.width - mark_width - _GAP - (_AUTO if task.settled is not None else 0),
        [*cells] if trials > 1 else ["score", "time"],
    )
    line = Table.grid(padding=(0, _GAP))
    line.add_column(width=mark_width)
    line.add_column(width=name_width, no_wrap=True, overflow="ellipsis")
    for name in shown:
        is_last = name == "trials"
        line.add_column(width=None if is_last else _WIDTHS[name], justify="left" if is_last else "right", no_wrap=True)
    is_open = task.status == "passed" and task.settled is False
    mark = Text("~", style="yellow") if is_open else terminal_mark(task.status, console)
    line.add_row(mark, Text(visible(task.id)), *(cells[name] for name in shown))
    return line


def _columns(width: int, wanted: list[str]) -> tuple[int, list[str]]:
    """Return how wide a task's name may be, and which columns are next to it: a narrow terminal drops time first."""
    for dropped in ((), ("time",), ("time", "trials"), tuple(_WIDTHS)):
        shown = [name for name in wanted if name not in dropped]
        left = width - sum(_WIDTHS[name] + _GAP for name in shown)
        if left >= _NAME[0]:
            break
    return max(1, min(_NAME[1], left)), shown


def result_lines(
    result: Result, console: Console, *, verbose: bool = False, with_trial: bool = False
) -> Iterator[RenderableType]:
    """Yield what a trial's grades say: the failed and undecided ones, or all of them if `verbose`."""
    if with_trial:
        source = result.trace.extra.get("recorded_in", "")
        trial = f" trial {result.trial}" + (f"  {visible(clipped(str(source), 100))}" if source else "")
        yield Padding(Text.assemble(terminal_mark(result.status, console), trial), (0, 0, 0, 4))
    if result.reason:
        yield Padding(Text(visible(result.reason), style="yellow"), (0, 0, 0, 6))
    for line in ending(result) if result.status != "passed" or verbose else ():
        yield Padding(Text(visible(clipped(line, 400)), style="dim"), (0, 0, 0, 8))
    for grade in result.grades:
        if grade.status != "passed" or verbose:
            yield from grade_lines(grade, console, verbose=verbose)


def grade_lines(grade: Grade, console: Console, *, verbose: bool = False) -> Iterator[RenderableType]:
    """Yield a grade and its failed checks, each with what was expected and what was found."""
    label = grade.name if grade.name == grade.type else f"{grade.name} ({grade.type})"
    head = Text.assemble(terminal_mark(grade.status, console), " ", (visible(label), "bold"), f"  {score(grade.score)}")
    checks = [check for check in grade.checks if verbose or check.ok is not True]
    if not checks:
        head.append("  " + visible(clipped(grade.feedback, 400)))
    yield Padding(head, (0, 0, 0, 6))
    if verbose and (rubric := rubric_of(grade)):
        line = f"rubric {rubric[0]}" + (f": {rubric[1]}" if rubric[1] else "")
        yield Padding(Text(visible(clipped(line, 400)), style="dim"), (0, 0, 0, 8))
    for check in checks:
        yield Padding(_check(check, console), (0, 0, 0, 8))
    if grade.status == "passed" and (split := split_jury(grade)):
        yield Padding(Text(visible(clipped(split, 400)), style="yellow"), (0, 0, 0, 8))
    for depth, part in _part_lines(grade.details.get("parts"), console):
        yield Padding(part, (0, 0, 0, 8 + 2 * depth))
    if isinstance(alignment := grade.details.get("alignment"), dict):
        yield Padding(_alignment(alignment), (0, 0, 0, 8))


def _part_lines(parts: JSON, console: Console, depth: int = 0) -> Iterator[tuple[int, Text]]:
    """Yield the parts of a combination, each with its depth; those of a stored run may have any shape."""
    for part in parts if isinstance(parts, list) and depth <= MOST_DEPTH else ():
        if not isinstance(part, dict):
            continue
        status = next((known for known in ("passed", "failed", "error") if part.get("status") == known), "error")
        words = f" {part.get('name')}: {part.get('feedback')}"
        yield depth, Text.assemble(terminal_mark(status, console), visible(clipped(words, 200)))
        inner = part.get("details")
        yield from _part_lines(inner.get("parts") if isinstance(inner, dict) else None, console, depth + 1)


def _check(check: Check, console: Console) -> RenderableType:
    status = {True: "passed", False: "failed", None: "error"}[check.ok]
    words = check.claim if check.ok else check.failure or check.claim
    head = Text.assemble(terminal_mark(status, console), " ", visible(clipped(words, 400)))
    if check.ok is not False or (check.expected is None and check.actual is None):
        return head
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for label, value in (("expected", check.expected), ("found", check.actual)):
        if value is not None:
            table.add_row(label, Text(_value(value)))
    return Group(head, Padding(table, (0, 0, 0, 4)))


def _alignment(alignment: dict[str, Any]) -> RenderableType:
    """Return which call each expectation got, counted from 1, and the calls that were not expected."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for entry in alignment.get("expectations", []):
        table.add_row(Text(visible(clipped(str(entry.get("expected")), 60))), Text(_assigned(entry)))
    for label, calls in (("extra", alignment.get("extra")), ("out of order", alignment.get("out_of_order"))):
        if calls:
            table.add_row(label, Text(_calls(calls)))
    return table


def _assigned(entry: dict[str, Any]) -> str:
    """Return where one expectation was found: its calls, the nearest one and how it differs, or nowhere."""
    parts = ["→ " + _calls(entry["calls"])] if entry.get("calls") else []
    if "found" in entry:
        parts.append(f"out of order: {_calls([entry['found']])}")
    if isinstance(nearest := entry.get("nearest"), dict):
        differences = "; ".join(
            f"{item['path']} is {_value(item.get('actual'))}, expected {_value(item.get('expected'))}"
            for item in nearest["differences"]
        )
        parts.append(f"nearest is {_calls([nearest['call']])}: {differences}")
    status = str(entry.get("status", "")).replace("_", " ")
    return visible(", ".join(parts) or status)


def _calls(calls: list[int]) -> str:
    numbers = ", ".join(str(call + 1) for call in calls[:10])
    return ("call " if len(calls) == 1 else "calls ") + numbers + ("…" if len(calls) > 10 else "")


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return visible(clipped(text, 600)) or "(nothing)"


def summary_lines(summary: Summary, run: Run) -> Iterator[Text]:
    """Yield the run in a few numbers, each with its uncertainty."""
    style = {0: "bold green", 1: "bold red"}.get(summary.exit_code, "bold yellow")
    if summary.total_tests or summary.triggers is None:
        yield Text(rate_line(summary), style=style)
    yield Text(numbers_line(summary), style="dim")
    if repeats := repeats_line(run):
        yield Text(repeats, style="dim")
    for metric in summary.metrics:
        mark, colour = MARKS[metric.status]
        gate = "" if metric.threshold is None else f" (needs {metric.threshold:g})"
        reason = f": {visible(metric.reason)}" if metric.reason else ""
        value = f"{score(metric.value)} {metric.note}".rstrip()
        yield Text(f"{mark} {visible(metric.name)} {value}{gate}{reason}", style=colour)
    for group in summary.groups:
        yield Text(
            f"  {visible(group.name)}: {group.passed} of {group.total}, score {score(group.avg_score)}", style="dim"
        )
    for comparison in win_rates(run):
        yield Text(f"  {_compared(comparison)}", style="dim")
    for line in judging_lines(run):
        yield Text(f"  {visible(clipped(line, 600))}", style="dim")
    for warning in summary.warnings:
        yield Text(visible(warning), style="yellow")
    if not run.complete:
        yield Text("the run is not complete: some trials are missing", style="yellow")


def _compared(rate: WinRate) -> str:
    """Return the result of a comparison with another run."""
    from waza.reports.impact import consistency, ties_as_half  # most runs compare nothing

    counts = f"{visible(rate.grader)}: won {rate.wins}, tied {rate.ties}, lost {rate.losses}"
    counts += f", undecided {rate.undecided}" if rate.undecided else ""
    if (ci := rate.win_rate_ci) is not None:
        counts += f"; win rate {percent(rate.win_rate)} (95 % interval {ci.lower * 100:.0f}–{percent(ci.upper)})"
    return counts + ties_as_half(rate) + consistency(rate)


def models_document(runs: Iterable[Run]) -> Iterator[Block]:
    """Yield several runs of one suite side by side, a line a model."""
    rows: list[tuple[Words, ...]] = []
    for run in runs:
        summary = summarize(run)
        interval, tokens, cost = headline_rate(summary)[1], summary.agent_tokens, summary.cost_usd
        undecided = f", {summary.errors} undecided" if summary.errors else ""
        numbers = (
            f"{summary.succeeded} of {summary.decided if summary.errors else summary.total_tests}{undecided}",
            f"{interval.lower * 100:.0f}–{percent(interval.upper)}" if interval else "–",
            score(summary.weighted_score),
            f"{tokens:,}" if tokens is not None else "–",
            f"${cost:.4f}" if cost is not None else "–",
            seconds(summary.duration_ms),
        )
        rows.append(((ForeignText(run.model or "–"),), *((one,) for one in numbers)))
    yield Grid(("model", "passed", "95 % interval", "score", "tokens", "cost", "time"), rows)
