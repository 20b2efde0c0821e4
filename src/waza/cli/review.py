"""`waza review`: people give their verdicts on outputs of a stored run."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from waza.cli._runs import own_run
from waza.cli._screen import remark, say, trust_option
from waza.errors import EXIT_INTERRUPTED, EXIT_PASSED, StoreError, UsageError
from waza.files.paths import display_path
from waza.model import Result, Run, Trace
from waza.runner.regrade import eval_of
from waza.runner.reviewing import ReviewableOutput, reviewable, reviewed_part, settle, verdicts_file
from waza.runs.store import open_run
from waza.runs.verdicts import Answer, merge_verdicts, record_verdict, standing_in
from waza.suites.load import load_spec
from waza.untrusted.text import clipped, plural, visible


@click.command(epilog="Example:  waza review  ·  waza review latest --grader polite --reviewer ana")
@click.argument("run", default="latest")
@click.option("--grader", "graders", multiple=True, help="Judge what this grader judged, to compare it with people.")
@click.option("--task", "tasks", multiple=True, help="Only tasks whose id or name fits this glob; may be repeated.")
@click.option("--reviewer", envvar="WAZA_REVIEWER", default="", help="Your name; verdicts of two people stay apart.")
@click.option("--again", is_flag=True, help="Ask about what you have judged before, too; the later verdict counts.")
@click.option("--merge", "others", multiple=True, type=click.Path(path_type=Path), help="Add another person's file.")
@click.option("--list", "only_list", is_flag=True, help="Say what there is to review, and who has, and ask nothing.")
@trust_option
@click.option("--suite", type=click.Path(path_type=Path), help="The eval file, where the run's own is elsewhere now.")
def command(
    run: str,
    graders: tuple[str, ...],
    tasks: tuple[str, ...],
    reviewer: str,
    again: bool,
    others: tuple[Path, ...],
    only_list: bool,
    trust: bool,
    suite: Path | None,
) -> int:
    """Look at outputs of a stored run and say pass or fail: RUN is its folder, its id, or `latest` (default).

    Without --grader it asks what the suite's `human` graders ask. Stop at any time, and go on later. Verdicts are lines
    in verdicts.jsonl next to the eval file: share it, and merge another one with --merge. Of two verdicts of one person
    on one output the later counts; those of different people are all kept. The run is graded again at once.
    """
    # the runner is not needed for --help
    reviewer, folder = reviewer.strip(), own_run(run)
    stored = open_run(folder)
    ref = stored.id if run == "latest" else run
    spec = load_spec(suite or eval_of(stored, folder, "--suite"), trust=trust, only_look=True)
    file = verdicts_file(spec)
    for other in others:
        if not other.is_file():
            raise UsageError(f"{other}: is no file; nothing was merged")
        merged = merge_verdicts(file, other)
        say(f"{other}: {merged.added} added, {merged.known} known already")
    chosen = {task.id for task in (spec.select(tasks) if tasks else spec).tasks}
    items = [item for item in reviewable(stored, spec, graders) if item.task in chosen]
    if not items and not others:
        raise UsageError("nothing to review: no `human` grader in this suite; name one that decides with --grader")
    go_on = shlex.join(_same_again(ref, graders, tasks, reviewer, suite, trust=trust))
    session = ReviewSession(stored, items, file, reviewer, again=again, go_on=go_on)
    stopped = False
    if only_list:
        listed(items, file)
    elif not others:
        stopped = session.ask()
    try:
        if changed := settle(folder, spec, remark):
            say(f"graded again: {changed} of {len(stored.results)} results changed; see:  waza show {ref}", "dim")
    except (StoreError, UsageError) as error:
        remark(f"the verdicts are recorded, the run is as it was: {error}", "yellow")
    return EXIT_INTERRUPTED if stopped else EXIT_PASSED


def _same_again(
    run: str,
    graders: tuple[str, ...],
    tasks: tuple[str, ...],
    reviewer: str,
    suite: Path | None,
    *,
    trust: bool,
) -> Iterator[str]:
    """Yield the words of the call that goes on: the same person, about the same things."""
    yield from ("waza", "review", run)
    given = [("--grader", name) for name in graders] + [("--task", name) for name in tasks]
    given += [("--reviewer", reviewer)] if reviewer else []
    given += [("--suite", str(suite))] if suite else []
    for pair in given:
        yield from pair
    if trust:
        yield "--trust"


LONG = 4_000
"""Characters of a text that are shown at first."""
WHOLE = 10**9
MOST_FILES = 50
ANSWERS: dict[str, Answer] = {"p": "pass", "pass": "pass", "f": "fail", "fail": "fail"}
CHOICES = "[p]ass  [f]ail  [s]kip  [m]ore  [b]ack  [q]uit"


class ReviewSession:
    """One sitting of one person."""

    def __init__(
        self,
        run: Run,
        items: Sequence[ReviewableOutput],
        file: Path,
        reviewer: str,
        *,
        again: bool = False,
        go_on: str = "",
    ) -> None:
        self._run, self._file, self._reviewer, self._go_on = run, file, reviewer, go_on
        self._items = [item for item in items if again or not self._has_verdict(item)]
        self._all = len(items)
        self.recorded = 0

    def _has_verdict(self, item: ReviewableOutput) -> bool:
        given = standing_in(self._file).get((item.grader, item.evidence), [])
        return any(one.reviewer == self._reviewer and one.question == item.question for one in given)

    def ask(self) -> bool:
        """Ask about each output in turn, and return whether the person stopped with Ctrl-C."""
        who = f" by {self._reviewer}" if self._reviewer else ""
        count = f"{plural(len(self._items), 'output')} of {self._all}"
        say(f"{count} to review{who}; verdicts go to {display_path(self._file)}", "dim")
        stopped, place = False, 0
        try:
            while place < len(self._items):
                place = max(0, place + self._one(place))
        except EOFError:
            say()
        except KeyboardInterrupt:
            say()
            stopped = True
        left = sum(not self._has_verdict(item) for item in self._items)
        go_on = f"; continue with:  {self._go_on}" if left else ""
        say(f"{plural(self.recorded, 'verdict')} recorded, {left} without one{go_on}")
        return stopped

    def _one(self, place: int) -> int:
        """Ask about one output and return how many to go on by; raise EOFError when the person stops."""
        item = self._items[place]
        seen = reviewed_part(self._run, item)
        show(item, *seen, f"{place + 1} of {len(self._items)}", LONG)
        while True:
            word = input(f"{CHOICES}: ").strip().lower()
            if word in ANSWERS:
                reason = input("why, in a line (may stay empty): ").strip()
                record_verdict(self._file, item.verdict(ANSWERS[word], reason, self._reviewer))
                self.recorded += 1
                return 1
            if word in ("s", "skip"):
                return 1
            if word in ("b", "back"):
                return -1
            if word in ("q", "quit"):
                raise EOFError
            if word in ("m", "more"):
                show(item, *seen, f"{place + 1} of {len(self._items)}", WHOLE)
            else:
                say(f"type one of the letters in brackets; found {word!r}" if word else "type a letter")


def show(item: ReviewableOutput, result: Result, trace: Trace, count: str, width: int) -> None:
    """Print what a person needs for a verdict; the grader's verdict is hidden, so that it does not bias them."""
    say(f"\n{'─' * 20} {count} · {item.task} · trial {item.trial} · {item.grader}", "bold")
    _text("asked of you", item.asked, WHOLE)
    _text("task", trace.input, width)
    if item.source:
        _text("source context", item.source, width)
    for number, turn in enumerate(trace.turns or [], 1):
        if number > 1:
            _text(f"prompt {number}", turn.input, width)
        if number < len(trace.turns or []):
            _text(f"answer {number}", turn.output, width)
    _calls(trace, width)
    _text("output", trace.output, width)
    if result.reason:
        _text(f"the trial ended: {result.status}", result.reason, width)
    try:
        paths = list(trace.files.paths()) if trace.files else []
    except OSError as error:
        paths = [f"(not all files were kept: {error.strerror})"]
    if paths:
        _text(f"{plural(len(paths), 'file')}, see:  waza show --files", "\n".join(paths[:MOST_FILES]), width)


