"""One invocation: a suite in, a stored Run out. Joins the runner to the run folder; prints nothing."""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec.structs import replace as changed

from waza import __version__
from waza.errors import StoreError
from waza.model import Result, Run, Trial
from waza.reports.json import JsonReport
from waza.results.memory import rare_collections
from waza.results.redact import Redactor, secrets_in
from waza.results.store import RunFolder, read_run
from waza.results.summary import summarize
from waza.results.tasks import summarize_tasks
from waza.runner.plan import plan
from waza.runner.regrade import Recorded, regrade, take_over_artifacts
from waza.runner.resume import Resumed
from waza.runner.signals import ends_cleanly
from waza.runner.suite import Listeners, Stop, run_suite
from waza.runner.trial import Setting
from waza.sandbox.room import remove_rooms, rooms_for
from waza.spec.load import load_spec
from waza.spec.suite import EvalSpec, fingerprint

RESULTS = "results.json"


@dataclass(frozen=True)
class Order:
    """What is to be run and how; only `spec` and `engine` change results, the rest is pace and place."""

    spec: EvalSpec
    engine: str
    model: str = ""
    trials: int = 1
    workers: int | None = None
    runs: Path | None = None
    """Where the run folder is made; the suite's own place if None."""
    keep_workspace: bool = False
    skip_graders: bool = False
    max_cost_usd: float | None = None
    """Start no further trial once this much is spent."""
    resume: Resumed | None = None
    """A stored run to go on with."""

    def planned(self) -> Iterator[Trial]:
        """Yield every trial of the order."""
        return plan(self.spec, trials=self.trials, model=self.model)


class Purse:
    """What a run has cost so far."""

    def __init__(self, limit: float | None, earlier: Iterable[Result] = ()) -> None:
        self.limit = float("inf") if limit is None else limit
        self.spent = sum(_cost(result) for result in earlier)

    def spend(self, result: Result) -> bool:
        """Count a result's cost and say whether the limit is reached."""
        self.spent += _cost(result)
        return self.spent >= self.limit


def _cost(result: Result) -> float:
    usage = result.trace.usage
    return float(usage.cost_usd or 0) if usage else 0.0


def run(
    path: str | Path,
    *,
    engine: str | None = None,
    model: str | None = None,
    trials: int | None = None,
    workers: int | None = None,
    tasks: Iterable[str] = (),
    tags: Iterable[str] = (),
    runs: str | Path | None = None,
    allow_local_code: bool = False,
    on_result: Callable[[Result], None] = lambda result: None,
) -> Run:
    """Run a suite and return everything that happened; raise SpecError if it is wrong.

    ```python
    run = waza.run("examples/quickstart", tasks=["greet"])
    ```
    """
    spec = load_spec(path, allow_local_code=allow_local_code).select(tasks, tags)
    order = order_for(spec, engine=engine, model=model, trials=trials, workers=workers)
    if runs is not None:
        order = replace(order, runs=Path(runs))
    return conduct(order, Listeners(on_result=on_result))


def order_for(
    spec: EvalSpec,
    *,
    engine: str | None = None,
    model: str | None = None,
    trials: int | None = None,
    workers: int | None = None,
    **how: Any,
) -> Order:
    """Return the order for a suite: what is given wins over what the suite and the project say."""
    chosen = engine or spec.config.executor or spec.project.defaults.engine or ""
    return Order(
        spec=spec,
        engine=chosen,
        model=spec.config.model if model is None else model,
        trials=trials or spec.config.trials_per_task,
        workers=workers,
        **how,
    )


def runs_folder(spec: EvalSpec) -> Path:
    """Return where a suite's run folders stand: the project's `paths.results`, else `runs` beside the eval file."""
    if spec.project.paths.results:
        return spec.folder.root / spec.project.paths.results
    return spec.folder.base / "runs"


@rare_collections()
def conduct(order: Order, listeners: Listeners) -> Run:
    """Run an order, each result safe on the disk before the next listener hears of it, and return the stored run."""
    spec = order.spec
    engine = spec.engine(order.engine or None)
    redactor, warnings = redactor_for(spec)
    for warning in warnings:
        listeners.on_remark(warning)
    with _folder(order, redactor) as folder:
        done = order.resume.done if order.resume else frozenset()
        setting = Setting(
            engine=engine,
            engine_name=order.engine,
            artifacts=folder.artifacts,
            keep_workspace=order.keep_workspace,
            skip_graders=order.skip_graders,
            max_attempts=spec.config.max_attempts,
            clean=redactor.raw if redactor else None,
            rooms=rooms_for(folder.path.name),
            on_remark=listeners.on_remark,
        )

        purse = Purse(order.max_cost_usd, order.resume.run.results if order.resume else ())

        def store(*results: Result) -> None:
            folder.append(*(redactor.tree(result) for result in results))

        def on_result(result: Result) -> None:
            listeners.on_result(redactor.tree(result))
            if purse.spend(result):
                listeners.stop(f"${purse.spent:.4f} spent, the limit is ${purse.limit:.4f}")

        trials = [trial for trial in order.planned() if (trial.task.id, trial.number) not in done]
        heard = replace(listeners, on_result=on_result, on_remark=lambda text: listeners.on_remark(redactor.text(text)))
        try:
            if trials:
                asyncio.run(_until_done_or_stopped(spec, iter(trials), setting, heard, store, order.workers))
        finally:
            _leave(setting, listeners.on_remark)
        return _finish(folder, len(trials) + len(done), listeners.stop, listeners.on_remark)


