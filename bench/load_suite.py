#!/usr/bin/env python3
"""What checking a suite costs: CPU ms a task of `waza.load_spec`, beside the same files through `yaml.safe_load` alone.

  venvs/ours/bin/python load_suite.py [--tasks 100] [--reps 7]

The suite is generated: an eval.yaml and one file a task, each with a prompt of several lines, expectations and two graders.
Every measurement is a fresh process, the ways take turns, and the medians are compared. A suite of one task is loaded before
the clock starts, so that imports are not counted.
"""
import argparse
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

WORK = Path(__file__).resolve().parent / "work" / "load_suite"

EVAL = """\
name: generated-suite
description: |
  Tasks of the size people write.
config:
  trials_per_task: 1
  timeout_seconds: 120
  executor: mock
tasks:
  - "tasks/*.yaml"
graders:
  - type: behavior
    name: efficiency
    config:
      max_tool_calls: 20
"""

TASK = """\
id: task-{i:04d}
name: Retrieve and review the comments of pull request {i}
description: |
  The agent reads the comments of a pull request, changes the settings module
  and says what it did.
tags:
  - review
  - "batch {batch}"
inputs:
  prompt: |
    Please look at pull request {i}: there are comments on the settings module.
    Fix what they ask for, run the tests, and report what you changed and where
    the build was deployed to.
  context:
    pull_request: "{i}"
expected:
  output_contains:
    - "deployed to"
  max_tool_calls: 15
graders:
  - type: text
    name: reports
    config:
      contains:
        - "summary of changes"
        - "Resource group"
      not_contains:
        - "permission denied"
      regex_match:
        - 'Reference: [A-Z]{{3}}\\d{{6}}'
  - type: tool_calls
    name: careful
    config:
      required_tools:
        - open_file
        - run_tests
      forbidden_tools:
        - rm
"""


def write_suite(tasks):
    folder = WORK / str(tasks)
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "tasks").mkdir(parents=True)
    (folder / "eval.yaml").write_text(EVAL)
    for i in range(tasks):
        (folder / "tasks" / f"task-{i:04d}.yaml").write_text(TASK.format(i=i, batch=i // 10))
    return folder


def read_all(folder, read):
    return [read(path.read_bytes()) for path in (folder / "eval.yaml", *sorted((folder / "tasks").glob("*.yaml")))]


def loader(way):
    if way == "waza.load_spec":
        import waza

        return waza.load_spec
    if way == "its YAML reader alone":
        from waza.untrusted.yaml import read_yaml

        return lambda folder: read_all(folder, lambda raw: read_yaml(raw, "f"))
    import yaml

    c_loader = way == "yaml.CSafeLoader alone"
    return lambda folder: read_all(folder, lambda raw: yaml.load(raw, Loader=yaml.CSafeLoader if c_loader else yaml.SafeLoader))


def measure(way, small, folder):
    """Print the CPU milliseconds of one load in this process."""
    load = loader(way)
    load(Path(small))
    start = time.process_time()
    load(Path(folder))
    print((time.process_time() - start) * 1e3)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--tasks", type=int, default=100)
    ap.add_argument("--reps", type=int, default=7)
    ap.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    a = ap.parse_args()
    if a.measure:
        return measure(*a.measure)
    small, folder = write_suite(1), write_suite(a.tasks)
    ways = ("waza.load_spec", "its YAML reader alone", "yaml.CSafeLoader alone", "yaml.safe_load alone")
    found = {way: [] for way in ways}
    for _ in range(a.reps):
        for way in ways:
            argv = [sys.executable, __file__, "--measure", way, str(small), str(folder)]
            found[way].append(float(subprocess.run(argv, capture_output=True, text=True, check=True).stdout))
    base = statistics.median(found["yaml.safe_load alone"])
    print(f"{a.tasks} tasks of {len(TASK.splitlines())} lines; CPU ms a task, median of {a.reps} fresh processes\n")
    print("| | CPU ms a task | of yaml.safe_load |\n|---|---|---|")
    for way, times in found.items():
        print(f"| {way} | {statistics.median(times) / a.tasks:.3f} | {statistics.median(times) / base:.2f} |")


if __name__ == "__main__":
    main()
