"""`waza calibrate`: a judge's verdicts against people's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from waza.analysis.calibration import calibrate, collect_verdicts, kept_form, read_labels
from waza.cli._runs import the_run
from waza.cli._screen import remark, say
from waza.cli._stdout import emit
from waza.errors import EXIT_PASSED, EXIT_UNDECIDED, UsageError, did_you_mean
from waza.files.paths import SpecFolder, display_path, project_root
from waza.reports.judging import alpha_lines, judge_lines
from waza.runs.judge_card import write_calibration
from waza.runs.store import open_run
from waza.runs.verdicts import VERDICTS, read_verdicts
from waza.untrusted.text import plural


@click.command(epilog="Example:  waza calibrate  ·  waza calibrate latest --grader polite --labels labels.csv --json")
@click.argument("runs", nargs=-1)
@click.option("--grader", "graders", multiple=True, help="The grader to measure; if left out, all that ask a judge.")
@click.option("--people", default="", help="Take people's verdicts on this grader, not on the measured one itself.")
@click.option("--labels", type=click.Path(path_type=Path), help="Labels from CSV or JSONL: task, trial, verdict.")
@click.option(
    "--half-width",
    type=click.FloatRange(0.001, 0.5),
    default=0.05,
    show_default=True,
    help="How narrow the corrected pass rate is to be; says how many labels that takes.",
)
@click.option("--no-keep", is_flag=True, help="Do not keep what was measured in .waza/calibration.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    runs: tuple[str, ...],
    graders: tuple[str, ...],
    people: str,
    labels: Path | None,
    half_width: float,
    no_keep: bool,
    as_json: bool,
) -> int:
    """Say how far judges agree with people, and what the suite's pass rate is without the judge's error.

    RUNS are stored runs (`latest` if left out); with several, judges of the same outputs are compared with each other.
    People's verdicts come from `waza review --grader NAME`, or from a file with the columns task, trial, verdict (pass
    or fail), and perhaps reviewer and reason. What was measured is kept in the project, so that juries can weigh votes
    by it and reports can show it.
    """
    import msgspec  # not needed for --help

    stored = [open_run(the_run(ref)) for ref in dict.fromkeys(runs or ("latest",))]
    base = _suite_folder(stored[0])
    collected = collect_verdicts(stored, graders, SpecFolder(base))
    _refuse(collected, graders, people)
    verdicts = _verdicts(base, labels, collected, people)
    if strangers := sum(verdict.evidence not in collected.outputs for verdict in verdicts):
        remark(f"{strangers} of {len(verdicts)} verdicts of people are about outputs these runs do not have", "dim")
    _tell_undecided(collected)
    found = calibrate(collected, verdicts, people, half_width)
    kept = [] if no_keep else _keep(base, found.judges)
    if as_json:
        emit(json.dumps(msgspec.to_builtins(found) | {"kept": [path.as_posix() for path in kept]}))
    else:
        for judge in found.judges:
            say("\n".join(judge_lines(judge)) + "\n")
        for line in [*alpha_lines(found.between_judges, "judges"), *alpha_lines(found.between_people, "people")]:
            say(line)
        for path in kept:
            say(f"kept: {display_path(path)}", "dim")
    return EXIT_PASSED if any(judge.counts.n for judge in found.judges) else EXIT_UNDECIDED


def _refuse(collected: Any, graders: tuple[str, ...], people: str) -> None:
    """Refuse graders that are not there, and people compared with themselves."""
    for name in graders:
        if name not in collected.graders:
            raise UsageError(f"no grade of '{name}' in these runs; {did_you_mean(name, sorted(collected.graders))}")
        if name in collected.asking_people and people in ("", name):
            raise UsageError(f"'{name}' is what people say; name a grader to compare with it by --people {name}")
    if not collected.verdicts and (silent := sorted(collected.undecided.keys() - collected.asking_people)):
        raise UsageError(f"nothing to calibrate: {', '.join(silent)} decided nothing in these runs; see:  waza show")
    if not collected.verdicts:
        raise UsageError("nothing to calibrate: no grader of these runs asks a judge; name another one with --grader")


def _tell_undecided(collected: Any) -> None:
    """Print which graders have outputs left out because their verdict is undecided."""
    for name in dict.fromkeys(rater.grader for rater in collected.verdicts):
        decided = {
            evidence for rater, verdicts in collected.verdicts.items() if rater.grader == name for evidence in verdicts
        }
        if left := len(collected.undecided.get(name, set()) - decided):
            remark(f"{name} decided nothing about {plural(left, 'more output')}; no rate here counts them", "yellow")


def _suite_folder(run: Any) -> Path:
    """Return the folder of the eval file a run was made from; this one where it is not there, as for fetched runs."""
    file = (Path(run.folder).resolve().parent / run.suite.file).resolve()
    return file.parent if file.is_file() else Path.cwd()


def _verdicts(base: Path, labels: Path | None, collected: Any, people: str) -> list[Any]:
    """Return people's verdicts: those of a file of labels, else those recorded next to the eval file."""
    if labels is None:
        return read_verdicts(base / VERDICTS)
    names = [people] if people else list(dict.fromkeys(rater.grader for rater in collected.verdicts))
    return [verdict for name in names for verdict in read_labels(labels, name, collected.places)]


def _keep(base: Path, judges: list[Any]) -> list[Path]:
    """Keep what was measured of each judge; say of which it was not, and why."""
    kept = []
    for judge in judges:
        if judge.counts.n and judge.not_asked:
            fact = "not kept, since the jury asked it only about what others had not settled"
            remark(f"{judge.grader} · {judge.model}: {fact}; run with `ask_everyone: true` first", "yellow")
        elif judge.counts.n and judge.model and not (judge.rubric or judge.question):
            fact = "not kept, since the run does not say what was asked"
            remark(f"{judge.grader} · {judge.model}: {fact}; grade it again with `waza grade` first", "yellow")
        elif judge.counts.n:
            kept.append(write_calibration(project_root(base), kept_form(judge)))
    return kept
