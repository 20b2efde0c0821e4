"""One trial from a fresh folder to its grades."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from waza.engines.base import Engine, TrialFolder
from waza.errors import EngineError, StoreError
from waza.files.pinned import PinnedFiles
from waza.files.snapshot import EMPTY, Clean, SnapshotFiles, hash_files, left_out, take
from waza.files.trial_folder import NO_TRIAL_FOLDER, make_trial_folder
from waza.files.workspace import Workspace
from waza.graders.base import Grader
from waza.graders.composed import AfterTurnGrader
from waza.judges.rate_limits import AgentPace
from waza.model import Attempt, Files, Grade, Result, Trace, Trial
from waza.process.concurrency import FairQueue, deadlines
from waza.runner.grading import GradingContext, OnCrash, grades_of, grading_times, status_of
from waza.runs.outcomes import agent_spending, costs_of, is_invalid_cost
from waza.runs.triggers import ended_early
from waza.spending import NO_COSTS, NOTHING, Costs, Meter, Spending, metering, spent
from waza.traces.conversation import Progress, following

if TYPE_CHECKING:  # judges take long to load, and most runs ask none
    from waza.judges.base import Judge

GRACE_S = 60
"""How long past a task's time an engine may need to end its agent before the runner stops waiting."""
SHORT_MS = 5
"""An agent as quick as this gains nothing from waiting for its turn."""
CUT_SHORT = "ended with the run"
"""The fingerprint of a trial that was ended with its run: it fits no task, so only its costs count (`store.py`)."""
RETRY_DELAY_S = 1.0
MAX_RETRY_DELAY_S = 60.0


class RunContext(NamedTuple):
    """What all trials of a run share."""

    engine: Engine
    engine_name: str
    artifacts: Path | None = None
    """Where workspace snapshots are kept; None means they are not."""
    keep_workspace: bool = False
    skip_graders: bool = False
    max_attempts: int = 1
    on_crash: OnCrash = "fail"
    """The status of a trial whose agent crashed."""
    clean: Clean | None = None
    """Removes secrets from the files that are kept."""
    fingerprints: Mapping[str, str] = {}
    """By task id: the hash of what its results depend on."""
    trial_folders: Path | None = None
    """The folder in which trial folders are made; the system's folder for temporary files if None."""
    on_remark: Callable[[str], None] = lambda text: None
    judge: Judge | None = None
    """The judge of graders that need one."""
    baselines: Mapping[tuple[str, int], str] = {}
    """By task id and trial: the output of another run, to compare with."""
    vet: Callable[[Trace], str] = lambda trace: ""
    """Returns why a trial that went well does not count: the agent had a skill it must not have, or lacked one."""
    pace: AgentPace | None = None
    """When agents may start, all of the same vendor together; None means at once."""
    pinned: PinnedFiles | None = None
    """Files of the project as they were before the first agent started."""
    on_cut_short: Callable[[Result], None] = lambda result: None
    """Takes a trial that was ended with the run: it is no result, but may have been billed."""
    stop: Callable[[str], None] = lambda reason: None
    """Asks the run to start no further trial."""
    turns: FairQueue | None = None
    """Waited for before grading, so that of many agents that end at once each is followed by the next without delay."""


async def run_trial(trial: Trial, graders: list[Grader], context: RunContext) -> Result:
    """Return the result of one trial; infrastructure errors are retried up to `max_attempts` times."""
    with context.pinned.trial() if context.pinned else nullcontext():
        return await _tried(trial, graders, context)


async def _tried(trial: Trial, graders: list[Grader], context: RunContext) -> Result:
    log: list[Attempt] = []
    try:
        for attempt in range(1, context.max_attempts + 1):
            if context.pace is not None:
                await context.pace.begin()
            result = await _attempt(trial, graders, context, log)
            log = result.attempt_log
            is_last = attempt == context.max_attempts or not context.engine.may_recover(trial)
            if result.trace.status != "error" or is_last:
                return result
            await asyncio.sleep(min(RETRY_DELAY_S * 2 ** (attempt - 1), MAX_RETRY_DELAY_S))
    except asyncio.CancelledError:
        ended = replace(failed_trial(trial, context, CUT_SHORT), fingerprint=CUT_SHORT, attempt_log=log)
        if log and costs_of(ended) != NO_COSTS:
            context.on_cut_short(ended)
        raise
    raise AssertionError("max_attempts is at least 1")


