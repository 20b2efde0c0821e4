"""waza itself, through what its users call.

W2  four graders (text: seven checks, tool_called, tool_order, max_tool_calls) on every trace; the traces are rewritten once
    as Trace JSON lines, untimed; read, graded and dropped ten at a time, so memory does not grow with their number.
    variant "schema": the `json_schema` grader on the ~240 B `data` field, nothing else.
W3  a suite with `tasks_from`, the `python` engine, seven text checks; a run folder with its journal (synced) and results.json.
    variant "cli": `waza run` on N task files.
W4  the same with an async function that waits 100 ms, 50 workers; variant "sync": a plain function that blocks.
W5  the `program` grader in a pool of 4 threads, the start of the supervisor included; variant "steady": without it;
    "files": steady, and each program gets a private copy of a workspace with one file.
W6  what W3 left: every result and the summary; variant "header": the summary a listing shows.
W7  N copies of the run that W3 left of 100 tasks, as `waza runs` lists them; variant "cli": that command, the whole process.
"""
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path[:] = [p for p in sys.path if not p.endswith("adapters")]
sys.path.insert(0, __file__.rsplit("/", 2)[0])
import common as c  # noqa: E402

CHUNK = 10
TEXT = {"type": "text", "config": {"contains": list(c.CONTAINS), "not_contains": list(c.NOT_CONTAINS), "regex_match": list(c.REGEX)}}
TOOLS = [
    {"type": "tool_called", "config": {"required": list(c.TOOLS_REQUIRED)}},
    {"type": "tool_order", "config": {"expected_order": list(c.TOOL_ORDER)}},
    {"type": "max_tool_calls", "config": {"max_tool_calls": c.MAX_TOOL_CALLS}},
]
ph = c.Phases()


def _trace_lines(n):
    path = c.workdir("ours") / f"traces_{n}.jsonl"
    if not path.exists():
        with path.open("w") as f:
            for t in c.load_traces(n):
                events = [{"tool_name": k["name"], "args": k["args"], "result": k["result"]} for k in t["tool_calls"]]
                f.write(json.dumps({"input": t["input"], "output": t["output"], "session_id": t["id"], "tool_events": events}) + "\n")
    return path


def _schema(n):
    import waza

    traces = [waza.Trace(input=t["input"], output=t["data"]) for t in c.load_traces(n)]
    grader = waza.load_grader({"type": "json_schema", "config": {"schema": c.SCHEMA}})
    ph.mark("import")
    passed = sum(grader.grade(trace).passed for trace in traces)
    ph.mark("grade")
    c.emit(n=n, passed=passed, checks_run=n, verify=False, **ph.out)


def w2(n, variant):
    if variant == "schema":
        return _schema(n)
    path = _trace_lines(n)
    ph.mark("rewrite")
    import waza
    from itertools import islice

    read = waza.Trace.from_json
    graders = [waza.load_grader(g) for g in (TEXT, *TOOLS)]
    ph.mark("import")
    passed = checks = 0
    spent = {"decode_s": 0.0, "decode_cpu": 0.0, "grade_s": 0.0, "grade_cpu": 0.0}
    with path.open("rb") as f:
        while True:
            a = time.perf_counter(), time.process_time()
            traces = [read(line) for line in islice(f, CHUNK)]
            if not traces:
                break
            b = time.perf_counter(), time.process_time()
            for trace in traces:
                text, *tools = [grader.grade(trace) for grader in graders]
                held = [text.passed, *[grade.passed for grade in tools]]
                passed += False not in held
                checks += len([check for check in text.checks if check.ok]) + sum(held[1:])
            e = time.perf_counter(), time.process_time()
            for k, x, y in (("decode", a, b), ("grade", b, e)):
                spent[k + "_s"] += y[0] - x[0]
                spent[k + "_cpu"] += y[1] - x[1]
    c.emit(n=n, passed=passed, checks=checks, checks_run=10 * n, **ph.out, **spent)


AGENT = """\
import asyncio
import time

OUTPUTS = {}


async def answer(prompt):
    return OUTPUTS[prompt]


async def waits(prompt):
    await asyncio.sleep(0.1)
    return OUTPUTS[prompt]


def blocks(prompt):
    time.sleep(0.1)
    return OUTPUTS[prompt]
"""


