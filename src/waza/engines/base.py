"""What every engine is: typed options from the suite's `config:`, and one trial at a time."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from pydantic import ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from waza.errors import Problem, SpecError
from waza.files.paths import SpecFolder
from waza.files.trial_folder import TrialFolder
from waza.model import Task, Trace, Trial
from waza.options import Options
from waza.plugins import Folder

__all__ = ["ENGINES", "WRAPPER", "Engine", "Options", "TrialFolder"]

ENGINES = Folder("engines", "Engine")
WRAPPER = ("folder", "skill", "skill_folder")
"""Fields of every engine that are not keys of the suite's `config:`."""


NO_CREDENTIAL = "no credential of"
"""How the sentence begins that an agent seems to have no credential."""


class Engine(Options):
    """Run an agent on a trial and tell what happened."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    needs_key: ClassVar[bool] = False
    """Whether a run costs money or needs a credential."""
    program: ClassVar[str] = ""
    """The program it starts, where that is always the same one."""
    install: ClassVar[str] = ""
    """How to install that program."""
    mocks: ClassVar[tuple[str, ...] | None] = ()
    """Which mocks its agents can be given, by their keys in a suite; None where no agent works, so that none matter."""

    continues: ClassVar[bool] = False
    """Whether a judge can go on in the sessions of its agents."""

    takes_skill: ClassVar[bool] = False
    """Whether it gives its agents the skill under test."""

    folder: SkipJsonSchema[SpecFolder] = Field(default_factory=SpecFolder, exclude=True)
    """Where relative paths of the suite start."""
    skill: SkipJsonSchema[str] = Field(default="", exclude=True)
    """The skill under test."""
    skill_folder: SkipJsonSchema[Path | None] = Field(default=None, exclude=True)
    """Where the skill under test stands; None when the suite names none, or it was not found."""

    @classmethod
    def locate(cls) -> str | None:
        """Return the path of the agent's program; None when it is not there, or the engine needs none."""
        return shutil.which(cls.program) if cls.program else None

    @classmethod
    def remark(cls) -> str:
        """Return what an author who chose this engine should know of this machine; empty if nothing."""
        return ""

    def costs_unreported(self) -> str:
        """Return why it can never be known what an agent costs, and what helps; empty where it may be known."""
        return ""

    def missing(self) -> str:
        """Return why the agent's program cannot be started on this machine; empty if it can, or there is none."""
        return ""

    def imports(self) -> str:
        """Return the Python of the project that it imports into waza, which needs trust; empty if none."""
        return ""

    def missing_credentials(self, tasks: Sequence[Task] = ()) -> str:
        """Return which variables to set where the agent seems to have no credential; empty if it may have one."""
        return ""

    def ready(self, tasks: Sequence[Task] = ()) -> None:
        """Raise SpecError for what can be found wrong before the first agent runs; `tasks` are those to be run.

        A problem that is only so on this machine, such as a variable that is not set, has the severity `warning`: `run`
        refuses it all the same, `check` warns.
        """

    def undecided(self, tasks: Sequence[Task]) -> str:
        """Return why some of the tasks would end undecided on this engine, as far as the suite shows it."""
        return ""

    def refusals(self, tasks: Sequence[Task] = (), *, imports: bool = True) -> list[Problem]:
        """Return what `ready` refuses; without `imports` no code of the project is run to find it."""
        try:
            self.ready(tasks)
        except SpecError as error:
            return error.problems
        return []

    async def start(self, concurrency: int = 1) -> None:
        """Get what all trials of a run share; called once, before the first trial. `concurrency` run at once."""

    async def run(self, trial: Trial, trial_folder: TrialFolder) -> Trace:
        """Let the agent work on the trial in its room and return what happened.

        Raises EngineError when the agent could not run. An agent that ran out of `trial.task.timeout_s` is ended
        and returned with status `timeout` and what there is.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot run a trial")

    async def go_on(self, trial: Trial, before: Trace, left: TrialFolder, trial_folder: TrialFolder) -> Trace:
        """Put a trial's prompt to the session that `before` tells of and `left` holds, and return what came of it.

        The agent works in `room`, where it may only read and has no servers but that room's; `left` stays as it is.
        Raises EngineError when the session cannot be gone on with.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot go on in a session")

    def may_recover(self, trial: Trial) -> bool:
        """Say whether a trial that could not run may do so at the next attempt."""
        return True

    def needs_trial_folder(self, trial: Trial) -> bool:
        """Say whether the agent may use a folder of its own; if not, none is made for a task without files."""
        return True

    def leaves_files(self, trial: Trial) -> bool:
        """Say whether the workspace now holds what the agent left; if not, no check on files can be decided."""
        return True

    async def stop(self) -> None:
        """Give back what `start` got; called once, also after a failure."""
