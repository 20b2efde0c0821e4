"""`waza check`: every mistake in suites and skills, without running anything."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import click

from waza.cli._screen import say, show_problems, trust_option
from waza.cli._stdout import emit
from waza.errors import EXIT_FAILED, EXIT_PASSED, EXIT_UNDECIDED, EXIT_USAGE, Problem, UsageError
from waza.files.paths import display_path
from waza.files.trust import not_trusted
from waza.runner.preflight import refusals, without_refused
from waza.skills import MARK
from waza.suites.load import FILE, find_eval, read_lone_triggers, read_spec, suite_in
from waza.suites.local_code import NOT_CHECKED
from waza.suites.mocks import session_problems
from waza.suites.rubrics import rubric_problems
from waza.suites.skills import skill_line, skill_problems, skills_below
from waza.suites.suite import NO_ENGINE, EvalSpec
from waza.suites.triggers import FILE as TRIGGERS
from waza.untrusted.text import plural, visible


@dataclass(frozen=True)
class CheckOptions:
    """The command line of `waza check`."""

    quiet: bool
    as_json: bool
    trust: bool
    strict: bool
    engine: str | None
    max_cost: float | None
    baseline: bool
    live: bool
    oracles: bool

    @property
    def error_severities(self) -> tuple[str, ...]:
        """The severities that make a suite wrong."""
        return ("error", "warning", NOT_CHECKED) if self.strict else ("error",)

    @property
    def prints_summaries(self) -> bool:
        """Whether a line for people is printed per file."""
        return not self.quiet and not self.as_json


@dataclass
class Totals:
    """What the checks found so far."""

    wrong_suites: int = 0
    weak_tasks: int = 0
    """Tasks that an agent passes which does no work."""
    undecided: int = 0
    """Judges that did not answer, and tasks that no oracle could be tried on."""
    skills: list[Path] = field(default_factory=list)
    """Folders of skills still to check: those named, and each suite's own."""
    printed: set[Problem] = field(default_factory=set)
    """Problems of a project are found with each of its suites, and printed once."""


@click.command(epilog="Example:  waza check .  ·  waza check evals/greeter/eval.yaml --quiet")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
@click.option("--json", "as_json", is_flag=True, help="Print the problems as JSON lines.")
@trust_option
@click.option("--strict", is_flag=True, help="Treat warnings, and what was not checked, as errors.")
@click.option("--engine", help="Check for this engine, instead of the suite's.")
@click.option(
    "--max-cost", type=click.FloatRange(0, min_open=True), help="Also check that `run --max-cost` could work."
)
@click.option("--baseline", is_flag=True, help="Also check that `run --baseline` could work.")
@click.option("--live", is_flag=True, help="Also ask the judge one small question, which costs a few tokens.")
@click.option("--oracles", is_flag=True, help="Also run agents that do no work: none may pass a task.")
def command(paths: tuple[Path, ...], **options: Any) -> int:
    """Find every mistake in suites and skills, without running anything; offline, unless --live is given.

    PATHS are eval files, skills, trigger tests or folders; a folder is searched for eval.yaml, SKILL.md and
    trigger_tests.yaml. Without PATHS, the current folder. A suite's skill is checked too. Python of the project is
    imported only if you trust its folder; what was not checked for that reason is reported, and is an error with
    --strict. Exit code 0: no errors; 1: a skill has errors, or with --oracles an agent that does no work passes a task;
    2: a suite has errors; 3: no errors, but with --live a judge did not answer, or with --oracles a grader did not, or
    the folder is not trusted.
    """
    return check(paths or (Path(),), CheckOptions(**options))


def check(paths: tuple[Path, ...], options: CheckOptions) -> int:
    """Check every suite and skill at the paths, print the problems, and return the exit code."""
    suites, skills = find_all(paths)
    totals = Totals(skills=skills)
    for file in chain(suites, lone_triggers(paths, totals.skills)):  # lazy: suites add skills
        _check_suite(file, options, totals)
    wrong_skills = sum(_check_skill(skill, options) for skill in dict.fromkeys(totals.skills))
    if totals.wrong_suites:
        return EXIT_USAGE
    if wrong_skills or totals.weak_tasks:
        return EXIT_FAILED
    return EXIT_UNDECIDED if totals.undecided else EXIT_PASSED


