"""`waza gate`: whether a run is good enough to go on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click

from waza.analysis.compare import ComparisonMode, extended, open_both, open_run_or_file
from waza.analysis.gate import Gate, Needs, Policy, exit_code, gates
from waza.cli._runs import run_or_file
from waza.cli._screen import console, remark, trust_option
from waza.cli._stdout import emit
from waza.errors import UsageError
from waza.model import Run
from waza.reports.comparison import p_value
from waza.reports.document import Block, ForeignText, Grid, Heading, TextLine, Words, markdown_document, print_document
from waza.runs.partial import Gap, gaps_of
from waza.stats.difference import MARGIN
from waza.untrusted.json import to_json
from waza.untrusted.text import plural

MARKS = {"passed": "✓", "failed": "✗", "error": "?"}
SHARE = click.FloatRange(0, 1)


@dataclass(frozen=True)
class GateOptions:
    """The command line of `waza gate`."""

    min_pass_rate: tuple[str, ...]
    min_score: tuple[str, ...]
    min_trigger_accuracy: float | None
    max_cost: float | None
    max_duration: float | None
    max_drop: float
    margin: float
    tasks_like_these: bool
    max_cost_growth: float | None
    max_duration_growth: float | None
    golden: bool
    sure: bool
    corrected: bool
    on_new_tasks: Policy
    on_removed_tasks: Policy
    allow_partial: bool
    as_graded: bool
    ask_judge: bool
    trust: bool
    form: Literal["table", "json", "markdown"]
    as_json: bool

    @property
    def needs(self) -> Needs:
        """The requirements of the run; raises UsageError for a threshold that is none."""
        rates, scores = _by_tag("--min-pass-rate", self.min_pass_rate), _by_tag("--min-score", self.min_score)
        return Needs(
            pass_rate=rates.pop("", None),
            score=scores.pop("", None),
            tag_pass_rates=rates,
            tag_scores=scores,
            trigger_accuracy=self.min_trigger_accuracy,
            cost_usd=self.max_cost,
            duration_s=self.max_duration,
            golden=self.golden,
            sure=self.sure,
            corrected=self.corrected,
            drop=self.max_drop,
            margin=self.margin,
            these_tasks=not self.tasks_like_these,
            cost_growth=self.max_cost_growth,
            duration_growth=self.max_duration_growth,
            on_new=self.on_new_tasks,
            on_removed=self.on_removed_tasks,
        )


@click.command(epilog="Example:  waza gate latest --min-pass-rate 0.9 --min-pass-rate security=1 --against main-run")
@click.argument("run", default="latest")
@click.option(
    "--against",
    metavar="RUN",
    help="A run or results.json: pass rate, score and trigger accuracy must not fall below its own.",
)
@click.option("--min-pass-rate", multiple=True, metavar="[TAG=]SHARE", help="Of all tasks, or of those with a tag.")
@click.option("--min-score", multiple=True, metavar="[TAG=]SCORE", help="The mean score, of all tasks or of a tag's.")
@click.option("--min-trigger-accuracy", type=SHARE, help="The share of trigger tests that came out right.")
@click.option("--max-cost", type=click.FloatRange(0), help="Dollars the run may have cost.")
@click.option("--max-duration", type=click.FloatRange(0), help="Seconds the run may have taken.")
@click.option("--max-drop", type=SHARE, default=0.0, show_default=True, help="How far below the baseline is allowed.")
@click.option(
    "--margin",
    type=click.FloatRange(0, 1, min_open=True),
    default=MARGIN,
    show_default=True,
    help="A larger drop that chance alone might explain is exit 3; a smaller one is met.",
)
@click.option("--tasks-like-these", is_flag=True, help="Ask whether tasks like these got worse, not these very tasks.")
@click.option("--max-cost-growth", type=click.FloatRange(0), help="By what share a trial may cost more than before.")
@click.option("--max-duration-growth", type=click.FloatRange(0), help="By what share a trial may take longer.")
@click.option("--golden/--no-golden", default=True, help="Whether every golden task must pass (default: yes).")
@click.option("--sure", is_flag=True, help="The whole 95 % interval must be above a threshold, not the value alone.")
@click.option("--corrected", is_flag=True, help="Decide --min-pass-rate by the rate corrected for the judges' error.")
@click.option("--on-new-tasks", type=click.Choice(["allow", "warn", "fail"]), default="allow", show_default=True)
@click.option("--on-removed-tasks", type=click.Choice(["allow", "warn", "fail"]), default="warn", show_default=True)
@click.option(
    "--allow-partial", is_flag=True, help="Judge what was run, though tasks or trials of the suite are missing."
)
@click.option("--as-graded", is_flag=True, help="Compare with the baseline's grades, though the graders differ.")
@click.option("--ask-judge", is_flag=True, help="Let a judge be asked again where rubrics or judge changed.")
@trust_option
@click.option("--format", "form", type=click.Choice(["table", "json", "markdown"]), default="table")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
def command(run: str, against: str | None, **values: Any) -> int:
    """Say whether RUN (default `latest`) reaches thresholds and does not fall behind a baseline.

    Exit code 0: every gate is met; 1: one is missed; 2: the call is wrong; 3: none is missed, but one cannot be
    decided: something was not recorded, trials are undecided, a drop larger than --margin might be chance, or the run
    is partial (--task, --tags, interrupted, lost trials), unless --allow-partial is given.

    Against a baseline the question is whether these very tasks got worse: one-sided, wrong in at most 5 % of runs of
    an unchanged agent. Where no drop is shown, it says how often one of --margin would have been found.
    """
    options = GateOptions(**values)
    folder, needs = run_or_file(run), options.needs
    pair = _pair(against, folder, options) if against else None
    opened = open_run_or_file(folder)
    found = gates(opened, needs, pair, allow_partial=options.allow_partial)
    if not found:
        raise UsageError("nothing to check: name a threshold such as --min-pass-rate 0.9, or a baseline with --against")
    gaps = gaps_of(opened)
    if opened.integrity:
        remark(opened.integrity, "yellow")
    for gap in gaps if options.allow_partial else ():
        remark(f"partial run: {gap.fact}", "yellow")
    _show(folder.name, found, needs, gaps, "json" if options.as_json else options.form, opened.integrity)
    return exit_code(found)


def _pair(against: str, folder: Path, options: GateOptions) -> tuple[Run, Run]:
    """Return the baseline and the run, by the same graders."""
    baseline = run_or_file(against)
    if baseline.resolve() == folder.resolve():
        raise UsageError("the baseline is the run itself; `waza list runs` shows which there are")
    mode = ComparisonMode(as_graded=options.as_graded, ask_judge=options.ask_judge, trust=options.trust)
    opened = open_both(baseline, folder, mode, with_triggers=True)
    for warning in [*opened.warnings, *extended(opened.before, opened.after)]:
        remark(warning, "yellow")
    if opened.attribution is not None:
        remark("graders changed since the baseline: both runs are compared by the same ones", "yellow")
    return opened.before, opened.after


def _by_tag(option: str, given: tuple[str, ...]) -> dict[str, float]:
    """Return thresholds by tag; the one without a tag under the empty text."""
    found: dict[str, float] = {}
    for text in given:
        tag, _, number = text.rpartition("=")
        try:
            share = float(number)
        except ValueError:
            share = -1.0
        if not 0 <= share <= 1:
            raise UsageError(f"{option} {text}: a share between 0 and 1 is needed, such as 0.9 or security=1")
        if tag in found:
            raise UsageError(f"{option} is given twice for {tag or 'all tasks'}")
        found[tag] = share
    return found


def _show(run: str, found: list[Gate], needs: Needs, gaps: list[Gap], form: str, integrity: str) -> None:
    if form == "json":
        data = {"run": run, "exit_code": exit_code(found), "gates": [to_json(gate) for gate in found]}
        if any(gate.p_value is not None for gate in found):
            data |= {"question": question(needs), "margin": needs.margin}
        data["missing"] = [gap._asdict() for gap in gaps]
        data |= {"integrity": integrity} if integrity else {}
        emit(json.dumps(data, indent=2, ensure_ascii=False))
    elif form == "markdown":
        emit(markdown_document(_document(run, found, needs)), nl=False)
    else:
        print_document(_document(run, found, needs), console())


def _document(run: str, found: list[Gate], needs: Needs) -> Iterator[Block]:
    words = {0: "every gate is met", 1: "a gate is missed", 3: "no gate is missed, but not all can be decided"}
    code = exit_code(found)
    yield Heading(("Gate · ", ForeignText(run)))
    yield TextLine((words[code],), {0: "good", 1: "bad"}.get(code, "open"))  # type: ignore[arg-type]
    yield Grid(("gate", "value", "95 % interval", "needed", "why"), [_row(gate) for gate in found], (0, 4))
    for gate in found:
        if gate.tasks:
            more = f" and {len(gate.tasks) - 10} more" if len(gate.tasks) > 10 else ""
            yield TextLine((ForeignText(gate.name), ": ", ForeignText(", ".join(gate.tasks[:10])), more), "soft")
    tested = [gate for gate in found if gate.p_value is not None]
    if tested:
        yield TextLine((question(needs),), "soft")
    for line in dict.fromkeys(line for gate in tested for line in _about_test(gate, needs)):
        yield TextLine((line,), "soft")


def question(needs: Needs) -> str:
    """Return the question that is asked against the baseline."""
    if needs.these_tasks:
        return "Question: did these very tasks get worse? Trials are permuted within each task (one-sided, 5 %)."
    return "Question: did tasks like these get worse? Each task counts as one (one-sided, 5 %)."


def _about_test(gate: Gate, needs: Needs) -> Iterator[str]:
    """Yield what the test of a gate found, how much it could find, and which trials it leaves out."""
    number, correction = (
        gate.name.removesuffix(" against the baseline"),
        f" ({gate.correction})" if gate.correction else "",
    )
    yield f"{number}: p = {p_value(gate.p_value or 0.0)}{correction}"
    if gate.power is not None:
        tasks = "in these tasks" if needs.these_tasks else "of tasks like these"
        points = f"{(needs.drop + needs.margin) * 100:g} points"
        found = f"{number}: a drop of {points} {tasks} would have been found in {gate.power:.0%} of such runs"
        yield found.replace("%", " %") + (
            f"; with {plural(gate.trials_needed, 'trial')} of each task in 80 %" if gate.trials_needed else ""
        )
    if gate.note:
        yield gate.note


def _row(gate: Gate) -> tuple[Words, ...]:
    interval = "–" if gate.low is None or gate.high is None else f"{gate.low:.3g} to {gate.high:.3g}"
    numbers = ["–" if number is None else f"{number:.4g}" for number in (gate.value, gate.needed)]
    return (f"{MARKS[gate.status]} ", ForeignText(gate.name)), (numbers[0],), (interval,), (numbers[1],), (gate.reason,)
