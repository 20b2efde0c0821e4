"""One page that opens from disk: numbers, plots, what did not hold, every trial. No script, nothing from outside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from waza.compact import ordered
from waza.model import Run
from waza.reports.comparison import sentence
from waza.reports.document import html_blocks
from waza.reports.failed_checks import places_of, trials_of
from waza.reports.html.charts import durations, rates
from waza.reports.html.elements import page_head, text, tile
from waza.reports.html.trial_page import mark, trial
from waza.reports.html.triggers import trigger_section
from waza.reports.impact import impact_document
from waza.reports.interpretation import costs_of_run, repeats_line, times_of
from waza.reports.judging import judging_lines
from waza.reports.run_before import EarlierRun, delta
from waza.runs.impact import stored_impact
from waza.runs.summary import Summary, summarize
from waza.runs.tasks import TaskSummary, summarize_tasks
from waza.stats.scores import Interval
from waza.untrusted.text import percent, plural, score, seconds

FIRST_OPEN = 3
"""Of so many tasks that did not pass, the first trial is unfolded."""
_ORDER = {"failed": 0, "error": 1, "passed": 2, "skipped": 3}


def page(run: Run, before: EarlierRun | None, most_bytes: int) -> Iterator[bytes]:
    """Yield the page, a trial at a time; trials beyond `most_bytes` are counted, not shown."""
    tasks = summarize_tasks(run)
    summary = summarize(run, tasks=tasks)
    yield page_head(f"{run.name} · waza").encode()
    yield (_top(run, summary) + _metrics(summary)).encode()
    yield (_change(before, tasks) if before else "").encode()
    if impact := stored_impact(run):
        yield "".join(html_blocks(impact_document(impact, whole=True), level=2)).encode()
    yield trigger_section(run, summary.triggers).encode()
    yield rates(tasks).encode()
    worst_first = ordered(tasks, lambda task: _ORDER[task.status])
    yield from _table(worst_first) if tasks else ()
    yield from _trials(run, worst_first, most_bytes)
    yield durations(run).encode()
    yield b"</body>\n</html>\n"


def _top(run: Run, summary: Summary) -> str:
    made = [run.engine, *([run.model] if run.model else []), run.started_at, run.id]
    status = {0: "passed", 1: "failed"}.get(summary.exit_code, "error")
    head = f"<h1>{mark(status)} {text(run.name)}</h1>\n"
    head += f'<p class="soft">{" · ".join(text(part) for part in made if part)}</p>\n'
    if not run.complete:
        head += '<p class="error">The run is not complete: some trials are missing.</p>\n'
    head += "".join(f'<p class="error">{text(warning, 600)}</p>\n' for warning in summary.warnings)
    repeats = f'<p class="soft">{text(repeats_line(run))}</p>\n' if run.results else ""
    repeats += "".join(f'<p class="soft">{text(line, 600)}</p>\n' for line in judging_lines(run))
    return f'{head}<div class="tiles">\n{"".join(_tiles(summary))}</div>\n{repeats}'


def _tiles(summary: Summary) -> Iterator[str]:
    passed = f"{summary.succeeded} of {summary.total_tests}"
    if summary.total_tests or summary.triggers is None:
        yield tile("passed", passed, f"{percent(summary.success_rate)} {_interval(summary.success_rate_ci)}")
    counts = ((summary.failed, "failed"), (summary.errors, "undecided"), (summary.skipped, "not graded"))
    yield from (tile(noun, str(count), "of " + plural(summary.total_tests, "task")) for count, noun in counts if count)
    span = f"between {score(summary.score_low)} and {score(summary.score_high)}" if summary.undecided else ""
    if summary.total_tests or summary.triggers is None:
        yield tile("score", score(summary.weighted_score), span or f"plain mean {score(summary.aggregate_score)}")
    yield tile("time", times_of(summary))
    if summary.agent_tokens is not None or summary.judge_tokens:
        judged = f"{summary.judge_tokens:,} of judging" if summary.judge_tokens else ""
        yield tile("tokens", f"{(summary.agent_tokens or 0) + summary.judge_tokens:,}", judged)
    total, parts = costs_of_run(summary)
    if total:
        yield tile("cost", total, parts.strip("()"))


def _interval(interval: Interval | None) -> str:
    if interval is None:
        return ""
    return f'(95 % interval <span class="whole">{interval.lower * 100:.0f}–{percent(interval.upper)}</span>)'


def _metrics(summary: Summary) -> str:
    rows = "".join(
        f'<tr><td class="mark">{mark(metric.status)}</td><td>{text(metric.name)}</td>'
        f'<td class="number">{score(metric.value)} {text(metric.note)}</td>'
        f'<td class="number">{"" if metric.threshold is None else f"{metric.threshold:g}"}</td>'
        f"<td>{text(metric.reason)}</td></tr>\n"
        for metric in summary.metrics
    )
    names = ("", "metric", "value", "needs", "")
    return f"<h2>Metrics</h2>\n{_rows(names, rows)}" if rows else ""


def _rows(names: tuple[str, ...], rows: str) -> str:
    numbers = ("value", "needs", "passed", "score", "time")
    head = "".join(f'<th class="number">{name}</th>' if name in numbers else f"<th>{name}</th>" for name in names)
    return f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n'


def _change(before: EarlierRun, tasks: Sequence[TaskSummary]) -> str:
    found = delta(before, tasks)
    told = f"{plural(found.common, 'common task')}: {found.passed_now} pass now, {found.passed_before} did before."
    rows = "".join(
        f"<tr><td>{text(flip.task)}</td><td>{text(flip.was)}</td><td>{text(flip.now)}</td></tr>\n"
        for flip in (*found.worse, *found.better, *found.others)
    )
    table = _rows(("task", "was", "is"), rows) if rows else "<p>No task came out differently.</p>\n"
    verdict = f"<p>{text(sentence(found.verdict), 600)}</p>\n"
    return f"<h2>Against {text(before.name)}</h2>\n<p>{told}</p>\n{verdict}{table}"


def _table(tasks: Sequence[TaskSummary]) -> Iterator[bytes]:
    head, foot = _rows(("", "task", "passed", "score", "time"), "\0").split("\0")
    yield f"<h2>Tasks</h2>\n{head}".encode()
    yield from (_table_row(number, task).encode() for number, task in enumerate(tasks))
    yield foot.encode()


def _table_row(number: int, task: TaskSummary) -> str:
    flaky = " <b>flaky</b>" if task.is_flaky else ""
    name = f'<a href="#task-{number}">{text(task.id)}</a>{flaky} <span class="soft">{text(" ".join(task.tags))}</span>'
    numbers = (f"{task.passed} of {trials_of(task)}", _score(task), seconds(task.duration_ms))
    cells = "".join(f'<td class="number">{cell}</td>' for cell in numbers)
    return f'<tr><td class="mark">{mark(task.status)}</td><td>{name}</td>{cells}</tr>\n'


def _score(task: TaskSummary) -> str:
    """Return a task's score, with its 95 % interval where its trials differ."""
    found = task.score_ci
    spread = f' <span class="soft">({score(found.lower)}–{score(found.upper)})</span>' if found and found.tells else ""
    return score(task.score.weighted) + spread


def _trials(run: Run, tasks: Sequence[TaskSummary], most_bytes: int) -> Iterator[bytes]:
    """Yield every trial, task by task, as long as the page does not grow too large."""
    places = places_of(run)
    size, left_out, title = 0, 0, ""
    for number, task in enumerate(tasks):
        is_wrong = task.status in ("failed", "error")
        before, title = title, "What did not hold" if is_wrong else "What held"
        head = "" if title == before else f"<h2>{title}</h2>\n"
        yield f'{head}<h3 id="task-{number}">{mark(task.status)} {text(task.id)}</h3>\n{_not_run(task)}'.encode()
        for position, place in enumerate(places.get(task.id, ())):
            if size > most_bytes:
                left_out += 1
                continue
            piece = trial(run.results[place], is_open=is_wrong and number < FIRST_OPEN and not position).encode()
            size += len(piece)
            yield piece
    if left_out:
        told = f"{plural(left_out, 'more trial')} would make this page too large: waza show"
        yield f'<p class="soft">{told}</p>\n'.encode()


def _not_run(task: TaskSummary) -> str:
    return f'<p class="soft">{plural(task.not_run, "trial")} not run</p>\n' if task.not_run else ""
