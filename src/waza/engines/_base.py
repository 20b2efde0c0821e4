"""What every engine is: typed options from the suite's `config:`, and one trial at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from waza.model import Task, Trace, Trial
from waza.options import Options
from waza.plugins import Folder
from waza.sandbox.folders import SpecFolder
from waza.sandbox.room import Room

__all__ = ["ENGINES", "WRAPPER", "Engine", "Options", "Room"]

ENGINES = Folder("engines", "Engine")
WRAPPER = ("folder",)
"""Fields of every engine that are not keys of the suite's `config:`."""


class Engine(Options):
    """Run an agent on a trial and tell what happened."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    needs_key: ClassVar[bool] = False
    """Whether a run costs money or needs a credential."""

    folder: SkipJsonSchema[SpecFolder] = Field(default_factory=SpecFolder, exclude=True)
    """Where relative paths of the suite start."""

    def ready(self, tasks: Sequence[Task] = ()) -> None:
        """Raise SpecError for what can be found wrong before the first agent runs; `tasks` are those to be run."""

    async def start(self, concurrency: int = 1) -> None:
        """Get what all trials of a run share; called once, before the first trial. `concurrency` run at once."""

    async def run(self, trial: Trial, room: Room) -> Trace:
        """Let the agent work on the trial in its room and return what happened.

        Raises EngineError when the agent could not run. An agent that ran out of `trial.task.timeout_s` is ended
        and returned with status `timeout` and what there is.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot run a trial")

    def needs_room(self, trial: Trial) -> bool:
        """Say whether the agent may use a folder of its own; if not, none is made for a task without files."""
        return True

    def leaves_files(self, trial: Trial) -> bool:
        """Say whether the workspace now holds what the agent left; if not, no check on files can be decided."""
        return True

    async def stop(self) -> None:
        """Give back what `start` got; called once, also after a failure."""
