"""`waza check`: every mistake in suites and skills, without running anything."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import click

from waza.analysis.oracles import ORACLES, OracleFinding, cheated
from waza.cli._screen import emit, say, show_problems
from waza.cli._working import trust_option
from waza.errors import EXIT_FAILED, EXIT_PASSED, EXIT_UNDECIDED, EXIT_USAGE, Problem, UsageError
from waza.files.trust import not_trusted
from waza.runner.preflight import refusals, without_refused
from waza.skills import MARK
from waza.suites.load import FILE, find_eval, read_spec, suite_in
from waza.suites.local_code import NOT_CHECKED
from waza.suites.mocks import session_problems
from waza.suites.rubrics import rubric_problems
from waza.suites.skills import skill_line, skill_problems, skills_below
from waza.suites.suite import NO_ENGINE, EvalSpec
from waza.suites.trigger_suite import read_lone_triggers
from waza.suites.triggers import FILE as TRIGGERS
from waza.untrusted.text import plural, visible


@click.command(epilog="Example:  waza check .  ·  waza check evals/greeter/eval.yaml --quiet")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
@click.option("--json", "as_json", is_flag=True, help="Print the problems as JSON lines.")
@trust_option
@click.option("--strict", is_flag=True, help="Take warnings for errors, and what was not checked.")
@click.option("--engine", help="Check for this engine, instead of the suite's.")
@click.option(
    "--max-cost", type=click.FloatRange(0, min_open=True), help="Also check that `run --max-cost` could work."
)
@click.option("--baseline", is_flag=True, help="Also check that `run --baseline` could work.")
@click.option("--live", is_flag=True, help="Also ask the judge one small question, which costs a few tokens.")
@click.option("--oracles", is_flag=True, help="Also let agents try the suites that do no work: none may pass a task.")
def command(
    paths: tuple[Path, ...],
    quiet: bool,
    as_json: bool,
    trust: bool,
    strict: bool,
    engine: str | None,
    max_cost: float | None,
    baseline: bool,
    live: bool,
    oracles: bool,
) -> int:
    """Find every mistake in suites and skills, without running anything; offline, unless --live is given.

    PATHS are eval files, skills, trigger tests or folders; a folder is searched for eval.yaml, SKILL.md and
    trigger_tests.yaml. Without PATHS, the current folder. A suite's skill is looked at too. Python of the project is
    imported only where you trust its folder; what was not checked for that reason is reported, and a mistake with
    --strict. Exit code 0: nothing is wrong; 1: a skill is, or with --oracles an agent that does no work passes a task;
    2: a suite is; 3: nothing is, but with --live a judge could not answer, or with --oracles a grader, or the folder
    is not trusted.
    """
    wrong = silent = weak = 0
    suites, skills = find_all(paths or (Path(),))
    serious = ("error", "warning", NOT_CHECKED) if strict else ("error",)
    told: set[Problem] = set()
    paths = paths or (Path(),)
    for file in chain(suites, lone_triggers(paths, skills)):  # the suites' own skills may have trigger tests too
        is_lone = file.name == TRIGGERS
        spec, problems = (read_lone_triggers if is_lone else read_spec)(file, trust=trust)
        if spec is not None:
            found = [*problems, *rubric_problems(spec), *_sessions(spec), *spec.not_checked()]
            has_limit, has_baseline = max_cost is not None, baseline and not is_lone
            imports = spec.folder.may_import
            refused = refusals(spec, engine=engine, has_max_cost=has_limit, has_baseline=has_baseline, imports=imports)
            refused = [one for one in refused if NO_ENGINE not in one.message or not _is_config_wrong(problems)]
            problems = list(dict.fromkeys([*without_refused(found, refused), *refused]))
        shown = [p for p in problems if (not quiet or p.severity in serious) and p not in told]
        told.update(shown)  # what is about the project is found with each of its suites
        if as_json:
            _print_json(shown)
        else:
            show_problems(shown, to_stderr=False)
        errors = sum(p.severity in serious for p in problems)
        unchecked = sum(p.severity == NOT_CHECKED for p in problems)
        wrong += bool(errors)
        skills += [spec.skill_folder] if spec and spec.skill_folder else []
        if not as_json and not quiet:
            _summary(file, spec if not errors else None, errors, unchecked)
        if live and spec is not None and not errors:
            silent += _silent_judges(spec, quiet=quiet or as_json)
        if is_lone:
            continue
        if oracles and spec is not None and not errors and (fact := _starts_programs(spec)):
            silent += 1
            left_out = [spec.place.problem(fact, NOT_CHECKED)]
            _print_json(left_out) if as_json else show_problems(left_out, to_stderr=False)
        elif oracles and spec is not None and not errors:
            # it runs graders; a check does not

            passed, untried = weak_tasks(spec, quiet=quiet, as_json=as_json)
            weak, silent = weak + passed, silent + untried
    bad = sum(_check_skill(skill, quiet, as_json, strict) for skill in dict.fromkeys(skills))
    return EXIT_USAGE if wrong else EXIT_FAILED if bad or weak else EXIT_UNDECIDED if silent else EXIT_PASSED


def _is_config_wrong(problems: list[Problem]) -> bool:
    """Say whether an engine may be named in a part of the files that could not be read."""
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


def _check_skill(folder: Path, quiet: bool, as_json: bool, strict: bool) -> bool:
    """Say what is wrong with a skill, and return whether something is."""
    from waza.suites.project import shown

    problems = skill_problems(folder)
    errors = [p for p in problems if p.severity == "error" or (strict and p.severity == "warning")]
    if as_json:
        _print_json(errors if quiet else problems)
        return bool(errors)
    show_problems(errors if quiet else problems, to_stderr=False)
    if not quiet and errors:
        say(f"{shown(folder / MARK)}: {plural(len(errors), 'mistake')}", "bold red")
    elif not quiet:
        say(f"{shown(folder / MARK)}: ok, {skill_line(folder)} (estimated)", "green")
    return bool(errors)


def _sessions(spec: EvalSpec) -> list[Problem]:
    """Return what there is to say about judges that go on in the agent's session."""
    engine = spec.config.executor or spec.project.defaults.engine
    return list(session_problems(engine, spec.graders, spec.place))


