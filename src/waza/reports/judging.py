"""How reliable the judges of a run are, in lines of text: rubrics, canaries, cards, calibrations, juries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from waza.analysis.corrected_rate import CorrectedRate, corrected_rates, known_calibrations, usable_calibrations
from waza.analysis.judge_agreement import Alpha, JudgeAgreement, MeasuredOutput
from waza.model import JSON, Grade, Run
from waza.runs.canaries import canaries_of, canary_line, probes_of
from waza.runs.judge_card import Calibration
from waza.runs.outcomes import cache_use
from waza.stats.scores import Interval
from waza.untrusted.text import clipped, percent, plural, visible

MOST_TASKS = 3


def judging_lines(run: Run) -> Iterator[str]:
    """Yield what to know about the judges of a run: rubrics, cache, canaries, cards, calibrations, juries."""
    yield from _rubrics(run)
    yield from _cache_lines(run)
    if line := canary_line(canaries_of(run)):
        yield line
    for probe in probes_of(run):
        if probe.error:
            yield f"judge {probe.model or probe.judge} did not answer before the first trial: {probe.error}"
    for entry in run.suite.judge_cards:
        if isinstance(entry, dict) and isinstance(entry.get("line"), str):
            yield f"judge card: {entry['line']}"
    yield from believed(run)
    yield from _juries(run)
    yield from _shown_lines(run)


def _cache_lines(run: Run) -> Iterator[str]:
    use = cache_use(run)
    if use.cached:
        yield f"{plural(use.cached, 'verdict')} of {use.verdicts} from cache; --no-judge-cache asks again"
    if use.refused:
        entries = "1 entry" if use.refused == 1 else f"{use.refused} entries"
        yield f"{entries} of the judge cache not signed with your key and ignored: the judge was asked"


def _rubrics(run: Run) -> Iterator[str]:
    """Yield name, version and description of each rubric that judged, with the graders that used it."""
    if not any(run.suite.judged.values()):
        return
    used: dict[tuple[str, str], dict[str, None]] = {}
    for result in run.results:
        for grade in result.grades:
            if rubric := rubric_of(grade):
                used.setdefault(rubric, {})[grade.name] = None
    for (rubric_name, description), graders in used.items():
        yield f"rubric {rubric_name} ({', '.join(graders)}){f': {description}' if description else ''}"


def rubric_of(grade: Grade) -> tuple[str, str] | None:
    """Return name with version, and description of the rubric a grade was given by; None where there is none."""
    rubric = grade.details.get("rubric")
    if not isinstance(rubric, dict):
        return None
    name, version, description = (str(rubric.get(key) or "") for key in ("name", "version", "description"))
    return f"{name} {version}".strip(), description


def _juries(run: Run) -> Iterator[str]:
    """Yield how often the jury of each grader was split."""
    if not any(map(_has_jury, run.suite.every_grader)):
        return
    given: Counter[str] = Counter()
    split: dict[str, list[str]] = {}
    for result in run.results:
        for grade in result.grades:
            if isinstance(jury := grade.details.get("jury"), dict):
                given[grade.name] += 1
                if jury.get("is_unanimous") is False:
                    split.setdefault(grade.name, []).append(result.task_id)
    for name, count in given.items():
        tasks = list(dict.fromkeys(split.get(name, ())))
        more = f" and {len(tasks) - MOST_TASKS} more" if len(tasks) > MOST_TASKS else ""
        where = f" ({', '.join(tasks[:MOST_TASKS])}{more})" if tasks else ""
        yield f"jury {name}: {len(split.get(name, ()))} of {count} verdicts split{where}"


def _shown_lines(run: Run) -> Iterator[str]:
    """Yield how many verdicts of each grader rest on shortened texts, or on quotes that are not in the material."""
    if not run.spec.get("judged"):
        return
    cut: Counter[str] = Counter()
    absent: Counter[str] = Counter()
    for result in run.results:
        for grade in result.grades:
            shown = [grade.details, *_vote_details(grade)]
            cut[grade.name] += any(one.get("left_out") for one in shown)
            absent[grade.name] += any(_has_absent_quote(one) for one in shown)
    for name, count in cut.items():
        if count:
            yield f"{name}: {plural(count, 'verdict')} on shortened texts; output_budget sets how much the judge sees"
    for name, count in absent.items():
        if count:
            yield f"{name}: {plural(count, 'verdict')} with quotes that are not in the material"


def _vote_details(grade: Grade) -> Iterator[dict[str, JSON]]:
    jury = grade.details.get("jury")
    votes = jury.get("votes") if isinstance(jury, dict) else None
    for vote in votes if isinstance(votes, list) else ():
        if isinstance(vote, dict) and isinstance(details := vote.get("details"), dict):
            yield details


def _has_absent_quote(details: dict[str, JSON]) -> bool:
    evidence = details.get("evidence")
    quotes = evidence if isinstance(evidence, list) else []
    return any(isinstance(one, dict) and one.get("found") is False for one in quotes)


def _has_jury(entry: object) -> bool:
    config = entry.get("config") if isinstance(entry, dict) else None
    return isinstance(config, dict) and ("judges" in config or isinstance(config.get("grader"), dict))


def split_jury(grade: Grade) -> str:
    """Return the votes of a split jury; empty where it was unanimous, or there is none."""
    jury = grade.details.get("jury")
    return grade.feedback if isinstance(jury, dict) and jury.get("is_unanimous") is False else ""


MOST_DIFFERENCES = 20
NOT_USED = "its calibration does not record its question and is ignored; measure again with `waza calibrate`"
REASON_WIDTH = 80
RULE = "in the order of a hash: any beginning of the list is a fair sample, outputs picked by hand would not be"


def sentence(calibration: Calibration) -> str:
    """Return what is known about a judge, in one sentence."""
    if calibration.accuracy is None:
        return "no output was judged by people and by this judge"
    kappa = "kappa is undefined" if calibration.kappa is None else f"kappa {calibration.kappa:.2f}"
    same = percent(calibration.constant_accuracy)
    outputs = plural(calibration.n, "output")
    return (
        f"agrees with people on {percent(calibration.accuracy)} of {outputs} "
        f"({kappa}; the same answer every time would agree on {same})"
    )


def believed(run: Run) -> list[str]:
    """Return what is known of each judge of a run that was measured against people; and what cannot be used."""
    mine = usable_calibrations(run)
    measured = {(one.grader, one.model) for one in mine}
    lost = [one for one in known_calibrations(run) if not one.asked and (one.grader, one.model) not in measured]
    lines = [f"{_judge(one)} {sentence(one)}" for one in mine] + [f"{_judge(one)}: {NOT_USED}" for one in lost]
    return lines + [_corrected_line(rate) for rate in (corrected_rates(run) if mine else ())]


def _corrected_line(rate: CorrectedRate) -> str:
    """Return the pass rate of a judge as it is and corrected: `polite: 65 % pass, corrected for its error 71 %`."""
    raw = f"{visible(rate.grader)}: {percent(rate.raw.mean)} pass by the judge ({_short(rate.raw)})"
    if rate.corrected is None:
        return f"{raw}; no corrected rate: {rate.reason}"
    labels = f"by {plural(rate.labels, 'label')} of people"
    return f"{raw}, corrected {labels}: {percent(rate.corrected.mean)} ({_short(rate.corrected)})"


def _short(interval: Interval) -> str:
    return f"95 % interval {interval.lower * 100:.0f}–{percent(interval.upper)}"


def _judge(calibration: Calibration) -> str:
    where = f" at {visible(calibration.address)}" if calibration.address else ""
    return f"{visible(calibration.grader)} by {visible(calibration.model) or 'its judge'}{where}"


def judge_lines(agreement: JudgeAgreement) -> Iterator[str]:
    """Yield a judge's measurement, line by line; texts of agents and people are made visible."""
    rubric = f" · rubric {agreement.rubric_name} {agreement.rubric[:8]}" if agreement.rubric else ""
    where = f" at {agreement.address}" if agreement.address else ""
    yield visible(f"{agreement.grader} · judge {agreement.model or 'without a model name'}{where}{rubric}")
    yield from _sample(agreement)
    if agreement.counts.n:
        yield ""
        yield from _agreement(agreement)
        yield ""
        yield from _table(agreement)
    yield ""
    yield from _score(agreement)
    if agreement.differ:
        yield ""
        yield from _differences(agreement)
    if agreement.label_next:
        yield ""
        yield from _next(agreement)


