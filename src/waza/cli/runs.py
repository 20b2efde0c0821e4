"""`waza runs`: the runs that are stored, and which to keep."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click

from waza.cli._runs import every_run, own_run, project_store, runs_here, the_run, where_to_look
from waza.cli._screen import console, remark, say
from waza.cli._stdout import emit
from waza.errors import EXIT_PASSED, EXIT_UNDECIDED, StoreError, UsageError
from waza.files.tree import remove
from waza.reports.document import ForeignText, Grid, Words, print_document
from waza.runs.retention import export_runs, started, tag_run, tags_of, to_prune
from waza.runs.signing import word_of
from waza.runs.store import StoredRun, newest_first
from waza.untrusted.text import plural, score, seconds


@click.group(
    invoke_without_command=True,
    epilog="Example:  waza runs  ·  waza runs list --suite shop --tag release  ·  waza runs prune --keep 20 --dry-run",
)
@click.pass_context
def command(ctx: click.Context) -> int:
    """List stored runs, tag them, remove old ones, export or copy them.

    Without a subcommand, list the runs below this folder, and those in the project's object store (`paths.results`).
    """
    if ctx.invoked_subcommand is None:
        return _print(chosen(), "no runs here")
    return EXIT_PASSED


def _choosing(function: Any) -> Any:
    """Add the options that choose runs."""
    for option in (
        click.option("--path", type=where_to_look, default=".", help="Where to look: a folder, or s3://bucket/runs."),
        click.option("--tag", "tags", multiple=True, help="Only runs with this tag; may be repeated."),
        click.option("--since", type=click.FloatRange(0), metavar="DAYS", help="Only runs of the last days."),
        click.option("--model", help="Only runs whose model matches this glob."),
        click.option("--suite", help="Only runs of suites whose name matches this glob."),
    ):
        function = option(function)
    return function


@command.command("list")
@_choosing
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
def _list_command(as_json: bool, **choice: Any) -> int:
    """List runs, the newest first."""
    runs = chosen(**choice)
    if not as_json:
        return _print(runs, "no run fits")
    for run in runs:
        emit(json.dumps(as_data(run)))
    return EXIT_PASSED


@command.command("tag")
@click.argument("run")
@click.argument("tags", nargs=-1)
@click.option("--remove", multiple=True, help="Take this tag off; may be repeated.")
def _tag(run: str, tags: tuple[str, ...], remove: tuple[str, ...]) -> int:
    """Put TAGS on a RUN; runs with a tag are not pruned."""
    folder = own_run(run)
    now = tag_run(folder, tags, remove) if tags or remove else tags_of(folder)
    say(f"{folder.name}: {', '.join(now) or 'no tags'}")
    return EXIT_PASSED


@command.command("prune")
@_choosing
@click.option("--keep", type=click.IntRange(0), help="Keep this many newest runs of each suite and model.")
@click.option("--older-than", type=click.FloatRange(0), metavar="DAYS", help="Remove only runs older than this.")
@click.option("--tagged", is_flag=True, help="Remove runs with a tag too.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def _prune(keep: int | None, older_than: float | None, tagged: bool, dry_run: bool, yes: bool, **choice: Any) -> int:
    """Delete old runs. Runs with a tag and runs in progress stay."""
    if keep is None and older_than is None:
        raise UsageError("which runs? --keep N keeps the newest, --older-than DAYS removes old ones")
    if isinstance(choice["path"], str):
        raise UsageError("runs in a store are not removed from here; give the bucket a rule for old files")
    pruned = to_prune(chosen(**choice, only_here=True), keep=keep, older_than_days=older_than, with_tagged=tagged)
    for stored in pruned:
        say(f"{Path(stored.folder).name}  {stored.run.name or stored.problem}")
    if dry_run or not pruned:
        say(f"{plural(len(pruned), 'run')} would be removed" if pruned else "nothing to remove")
        return EXIT_PASSED
    if not yes and not click.confirm(f"remove {plural(len(pruned), 'run')} for good?"):
        return EXIT_PASSED
    return _removed(pruned)


def _removed(pruned: Sequence[StoredRun]) -> int:
    troubles = [trouble for stored in pruned for trouble in remove(Path(stored.folder))]
    for trouble in troubles:
        remark(trouble, "yellow")
    say(f"{plural(len(pruned), 'run')} removed" + (", not all of it" if troubles else ""))
    return EXIT_UNDECIDED if troubles else EXIT_PASSED


@command.command("export")
@click.argument("runs", nargs=-1, required=True)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The zip file.")
def _export(runs: tuple[str, ...], output: Path) -> int:
    """Write RUNS into a zip file; unpacked anywhere they can be shown, graded and compared."""
    folders = [the_run(run) for run in runs]
    count = export_runs(folders, output)
    say(f"{plural(len(folders), 'run')}, {plural(count, 'file')}: {output}")
    return EXIT_PASSED


@command.command("push")
@click.argument("runs", nargs=-1)
@click.option("--to", "url", metavar="URL", help="Such as s3://bucket/runs; the project's `paths.results` if left out.")
@click.option("--replace", is_flag=True, help="Overwrite a run of that name that holds other results.")
def _push(runs: tuple[str, ...], url: str | None, replace: bool) -> int:
    """Send RUNS (default `latest`) to an object store; the local folders stay.

    Exit code 3: one could not be sent; all are safe where they are, and the same command tries again.
    """
    from waza.runs.remote import push  # only runs in a store need it

    if (target := url or project_store(Path())) is None:
        raise UsageError("where to? name an address with --to, or in .waza.yaml: `paths: {results: s3://bucket/runs}`")
    code = EXIT_PASSED
    for folder in [own_run(run) for run in runs or ("latest",)]:
        try:
            pushed = push(folder, target, replace=replace)
        except StoreError as error:
            remark(f"not sent: {error}", "bold red")
            code = EXIT_UNDECIDED
            continue
        say(f"{folder.name}: {plural(pushed.sent, 'file')}: {pushed.url}")
        for name in pushed.left_out:
            remark(f"left out, not a file of waza: {name}", "yellow")
        for text in pushed.remarks:
            remark(text, "yellow")
    return code


@command.command("pull")
@click.argument("urls", nargs=-1, required=True, metavar="URL...")
@click.option("--to", "parent", type=click.Path(path_type=Path), default=Path("runs"), show_default=True)
def _pull(urls: tuple[str, ...], parent: Path) -> int:
    """Fetch runs such as s3://bucket/runs/latest into folders of their own; what is there is never overwritten."""
    from waza.runs.remote import pull  # only runs in a store need it

    for url in urls:
        say(str(pull(url, parent)))
    return EXIT_PASSED