def _text(label: str, text: str, width: int) -> None:
    """Print a text behind a bar: nothing in it can be taken for a line of ours."""
    say(label, "dim")
    shown = visible(text[:width], lines=True)
    for line in shown.split("\n"):
        say(f"  │ {line}")
    if len(text) > width:
        say(f"  … {len(text) - width:,} more characters: m shows them", "yellow")


def _calls(trace: Trace, width: int) -> None:
    if trace.tool_events is None:
        say("tool calls were not recorded", "dim")
        return
    lines = []
    for number, event in enumerate(trace.tool_events, 1):
        args = json.dumps(event.args, ensure_ascii=False, default=str)
        mark = "" if event.success else "  (failed)"
        lines.append(f"{number}. {visible(event.tool_name)} {clipped(visible(args), width)}{mark}")
        if event.result is not None:
            output = event.result if isinstance(event.result, str) else json.dumps(event.result, default=str)
            lines.append(f"   → {clipped(visible(output), min(width, 500))}")
    _text("tool calls", "\n".join(lines) or "(none)", WHOLE)


def listed(items: Sequence[ReviewableOutput], file: Path) -> None:
    """Print, by grader, how many outputs there are and how many each person has judged."""
    given = standing_in(file)
    for grader in sorted({item.grader for item in items}):
        own = [item for item in items if item.grader == grader]
        by: Counter[str] = Counter()
        for item in own:
            by.update({one.reviewer for one in given.get((grader, item.evidence), []) if one.question == item.question})
        people = ", ".join(f"{who or 'no name'} {count}" for who, count in sorted(by.items())) or "none yet"
        say(f"{grader}: {plural(len(own), 'output')}; judged by {people}")
