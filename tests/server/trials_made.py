"""Trials with all that a trial's page shows: times, failures, parallel calls, judged grades, an alignment, files."""

from msgspec.structs import replace
from runs_made import store_run

from waza.files.snapshot import take
from waza.graders.tool_calls import ToolCallsGrader
from waza.model import Check, Grade, Result, Run, ToolEvent, Trace, Usage
from waza.runs.store import RunFolder, open_run
from waza.runs.summary import summarize

CALLS = (  # tool, arguments, begin, duration, whether it worked
    ("search", {"query": "refunds"}, 0, 1000, True),
    ("read", {"path": "policy.md"}, 1000, 2000, True),
    ("read", {"path": "order.json"}, 1500, 1000, True),
    ("bash", {"command": "make"}, 5000, 1000, False),
    ("edit", {"path": "a.py", "new": "x = 2"}, 8000, 2000, True),
)
EXPECT = [{"name": "search"}, {"name": "edit", "args": {"path": "a.py", "new": "x = 3"}}, {"name": "mail"}]
INSTRUCTIONS = "Would you send it?"


def events(calls=CALLS):
    return [
        ToolEvent(tool_name=name, args=args, result="done" if works else None, error=None if works else "exit code 2",
                  success=works, turn=1 + place // 2, tool_call_id=f"c{place}", start_ms=begin, duration_ms=took)
        for place, (name, args, begin, took, works) in enumerate(calls)
    ]  # fmt: skip


def a_trace(calls=CALLS, output="It is refunded."):
    """A trace of ten seconds whose events have the messages of the agent."""
    made = events(calls)
    recorded = [{"type": "user_message", "turn": 1, "content": "Refund it."}]
    for event in made:
        recorded.append({"type": "tool_call", "turn": event.turn, "tool_call_id": event.tool_call_id})
        recorded.append({"type": "tool_result", "turn": event.turn, "tool_call_id": event.tool_call_id})
        if event.tool_name == "search":
            recorded.append({"type": "assistant_message", "turn": 1, "content": "I read the policy."})
    recorded.append({"type": "assistant_message", "turn": 3, "content": output})
    usage = Usage(input_tokens=900, output_tokens=90, turns=3, cost_usd=0.01)
    return Trace(input="Refund it.", output=output, tool_events=made, events=recorded, duration_ms=10_000, usage=usage)


def the_grades(trace, *, passes):
    """One grade with an alignment, one of a judge, one of people."""
    judged = Grade(
        name="honest",
        type="prompt",
        status="passed" if passes else "failed",
        score=float(passes),
        feedback="promises too much",
        weight=2.0,
        checks=[Check(passes, "promises nothing", "" if passes else "promises a day", "no day", "Tuesday")],
        details={
            "rubric": {"name": "shop", "version": "1.2.0", "scale": "pass-fail", "hash": "9f2c41aa8812"},
            "judge": {"model": "judge-9", "seconds": 2.4, "cached": False},
        },
    )
    calls = ToolCallsGrader(name="right calls", expect=EXPECT, order="in_order").grade(trace)
    return [judged, replace(calls, status="passed", score=1.0) if passes else calls]


def a_result(task="refund", trial=1, *, passes=False, trace=None, **more):
    trace = trace or a_trace()
    status = "passed" if passes else "failed"
    grades = the_grades(trace, passes=passes)
    return Result(task_id=task, trial=trial, status=status, trace=trace, grades=grades, duration_ms=10_500, **more)


def a_run(parent, run_id, results, *, files=(), suite="shop", model="m-1"):
    """Store a run of these results."""
    ids = list(dict.fromkeys(result.task_id for result in results))
    listed = [{"id": task, "prompt": "Refund it.", "files": list(files)} for task in ids]
    trials = max(result.trial for result in results)
    spec = {"config": {"trials_per_task": trials}, "tasks": listed, "file": "../eval.yaml"}
    run = Run(id="", name=suite, started_at="2026-01-02T03:04:05Z", engine="mock", model=model, spec=spec)
    return store_run(parent, run, results, run_id=run_id)


def with_snapshot(folder, workspace, result):
    """Add a result to a stored run with the files of a workspace, and end it again."""
    name = take(workspace, folder / "artifacts")
    with RunFolder.open(folder) as kept:
        kept.append(replace(result, snapshot=name))
        kept.finish(summarize(replace(open_run(folder), complete=True)))
