"""The campaign: the safety tests at full size, part by part, with the figures that the tests counted themselves.

`python tests/campaign.py kills` runs one part and writes its figures to `campaign/`; `--size sample` runs less of it;
`--write-trust` puts the newest figures of every part into TRUST.md. Tests count with `count` and ask for their size
with `size`; a figure that no test counted does not exist.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).parent.parent
FIGURES = ROOT / "campaign"
TRUST = ROOT / "TRUST.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


class Part(NamedTuple):
    """One part: the tests it runs, and what its figures must come to at full size."""

    title: str
    tests: tuple[str, ...]
    at_least: dict[str, int]
    zero: tuple[str, ...]


PARTS = {
    "kills": Part(
        "`kill -9` of a journal writer and of whole runs",
        ("tests/runs/test_journal_crash.py", "tests/runner/test_interrupted.py"),
        {"kill -9": 10_000},
        ("acknowledged results lost", "results written twice"),
    ),
    "faults": Part(
        "a failing open, write, sync, rename at every place of a run",
        ("tests/runs/test_journal_faults.py",),
        {"faults injected": 200},
        ("acknowledged results lost",),
    ),
    "cuts": Part(
        "journals and recorded traces cut at any byte or with any bit flipped",
        ("tests/runs/test_journal_damage.py", "tests/traces/test_truncated.py"),
        {"cuts": 10_000, "bits flipped": 50_000},
        ("files misread",),
    ),
    "traces": Part(
        "recorded traces with other values in them, and any JSON",
        ("tests/traces/test_any_json.py",),
        {"recordings with other values": 1_000},
        ("readers that broke",),
    ),
    "escapes": Part(
        "assertions, isolated programs and workspace paths that try to get out",
        (
            "tests/untrusted/test_python_assertions.py",
            "tests/untrusted/test_javascript_assertions.py",
            "tests/process/test_isolation.py",
            "tests/files/test_workspace.py",
        ),
        {"escape attempts": 200},
        ("contacts with anything outside",),
    ),
    "agents": Part(
        "agents that leave daemons, ignore signals and fork for ever",
        ("tests/process/test_supervisor.py",),
        {"hostile agents": 1_000},
        ("surviving processes",),
    ),
    "specs": Part(
        "broken suites",
        ("tests/suites/test_broken_specs.py", "tests/suites/test_typos.py"),
        {"broken specs": 100_000},
        ("tracebacks", "problems without a place"),
    ),
    "judges": Part(
        "model servers that fail, hang, lie or answer in another shape",
        ("tests/judges/test_sdk.py",),
        {"judge faults": 60},
        ("verdicts from a fault",),
    ),
    "secrets": Part(
        "secrets in every encoding and chunking",
        ("tests/runs/test_redaction.py", "tests/runner/test_secrets.py"),
        {"texts with a secret": 20_000},
        ("secrets left",),
    ),
    "statistics": Part(
        "simulated comparisons with and without a difference",
        ("tests/stats/test_difference.py", "tests/stats/test_simulations.py", "tests/runner/test_auto.py"),
        {"simulated comparisons": 10_000},
        (),
    ),
    "rules": Part(
        "rules over traces, against LTLf formulas and against their definition",
        ("tests/graders/test_trace_rules.py",),
        {"rules checked against LTLf formulas": 100_000, "rules checked against their definition": 100_000},
        (),
    ),
    "intervals": Part(
        "simulated 95 % intervals of few tasks: how often they contain the truth",
        ("tests/stats/test_intervals.py", "tests/stats/test_agreement.py"),
        {"simulated intervals": 150_000},
        (),
    ),
    "sabotage": Part(
        "deliberate one-line faults in safety code, each to be noticed by its test",
        (),
        {"sabotages noticed": 40},
        ("sabotages not noticed",),
    ),
}


def size(ci: int, sample: int, full: int) -> int:
    """Return how many a test tries: in CI, in `make campaign SIZE=sample`, and in `make campaign`."""
    return {"full": full, "sample": sample}.get(os.environ.get("WAZA_CAMPAIGN", ""), ci)


def count(figure: str, number: int = 1) -> None:
    """Add to a figure of the part that runs; outside a campaign nothing is written."""
    if place := os.environ.get("WAZA_FIGURES"):
        line = json.dumps([figure, number]) + "\n"
        with open(place, "ab", buffering=0) as file:  # one append for each line: several workers may write at once
            file.write(line.encode())


def counted(place: Path) -> dict[str, int]:
    """Return the figures that tests wrote to a file, added up."""
    figures: dict[str, int] = {}
    for line in place.read_text().splitlines() if place.exists() else ():
        figure, number = json.loads(line)
        figures[figure] = figures.get(figure, 0) + number
    return figures


def run_part(name: str, wanted: str, jobs: int) -> dict[str, object]:
    """Run a part and return its record."""
    part, began = PARTS[name], time.monotonic()
    commit, date = commit_of(ROOT), datetime.now(UTC).isoformat(timespec="seconds")
    with tempfile.TemporaryDirectory(prefix="waza-campaign-") as folder:
        place, report = Path(folder, "figures"), Path(folder, "report.xml")
        environment = os.environ | {"WAZA_CAMPAIGN": wanted, "WAZA_FIGURES": str(place)}
        if name == "sabotage":
            command = [sys.executable, str(ROOT / "tests" / "sabotage.py"), "--jobs", str(jobs)]
        else:
            options = ["--timeout=7200", "-p", "no:cacheprovider", f"--junitxml={report}"]
            command = [sys.executable, "-m", "pytest", *part.tests, *options, *(["-n", str(jobs)] if jobs > 1 else [])]
        ended = subprocess.run(command, cwd=ROOT, env=environment)
        figures = counted(place)
        tests = tests_in(report)
    faults = sorted(missed(part, figures, wanted)) + (["a test failed"] if ended.returncode else [])
    return {
        "part": name,
        "size": wanted,
        "held": not faults,
        "faults": faults,
        "figures": figures,
        "tests": tests,
        "commit": commit,
        "date": date,
        "seconds": round(time.monotonic() - began),
        "cores": os.cpu_count(),
        "memory_gb": memory_gb(),
        "python": platform.python_version(),
        "kernel": platform.release().split("-")[0],
    }


def missed(part: Part, figures: dict[str, int], wanted: str) -> Iterator[str]:
    """Yield what the figures of a part do not show; a figure that was not counted shows nothing."""
    for figure, least in part.at_least.items():
        least = least if wanted == "full" or part.tests == () else 1
        if figures.get(figure, 0) < least:
            yield f"{figure}: {figures.get(figure, 'not counted')}, at least {least} are needed"
    for figure in part.zero:
        if figures.get(figure) != 0:
            yield f"{figure}: {figures.get(figure, 'not counted')}, must be 0"


def tests_in(report: Path) -> dict[str, int]:
    """Return how many tests passed, failed and were skipped."""
    if not report.exists():
        return {}
    (suite,) = ElementTree.parse(report).getroot().iter("testsuite")
    total, failed, skipped = (int(suite.get(key, "0")) for key in ("tests", "failures", "skipped"))
    failed += int(suite.get("errors", "0"))
    return {"passed": total - failed - skipped, "failed": failed, "skipped": skipped}


def commit_of(folder: Path) -> str:
    """Return the commit the figures are about; `+changes` where files differ from it."""
    ask = ["git", "-C", str(folder)]
    commit = subprocess.run([*ask, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True).stdout.strip()
    status = [*ask, "status", "--porcelain", "--untracked-files=no", "--", ":!TRUST.md"]
    changed = subprocess.run(status, capture_output=True, text=True).stdout.strip()
    return (commit or "unknown") + ("+changes" if changed else "")


def memory_gb() -> int:
    """Return the machine's memory."""
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3)


