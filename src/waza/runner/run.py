"""One run from a request to a stored Run: opens its arms, runs them, ends early on signals. Prints nothing."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace as changed

from waza.compact import rare_collections
from waza.errors import StoreError, UsageError
from waza.files.pinned import PinnedFiles
from waza.files.trial_folder import remove_trial_folders, trial_folders_for
from waza.model import Result, Run
from waza.process.concurrency import FairQueue, wait_for
from waza.runner.auto import is_settled
from waza.runner.baseline import control_folder, control_request, why_not_with, why_not_without
from waza.runner.journal_writer import complete_results, finish, stored_run
from waza.runner.request import RunRequest, folder_for, redactor_for, request_for
from waza.runner.reviewing import as_stored
from waza.runner.schedule import Outputs, Schedule, cost_limit_for
from waza.runner.suite import Arm, Listeners, Stop, run_suite
from waza.runner.trial import RunContext
from waza.runs.folder import expanded
from waza.runs.lazy_results import RunProgress
from waza.runs.records import Piece
from waza.runs.redaction import Redactor
from waza.runs.remote_store import is_url
from waza.runs.results_json import task_text
from waza.runs.store import RunFolder
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
    request = request_for(whole.select(names, chosen_tags), engine=engine, model=model, **how)
    if is_url(runs):
        raise UsageError(f"runs={str(runs)!r}: a run is written to a folder; `waza runs push` sends it to a store")
    if runs is not None:
        request = replace(request, runs=Path(runs))
    made = execute(request, Listeners(on_result=on_result))
    return changed(made, spec=expanded(made.spec), results=list(made.results), triggers=list(made.triggers))


@rare_collections()
def execute(request: RunRequest, listeners: Listeners) -> Run:
    """Run a request and return the stored run; each result is durable before `on_result` gets it.

    A baseline run has two arms: the one with the skill is returned, the other is in its folder (`stored_impact` reads
    both).
    """
    cost_limit = cost_limit_for(request)
    redactor, warnings = redactor_for(request.spec)
    for warning in warnings:
        listeners.on_remark(warning)
    redacted = replace(listeners, on_remark=lambda text: listeners.on_remark(redactor.text(text)))
    with ExitStack() as stack:
        sides = open_sides(request, redactor, stack)
        for side in sides:
            stack.enter_context(journal_reports(side.folder, listeners.on_remark))
        schedule = Schedule([side.request for side in sides], listeners, cost_limit)
        if cost_limit is not None:
            if request.resume is None:
                cost_limit.spend_on_canaries(sides[0].folder.run)
            cost_limit.check(listeners)
        contexts = run_contexts(sides, schedule.outputs, redactor, redacted)
        arms = [
            Arm(
                spec=side.request.spec,
                context=context,
                store=partial(_store, side, redactor),
                read=side.progress.add,
                on_done=partial(schedule.record, arm=place),
                suffix=f" without {request.spec.skill}" if place else "",
            )
            for place, (side, context) in enumerate(zip(sides, contexts, strict=True))
        ]
        try:
            _run_rounds(arms, schedule, request, redacted)
        finally:
            for context in contexts:
                leave_trial_folders(context, listeners.on_remark)
            for side in sides:
                _store_costs(side, redactor, redacted)
        if schedule.controls.skipped:
            listeners.stop(schedule.controls.reason(bool(request.spec.tasks)))
        return _finish(sides, listeners)


def _run_rounds(arms: list[Arm], schedule: Schedule, request: RunRequest, listeners: Listeners) -> None:
    """Run what is left to run; nothing is started, hooks included, where that is nothing."""
    rounds = schedule.rounds(arms)
    if listeners.stop.reason or not (first := next(rounds, None)):
        return
    everything = chain([first], rounds)
    working = run_suite(arms, everything, listeners, workers=request.workers, controls=schedule.controls)
    try:
        wait_for(until_done_or_stopped(working, listeners))
    finally:
        working.close()  # without an event loop it was never started
    if schedule.cost_limit is not None:
        schedule.cost_limit.close(listeners)


class Side(NamedTuple):
    """An arm of a run on disk."""

    request: RunRequest
    folder: RunFolder
    progress: RunProgress
    cut_short: list[Result]
    """Trials that were ended with the run: they are no results, but their costs are stored."""


def open_sides(request: RunRequest, redactor: Redactor, stack: ExitStack) -> list[Side]:
    """Return the run's folder, locked until the stack is closed, and for a baseline run the control arm's."""
    folder = stack.enter_context(folder_for(request, redactor))
    both = [(request, folder)]
    if request.baseline:
        control = control_request(request, folder)
        both.append((control, stack.enter_context(control_folder(control, redactor))))
    # The summary of a baseline run counts both arms, so it is made from the journals when both are complete.
    return [Side(one, where, RunProgress(where.run, task_text, is_whole=_is_whole(one)), []) for one, where in both]


def _is_whole(request: RunRequest) -> bool:
    """Return whether a run's report can be made from the results received while it is running."""
    return request.resume is None and request.spec.triggers is None and not request.baseline


