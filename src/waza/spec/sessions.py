"""Which engines let a judge go on in the sessions of their agents (`continue_session` of the `prompt` grader)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from waza.engines._base import ENGINES, Engine
from waza.errors import Problem
from waza.graders._base import Grader
from waza.spec.mocks import lacking
from waza.spec.places import Place

_INSTEAD = "leave continue_session out, and let a judge see more with needs: [tool_events, files]"
_WARNING = (
    "the agent itself judges in its own session (continue_session): it sees all, and it may be lenient with itself"
)


def session_problems(
    engine: str | None, graders: Mapping[str, Sequence[Grader]], place: Place, *, is_run: bool = False
) -> Iterator[Problem]:
    """Yield what keeps judges of a suite from going on in sessions of an engine, and a warning where they do."""
    names = sorted({grader.name for each in graders.values() for grader in each if grader.continues})
    if not names or not engine or not ENGINES.knows(engine):
        return
    cls: type[Engine] = ENGINES.load(engine)
    here = place.at("config", "executor")
    if not cls.continues:
        can = ", ".join(name.replace("_", "-") for name in ENGINES.built_in() if ENGINES.load(name).continues)
        fact = f"engine '{engine}' cannot let a judge go on in an agent's session, as {', '.join(names)} would"
        yield here.problem(f"{fact}; {_INSTEAD}; engines that can: {can}")
    elif missing := lacking("a judge in the agent's session needs"):
        yield here.problem(missing)
    elif not is_run:
        yield place.warning(f"{', '.join(names)}: {_WARNING}")