def _check_suite(file: Path, options: CheckOptions, totals: Totals) -> None:
    """Check one eval file, or trigger tests without one, and add what was found to the totals."""
    is_lone = file.name == TRIGGERS
    spec, problems = (read_lone_triggers if is_lone else read_spec)(file, trust=options.trust)
    if spec is not None:
        problems = _with_refusals(spec, problems, options, has_baseline=options.baseline and not is_lone)
    errors = sum(problem.severity in options.error_severities for problem in problems)
    wanted = [p for p in problems if not options.quiet or p.severity in options.error_severities]
    _print_problems((p for p in wanted if p not in totals.printed), options)
    totals.printed.update(wanted)
    totals.wrong_suites += bool(errors)
    totals.skills += [spec.skill_folder] if spec and spec.skill_folder else []
    if options.prints_summaries:
        unchecked = sum(problem.severity == NOT_CHECKED for problem in problems)
        _summary(file, spec if not errors else None, errors, unchecked)
    if spec is None or errors:
        return
    if options.live:
        totals.undecided += _silent_judges(spec, quiet=not options.prints_summaries)
    if options.oracles and not is_lone:
        _try_oracles(spec, options, totals)


def _with_refusals(
    spec: EvalSpec, problems: list[Problem], options: CheckOptions, *, has_baseline: bool
) -> list[Problem]:
    """Return a suite's problems with the reasons for which a run of it would be refused, each once."""
    engine = spec.config.executor or spec.project.defaults.engine
    sessions = session_problems(engine, spec.graders, spec.place)
    found = [*problems, *rubric_problems(spec), *sessions, *spec.not_checked()]
    refused = refusals(
        spec,
        engine=options.engine,
        has_max_cost=options.max_cost is not None,
        has_baseline=has_baseline,
        imports=spec.folder.may_import,
    )
    refused = [one for one in refused if NO_ENGINE not in one.message or not _is_config_wrong(problems)]
    return list(dict.fromkeys([*without_refused(found, refused), *refused]))


def _try_oracles(spec: EvalSpec, options: CheckOptions, totals: Totals) -> None:
    """Run agents that do no work on a suite and add what they passed to the totals."""
    if fact := _starts_programs(spec):
        totals.undecided += 1
        _print_problems([spec.place.problem(fact, NOT_CHECKED)], options)
        return
    from waza.analysis.oracles import ORACLES, cheated  # it loads the runner, which a check does without

    findings = list(cheated(spec))
    weak = {finding.task for finding in findings if finding.kind == "passes"}
    untried = {finding.task for finding in findings if finding.kind == "not decided"}
    totals.weak_tasks += len(weak)
    totals.undecided += len(untried)
    if options.as_json:
        for finding in findings:
            emit(json.dumps(finding._asdict() | {"sentence": str(finding)}))
        return
    passed: dict[str, list[str]] = {}
    judge_only: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for finding in findings:
        if finding.kind == "passes":
            passed.setdefault(finding.task, []).append(finding.oracle)
        elif finding.kind == "protected by a judge alone":
            judge_only.setdefault((finding.task, finding.graders), []).append(finding.oracle)
    for task, oracles in passed.items():
        verb = "passes" if len(oracles) == 1 else "pass"
        message = f"error: task '{task}': {', '.join(oracles)} {verb}; add a check that only the work itself can meet"
        say(visible(message), "bold red")
    for finding in findings:
        if finding.kind == "not decided":
            say(visible(f"warning: {finding}"), "yellow")
    if options.quiet:
        return
    for (task, graders), oracles in judge_only.items():
        say(visible(f"note: task '{task}': only {', '.join(graders)} fails {', '.join(oracles)}"), "cyan")
    if not weak | untried:
        say(f"oracles: none of {len(ORACLES)} passes any of {plural(len(spec.tasks), 'task')}", "green")


def _is_config_wrong(problems: list[Problem]) -> bool:
    """Return whether an engine may be named in a part of the files that could not be read."""
    names = ("config", "defaults")
    return any(one.severity == "error" and (not one.path or one.path.startswith(names)) for one in problems)


