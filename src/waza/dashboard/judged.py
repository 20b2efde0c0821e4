"""Who gave a run's verdicts, and how far they can be believed: judge cards, calibrations, juries, canaries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from waza.dashboard.markup import Html, Node, el, short
from waza.errors import StoreError
from waza.model import Run
from waza.reports._elements import Bar, plot
from waza.reports._elements import text as escaped
from waza.reports._judging import judging_lines
from waza.reports._text import percent
from waza.results.calibrations import Calibration, asked_in, read_calibrations
from waza.results.cards import JudgeCard, read_cards
from waza.results.scores import Interval, wilson
from waza.sandbox.folders import project_root


def judge_section(run: Run) -> Node:
    """Return what is known about the judges of a run; nothing where nobody judged, or nothing was measured."""
    lines = list(judging_lines(run))
    plots = "".join(_plots(run)) if run.spec.get("judged") else ""
    if not lines and not plots:
        return None
    told = el("ul", *(el("li", short(line, 600)) for line in lines)) if lines else None
    return [el("h2", "Judges"), told, Html(plots)]


def _plots(run: Run) -> Iterator[str]:
    """Yield a plot for each calibration and each card that belongs to the run's rubrics."""
    root = project_root(Path(run.folder).resolve())
    names = {str(entry.get("name")) for each in (run.spec.get("graders") or {}).values() for entry in each}
    try:
        known = [one for one in read_calibrations(root) if one.n and one.grader in names]
        asked = asked_in(run, known)
        yield from (_calibration(one) for one in known if one.asked in asked)
        for card in read_cards(root):
            if card.rubric_hash in asked:
                yield _card(card)
    except (StoreError, OSError) as error:
        yield f'<p class="error">{escaped(str(error), 600)}</p>\n'


def _calibration(found: Calibration) -> str:
    counts = found.counts
    who = f"{found.model or 'its judge'}{f' at {found.address}' if found.address else ''}"
    title = f"Calibration: {escaped(found.grader)} by {escaped(who)} against people"
    passes, fails = counts.true_pass + counts.false_fail, counts.true_fail + counts.false_pass
    bars = [
        _bar("agrees with people", counts.agreed, counts.n, wilson(counts.agreed, counts.n)),
        _bar("passes what people pass", counts.true_pass, passes, wilson(counts.true_pass, passes)),
        _bar("fails what people fail", counts.true_fail, fails, wilson(counts.true_fail, fails)),
    ]
    same = f'<p class="soft">The same answer every time would agree on {percent(found.constant_accuracy)}.</p>\n'
    return plot(title, bars) + same


def _card(card: JudgeCard) -> str:
    title = f"Judge card: {escaped(card.rubric)} by {escaped(card.model or card.judge)}, verdicts that stayed the same"
    bars = [_bar("agrees with the goldens", card.agreed.kept, card.agreed.decided, card.agreed.interval)]
    bars += [_bar(probe.name, probe.invariance.kept, probe.invariance.decided, probe.invariance.interval)
             for probe in card.probes]  # fmt: skip
    attacks = card.attacks
    if attacks.decided:
        bars.append(_bar("attacks that worked", attacks.passed, attacks.decided, attacks.interval))
    findings = "".join(f'<p class="error">{escaped(finding, 600)}</p>\n' for finding in card.findings)
    return plot(title, bars) + findings


def _bar(label: str, part: int, whole: int, interval: Interval | None) -> Bar:
    span = (interval.lower, interval.upper) if interval else None
    return Bar(label, part / whole if whole else 0.0, f"{part} of {whole}", span)