def chosen(
    path: str | Path = Path(),
    suite: str | None = None,
    model: str | None = None,
    since: float | None = None,
    tags: Sequence[str] = (),
    *,
    only_here: bool = False,
) -> list[StoredRun]:
    """Return the stored runs that fit, the newest first; `only_here` leaves out those in a store."""
    stored = runs_here(Path(path)) if only_here else every_run(path)
    limit = None if since is None else datetime.now(UTC) - timedelta(days=since)
    fitting = [
        run
        for run in stored
        if (suite is None or fnmatchcase(run.run.name, suite))
        and (model is None or fnmatchcase(run.run.model, model))
        and (limit is None or started(run) >= limit)
        and {*tags} <= {*(tags_of(run.folder) if tags else ())}
    ]
    return newest_first(fitting)


def _print(runs: list[StoredRun], nothing: str) -> int:
    if not runs:
        say(nothing)
        return EXIT_PASSED
    columns = ("run", "suite", "engine", "model", "passed", "score", "cost", "time", "tags")
    print_document([Grid(columns, [_cells(run) for run in runs], (0, 1, 2, 3, 8))], console())
    return EXIT_PASSED


def _cells(stored: StoredRun) -> tuple[Words, ...]:
    row = as_data(stored)
    cost, duration = row["cost_usd"], row["duration_ms"]
    passed = f"{row['passed']} of {row['tasks']}" if row["tasks"] else ""
    if not passed and stored.summary is not None and (triggers := stored.summary.triggers):
        passed = f"triggers {score(triggers.all.accuracy)}" if triggers.is_valid else "triggers INVALID"
    texts = (
        row["run"],
        row["suite"] or stored.problem,
        row["engine"],
        row["model"],
        passed
        + ("" if row["complete"] or not passed else " (not complete)")
        + (f" ({word_of(stored.run.integrity)})" if stored.run.integrity else ""),
        score(row["score"]) if passed else "",
        "" if cost is None else f"${cost:.4f}",
        "" if duration is None else seconds(duration),
        ", ".join(row["tags"]),
    )
    return tuple((ForeignText(text),) for text in texts)


def as_data(stored: StoredRun) -> dict[str, Any]:
    """Return a run as JSON-ready data; numbers are None where they are not known."""
    run, summary = stored.run, stored.summary
    return {
        "run": run.id,
        "suite": run.name,
        "engine": run.engine,
        "model": run.model,
        "started_at": run.started_at,
        "complete": stored.is_complete,
        "passed": summary.succeeded if summary else None,
        "tasks": summary.total_tests if summary else None,
        "score": summary.weighted_score if summary else None,
        "cost_usd": summary.cost_usd if summary else None,
        "duration_ms": summary.duration_ms if summary else None,
        "tags": tags_of(stored.folder),
        **({"integrity": run.integrity} if run.integrity else {}),
        **({"problem": stored.problem} if stored.problem else {}),
    }


def short_rows(path: Path) -> list[dict[str, object]]:
    """Return the rows of `waza list runs`, the newest run first."""
    return [_short_row(run) for run in newest_first(runs_here(path))]


def _short_row(stored: StoredRun) -> dict[str, object]:
    run, summary = stored.run, stored.summary
    if summary is None:
        empty = dict.fromkeys(("engine", "model", "passed", "score", "time"), "")
        return {"run": run.id, "suite": stored.problem, **empty}
    state = "" if stored.is_complete else " (not complete)"
    state += f" ({word_of(run.integrity)})" if run.integrity else ""
    undecided = f", {summary.errors} undecided" if summary.errors else ""
    return {
        "run": run.id,
        "suite": run.name,
        "engine": run.engine,
        "model": run.model,
        "passed": f"{summary.succeeded} of {summary.total_tests}{undecided}{state}",
        "score": score(summary.weighted_score),
        "time": seconds(summary.duration_ms),
    }