def _sample(agreement: JudgeAgreement) -> Iterator[str]:
    people = ", ".join(visible(name) or "no name" for name in agreement.people) or "none"
    yield f"{plural(agreement.outputs, 'output')} judged, {agreement.counts.n} of them by people too ({people})"
    if agreement.divided:
        yield f"{plural(agreement.divided, 'output')} left out: people are evenly divided"
    if agreement.not_asked:
        yield f"the jury settled {agreement.not_asked} more without asking it: this is no fair sample"
    if agreement.tasks < agreement.outputs:
        yield f"they belong to {plural(agreement.tasks, 'task')}; intervals count that outputs of one task are alike"


def _agreement(measured: JudgeAgreement) -> Iterator[str]:
    yield f"agreement       {_interval(measured.agreement)}"
    value = [] if measured.kappa_value is None else [f"{measured.kappa_value:.2f}"]
    interval = (
        f"({measured.kappa.lower:.2f} to {measured.kappa.upper:.2f})" if measured.kappa else measured.kappa_remark
    )
    yield "   ".join(["Cohen's kappa", *value, interval])
    yield f"base rate       people pass {percent(measured.base_rate)}"
    constant = f'always "{measured.constant_answer}" would agree on {percent(measured.constant_agreement)}'
    yield f"best constant   {constant}"
    yield f'"fail"          precision {percent(measured.fail_precision)}, recall {percent(measured.fail_recall)}'


