"""The judge a suite is graded by: settings of the project, the suite and the command line in, a checked Judge out."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from waza.errors import Problem, SpecError, did_you_mean, what
from waza.files.paths import PROJECT_FILE, SpecFolder, display_path
from waza.files.trust import not_trusted
from waza.graders.base import Grader
from waza.suites.positions import Position, problems_of, unmarked
from waza.suites.shapes import ConfigShape, ProjectShape
from waza.untrusted.yaml import read_yaml

if TYPE_CHECKING:  # most suites ask no judge, and judges take long to load
    from waza.judges.base import Judge
    from waza.judges.jury import Juror

_VENDORS = frozenset(("api.openai.com", "api.anthropic.com"))
"""Where the vendors of judges answer themselves."""


def judge_settings(project: ProjectShape, config: ConfigShape) -> dict[str, Any]:
    """Return the judge's settings: the project's, and over them the suite's; empty where neither names a judge."""
    found: dict[str, Any] = {}
    for written in (project.judge, config.judge):
        given = {"model": written} if isinstance(written, str) else dict(written or {})
        if given.get("type") not in (None, found.get("type")):
            found = {}
        found |= given
    if config.judge_model and not (isinstance(config.judge, str) or (config.judge or {}).get("model")):
        found["model"] = config.judge_model
    if config.judge_reasoning_effort and found:
        found.setdefault("reasoning_effort", config.judge_reasoning_effort)
    return found


def settings_place(project: ProjectShape, config: ConfigShape, place: Position, folder: SpecFolder) -> Position:
    """Return the position of the judge's settings: in the suite, whose root is `place`, or in the project's file."""
    if config.judge is None and project.judge is not None:
        file = folder.root / PROJECT_FILE
        with suppress(SpecError, OSError):
            return Position(display_path(file), read_yaml(file.read_bytes(), display_path(file))).at("judge")
    return place.at("config", "judge")


def build_judge(settings: dict[str, Any], place: Position, folder: SpecFolder) -> tuple[Judge | None, list[Problem]]:
    """Return the judge that settings describe, or None with every problem found; `place` is their position."""
    from waza.judges.base import JUDGES, judge_type_of  # most suites ask no judge, and judges take long to load

    kind = judge_type_of(settings)
    if not isinstance(kind, str):
        return None, [place.at("type").problem(f"a judge's type is a text, found {what(kind)}")]
    if not JUDGES.knows(kind):
        return None, [place.at("type").problem(f"unknown judge '{kind}'; {did_you_mean(kind, JUDGES.names())}")]
    cls: type[Judge] = JUDGES.load(kind)
    own = {key: unmarked(value) for key, value in settings.items() if key != "type"}
    wrong = [place.at(key).problem(f"unknown key '{key}'") for key in own if key in ("folder", "cache")]
    try:
        return cls.model_validate(own | {"folder": folder}), wrong
    except ValidationError as error:
        return None, wrong + problems_of(error, cls, own, lambda path: place.at(*path))


def untrusted_host(judge: Judge, folder: SpecFolder) -> str:
    """Return why a judge is not asked by commands that run nothing of a project; empty where it may be.

    A file of the project names the address and the variable whose value is sent there. That is the user's key, so the
    address is the vendor's own, or on this machine, or the user trusts the folder.
    """
    host = urlsplit(judge.base_url).hostname or ""
    if not judge.base_url or host in _VENDORS or _is_loopback(host) or folder.may_import:
        return ""
    key = f", with the key in {judge.api_key_env}" if judge.api_key_env else ""
    return f"a file of this project names {host} as the judge's server{key}, and {not_trusted(folder.root)}"


def refuse_untrusted_hosts(judges: Iterable[Judge], folder: SpecFolder) -> None:
    """Raise SpecError where one of the judges is not to be asked."""
    if why := next(filter(None, (untrusted_host(judge, folder) for judge in judges)), ""):
        raise SpecError(f"no judge is asked: {why}")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def jurors_of(graders: Iterable[Grader]) -> list[Juror]:
    """Return the judges that graders ask: the members of their juries, or the suite's judge with its model."""
    return [juror for grader in graders for juror in _jurors(grader)]


def _jurors(grader: Grader) -> list[Juror]:
    from waza.graders.judging import JudgedGrader  # loaded where a grader asks a judge
    from waza.judges.jury import Juror  # as above

    if isinstance(grader, JudgedGrader):
        return grader.jurors
    if grader.parts:
        return jurors_of(inner for inner in grader.parts if inner.asks() is not None)
    own = getattr(grader, "model", "")
    return [Juror(own, own)]


def models_asked(graders: Iterable[Grader]) -> list[str]:
    """Return the models that graders ask the suite's judge for; an empty name is the judge's own."""
    return [juror.model for juror in jurors_of(graders) if juror.judge is None]


def own_judge(graders: Iterable[Grader]) -> Judge | None:
    """Return a judge to use as the suite's, if every juror has its own and no other is needed."""
    judges = [juror.judge for juror in jurors_of(graders)]
    return judges[0] if judges and None not in judges else None


def judge_as_data(judge: Judge) -> dict[str, Any]:
    """Return what a run remembers of its judge: everything that may change an answer, no key."""
    return {"type": judge.type_name()} | judge.identity()


def chosen_judge(
    settings: dict[str, Any], place: Position, folder: SpecFolder, *, model: str = "", cache: Path | None = None
) -> Judge:
    """Return the judge to ask, ready; raise SpecError with what is wrong with it."""
    judge, problems = build_judge(settings | ({"model": model} if model else {}), place, folder)
    if judge is None or problems:
        raise SpecError(problems)
    judge = judge.for_run(cache)
    judge.ready()
    return judge