def run_contexts(sides: Sequence[Side], outputs: Outputs, redactor: Redactor, listeners: Listeners) -> list[RunContext]:
    """Return what the trials of each arm share; all arms share the queue for grading and the pinned files."""
    skill, path = sides[0].request.spec.skill, sides[0].folder.path
    turns, pinned = FairQueue(), PinnedFiles([path.parent, path])
    contexts = []
    for place, (request, folder, _, cut_short) in enumerate(sides):
        context = RunContext(
            engine=request.spec.engine(request.engine or None),
            engine_name=request.engine,
            artifacts=folder.artifacts,
            keep_workspace=request.keep_workspace,
            skip_graders=request.skip_graders,
            max_attempts=request.spec.config.max_attempts,
            on_crash=request.spec.config.on_agent_crash,
            clean=redactor.raw if redactor else None,
            trial_folders=trial_folders_for(f"{path.name}-{folder.path.name}" if place else path.name),
            fingerprints=folder.run.suite.fingerprints,
            on_remark=listeners.on_remark,
            judge=request.judge,
            baselines={} if place else outputs,
            turns=turns,
            stop=listeners.stop,
            on_cut_short=cut_short.append,
            pinned=pinned,
        )
        if request.baseline:
            context = context._replace(vet=partial(why_not_without if place else why_not_with, skill=skill))
        contexts.append(context)
    return contexts


def _store(side: Side, redactor: Redactor, *results: Result) -> list[Piece]:
    graders = side.request.spec.graders
    return side.folder.append(
        *(as_stored(side.folder.run, one, redactor, graders.get(one.task_id, [])) for one in results)
    )


def _store_costs(side: Side, redactor: Redactor, listeners: Listeners) -> None:
    """Store what trials were billed that were ended with the run."""
    if side.cut_short:
        try:
            _store(side, redactor, *side.cut_short)
        except StoreError as error:
            count = len(side.cut_short)
            listeners.on_remark(f"{error}; what {count} agents were billed that were ended is not recorded")


def _finish(sides: Sequence[Side], listeners: Listeners) -> Run:
    """Finish each arm and return the first one's run; the control arm goes first, since the other's report reads it."""
    results = [complete_results(side.progress, side.folder) for side in sides]
    is_over = None
    if sides[0].request.auto is not None and len(sides) > 1:
        runs = [stored_run(side.folder, found) for side, found in zip(sides, results, strict=True)]
        is_over = is_settled(*runs)
    finished = [
        finish(side.folder, listeners.stop.reason, listeners.on_remark, found, is_settled=is_over)
        for side, found in reversed(list(zip(sides, results, strict=True)))
    ]
    return finished[-1]


@contextmanager
def journal_reports(folder: RunFolder, on_remark: Callable[[str], None]) -> Iterator[None]:
    """Report what opening the journal found, and afterwards what happened to it during the run."""
    found = folder.journal.warnings
    for warning in found:
        on_remark(warning)
    before = len(found)
    try:
        yield
    finally:
        for warning in found[before:]:
            on_remark(warning)


def leave_trial_folders(context: RunContext, on_remark: Callable[[str], None]) -> None:
    """Remove the trial folders, or report where they are if workspaces are to be kept."""
    if context.trial_folders is None:
        return
    if context.keep_workspace:
        on_remark(f"workspaces are kept in {context.trial_folders}")
    else:
        remove_trial_folders(context.trial_folders)


async def until_done_or_stopped(working: Coroutine[Any, Any, None], listeners: Listeners) -> None:
    """Wait for a run that a signal may end early."""
    with ends_cleanly(listeners.stop, listeners.on_remark):
        try:
            await working
        except asyncio.CancelledError:
            if not listeners.stop.signal:
                raise
        except BaseExceptionGroup as group:
            # One cause ends all workers; the others were only cancelled.
            raise _cause(group) from None


def _cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _cause(first) if isinstance(first, BaseExceptionGroup) else first


GRACE_S = 10.0
"""How long running trials may continue after the first signal."""
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