def _pause_if_limited(context: RunContext, trace: Trace) -> None:
    """Pause all agents of the vendor where it rate-limited this one, and report that."""
    if context.pace is not None and (pause_s := context.pace.record(trace)):
        context.on_remark(f"the vendor's rate limit is reached: no agent starts for {pause_s:.0f} s")


async def _attempt(trial: Trial, graders: list[Grader], context: RunContext, log: list[Attempt]) -> Result:
    """Return the result of one attempt; `log` has those before it."""
    started_at, started = _now(), time.perf_counter()
    task = trial.task
    has_things = task.files or task.workdir or (task.mocks and context.engine.mocks)
    agent, judge = Meter(), Meter()
    try:
        with metering() as judge:
            if context.keep_workspace or has_things or context.engine.needs_trial_folder(trial):
                trace, grades, snapshots = await _in_trial_folder(trial, graders, context, agent)
            else:
                trace, grades, snapshots = await _without_trial_folder(trial, graders, context, agent)
    except EngineError as error:
        return failed_trial(trial, context, str(error), log, Costs(agent=agent.spending, judge=judge.spending))
    except asyncio.CancelledError:
        costs = Costs(agent=agent.spending, judge=judge.spending)
        log.append(Attempt(status="error", reason=CUT_SHORT, started_at=started_at, costs=costs))
        raise
    status, reason = status_of(trace, grades, context.on_crash)
    if task.until_skill and (early := ended_early(trace)):
        status, reason = "error", early  # a prompt that failed to execute is no answer, whatever `on_agent_crash` says
    if (context.skip_graders or not graders) and status == "passed":
        status = "skipped"
    grader_ms, judge_ms = grading_times(graders, grades)
    duration_ms = (time.perf_counter() - started) * 1000
    own = Attempt(
        status=status,
        reason=reason,
        started_at=started_at,
        duration_ms=duration_ms,
        costs=Costs(agent=agent.spending, judge=judge.spending),
    )
    return Result(
        task_id=trial.task.id,
        trial=trial.number,
        status=status,
        reason=reason,
        trace=trace,
        grades=grades,
        started_at=started_at,
        duration_ms=duration_ms,
        snapshot=snapshots.pop("", ""),
        turn_snapshots=snapshots,
        fingerprint=context.fingerprints.get(trial.task.id, ""),
        attempts=len(log) + 1,
        attempt_log=[*log, own],
        grader_duration_ms=grader_ms,
        judge_duration_ms=judge_ms,
    )


Attempted = tuple[Trace, list[Grade], dict[str, str]]
"""What the agent did, its grades, and the names of snapshots: by the number of a prompt, the last one under ''."""