def keep(record: dict[str, object]) -> Path:
    """Write a part's record to its file: one for each part, size and commit."""
    FIGURES.mkdir(exist_ok=True)
    place = FIGURES / f"{record['part']}-{record['size']}-{record['commit']}.json"
    place.write_text(json.dumps(record, indent=1) + "\n")
    return place


def records() -> dict[str, dict]:
    """Return the record to quote for each part: a full one before a sample, then the newest."""
    found: dict[str, dict] = {}
    every = [json.loads(place.read_text()) for place in FIGURES.glob("*.json")]
    for record in sorted(every, key=lambda one: (one["size"] == "full", one["date"])):
        if record["part"] in PARTS:
            found[record["part"]] = record
    return found


def table() -> str:
    """Return the figures as a Markdown table: only what ran, as it was counted."""
    rows = ["| Part | Counted | Size | Result | Date, commit | Machine | Took |", "|---|---|---|---|---|---|---|"]
    known = records()
    for name, part in PARTS.items():
        command = f"`make campaign PART={name}`"
        if name not in known:
            rows.append(f"| {command}: {part.title} | not measured | | | | | |")
            continue
        one = known[name]
        figures = "; ".join(f"{figure}: **{number:,}**" for figure, number in one["figures"].items())
        if tests := one["tests"]:
            figures += f"; tests: {tests['passed']} passed, {tests['failed']} failed, {tests['skipped']} skipped"
        machine = f"{one['cores']} cores, {one['memory_gb']} GB, Linux {one['kernel']}, Python {one['python']}"
        result = "passed" if one["held"] else "**failed**: " + "; ".join(one["faults"])
        when = f"{one['date'][:10]}, `{one['commit']}`"
        took = f"{one['seconds'] // 60} min {one['seconds'] % 60} s"
        rows.append(f"| {command}: {part.title} | {figures} | {one['size']} | {result} | {when} | {machine} | {took} |")
    return "\n".join(rows)


def write_trust() -> None:
    """Put the table of figures into TRUST.md."""
    before, rest = TRUST.read_text().split(BEGIN)
    _, after = rest.split(END)
    TRUST.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}")


def main() -> int:
    """Run the parts that are named, all without a name; return 1 when one of them did not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all without a name")
    parser.add_argument("--size", choices=("sample", "full"), default="full")
    parser.add_argument("--jobs", type=int, default=1, help="tests at the same time within a part")
    parser.add_argument("--write-trust", action="store_true", help="put the newest figures into TRUST.md")
    given = parser.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"unknown part {', '.join(sorted(unknown))}; known: {', '.join(PARTS)}")
    held = True
    for name in given.parts or ([] if given.write_trust else PARTS):
        record = run_part(name, given.size, given.jobs)
        held = held and bool(record["held"])
        print(json.dumps(record, indent=1), f"\nfigures: {keep(record).relative_to(ROOT)}", flush=True)
    if given.write_trust:
        write_trust()
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
