"""One invocation: a suite in, a stored Run out. Joins the runner to the run folder; prints nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace as changed

from waza.errors import UsageError
from waza.model import Result, Run, Trial
from waza.results._remote_store import is_url
from waza.results.canaries import KEY
from waza.results.frames import Piece
from waza.results.gathered import Gathering
from waza.results.memory import rare_collections
from waza.results.redact import Redactor
from waza.results.results_json import task_text
from waza.results.store import RunFolder
from waza.results.stored_spec import expanded
from waza.runner.auto import AutoTrials
from waza.runner.fail_fast import misses_of
from waza.runner.finish import finish
from waza.runner.judge_card_known import CARDS, about_judges
from waza.runner.order import Order, order_for, redactor_for, runs_folder, stored_form
from waza.runner.purse import purse_for
from waza.runner.reviewing import as_stored
from waza.runner.signals import ends_cleanly
from waza.runner.suite import Listeners, run_suite
from waza.runner.trial import Setting
from waza.runner.turns import Turns
from waza.runner.waiting import wait_for
from waza.sandbox.pinned import PinnedFiles
from waza.sandbox.room import remove_rooms, rooms_for
from waza.spec.load import load_spec


def run(
    path: str | Path,
    *,
    engine: str | None = None,
    model: str | None = None,
    trials: int | Literal["auto"] | None = None,
    workers: int | None = None,
    tasks: Iterable[str] = (),
    tags: Iterable[str] = (),
    runs: str | Path | None = None,
    trust: bool = True,
    allow_local_code: bool = False,
    on_result: Callable[[Result], None] = lambda result: None,
) -> Run:
    """Run a suite and return everything that happened; raise SpecError if it is wrong.

    ```python
    run = waza.run("examples/quickstart", tasks=["greet"])
    ```

    The caller's own program is running already and names the suite, so Python of its folder is imported; with
    `trust=False` only where the user trusts the folder, as on the command line. `allow_local_code` is an earlier name.
    """
    whole, names, chosen_tags = load_spec(path, trust=trust or allow_local_code), list(tasks), list(tags)
    given = {"names": names, "tags": chosen_tags} if names or chosen_tags else {}
    how: dict[str, Any] = {"trials": trials, "workers": workers, "whole": whole, "given": given}
    order = order_for(whole.select(names, chosen_tags), engine=engine, model=model, **how)
    if is_url(runs):
        raise UsageError(f"runs={str(runs)!r}: a run is written to a folder; `waza runs push` sends it to a store")
    if runs is not None:
        order = replace(order, runs=Path(runs))
    made = conduct(order, Listeners(on_result=on_result))
    return changed(made, spec=expanded(made.spec), results=list(made.results), triggers=list(made.triggers))


@rare_collections()
def conduct(order: Order, listeners: Listeners) -> Run:
    """Run an order, each result safe on the disk before the next listener hears of it, and return the stored run."""
    spec = order.spec
    engine, purse = spec.engine(order.engine or None), purse_for(order)
    redactor, warnings = redactor_for(spec)
    for warning in warnings:
        listeners.on_remark(warning)
    with folder_for(order, redactor) as folder, journal_reports(folder, listeners.on_remark):
        done = order.resume.done if order.resume else frozenset()
        setting = Setting(
            engine=engine,
            engine_name=order.engine,
            artifacts=folder.artifacts,
            keep_workspace=order.keep_workspace,
            skip_graders=order.skip_graders,
            max_attempts=spec.config.max_attempts,
            on_crash=spec.config.on_agent_crash,
            clean=redactor.raw if redactor else None,
            rooms=rooms_for(folder.path.name),
            fingerprints=folder.run.spec.get("fingerprints", {}),
            on_remark=listeners.on_remark,
            judge=order.judge,
            baselines=order.baselines,
            turns=Turns(),
            pinned=PinnedFiles([folder.path.parent, folder.path]),
        )
        if purse is not None:
            if order.resume is None:
                purse.spend_on_canaries(folder.run)
            purse.look(listeners)
        gathering = Gathering(folder.run, task_text, is_whole=order.resume is None and spec.triggers is None)

        def store(*results: Result) -> list[Piece]:
            graders = order.spec.graders
            kept = (as_stored(folder.run, one, redactor, graders.get(one.task_id, [])) for one in results)
            return folder.append(*kept)

        def on_done(result: Result) -> None:
            listeners.on_done(result)
            controls.heard(result)
            if auto is not None:
                auto.heard(result.task_id, result.trial, result.status)
            if purse is not None:
                purse.heard(result, listeners)
            if misses is not None and misses.lost(result):
                listeners.stop(f"task '{result.task_id}' did not pass")

        auto, controls = _auto(order), order.controls()
        misses = misses_of(order, auto)
        planned = (trial for trial in order.planned() if (trial.task.id, trial.number) not in done)
        asked = (trial for trial in order.asked() if (trial.task.id, trial.number) not in done)
        trials: Iterator[Trial] = planned if auto is None else chain(asked, auto)
        heard = replace(listeners, on_done=on_done, on_remark=lambda text: listeners.on_remark(redactor.text(text)))
        try:
            if not listeners.stop.reason and (first := next(trials, None)):
                todo = chain([first], trials)
                how: dict[str, Any] = {"workers": order.workers, "read": gathering.add, "controls": controls}
                working = run_suite(spec, todo, setting, heard, store, **how)
                try:
                    wait_for(until_done_or_stopped(working, heard))
                finally:
                    working.close()  # where there was no event loop to be had it has not begun
                if purse is not None:
                    purse.close(listeners)
        finally:
            leave_rooms(setting, listeners.on_remark)
        if controls.held_back:
            listeners.stop(controls.reason(bool(spec.tasks)))
        gathered = gathering.results()
        if gathered is not None and len(gathered) != folder.journal.results:
            gathered = None  # somebody ended the run before it had told of all that is safe
        return finish(folder, listeners.stop.reason, listeners.on_remark, gathered)


def _auto(order: Order) -> AutoTrials | None:
    """Return what hands out trials where their number is left to `auto`; it knows those of the run it goes on with."""
    if order.auto is None:
        return None
    trials = AutoTrials(order.spec.tasks, order.auto, order.model)
    if order.resume is not None:
        for result in order.resume.run.results:
            if (result.task_id, result.trial) in order.resume.done:
                trials.heard(result.task_id, result.trial, result.status)
    return trials


@contextmanager
def journal_reports(folder: RunFolder, on_remark: Callable[[str], None]) -> Iterator[None]:
    """Report what opening the journal found, and afterwards what happened to it while the run went on."""
    found = folder.journal.warnings
    for warning in found:
        on_remark(warning)
    before = len(found)
    try:
        yield
    finally:
        for warning in found[before:]:
            on_remark(warning)


def leave_rooms(setting: Setting, on_remark: Callable[[str], None]) -> None:
    """Remove the folder of rooms, or say where it is if workspaces are to be kept."""
    if setting.rooms is None:
        return
    if setting.keep_workspace:
        on_remark(f"workspaces are kept in {setting.rooms}")
    else:
        remove_rooms(setting.rooms)


def folder_for(order: Order, redactor: Redactor) -> RunFolder:
    """Return the run folder to write to: a new one, or the stored one with the suite as it is now."""
    new = stored_form(order, redactor)
    if order.resume is None:
        new.spec.update(redactor.tree(about_judges(order.spec, order.judge)))
        return RunFolder.create(order.runs or runs_folder(order.spec), new)
    new.spec.update({key: value for key, value in order.resume.run.spec.items() if key in (KEY, CARDS)})
    folder = order.resume.kept
    if order.resume.run.spec != new.spec:
        folder.respec(changed(order.resume.run, spec=new.spec, fingerprint=new.fingerprint))
    return folder


async def until_done_or_stopped(working: Coroutine[Any, Any, None], listeners: Listeners) -> None:
    """Wait for a run that a signal may end early."""
    with ends_cleanly(listeners.stop, listeners.on_remark):
        try:
            await working
        except asyncio.CancelledError:
            if not listeners.stop.signal:
                raise
        except BaseExceptionGroup as group:
            # One cause ends all workers; the others were only told to stop.
            raise _cause(group) from None


def _cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _cause(first) if isinstance(first, BaseExceptionGroup) else first