async def _in_trial_folder(trial: Trial, graders: list[Grader], context: RunContext, meter: Meter) -> Attempted:
    """Return what the agent did in a fresh folder."""
    with ExitStack() as stack:
        trial_folder = stack.enter_context(
            make_trial_folder(
                trial.task, keep=context.keep_workspace, parent=context.trial_folders, pinned=context.pinned
            )
        )
        checkpoints = Checkpoints(graders, partial(_grade, context, trial, trial_folder))
        if any(grader.needs_files_before for grader in graders):
            clean = None if context.artifacts is None else context.clean
            laid_out = Workspace(trial_folder.workspace)
            checkpoints.files_before = await asyncio.to_thread(hash_files, laid_out, clean)
        for sentence in trial_folder.left_out:
            context.on_remark(f"task '{trial.task.id}': {sentence}")

        def keep() -> tuple[str, Files | None]:
            if context.artifacts is None:
                return "", Workspace(trial_folder.workspace)
            try:
                name = take(trial_folder.workspace, context.artifacts, context.clean)
                missing = left_out(context.artifacts, name)
            except (StoreError, OSError) as error:
                # The agent was paid: its answer is kept, and graded as far as that can be done without its files.
                context.on_remark(f"task '{trial.task.id}': {error}; graders of its files cannot decide")
                context.stop("the files that agents leave cannot be stored")
                return "", None
            for sentence in _shortened(missing):
                context.on_remark(f"task '{trial.task.id}': the workspace was not kept in full: {sentence}")
            return name, SnapshotFiles(context.artifacts, name, checkpoints.snapshots)

        checkpoints.keep = keep
        trace = await _with_mocks(trial, trial_folder._replace(after_turn=checkpoints), context, meter)
        trace = checkpoints.with_files_before(trace)
        snapshot, files = await asyncio.to_thread(keep) if context.engine.leaves_files(trial) else ("", None)
        grades = await _rest(trial, trace, files, checkpoints, context)
        await asyncio.to_thread(stack.close)
    return trace, grades, checkpoints.snapshots | {"": snapshot}


def _shortened(sentences: Sequence[str]) -> list[str]:
    """Return the first sentence with the number of the others."""
    more = f", and {len(sentences) - 1} more like it" if len(sentences) > 1 else ""
    return [f"{sentence}{more}" for sentence in sentences[:1]]


async def _with_mocks(trial: Trial, trial_folder: TrialFolder, context: RunContext, meter: Meter) -> Trace:
    """Return what the agent did, with the calls that the task's mocks answered; unanswered calls are reported."""
    if not trial.task.mocks or not context.engine.mocks:
        return await _work(trial, trial_folder, context, meter)
    from waza.engines.mocks.serve import serve_mocks  # only runs with mocks pay for it

    async with serve_mocks(trial.task, trial_folder) as (prepared, responder):
        trace = await _work(trial, prepared, context, meter)
    for sentence in responder.remarks():
        context.on_remark(f"task '{trial.task.id}': {sentence}")
    return replace(trace, outcome=trace.outcome | {"mocks": responder.outcome()})


async def _without_trial_folder(trial: Trial, graders: list[Grader], context: RunContext, meter: Meter) -> Attempted:
    """Return what an agent did that uses no folder."""
    checkpoints = Checkpoints(graders, partial(_grade, context, trial, NO_TRIAL_FOLDER))
    files = SnapshotFiles(NO_TRIAL_FOLDER.workspace, EMPTY, checkpoints.snapshots)
    checkpoints.keep = lambda: (EMPTY, files)
    trial_folder = NO_TRIAL_FOLDER._replace(after_turn=checkpoints) if trial.task.follow_up_prompts else NO_TRIAL_FOLDER
    if any(grader.needs_files_before for grader in graders):
        checkpoints.files_before = {}
    trace = checkpoints.with_files_before(await _work(trial, trial_folder, context, meter))
    grades = await _rest(trial, trace, files, checkpoints, context)
    return trace, grades, checkpoints.snapshots | {"": EMPTY}


async def _rest(
    trial: Trial, trace: Trace, files: Files | None, checkpoints: Checkpoints, context: RunContext
) -> list[Grade]:
    """Return every grade; an engine that did not stop at a failed checkpoint is reported."""
    if context.turns is not None and (trace.duration_ms or 0) > SHORT_MS:
        await context.turns.wait()
    grades = await checkpoints.rest(trace, files)
    if trace.turns and (names := checkpoints.passed_over(trace.turns, grades)):
        fact = (
            f"engine '{context.engine_name}' does not stop between prompts; it went on after {', '.join(names)} failed"
        )
        context.on_remark(f"task '{trial.task.id}': {fact}")
    return grades