def _table(agreement: JudgeAgreement) -> Iterator[str]:
    counts = agreement.counts
    yield f"{'':16}{'judge: pass':>12}{'judge: fail':>13}"
    yield f"{'people: pass':16}{counts.true_pass:>12}{counts.false_fail:>13}"
    yield f"{'people: fail':16}{counts.false_pass:>12}{counts.true_fail:>13}"


def _score(agreement: JudgeAgreement) -> Iterator[str]:
    score = agreement.score
    yield f"pass rate       by the judge, as it is              {_interval(score.raw)}"
    yield f"                corrected, prediction-powered       {_interval(score.prediction_powered)}"
    yield f"                corrected, Rogan-Gladen             {_interval(score.rogan_gladen)}"
    yield f"                by people, labelled outputs alone   {_interval(score.people)}"


def _differences(agreement: JudgeAgreement) -> Iterator[str]:
    yield f"they differ on {plural(len(agreement.differ), 'output')}"
    for one in agreement.differ[:MOST_DIFFERENCES]:
        yield f"  {_place(one.output)}: people {one.people}, judge {one.judge}"
        for who, reason in (("people", one.people_reason), ("judge", one.judge_reason)):
            if reason:
                yield f"      {who}: {clipped(visible(reason), REASON_WIDTH)}"
    if (more := len(agreement.differ) - MOST_DIFFERENCES) > 0:
        yield f"  … and {more} more"


def _next(agreement: JudgeAgreement) -> Iterator[str]:
    wide = f"±{agreement.half_width * 100:g} points"
    if agreement.counts.n < 2:
        yield "label next, some thirty to begin with:"
    elif agreement.labels_needed is None:
        yield f"label next; for {wide} these outputs are too few:"
    elif (more := agreement.labels_needed - agreement.counts.n) > 0:
        yield f"label next; about {more} more bring the corrected pass rate to {wide}:"
    else:
        yield f"label next, though the corrected pass rate is within {wide} already:"
    yield "  " + ", ".join(_place(output) for output in agreement.label_next)
    yield f"  ({RULE})"
    yield f"  waza review {agreement.label_next[0].run} --grader {visible(agreement.grader)}"


def alpha_lines(alphas: Sequence[Alpha], who: str) -> Iterator[str]:
    """Yield how far several judges, or several people, agree."""
    for one in alphas:
        names = ", ".join(visible(name) for name in one.raters)
        if len(one.raters) > 1:
            value = "undefined: all verdicts are the same" if one.alpha is None else f"{one.alpha:.2f}"
            yield f"Krippendorff's alpha between {who}: {value} on {plural(one.outputs, 'output')} ({names})"
        if one.unnamed:
            left = f"{plural(one.unnamed, 'verdict')} without a name next to {names}, from one person or several"
            yield f"agreement between {who} leaves out {left}; give names with --reviewer"


def _interval(interval: Interval | None) -> str:
    if interval is None:
        return "–"
    return f"{percent(interval.mean):>5}   (95 % interval {percent(interval.lower)} to {percent(interval.upper)})"


def _place(output: MeasuredOutput) -> str:
    return f"{visible(output.task)} #{output.trial}"
