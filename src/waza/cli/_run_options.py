"""The command line of `waza run` and `waza trigger`, checked and typed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from waza.cli._reporters import OutputOptions, model_suffixes


@dataclass(frozen=True, kw_only=True)
class RunOptions(OutputOptions):
    """What to run and how; `waza trigger` leaves the options that it lacks at their defaults."""

    engine: str | None = None
    replay: Path | None = None
    tasks: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    trials: int | Literal["auto"] | None = None
    models: tuple[str, ...] = ()
    judge_model: str | None = None
    no_judge_cache: bool = False
    against: str | None = None
    fail_fast: bool = False
    skip_graders: bool = False
    workers: int | None = None
    timeout: float | None = None
    resume: str | None = None
    rerun_changed: bool = False
    rerun_errors: bool = False
    max_cost: float | None = None
    dry_run: bool = False
    keep_workspace: bool = False
    update_snapshots: bool = False
    trust: bool = False
    strict: bool = False
    baseline: bool | None = None
    """None: as the suite says."""
    needs: str | None = None
    these_tasks: bool = False
    catalogue: Path | None = None

    @property
    def engine_name(self) -> str | None:
        """The engine that the command line asks for; None for the suite's."""
        return "replay" if self.replay else self.engine

    @cached_property
    def suffixes(self) -> dict[str, str]:
        """By model: what is added to the names of its files, where there are several."""
        return model_suffixes(self.models)