async def _grade(
    context: RunContext,
    trial: Trial,
    trial_folder: TrialFolder,
    graders: list[Grader],
    trace: Trace,
    files: Files | None,
) -> list[Grade]:
    """Return the grades of a trace."""
    if trace.status == "error" or context.skip_graders:
        return []
    grading = GradingContext(context.judge, trial.task, context.engine.folder, pinned=context.pinned)
    if context.engine.continues and any(grader.continues for grader in graders):
        from waza.engines.agent_as_judge import AgentSession, StoredSession  # only runs with such graders pay for it

        begin = context.pace.begin if context.pace else None
        session = StoredSession(context.engine, trial, trace, trial_folder)
        grading = grading._replace(session=AgentSession(session, begin, partial(_pause_if_limited, context)))
    return await grades_of(trace, graders, files, grading)


async def _work(trial: Trial, trial_folder: TrialFolder, context: RunContext, meter: Meter) -> Trace:
    """Return what the agent did; an agent that could not run gives a trace with status `error`.

    Its cost is counted by `meter`, whatever happens to the trial afterwards.
    """
    with following() as progress:
        try:
            trace, is_started = await _engine_run(trial, trial_folder, context)
        except asyncio.CancelledError:
            if context.engine.mocks is not None:
                meter.add(_reported_so_far(progress))
            raise
    spending = agent_spending(trace)
    is_free = context.engine.mocks is None or not is_started
    if is_free and spending.without_cost and not is_invalid_cost(trace):
        spending = replace(spending, without_cost=0)
    meter.add(spending)
    return trace


def _reported_so_far(progress: Progress) -> Spending:
    """Return what an agent reported that was ended before its end; there may have been more."""
    found = NOTHING
    try:
        for trace in progress.traces():
            found += agent_spending(trace)
    except Exception:  # noqa: BLE001  half of a recording may be of any shape; the run is ending, and must end
        found += spent(None)
    return replace(found, without_cost=max(1, found.without_cost))


async def _engine_run(trial: Trial, trial_folder: TrialFolder, context: RunContext) -> tuple[Trace, bool]:
    """Return what the agent did, and whether it may have been started at all."""
    is_started = True
    started = time.perf_counter()
    turns = 1 + len(trial.task.follow_up_prompts)
    limit, limits = asyncio.timeout(None), deadlines()
    number = limits.set(trial.task.timeout_s * turns + GRACE_S, lambda: limit.reschedule(0))
    try:
        with context.pinned.agent() if context.pinned else nullcontext():
            async with limit:
                trace = await context.engine.run(trial, trial_folder)
    except EngineError as error:
        is_started = error.is_started
        before = error.recorded or Trace(input=trial.task.prompt, output="")
        trace = replace(before, status="error", error=str(error), crash=None)
    except Exception as error:  # noqa: BLE001  an engine that breaks must not end the run
        late = "the engine did not come back"
        if isinstance(error, TimeoutError) and limit.expired():
            took_ms = round((time.perf_counter() - started) * 1000, 3)
            trace = Trace(input=trial.task.prompt, output="", status="timeout", error=late, duration_ms=took_ms)
            return replace(trace, engine=context.engine_name), True
        fact = f"the engine failed: {type(error).__name__}: {error}"
        trace = Trace(input=trial.task.prompt, output="", status="error", error=fact)
    finally:
        limits.cancel(number)
    changes: dict[str, object] = {}
    if trace.status != "error" and (fault := context.vet(trace)):
        changes |= {"status": "error", "error": fault}
    if trace.baseline_output is None and (other := context.baselines.get((trial.task.id, trial.number))):
        changes["baseline_output"] = other
    if trace.engine is None:
        changes["engine"] = context.engine_name
    if trace.model is None and trial.model:
        changes["model"] = trial.model
    if trace.duration_ms is None:
        paused_s = trial_folder.after_turn.elapsed_s if isinstance(trial_folder.after_turn, Checkpoints) else 0.0
        changes["duration_ms"] = round((time.perf_counter() - started - paused_s) * 1000, 3)
    trace = replace(trace, **changes) if changes else trace
    _pause_if_limited(context, trace)
    return trace, is_started


def _now() -> str:
    seconds, rest_ns = divmod(time.time_ns(), 1_000_000_000)
    return f"{_to_the_second(seconds)}.{rest_ns // 1_000_000:03d}Z"