def _leave(setting: Setting, on_remark: Callable[[str], None]) -> None:
    """Remove the folder of rooms, or say where it is if workspaces are to be kept."""
    if setting.rooms is None:
        return
    if setting.keep_workspace:
        on_remark(f"workspaces are kept in {setting.rooms}")
    else:
        remove_rooms(setting.rooms)


def redactor_for(spec: EvalSpec) -> tuple[Redactor, list[str]]:
    """Return what keeps secrets out of results: waza's own variables, the suite's and the tasks'."""
    declared = spec.engine_options.get("pass_environment") or []
    environment = dict(os.environ) | (spec.engine_options.get("environment") or {})
    for task in spec.tasks:
        environment |= task.environment
    secrets, warnings = secrets_in(environment, declared)
    return Redactor(secrets), warnings


def _folder(order: Order, redactor: Redactor) -> RunFolder:
    """Return the run folder to write to: a new one, or the stored one with the suite as it is now."""
    new = stored_form(order, redactor)
    if order.resume is None:
        return RunFolder.create(order.runs or runs_folder(order.spec), new)
    folder = RunFolder.open(order.resume.folder)
    if order.resume.run.spec != new.spec:
        folder.respec(changed(order.resume.run, spec=new.spec, fingerprint=new.fingerprint))
    return folder


async def _until_done_or_stopped(
    spec: EvalSpec,
    trials: Iterator[Trial],
    setting: Setting,
    listeners: Listeners,
    store: Callable[..., None],
    workers: int | None,
) -> None:
    with ends_cleanly(listeners.stop):
        try:
            await run_suite(spec, trials, setting, listeners, store, workers=workers)
        except asyncio.CancelledError:
            if not listeners.stop.signal:
                raise
        except BaseExceptionGroup as group:
            # One cause ends all workers; the others were only told to stop.
            raise _cause(group) from None


def _cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _cause(first) if isinstance(first, BaseExceptionGroup) else first


def _finish(folder: RunFolder, planned: int, stop: Stop, on_remark: Callable[[str], None]) -> Run:
    """Write down how the run ended and everything made from it; return it as it can be read again."""
    made = read_run(folder.path)
    complete = len(_done(made)) >= planned
    made = changed(made, complete=complete)
    tasks = summarize_tasks(made)
    summary = summarize(made, tasks=tasks)
    try:
        folder.finish(summary, complete=complete, reason=stop.reason)
        folder.write(RESULTS, JsonReport().text(made, tasks, summary))
    except StoreError as error:
        on_remark(f"{error}; every result is safe in the journal, and `waza show` reads it")
    return made


@rare_collections()
def graded(
    spec: EvalSpec,
    recorded: Iterable[Recorded],
    *,
    source: Path | None,
    engine: str,
    model: str = "",
    on_result: Callable[[Result], None] = lambda result: None,
    on_remark: Callable[[str], None] = lambda text: None,
) -> Run:
    """Grade recorded trials into a run folder of their own and return it; `source` is the run they come from."""
    recorded = list(recorded)
    kept = [task for task in spec.tasks if task.id in {item.task_id for item in recorded}]
    trials = max(item.trial for item in recorded)
    order = Order(spec=replace(spec, tasks=kept), engine=engine, model=model, trials=trials)
    blank = blank_run(order)
    blank.spec["graded_from"] = source.name if source else "traces"
    with RunFolder.create(runs_folder(spec), blank) as folder:
        if source:
            take_over_artifacts(source / "artifacts", folder.artifacts)
        for item in recorded:
            result = regrade(item, spec)
            folder.append(result)
            on_result(result)
        return _finish(folder, len(recorded), Stop(), on_remark)


def _done(run: Run) -> frozenset[tuple[str, int]]:
    return frozenset((result.task_id, result.trial) for result in run.results)


def stored_form(order: Order, redactor: Redactor | None = None) -> Run:
    """Return the run before anything happened, as it is written down: without secrets."""
    return (redactor or redactor_for(order.spec)[0]).tree(blank_run(order))


def blank_run(order: Order) -> Run:
    """Return the run before anything happened."""
    spec = order.spec
    parent = order.runs or runs_folder(spec)
    data = spec.as_data() | {"file": Path(os.path.relpath(spec.file, parent.resolve())).as_posix()}
    data["config"] |= {"trials_per_task": order.trials, "executor": order.engine, "model": order.model}
    return Run(
        id="",
        name=spec.name,
        started_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        engine=order.engine,
        model=order.model,
        skill=spec.skill,
        spec=data,
        fingerprint=fingerprint(data),
        versions={"waza": __version__, "python": platform.python_version()},
    )
