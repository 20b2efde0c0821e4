#!/usr/bin/env python3
"""What rules over a trace cost: CPU µs a grading, next to a plain loop over the same calls.

  venvs/ours/bin/python rules.py [--reps 15]

Ten rules on 20 and on 5,000 calls, in turns of one call and of three; the same with two rules that bind values; one
`required_tools` check and five `expect` entries on 20 calls. The last column divides by the time of a Python loop that
looks at the name of each call once: it compares machines, and runs on a busy one.
"""
import argparse
import time

import waza

NAMES = ["get", "search", "lock", "read", "unlock", "edit", "test", "open", "approve", "delete", "pay", "close"]
RULES = [
    {"require": "get", "before": "delete"},
    {"forbid": "rm"},
    {"require": "read", "after": "lock", "when_absent": "pass"},
    {"forbid": "deploy", "until": "approve"},
    {"count": "search", "at_most": 9_000},
    {"forbid": "write", "between": ["lock", "unlock"], "when_absent": "pass"},
    {"only": {"tool": "."}},
    {"require": "test", "after": "edit", "within": 3},
    {"require": "get", "before": "edit", "fresh": True},
    {"forbid": {"name": "pay", "args": {"amount": {"range": {"gt": 1000}}}}},
]
BINDING = [
    {"require": {"name": "get", "args": {"id": {"bound": "o"}}}, "before": {"name": "delete", "bind": {"o": "args.id"}}},
    {
        "forbid": {"name": "pay", "args": {"id": {"bound": "o"}}},
        "after": {"name": "lock", "bind": {"o": "args.id"}},
        "until": {"name": "unlock", "args": {"id": {"bound": "o"}}},
    },
]


def trace(calls: int, together: int) -> waza.Trace:
    events = [
        {"tool_name": NAMES[i % 12], "args": {"id": i // 12 % 50, "amount": 3}, "turn": i // together + 1}
        for i in range(calls)
    ]
    return waza.Trace.from_json({"input": "", "output": "", "tool_events": events})


def grader(kind: str, **config):
    return waza.load_grader({"type": kind, "config": config})


def micros(call, times: int, reps: int) -> float:
    call()
    best = float("inf")
    for _ in range(reps):
        started = time.process_time()
        for _ in range(times):
            call()
        best = min(best, (time.process_time() - started) / times * 1e6)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=15)
    reps = parser.parse_args().reps
    ten, bound = grader("trace_rules", rules=RULES), grader("trace_rules", rules=RULES[:8] + BINDING)
    rows = [
        (f"{label}, {calls} calls, {together} a turn", made, trace(calls, together))
        for calls in (20, 5_000)
        for together in (1, 3)
        for label, made in (("ten rules", ten), ("ten rules, two bind", bound))
    ]
    entries = [{"name": name, "args": {"amount": 3, "id": {"range": {"gte": 0}}}} for name in NAMES[:5]]
    rows += [
        ("one required tool, 20 calls", grader("tool_calls", required_tools=["get"]), trace(20, 1)),
        ("five expected calls, 20 calls", grader("tool_calls", expect=entries), trace(20, 1)),
    ]
    for label, made, seen in rows:
        calls = seen.tool_events
        times = max(1, 4_000 // len(calls))
        loop = micros(lambda calls=calls: [call for call in calls if call.tool_name == "get"], times * 20, reps)
        took = micros(lambda made=made, seen=seen: made.grade(seen), times, reps)
        print(f"{label:44} {took:10.1f} µs  {took / loop:8.1f} loops  {made.grade(seen).status}")


if __name__ == "__main__":
    main()
