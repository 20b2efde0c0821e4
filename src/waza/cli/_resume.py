"""`--resume`: the stored run to continue, and the command line that continues a run."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

from waza.cli._run_options import RunOptions
from waza.cli._runs import own_run
from waza.cli._screen import remark
from waza.errors import UsageError
from waza.files.paths import display_path
from waza.judges.base import Judge
from waza.model import Run
from waza.runner.request import RunRequest, auto_for, judge_for, runs_folder, stored_form
from waza.runner.resume import newest, resume
from waza.runs.folder import read_run_json
from waza.runs.remote_store import is_url
from waza.runs.store import find_run
from waza.suites.suite import EvalSpec


def with_stored_run(request: RunRequest, model: str | None, options: RunOptions) -> RunRequest:
    """Return the request with the stored run that `--resume` continues, if it is given and there is one.

    Engine, model, trials and the choice of tasks are the stored run's, unless they are given again.
    """
    if not options.resume:
        if options.rerun_changed or options.rerun_errors:
            raise UsageError("--rerun-changed and --rerun-errors need --resume")
        return request
    parent = runs_folder(request.spec)
    if options.resume == "newest":
        file = stored_form(request).suite.file
        folder = newest(parent, file, model, has_tasks=bool(request.spec.tasks))
    else:
        folder = own_run(options.resume) if is_url(options.resume) else find_run(options.resume, [parent])
    if folder is None:
        remark("no run of this suite yet; starting one")
        return request
    request = _with_stored_settings(request, read_run_json(folder))
    resumed = resume(
        folder,
        stored_form(replace(request, spec=request.whole or request.spec)),
        rerun_changed=options.rerun_changed,
        rerun_errors=options.rerun_errors,
        skip_graders=options.skip_graders,
    )
    if resumed.run.integrity:
        remark(f"run {resumed.run.id} is {resumed.run.integrity}", "yellow")
    if resumed.removed:
        remark(f"no longer in the suite, left out of the report: {', '.join(resumed.removed)}", "yellow")
    return replace(request, resume=resumed, rerun_changed=options.rerun_changed, rerun_errors=options.rerun_errors)


def _with_stored_settings(request: RunRequest, run: Run) -> RunRequest:
    """Return the request with what the stored run was started with, where the command line gives nothing else."""
    started_with = run.suite.given
    given = started_with | request.given
    if (given.get("names") or given.get("tags")) and request.whole is request.spec:
        request = replace(request, spec=request.spec.select(given.get("names", ()), given.get("tags", ())))
    return replace(
        request,
        engine=given.get("engine") or request.engine,
        model=given.get("model", request.model),
        trials=given["trials"] if isinstance(given.get("trials"), int) else request.trials,
        auto=auto_for(request.spec, given.get("trials")),
        judge=_stored_judge(request, given),
        given=started_with,
    )


def _stored_judge(request: RunRequest, given: dict[str, Any]) -> Judge | None:
    """Return the judge with the model that the stored run's command line named."""
    if request.judge is None or not given.get("judge_model"):
        return request.judge
    return judge_for(request.spec, given["judge_model"], cache=request.judge.cache is not None)


def resume_command(spec: EvalSpec, options: RunOptions, run: str = "") -> str:
    """Return the command line that continues a run; what the stored run remembers is left out."""
    command = "run" if spec.tasks else "trigger"
    words = ["waza", command, display_path(spec.file), "--resume", *([run] if run else [])]
    for name in ("timeout", "replay", "max_cost", "against", "base", "catalogue", "needs"):
        value = getattr(options, name)
        words += [f"--{name.replace('_', '-')}", str(value)] if value else []
    words += [word for reporter in options.reporters for word in ("--reporter", reporter)]
    for flag in ("skip_graders", "no_judge_cache", "update_snapshots", "trust", "strict"):
        words += [f"--{flag.replace('_', '-')}"] if getattr(options, flag) else []
    return shlex.join(words)