def _suite(d, n, agent, graders, *, files=False):
    """Write a suite of n tasks, as rows of one file or as task files."""
    (d / "recorded_agent.py").write_text(AGENT + (f"\n\nimport sys\n\nsys.path.insert(0, {str(c.ROOT)!r})\nimport common\n\nOUTPUTS = common.outputs({n})\n" if files else ""))
    spec = {"name": "s", "config": {"executor": "python", "agent": f"recorded_agent:{agent}"}, "graders": graders}
    if files:
        (d / "tasks").mkdir(exist_ok=True)
        for i, u in enumerate(c.task_inputs(n)):
            (d / "tasks" / f"case{i:05d}.yaml").write_text(f"id: case{i}\ninputs:\n  prompt: {json.dumps(u)}\n")
        spec["tasks"] = ["tasks/*.yaml"]
    else:
        (d / "tasks.jsonl").write_text("".join(json.dumps({"id": f"case{i}", "prompt": u}) + "\n" for i, u in enumerate(c.task_inputs(n))))
        spec["tasks_from"] = "tasks.jsonl"
    (d / "eval.yaml").write_text(json.dumps(spec))
    shutil.rmtree(d / "runs", ignore_errors=True)


def _conduct(d, n):
    from waza import load_spec
    from waza.runner.request import request_for
    from waza.runner.run import Listeners, execute

    sys.path.insert(0, str(d))
    import recorded_agent

    recorded_agent.OUTPUTS = c.outputs(n)
    ph.mark("import")
    order = request_for(load_spec(d, trust=True), workers=50)  # the agent is the one that this file wrote
    ph.mark("build")
    run = execute(order, Listeners())
    ph.mark("run")
    return run


def w3(n, variant):
    d = c.workdir(f"ours_w3{variant}_{n}")
    _suite(d, n, "answer", [TEXT], files=variant == "cli")
    ph.mark("prepare")
    if variant == "cli":
        exe = os.path.join(os.path.dirname(sys.executable), "waza")
        subprocess.run([exe, "run", "."], cwd=d, stdout=subprocess.DEVNULL)
        ph.mark("run")
        c.emit(n=n, log_bytes=c.du(d / "runs"), verify=False, **ph.out)
        return
    run = _conduct(d, n)
    passed = sum(result.status == "passed" for result in run.results)
    c.emit(n=n, text_passed=passed, checks_run=7 * n, log_bytes=c.du(d / "runs"), **ph.out)


def w4(n, variant):
    d = c.workdir(f"ours_w4{variant}_{n}")
    _suite(d, n, "blocks" if variant == "sync" else "waits", [{"type": "text", "config": {"contains": ["deployed to"]}}])
    ph.mark("prepare")
    run = _conduct(d, n)
    c.emit(n=n, total=len(run.results), **ph.out)


def w5(n, variant):
    from concurrent.futures import ThreadPoolExecutor

    import waza

    command = {"command": "/bin/true"} if variant != "python" else {"command": c.PYTHON, "args": ["-c", "pass"]}
    grader = waza.load_grader({"type": "program", "config": command})
    traces = [waza.Trace(input="x", output="y") for _ in range(n)]
    folder = None
    if variant == "files":
        folder = c.workdir("ours_w5")
        (folder / "answer.txt").write_text("y")
    with ThreadPoolExecutor(4) as pool:
        if variant in ("steady", "files"):
            list(pool.map(grader.grade, traces[:8]))
        ph.mark("build")
        grades = list(pool.map(lambda trace: grader.grade(trace, workspace=folder), traces))
        ph.mark("run")
    c.emit(n=n, passed=sum(grade.passed for grade in grades), **ph.out)


def w6(n, variant):
    from waza.runs.store import newest_run, open_run, summary_of
    from waza.runs.summary import summarize

    ph.mark("import")
    folder = newest_run(c.workdir(f"ours_w3_{n}") / "runs")
    ph.mark("build")
    summary = summary_of(folder).summary if variant == "header" else summarize(open_run(folder))
    ph.mark("load")
    c.emit(n=n, summary=str(summary)[:200], bytes=(Path(folder) / "journal.jsonl").stat().st_size, **ph.out)


def w7(n, variant):
    from waza.runs.store import newest_run

    folder = c.copies(newest_run(c.workdir("ours_w3_100") / "runs"), c.workdir("ours_w7") / "runs", n)
    ph.mark("prepare")
    if variant == "cli":
        exe = os.path.join(os.path.dirname(sys.executable), "waza")
        told = subprocess.run([exe, "runs", "list", "--json"], cwd=folder.parent, stdout=subprocess.PIPE).stdout
        ph.mark("load")
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        return c.emit(n=n, listed=len(told.splitlines()), **ph.out | {"load_cpu": spent.ru_utime + spent.ru_stime})
    from waza.cli.runs import as_data, chosen

    ph.mark("import")
    rows = [as_data(run) for run in chosen(folder.parent)]
    ph.mark("load")
    c.emit(n=n, listed=sum(row["tasks"] == 100 for row in rows), **ph.out)


if __name__ == "__main__":
    globals()[sys.argv[1]](int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "")