@lru_cache(maxsize=1)
def _to_the_second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()


def failed_trial(
    trial: Trial, context: RunContext, reason: str, log: Sequence[Attempt] = (), costs: Costs = NO_COSTS
) -> Result:
    """Return the result of a trial that could not be run; `log` holds the attempts before this one."""
    started_at = _now()
    trace = Trace(input=trial.task.prompt, output="", status="error", error=reason, engine=context.engine_name)
    return Result(
        task_id=trial.task.id,
        trial=trial.number,
        status="error",
        reason=reason,
        trace=trace,
        attempts=len(log) + 1,
        attempt_log=[*log, Attempt(status="error", reason=reason, started_at=started_at, costs=costs)],
        started_at=started_at,
        fingerprint=context.fingerprints.get(trial.task.id, ""),
    )


Grading = Callable[[list[Grader], Trace, Files | None], Awaitable[list[Grade]]]


class Checkpoints:
    """The checkpoints of one trial; an engine calls it before each follow-up prompt."""

    def __init__(self, graders: Sequence[Grader], grade: Grading) -> None:
        self._graders = graders
        self._grade = grade
        self.keep: Callable[[], tuple[str, Files | None]] | None = None
        """Keeps the files as they are now and returns their name; None where there are no files to read."""
        self.snapshots: dict[str, str] = {}
        """By the number of a prompt: the files as they were before the next one."""
        self.files_before: dict[str, str] | None = None
        """The files before the agent started, where a grader needs them."""
        self.decided: dict[int, Grade] = {}
        """By place among the graders: what was decided on the way, and is not decided again."""
        self.elapsed_s = 0.0
        """Time between the prompts, which is not the agent's."""

    async def __call__(self, turns: Sequence[Trace]) -> str:
        """Return why the conversation is to end after these turns; nothing when it continues."""
        started = time.perf_counter()
        try:
            return await self._checked(turns)
        finally:
            self.elapsed_s += time.perf_counter() - started

    async def _checked(self, turns: Sequence[Trace]) -> str:
        number, files = len(turns), None
        here = {
            place: grader
            for place, grader in enumerate(self._graders)
            if isinstance(grader, AfterTurnGrader) and grader.turn == number
        }
        if here and self.keep is not None:
            self.snapshots[str(number)], files = await asyncio.to_thread(self.keep)
        stopping = {place: grader for place, grader in here.items() if grader.stops}
        so_far = self.with_files_before(replace(turns[-1], turns=list(turns)))
        grades = await self._grade(list(stopping.values()), so_far, files) if stopping else []
        self.decided |= dict(zip(stopping, grades, strict=False))
        failed = [grade.name for grade in grades if grade.status == "failed"]
        return f"stopped after turn {number}, where {', '.join(failed)} failed" if failed else ""

    def with_files_before(self, trace: Trace) -> Trace:
        """Return a trace with the files before the agent started, unless it has them from its recording."""
        if self.files_before is None or trace.files_before is not None:
            return trace
        return replace(trace, files_before=self.files_before)

    def passed_over(self, turns: Sequence[Trace], grades: Sequence[Grade]) -> list[str]:
        """Return the checkpoints that were to stop the conversation, and for which the engine did not wait."""
        found = zip(self._graders, grades, strict=False)
        late = [(grader, grade) for grader, grade in found if isinstance(grader, AfterTurnGrader) and grader.stops]
        return [grade.name for grader, grade in late if grade.status == "failed" and grader.turn < len(turns)]

    async def rest(self, trace: Trace, files: Files | None) -> list[Grade]:
        """Return every grader's verdict on the whole trial, in order; none for an agent that could not run."""
        if trace.status == "error":
            return []
        if not self.decided:
            return await self._grade(list(self._graders), trace, files)
        places = [place for place in range(len(self._graders)) if place not in self.decided]
        grades = await self._grade([self._graders[place] for place in places], trace, files)
        found = self.decided | dict(zip(places, grades, strict=False))
        return [found[place] for place in sorted(found)]