def _starts_programs(spec: EvalSpec) -> str:
    """Return why the oracles are not let loose: in a folder that is not trusted they would start programs of it."""
    graders = [grader for each in spec.graders.values() for grader in each]
    if spec.folder.may_import or not (spec.hooks.model_dump(exclude_defaults=True) or any(g.waits for g in graders)):
        return ""
    return f"--oracles would start hooks and programs of this suite, and {not_trusted(spec.folder.root)}"


def _silent_judges(spec: EvalSpec, *, quiet: bool) -> int:
    """Ask the suite's judge, say what it showed, and return how many of its models did not answer."""
    from waza.runner.preflight import signs_of_life  # it loads a vendor's SDK

    silent = 0
    for sign in signs_of_life(spec):
        silent += not sign.is_alive
        if not sign.is_alive or not quiet:
            say(visible(sign.text), "green" if sign.is_alive else "bold red")
    return silent


def find_all(paths: tuple[Path, ...]) -> tuple[list[Path], list[Path]]:
    """Return the eval files and the folders of skills that are meant by the paths."""
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
    """Return the eval files meant by the paths: each file, and every `eval.yaml` below each folder."""
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
    from waza.suites.project import shown

    if good:
        left = f"; {unchecked} not checked" if unchecked else ""
        prompts = [prompt for prompt in good.triggers.prompts if not prompt.control] if good.triggers else []
        count = plural(len(good.tasks), "task") if good.tasks or not prompts else plural(len(prompts), "trigger prompt")
        say(f"{shown(file)}: ok, {count}{left}", "green")
    else:
        say(f"{shown(file)}: {plural(errors, 'mistake')}", "bold red")


def _print_json(problems: list[Problem]) -> None:
    import json

    for problem in problems:
        emit(json.dumps(problem._asdict()))


# `waza check --oracles`: which tasks an agent gets through that does no work.


def weak_tasks(spec: EvalSpec, *, quiet: bool, as_json: bool) -> tuple[int, int]:
    """Let every oracle try a suite, and say what they get through; return how many tasks they pass, and cannot try."""
    found = list(cheated(spec))
    if as_json:
        for finding in found:
            emit(json.dumps(finding._asdict() | {"sentence": str(finding)}))
    else:
        _passed(found)
        _untried(found)
        if not quiet:
            _held(found)
    weak = {finding.task for finding in found if finding.kind == "passes"}
    untried = {finding.task for finding in found if finding.kind == "not decided"}
    if not as_json and not quiet and not weak | untried:
        say(f"oracles: none of {len(ORACLES)} passes any of {plural(len(spec.tasks), 'task')}", "green")
    return len(weak), len(untried)


def _passed(found: list[OracleFinding]) -> None:
    """Say, a line a task, which oracles pass it."""
    passed: dict[str, list[str]] = {}
    for finding in found:
        if finding.kind == "passes":
            passed.setdefault(finding.task, []).append(finding.oracle)
    for task, oracles in passed.items():
        verb = "passes" if len(oracles) == 1 else "pass"
        told = f"error: task '{task}': {', '.join(oracles)} {verb}; add a check that only the work itself can meet"
        say(visible(told), "bold red")


def _untried(found: list[OracleFinding]) -> None:
    """Say which oracles could not try a task: nobody knows whether they would pass it."""
    for finding in found:
        if finding.kind == "not decided":
            say(visible(f"warning: {finding}"), "yellow")


def _held(found: list[OracleFinding]) -> None:
    """Say, a line a task, what only a judge stands against."""
    held: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for finding in found:
        if finding.kind == "held up by a judge alone":
            held.setdefault((finding.task, finding.graders), []).append(finding.oracle)
    for (task, graders), oracles in held.items():
        say(
            visible(f"note: task '{task}': nothing but {', '.join(graders)} stands against {', '.join(oracles)}"),
            "cyan",
        )
