#!/usr/bin/env python3
"""What `waza serve` costs: CPU time of the server, time until the whole page is there, bytes sent, and its peak memory.

  venvs/ours/bin/python dashboard.py [--runs 1000] [--results 1000] [--tasks 5000] [--calls 5000]

Runs are generated into work/dashboard: `--runs` of 20 suites with `--results` results each (the journal of a suite's first run is
linked into the others), one with `--tasks` tasks and one with a trial of `--calls` tool calls. Pages are asked for once cold (the index is made, the run's journal is read) and then five times; the
median counts. CPU time and memory are those of the server's process, as /proc tells them.
"""
import argparse
import http.client
import os
import shutil
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from waza.model import Check, Grade, Result, Run, ToolEvent, Trace, Usage
from waza.runs.store import RunFolder, open_run
from waza.runs.summary import summarize

ROOT = Path(__file__).parent / "work" / "dashboard"
SUITES = 20
TICK = os.sysconf("SC_CLK_TCK")


def a_result(task, number, calls=3):
    ok = number % 7 != 0
    grades = [
        Grade(name=name, type="text", status="passed" if ok else "failed", score=float(ok), feedback="said", checks=[Check(ok, f"{name} holds")])
        for name in ("answers", "right calls", "in bounds")
    ]
    events = [ToolEvent(tool_name=f"tool_{n % 7}", args={"path": f"src/{n}.py"}, result="ok " * 20, duration_ms=20 + n % 50, turn=1 + n // 4) for n in range(calls)]
    usage = Usage(input_tokens=1000 + number, output_tokens=100, cost_usd=0.001)
    trace = Trace(input="do it", output="done " * 20, tool_events=events, usage=usage)
    return Result(task_id=task, trial=1, status="passed" if ok else "failed", trace=trace, grades=grades, duration_ms=1000 + number % 500,
                  started_at=datetime(2026, 1, 1, tzinfo=UTC).isoformat())


def store(parent, name, suite, tasks, start, calls=3):
    spec = {"config": {"trials_per_task": 1}, "tasks": [{"id": f"task-{n:05}", "tags": [f"tag-{n % 5}"]} for n in range(tasks)]}
    run = Run(id=name, name=suite, started_at=start.isoformat(), engine="mock", model=f"model-{len(suite) % 3}", spec=spec)
    with RunFolder.create(parent, run) as folder:
        for at in range(0, tasks, 500):
            folder.append(*(a_result(f"task-{n:05}", n, calls) for n in range(at, min(at + 500, tasks))))
        made = open_run(folder.path)
        folder.finish(summarize(made))


def link(name, start, first, suite):
    """Make another run of a suite out of its first one."""
    source, target = ROOT / "runs" / f"{first:%Y%m%d-%H%M%S}-{suite:05}", ROOT / "runs" / name
    target.mkdir()
    os.link(source / "journal.jsonl", target / "journal.jsonl")
    text = (source / "run.json").read_text()
    (target / "run.json").write_text(text.replace(first.isoformat(), start.isoformat()).replace(source.name, name))


def generate(runs, results, tasks, calls):
    """Write the runs, unless they are there."""
    wanted = f"{runs} {results} {tasks} {calls}"
    if (ROOT / "made").exists() and (ROOT / "made").read_text() == wanted:
        return
    shutil.rmtree(ROOT, ignore_errors=True)
    first = datetime(2026, 1, 1, tzinfo=UTC)
    for n in range(runs):
        start = first + timedelta(hours=n)
        name = f"{start:%Y%m%d-%H%M%S}-{n:05}"
        if n < SUITES:
            store(ROOT / "runs", name, f"suite {n % SUITES}", results, start)
        else:
            link(name, start, first + timedelta(hours=n % SUITES), n % SUITES)
    store(ROOT / "runs", "large", "large", tasks, first)
    store(ROOT / "runs", "long", "long", 1, first, calls)
    (ROOT / "made").write_text(wanted)


class Server:
    def __init__(self):
        waza = str(Path(sys.executable).with_name("waza"))
        env = os.environ | {"XDG_CACHE_HOME": str(ROOT / "cache")}
        self.process = subprocess.Popen([waza, "serve", str(ROOT), "--port", "0"], stdout=subprocess.PIPE, text=True, env=env)
        link = self.process.stdout.readline().strip()
        self.host, token = link.removeprefix("http://").split("/?token=")
        self.cookie = self.ask(f"/?token={token}")[1]["set-cookie"].split(";")[0]

    def ask(self, path):
        connection = http.client.HTTPConnection(self.host, timeout=600)
        connection.request("GET", path, headers={"Cookie": getattr(self, "cookie", "")})
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, dict(answer.getheaders()), body

    def cpu_s(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def peak_mb(self):
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024

    def measure(self, path):
        """Return status, CPU ms, wall ms and bytes of one request."""
        cpu, start = self.cpu_s(), time.perf_counter()
        status, _, body = self.ask(path)
        return status, 1000 * (self.cpu_s() - cpu), 1000 * (time.perf_counter() - start), len(body)

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=30)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--results", type=int, default=1000)
    parser.add_argument("--tasks", type=int, default=5000)
    parser.add_argument("--calls", type=int, default=5000)
    options = parser.parse_args()
    generate(options.runs, options.results, options.tasks, options.calls)
    shutil.rmtree(ROOT / "cache", ignore_errors=True)
    pages = {
        f"first page, {options.runs:,} runs": "/",
        "first page, searched and sorted": "/?q=suite+7&sort=cost",
        "trends of one suite": "/trends?suite=suite%207",
        f"run, {options.tasks:,} tasks": "/runs/large",
        "run, tasks filtered": "/runs/large?status=failed&task=42",
        "live view of that run": "/runs/large/live",
        f"trial, {options.calls:,} calls": "/runs/long/task?id=task-00000&trial=1",
        "compare two runs": f"/compare?run=20260101-000000-00000&run=20260101-200000-00020",
    }
    print("| page | cold, CPU ms | cold, ms | CPU ms | ms | kB |\n|---|---:|---:|---:|---:|---:|")
    for start in ("index made", "index there"):
        server = Server()
        try:
            for name, path in pages.items():
                cold = server.measure(path)
                if cold[0] != 200:
                    print(f"| {name} | not there ({cold[0]}) | | | | |")
                    continue
                warm = [server.measure(path) for _ in range(5)]
                middle = [statistics.median(row[n] for row in warm) for n in (1, 2)]
                print(f"| {start}: {name} | {cold[1]:,.0f} | {cold[2]:,.0f} | {middle[0]:,.0f} | {middle[1]:,.0f} | {cold[3] / 1000:,.0f} |", flush=True)
            print(f"| {start}: peak memory, MB | {server.peak_mb():,.0f} | | | | |", flush=True)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
