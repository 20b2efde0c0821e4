"""One invocation: a suite in, a stored Run out. Joins the runner to the run folder; prints nothing."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace as changed

from waza.errors import StoreError, UsageError
from waza.files.pinned import PinnedFiles
from waza.files.trial_folder import remove_trial_folders, trial_folders_for
from waza.model import JSON, Result, Run, Trial
from waza.process.concurrency import FairQueue, wait_for
from waza.runner.auto import AutoTrials
from waza.runner.cost_limit import cost_limit_for
from waza.runner.finish import finish
from waza.runner.judge_checks import CARDS, about_judges
from waza.runner.request import RunRequest, order_for, redactor_for, runs_folder, stored_form
from waza.runner.reviewing import as_stored
from waza.runner.suite import Listeners, Stop, run_suite
from waza.runner.trial import RunContext
from waza.runs.canaries import KEY
from waza.runs.folder import expanded
from waza.runs.gc import rare_collections
from waza.runs.lazy_results import RunProgress
from waza.runs.records import Piece
from waza.runs.redaction import Redactor
from waza.runs.remote_store import is_url
from waza.runs.results_json import task_text
from waza.runs.store import RunFolder
from waza.runs.tasks import passes_needed
from waza.suites.load import load_spec


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
def conduct(order: RunRequest, listeners: Listeners) -> Run:
    """Run an order, each result safe on the disk before the next listener hears of it, and return the stored run."""
    spec = order.spec
    engine, cost_limit = spec.engine(order.engine or None), cost_limit_for(order)
    redactor, warnings = redactor_for(spec)
    for warning in warnings:
        listeners.on_remark(warning)
    with folder_for(order, redactor) as folder, journal_reports(folder, listeners.on_remark):
        done = order.resume.done if order.resume else frozenset()
        cut_short: list[Result] = []
        setting = RunContext(
            engine=engine,
            engine_name=order.engine,
            artifacts=folder.artifacts,
            keep_workspace=order.keep_workspace,
            skip_graders=order.skip_graders,
            max_attempts=spec.config.max_attempts,
            on_crash=spec.config.on_agent_crash,
            clean=redactor.raw if redactor else None,
            trial_folders=trial_folders_for(folder.path.name),
            fingerprints=folder.run.spec.get("fingerprints", {}),
            on_remark=listeners.on_remark,
            judge=order.judge,
            baselines=order.baselines,
            turns=FairQueue(),
            stop=listeners.stop,
            on_cut_short=cut_short.append,
            pinned=PinnedFiles([folder.path.parent, folder.path]),
        )
        if cost_limit is not None:
            if order.resume is None:
                cost_limit.spend_on_canaries(folder.run)
            cost_limit.look(listeners)
        gathering = RunProgress(folder.run, task_text, is_whole=order.resume is None and spec.triggers is None)

        def store(*results: Result) -> list[Piece]:
            graders = order.spec.graders
            kept = (as_stored(folder.run, one, redactor, graders.get(one.task_id, [])) for one in results)
            return folder.append(*kept)

        def on_done(result: Result) -> None:
            listeners.on_done(result)
            controls.heard(result)
            if auto is not None:
                auto.heard(result.task_id, result.trial, result.status)
            if cost_limit is not None:
                cost_limit.heard(result, listeners)
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
                    store_costs(cut_short, store, heard)
                if cost_limit is not None:
                    cost_limit.close(listeners)
        finally:
            leave_trial_folders(setting, listeners.on_remark)
        if controls.held_back:
            listeners.stop(controls.reason(bool(spec.tasks)))
        progress = gathering.results()
        if progress is not None and len(progress) != folder.journal.results:
            progress = None  # somebody ended the run before it had told of all that is safe
        return finish(folder, listeners.stop.reason, listeners.on_remark, progress)


def store_costs(cut_short: list[Result], store: Callable[..., object], listeners: Listeners) -> None:
    """Store what trials were billed that were ended with the run."""
    if cut_short:
        try:
            store(*cut_short)
        except StoreError as error:
            listeners.on_remark(f"{error}; what {len(cut_short)} agents were billed that were ended is not recorded")


def _auto(order: RunRequest) -> AutoTrials | None:
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


def leave_trial_folders(setting: RunContext, on_remark: Callable[[str], None]) -> None:
    """Remove the folder of rooms, or say where it is if workspaces are to be kept."""
    if setting.trial_folders is None:
        return
    if setting.keep_workspace:
        on_remark(f"workspaces are kept in {setting.trial_folders}")
    else:
        remove_trial_folders(setting.trial_folders)


def folder_for(order: RunRequest, redactor: Redactor) -> RunFolder:
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


# How a run ends early: Ctrl-C, a terminal that closes, a CI job that is cancelled.

GRACE_S = 10.0
"""How long running trials may go on after the first signal."""
LAST_S = 1.5
"""How long the clean-up may take after the second one."""
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextmanager
def ends_cleanly(stop: Stop, on_remark: Callable[[str], None]) -> Iterator[None]:
    """Let the first signal stop the run after a grace period and the second one at once.

    Used inside the running event loop of the main thread; elsewhere the caller's own handling stays.
    """
    task: Any = asyncio.current_task()
    loop = asyncio.get_running_loop()

    def first_or_second(number: signal.Signals) -> None:
        if not stop.signal:
            stop.signal = int(number)
            stop(f"interrupted by {signal.Signals(number).name}")
            on_remark(f"stopping: running trials get {GRACE_S:.0f} s; once more to end at once")
            loop.call_later(GRACE_S, task.cancel)
        else:
            # Results are synced one by one, so nothing acknowledged is lost even when the clean-up hangs.
            loop.call_later(LAST_S, os._exit, 128 + stop.signal)
            task.cancel()

    installed = []
    for number in SIGNALS:
        try:
            loop.add_signal_handler(number, first_or_second, number)
        except (NotImplementedError, RuntimeError, ValueError):
            continue  # Windows, or not the main thread
        installed.append(number)
    try:
        yield
    finally:
        for number in installed:
            loop.remove_signal_handler(number)


# `fail_fast`: which result shows that a task can no longer pass.


class FailFast:
    """The trials of each task that did not pass, held against the pass rule; prompts of trigger tests do not count."""

    def __init__(self, tasks: Iterable[str], rule: JSON, most: Callable[[str], int]) -> None:
        self._tasks = frozenset(tasks)
        self._rule = rule
        self._most = most
        self._count: Counter[str] = Counter()
        self._lost: set[str] = set()

    def lost(self, result: Result) -> bool:
        """Count a result and say whether it is the one that leaves its task too few trials to pass."""
        task_id = result.task_id
        if result.status not in ("failed", "error") or task_id not in self._tasks or task_id in self._lost:
            return False
        self._count[task_id] += 1
        most = self._most(task_id)
        if most - self._count[task_id] >= passes_needed(self._rule, most):
            return False
        self._lost.add(task_id)
        return True


def misses_of(order: RunRequest, auto: AutoTrials | None) -> FailFast | None:
    """Return what ends an order early, with what is known from the run it goes on with; None without `fail_fast`."""
    if not order.spec.config.fail_fast:
        return None
    tasks = [task.id for task in order.spec.tasks]
    misses = FailFast(tasks, order.spec.config.pass_rule, auto.most_of if auto else lambda _: order.trials)
    if order.resume is not None:
        for result in order.resume.run.results:
            if (result.task_id, result.trial) in order.resume.done:
                misses.lost(result)
    return misses
