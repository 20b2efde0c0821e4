"""Run folders for the dashboard: written as `waza run` writes them, with what its pages show."""

import random
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from waza.model import Check, Grade, Result, Run, ToolEvent, Trace, Usage
from waza.runs.store import RunFolder, open_run
from waza.runs.summary import summarize

TOOLS = ("read_file", "search", "bash", "write_file")
GRADERS = (("answers", "text", 1.0), ("right calls", "tool_calls", 2.0), ("stays in bounds", "behavior", 1.0))


def a_trial(task, trial=1, seed=0, rate=0.8, calls=None, start=None):
    """One trial with three grades, some calls and usage; the same for the same seed."""
    chance = random.Random(f"{task}-{trial}-{seed}")
    grades = []
    for name, kind, weight in GRADERS:
        draw = chance.random()
        status = "passed" if draw < rate else "error" if draw > 0.97 else "failed"
        ok = {"passed": True, "failed": False, "error": None}[status]
        check = Check(ok, f"{name} passes", "" if ok else f"{name} fails", "yes", "no" if ok is False else None)
        score = 1.0 if ok else 0.0
        grades.append(
            Grade(name=name, type=kind, status=status, score=score, feedback="said", weight=weight, checks=[check])
        )
    statuses = [grade.status for grade in grades]
    status = "failed" if "failed" in statuses else "error" if "error" in statuses else "passed"
    events = [
        ToolEvent(
            tool_name=TOOLS[n % 4], args={"path": f"src/{n}.py"}, result="ok", duration_ms=20 + n, turn=n // 3 + 1
        )
        for n in range(chance.randint(0, 12) if calls is None else calls)
    ]
    usage = Usage(
        input_tokens=chance.randint(500, 9000), output_tokens=chance.randint(50, 900), cost_usd=chance.random() / 50
    )
    trace = Trace(
        input=f"do {task}",
        output=f"{task} is done",
        tool_events=events,
        usage=usage,
        duration_ms=chance.randint(300, 9000),
    )
    at = (start or datetime(2026, 1, 2, tzinfo=UTC)) + timedelta(seconds=trial)
    return Result(task_id=task, trial=trial, status=status, trace=trace, grades=grades, started_at=at.isoformat(),
                  duration_ms=chance.randint(300, 9000))  # fmt: skip


def plan(suite="shop", model="gpt-5", tasks=8, trials=1, started="2026-01-02T03:04:05+00:00", engine="mock"):
    """A run that has not started: its tasks, each with a tag."""
    listed = [{"id": f"task-{n:04}", "name": f"Task {n}", "tags": [("fast", "slow")[n % 2]]} for n in range(tasks)]
    spec = {"config": {"trials_per_task": trials}, "tasks": listed}
    return Run(id="", name=suite, started_at=started, engine=engine, model=model, spec=spec)


def store_run(parent, run, results, *, complete=True, run_id=""):
    """Write a run folder and return it."""
    with RunFolder.create(parent, replace(run, id=run_id)) as folder:
        folder.append(*results)
        if complete is not None:
            made = replace(open_run(folder.path), complete=complete)
            folder.finish(summarize(made), complete=complete)
    return folder.path


def a_history(parent, suite="shop", model="gpt-5", runs=10, tasks=8, trials=1, seed=0):
    """Runs of one suite, a day apart, getting better."""
    folders = []
    for n in range(runs):
        start = datetime(2026, 1, 1, 8, tzinfo=UTC) + timedelta(days=n, minutes=seed)
        run = plan(suite, model, tasks, trials, start.isoformat())
        results = [
            a_trial(task["id"], trial, seed + n, min(0.97, 0.6 + n * 0.04), start=start)
            for task in run.spec["tasks"]
            for trial in range(1, trials + 1)
        ]
        name = f"{start:%Y%m%d-%H%M%S}-000-{seed:04x}{n:04x}"
        folders.append(store_run(parent, run, results, run_id=name))
    return folders
