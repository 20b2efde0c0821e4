#!/usr/bin/env python3
"""What `waza grade FILE` costs on recorded traces: traces a second and peak memory, as their number grows tenfold.

  venvs/ours/bin/python grade_traces.py [--n 10000,100000] [--tasks 1,100] [--stdin]

Each trace has 20 tool calls and 2 kB of output; four graders make the ten checks of W2 on it. The traces are generated into
work/, one a line, and belong to one task or are spread over several. Every measurement is a fresh process, wall time, CPU time and
peak memory come from wait4(), and the verdicts must equal the reference. Results end in a run folder (journal, results.json),
which is measured and removed.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import common as c

WORK = c.ROOT / "work" / "grade_traces"
GRADERS = [
    {"type": "text", "config": {"contains": list(c.CONTAINS), "not_contains": list(c.NOT_CONTAINS), "regex_match": list(c.REGEX)}},
    {"type": "tool_called", "config": {"required": list(c.TOOLS_REQUIRED)}},
    {"type": "tool_order", "config": {"expected_order": list(c.TOOL_ORDER)}},
    {"type": "max_tool_calls", "config": {"max_tool_calls": c.MAX_TOOL_CALLS}},
]


def write_traces(n, tasks):
    """Write n traces, unless they are there; return the file and how many of them pass."""
    path, counted = WORK / f"traces_{n}_{tasks}.jsonl", WORK / f"passed_{n}.json"
    if not path.exists() or not counted.exists():
        passed = 0
        with path.with_suffix(".tmp").open("w") as f:
            for i in range(n):
                t = c.make_trace(i)
                passed += all(c.reference(t))
                events = [{"tool_name": k["name"], "args": k["args"], "result": k["result"]} for k in t["tool_calls"]]
                f.write(json.dumps({"input": t["input"], "output": t["output"], "task_id": f"task-{i % tasks}", "tool_events": events}) + "\n")
        path.with_suffix(".tmp").rename(path)
        counted.write_text(str(passed))
    return path, int(counted.read_text())


def write_suite(tasks):
    folder = WORK / f"suite_{tasks}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    listed = [{"id": f"task-{i}", "prompt": "Change the settings module, deploy it and report."} for i in range(tasks)]
    (folder / "eval.yaml").write_text(json.dumps({"name": "traces", "config": {"executor": "mock"}, "graders": GRADERS, "tasks": listed}))
    return folder


def passed_in(folder):
    """Return how many trials passed, from what the run left, without reading it whole."""
    with next((folder / "runs").glob("*/journal.jsonl")).open("rb") as f:
        return sum(b'"status":"passed","trace":' in line for line in f)


def measure(n, tasks, by_stdin):
    """Return one measurement as a row."""
    traces, expected = write_traces(n, tasks)
    folder = write_suite(tasks)
    argv = [str(Path(sys.executable).with_name("waza")), "grade", "-" if by_stdin else str(traces), "--graders", str(folder), "-q"]
    start = time.perf_counter()
    with traces.open("rb") as stdin, open(os.devnull, "wb") as null:
        process = subprocess.Popen(argv, stdin=stdin if by_stdin else null, stdout=null)
        _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    row = {
        "n": n,
        "tasks": tasks,
        "rc": process.returncode,
        "ok": process.returncode == 1 and passed_in(folder) == expected,
        "wall_s": wall,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "rss_mb": usage.ru_maxrss / 1024,
        "disk_mb": c.du(folder / "runs") / 1e6,
    }
    shutil.rmtree(folder)
    return row


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--n", default="10000,100000")
    ap.add_argument("--tasks", default="1,100", help="over how many tasks the traces are spread")
    ap.add_argument("--stdin", action="store_true", help="give the traces on standard input")
    a = ap.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    sizes = [int(x) for x in a.n.split(",")]
    spreads = [int(x) for x in a.tasks.split(",")]
    for n in sizes:  # in a child: a child's peak memory is never less than what its parent had when it was started
        for tasks in spreads:
            subprocess.run([sys.executable, "-c", f"import grade_traces; grade_traces.write_traces({n}, {tasks})"], cwd=c.ROOT, check=True)
    print("| traces | tasks | traces a second | CPU µs a trace | peak memory, MB | run folder, MB | verdicts |\n|---|---|---|---|---|---|---|")
    for n in sizes:
        for tasks in spreads:
            r = measure(n, tasks, a.stdin)
            verdicts = "as the reference" if r["ok"] else f"WRONG (exit {r['rc']})"
            print(f"| {n:,} | {tasks} | {n / r['wall_s']:,.0f} | {r['cpu_s'] / n * 1e6:.0f} | {r['rss_mb']:.0f} | {r['disk_mb']:,.0f} | {verdicts} |", flush=True)


if __name__ == "__main__":
    main()
