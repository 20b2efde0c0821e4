"""The base class of engines: typed options from the suite's `config:`, and a method that runs one trial."""

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
"""Beginning of the message about an agent without credentials; `run` shows such a message differently."""


class Engine(Options):
    """Run an agent on a trial and return its trace."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    needs_key: ClassVar[bool] = False
    """Whether a run costs money or needs a credential."""
    program: ClassVar[str] = ""
    """The program it starts, where that is always the same one."""
    install: ClassVar[str] = ""
    """How to install that program."""
    mocks: ClassVar[tuple[str, ...] | None] = ()
    """Keys of the mocks that its agents can use; None where no agent runs, so that mocks make no difference."""

    continues: ClassVar[bool] = False
    """Whether a judge can continue the sessions of its agents."""

    takes_skill: ClassVar[bool] = False
    """Whether it gives its agents the skill under test."""
    has_only_given_skills: ClassVar[bool] = False
    """Whether its agents have only the skills that the suite gives them."""
    is_in_original: ClassVar[bool] = False
    """Whether the original waza has an engine of this name, so that a suite with it may be written for that."""

    folder: SkipJsonSchema[SpecFolder] = Field(default_factory=SpecFolder, exclude=True)
    """Where relative paths of the suite start."""
    skill: SkipJsonSchema[str] = Field(default="", exclude=True)
    """The skill under test."""
    skill_folder: SkipJsonSchema[Path | None] = Field(default=None, exclude=True)
    """The folder of the skill under test; None when the suite names none, or it was not found."""

    @classmethod
    def locate(cls) -> str | None:
        """Return the path of the agent's program; None when it is not installed, or the engine needs none."""
        return shutil.which(cls.program) if cls.program else None

    @classmethod
    def remark(cls) -> str:
        """Return a note about this engine on this machine, for the suite's author; empty if there is none."""
        return ""

    def costs_unreported(self) -> str:
        """Return why the cost of an agent is never reported, and the remedy; empty where it may be reported."""
        return ""

    def missing(self) -> str:
        """Return why the agent's program cannot be started on this machine; empty if it can, or there is none."""
        return ""

    def imports(self) -> str:
        """Return what it imports from the project into waza's own process, which needs trust; empty if nothing."""
        return ""

    def missing_credentials(self, tasks: Sequence[Task] = ()) -> str:
        """Return which variables to set where the agent seems to have no credential; empty if it may have one."""
        return ""

    def ready(self, tasks: Sequence[Task] = ()) -> None:
        """Raise SpecError for problems that show before the first agent runs; `tasks` are the selected ones.

        A problem of this machine alone, such as a variable that is not set, has the severity `warning`: `check` warns,
        `run` still refuses to start.
        """

    def undecided(self, tasks: Sequence[Task]) -> str:
        """Return why some of the tasks will be undecided on this engine; empty if the suite shows no reason."""
        return ""

    def refusals(self, tasks: Sequence[Task] = (), *, imports: bool = True) -> list[Problem]:
        """Return the problems that `ready` raises; without `imports`, those found without running its code."""
        try:
            self.ready(tasks)
        except SpecError as error:
            return error.problems
        return []

    async def start(self, concurrency: int = 1) -> None:
        """Set up what all trials of a run share; called once, before the first of them. `concurrency` run at once."""

    async def run(self, trial: Trial, trial_folder: TrialFolder) -> Trace:
        """Run the agent in the trial folder and return its trace.

        Raises EngineError when the agent could not run. An agent that exceeds `trial.task.timeout_s` is ended; its
        trace has the status `timeout` and what was recorded so far.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot run a trial")

    async def continue_session(
        self, trial: Trial, before: Trace, original: TrialFolder, trial_folder: TrialFolder
    ) -> Trace:
        """Send a trial's prompt to the session that `before` is the trace of, and return the trace of the reply.

        The agent works in `trial_folder`, where it may only read and has only that folder's MCP servers. `original`,
        the folder the session was recorded in, is not changed. Raises EngineError when it cannot be continued.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot continue a session")

    def may_recover(self, trial: Trial) -> bool:
        """Return whether a trial that could not run may succeed at the next attempt."""
        return True

    def needs_trial_folder(self, trial: Trial) -> bool:
        """Return whether the agent may use a folder; if not, none is made for a task without files."""
        return True

    def leaves_files(self, trial: Trial) -> bool:
        """Return whether the workspace holds the agent's files after the run; if not, checks on files are undecided."""
        return True

    async def stop(self) -> None:
        """Release what `start` set up; called once, also after a failure."""