def lone_triggers(paths: Sequence[Path], skills: Sequence[Path]) -> Iterator[Path]:
    """Yield the trigger tests at and below the paths and with the skills, where no eval file is next to them."""
    named = {path.resolve().parent for path in paths if path.name == TRIGGERS}
    folders = {path.resolve() for path in paths if path.is_dir()}
    below = {
        file.resolve().parent
        for path in paths
        if path.is_dir() and not suite_in(path)
        for file in path.rglob(TRIGGERS)
        if not _hidden(file.relative_to(path))
    }
    with_skills = {place for skill in skills for place in (skill, skill / "evals")}
    for folder in sorted(named | folders | below | with_skills):
        if (folder / TRIGGERS).is_file() and not suite_in(folder):
            yield folder / TRIGGERS


def _check_skill(folder: Path, options: CheckOptions) -> bool:
    """Print the problems of a skill and return whether one is an error."""
    problems = skill_problems(folder)
    errors = [p for p in problems if p.severity == "error" or (options.strict and p.severity == "warning")]
    _print_problems(errors if options.quiet else problems, options)
    if options.prints_summaries:
        name = display_path(folder / MARK)
        if errors:
            say(f"{name}: {plural(len(errors), 'mistake')}", "bold red")
        else:
            say(f"{name}: ok, {skill_line(folder)} (estimated)", "green")
    return bool(errors)


def _starts_programs(spec: EvalSpec) -> str:
    """Return why oracles are not run: they would start hooks and programs of a folder that is not trusted."""
    graders = [grader for each in spec.graders.values() for grader in each]
    if spec.folder.may_import or not (spec.hooks.model_dump(exclude_defaults=True) or any(g.waits for g in graders)):
        return ""
    return f"--oracles would start hooks and programs of this suite, and {not_trusted(spec.folder.root)}"


def _silent_judges(spec: EvalSpec, *, quiet: bool) -> int:
    """Ask the suite's judge one question, print its answer, and return how many of its models did not answer."""
    from waza.runner.judge_checks import check_judges_respond  # it loads a vendor's SDK

    silent = 0
    for sign in check_judges_respond(spec):
        silent += not sign.is_alive
        if not sign.is_alive or not quiet:
            say(visible(sign.text), "green" if sign.is_alive else "bold red")
    return silent


def find_all(paths: tuple[Path, ...]) -> tuple[list[Path], list[Path]]:
    """Return the eval files and the skill folders at the paths."""
    suites: list[Path] = []
    skills: list[Path] = []
    for path in paths:
        if path.name == MARK and path.is_file():
            skills.append(path.resolve().parent)
            continue
        if path.name == TRIGGERS and path.is_file():
            suites += [found.resolve()] if (found := suite_in(path.parent)) else []
            continue
        below = [skill.resolve() for skill in skills_below(path)] if path.is_dir() else []
        skills += below
        try:
            suites += find_suites((path,))
        except UsageError:
            if not below and next(lone_triggers((path,), ()), None) is None:
                raise
    return list(dict.fromkeys(suites)), skills


def find_suites(paths: tuple[Path, ...]) -> list[Path]:
    """Return the eval files at the paths: each file, and every `eval.yaml` below each folder."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir() and not suite_in(path):
            folders = {file.parent for file in path.rglob("*.y*ml") if not _hidden(file.relative_to(path))}
            below = sorted(file for folder in folders if (file := suite_in(folder)))
            if not below:
                raise UsageError(f"{path}: no {FILE} in this folder or below; `waza init` writes a first one")
            found += [file.resolve() for file in below]
        else:
            found.append(find_eval(path))
    return list(dict.fromkeys(found))


def _hidden(path: Path) -> bool:
    return any(part in ("node_modules", "runs") or (part.startswith(".") and part != ".github") for part in path.parts)


def _summary(file: Path, good: EvalSpec | None, errors: int, unchecked: int) -> None:
    if good:
        left = f"; {unchecked} not checked" if unchecked else ""
        prompts = [prompt for prompt in good.triggers.prompts if not prompt.control] if good.triggers else []
        count = plural(len(good.tasks), "task") if good.tasks or not prompts else plural(len(prompts), "trigger prompt")
        say(f"{display_path(file)}: ok, {count}{left}", "green")
    else:
        say(f"{display_path(file)}: {plural(errors, 'mistake')}", "bold red")


def _print_problems(problems: Iterable[Problem], options: CheckOptions) -> None:
    if not options.as_json:
        show_problems(problems, to_stderr=False)
        return
    for problem in problems:
        emit(json.dumps(problem._asdict()))
