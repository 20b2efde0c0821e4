"""One trial by itself, for callers that do their own planning and keep their own results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from msgspec.structs import replace as changed

from waza.engines._base import Engine
from waza.model import Result, Trial
from waza.runner.order import judge_for, redactor_for
from waza.runner.suite import Listeners, run_suite
from waza.runner.trial import Setting
from waza.runner.waiting import wait_for
from waza.spec.suite import EvalSpec


class Tried(NamedTuple):
    """A trial's result, and what else there is to say about it."""

    result: Result
    remarks: list[str]


def run_one(spec: EvalSpec, trial: Trial, engine: Engine, engine_name: str) -> Tried:
    """Run one trial with the commands around its task and return what came of it, without secrets.

    Nothing is stored. Commands around the run are the caller's: there is no run.
    """
    redactor, _ = redactor_for(spec)
    results: list[Result] = []
    remarks: list[str] = []
    listeners = Listeners(on_remark=remarks.append)
    alone = replace(spec, hooks=spec.hooks.model_copy(update={"before_run": [], "after_run": []}))
    attempts = spec.config.max_attempts

    def store(*kept: Result) -> list[Result]:
        results.extend(kept)
        return results

    with TemporaryDirectory(prefix="waza-") as kept:
        setting = Setting(
            engine=engine,
            engine_name=engine_name,
            max_attempts=attempts,
            on_crash=spec.config.on_agent_crash,
            artifacts=Path(kept),
            judge=judge_for(spec),
        )
        wait_for(run_suite(alone, iter([trial]), setting, listeners, store, workers=1))
    result = changed(results[0], snapshot="", turn_snapshots={})
    return Tried(redactor.tree(result), [redactor.text(remark) for remark in remarks])
