"""No number in a file can break a reader, and one damaged run never hides the others."""

import json

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving import served

from results_made import append_signed
from waza.cli import run_command
from waza.errors import WazaError
from waza.model import Attempt, Check, Grade, Result, Run, SkillInvocation, ToolEvent, Trace, Usage
from waza.runs.records import End, write_record
from waza.runs.store import RunFolder, list_runs, open_run, read_run, summary_of
from waza.runs.summary import summarize
from waza.spending import Costs, Spending

EXTREME = [
    *("1e308", "-1e308", "1e400", "-1e400", "1.7976931348623157e308", "5e-324", "-0.0", "-1", "0", "0.5", "-5e-324"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775809", "18446744073709551616", "1000000000001"),
    *("1" + "0" * 400, "-1" + "0" * 400, "1" + "0" * 5000, "NaN", "Infinity", "-Infinity", "null"),
]
TRACE = Trace(
    input="greet",
    output="hello",
    duration_ms=1200.5,
    steps=3,
    leftovers=1,
    events=[{"type": "assistant_message", "turn": 1, "content": "hi", "start_ms": 3}],
    tool_events=[
        ToolEvent(tool_name="bash", args={"n": 1}, result={"code": 0}, turn=1, sequence=1, start_ms=4, duration_ms=5.5)
    ],
    usage=Usage(
        input_tokens=10, output_tokens=5, cache_read_tokens=1, cache_write_tokens=1, turns=2, llm_calls=2, cost_usd=0.25
    ),
    skill_invocations=[SkillInvocation(name="s")],
    outcome={"value": 1.5},
)


def a_result(task, trial):
    judge = {"type": "openai", "tokens": {"input": 120, "output": 17}, "cost_usd": 0.5, "requests": 2, "seconds": 1.5}
    judge |= {"cached": False, "reminders": 1, "model": "m", "answered_by": "m", "requests_without_cost": 1}
    check = Check(True, "c", expected=1, actual=2.5)
    grade = Grade(name="g", type="prompt", status="passed", score=0.75, feedback="f", weight=2.0, duration_ms=3.5,
                  checks=[check], details={"judge": judge, "count": 1})  # fmt: skip
    spending = Spending(cost_usd=0.5, input_tokens=1, output_tokens=2, count=1, without_cost=1)
    attempt = Attempt(status="passed", duration_ms=7.5, costs=Costs(agent=spending, judge=spending))
    return Result(task_id=task, trial=trial, status="passed", trace=TRACE, grades=[grade], duration_ms=1300.5,
                  attempts=2, attempt_log=[attempt], grader_duration_ms=2.5, judge_duration_ms=3.5,
                  started_at="2026-01-02T03:04:05Z")  # fmt: skip


SPEC = {
    "config": {
        "trials_per_task": 2,
        "pass_rule": 0.5,
        "min_pass_rate": 0.5,
        "max_failures": 1,
        "timeout_seconds": 30.5,
    },
    "tasks": [{"id": "a", "golden": True, "tags": ["x"]}, {"id": "b"}],
    "metrics": [{"name": "task_completion", "threshold": 0.5, "weight": 1.5}],
    "places": {"a": {"file": "eval.yaml", "line": 3}},
}
RUN = Run(id="", name="suite", started_at="2026-01-02T03:04:05Z", engine="mock", model="m", spec=SPEC)


def numbers_in(tree, path=()):
    """Yield the places of numbers in a tree of JSON."""
    if isinstance(tree, dict | list):
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from numbers_in(value, (*path, key))
    elif isinstance(tree, int | float) and not isinstance(tree, bool):
        yield path


def with_numbers(data, changes):
    """Return a JSON text with other numbers at some places, as they are written: some are no JSON at all."""
    tree = json.loads(data)
    for path, token in changes:
        *above, last = path
        place = tree
        for key in above:
            place = place[key]
        place[last] = f"@@{token}@@"
    return json.dumps(tree).replace('"@@', "").replace('@@"', "").encode()


RESULT = write_record(a_result("a", 1))
SUMMARY = summarize(msgspec.structs.replace(RUN, results=[a_result(task, n) for task in "ab" for n in (1, 2)]))
FILES = {
    "run.json": msgspec.json.encode(msgspec.structs.replace(RUN, folder="")),
    "result": RESULT,
    "end": write_record(End(run=RUN, summary=SUMMARY)),
}


@st.composite
def changed_files(draw):
    """Return each file as it is, or with up to four other numbers."""
    made = {}
    for name, data in FILES.items():
        places = st.sampled_from(list(numbers_in(json.loads(data))))
        changes = draw(st.lists(st.tuples(places, st.sampled_from(EXTREME)), max_size=4, unique_by=lambda one: one[0]))
        made[name] = with_numbers(data, changes)
    return made


def a_healthy_run(parent):
    with RunFolder.create(parent, RUN) as folder:
        folder.append(*(a_result(task, n) for task in "ab" for n in (1, 2)))
        folder.finish(summarize(open_run(folder.path)))
    return folder.path


def write(parent, files):
    """Write a run with these contents, signed as if waza had written it."""
    folder = a_healthy_run(parent)
    journal = folder / "journal.jsonl"
    same = [files["result"].replace(b'"task_id": "a"', b'"task_id": "%b"' % task) for task in (b"a", b"b")]
    others = [one.replace(b'"trial": 1', b'"trial": 2') for one in same]  # two alike, so that sums overflow too
    append_signed(journal, *same, *others, files["end"])
    (folder / "run.json").write_bytes(files["run.json"])
    return folder


COMMANDS = (
    *(["runs"], ["runs", "list", "--json"], ["trend"], ["trend", "--json"]),
    *(["show", "RUN"], ["show", "RUN", "--json"], ["show", "RUN", "--task", "a", "-v"]),
    *(["gate", "RUN", "--max-cost", "1", "--min-score", "0.5"], ["compare", "GOOD", "RUN"], ["compare", "RUN", "GOOD"]),
    *(["show", "RUN", "--reporter", f"{kind}:OUT/{kind}"] for kind in ("html", "junit", "markdown", "csv", "json")),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    parent = tmp_path_factory.mktemp("project") / "runs"
    parent.mkdir()
    return parent, a_healthy_run(parent)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(files=changed_files())
def test_no_number_breaks_a_command_and_the_other_runs_are_listed(place, tmp_path_factory, capsys, monkeypatch, files):
    parent, good = place
    out = tmp_path_factory.mktemp("out")
    monkeypatch.chdir(parent.parent)
    folder = write(parent, files)
    try:
        whole = summary_of(good).summary
        listed = {run.folder: run for run in list_runs(parent)}
        assert listed[str(good)].summary == whole and str(folder) in listed
        for reader in (open_run, read_run):
            try:
                summarize(reader(folder))
            except WazaError as error:
                assert str(folder) in str(error)
        for command in COMMANDS:
            words = [
                {"RUN": str(folder), "GOOD": str(good)}.get(word, word.replace("OUT", str(out))) for word in command
            ]
            capsys.readouterr()
            code = run_command(words)
            printed = capsys.readouterr()
            assert code in (0, 1, 2, 3), (words, printed.err, files)
            if words[:1] in (["runs"], ["trend"]):
                assert good.name in printed.out or "suite" in printed.out, (words, printed.out)
    finally:
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        folder.rmdir()


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(files=changed_files())
def test_no_number_breaks_a_page(place, tmp_path_factory, files):
    parent = tmp_path_factory.mktemp("project") / "runs"
    parent.mkdir()
    good, bad = a_healthy_run(parent), write(parent, files)
    with served(parent.parent) as site:
        for path in ("/", "/trends", f"/compare?run={good.name}&run={bad.name}"):
            status, _, text = site.get(path)
            assert status in (200, 404), (path, text, files)
            assert good.name in text or path != "/"
        for run in (good, bad):
            for path in ("", "/task?id=a", "/task?id=a&trial=1", "/live"):
                status, _, text = site.get(f"/runs/{run.name}{path}")
                assert status in ((200,) if run == good else (200, 404)), (run, path, text, files)


@pytest.mark.parametrize("token", EXTREME)
def test_any_number_in_a_trace_leaves_the_trace_readable(token):
    """Alone at each place: read from text as an agent prints it, written, read again, summarized."""
    data = TRACE.to_json()
    for path in numbers_in(json.loads(data)):
        trace = Trace.from_json(with_numbers(data, [(path, token)]))
        assert (trace.output, Trace.from_json(trace.to_json()).output) == ("hello", "hello")
        result = Result(task_id="a", trial=1, status="passed", trace=trace)
        assert summarize(msgspec.structs.replace(RUN, results=[result, result])).costs.total_usd in (0.0, 0.5, 1.0)
        usage = trace.usage
        assert usage.cost_usd is None or 0 <= usage.cost_usd <= 1e12


def test_two_costs_that_overflow_together_break_nothing(place, capsys, monkeypatch):
    parent, good = place
    monkeypatch.chdir(parent.parent)
    trace = Trace(input="x", output="y", usage=Usage(cost_usd=1e308))
    with RunFolder.create(parent, RUN) as folder:
        folder.append(*(Result(task_id="a", trial=n, status="passed", trace=trace) for n in (1, 2)))
        folder.finish(summarize(open_run(folder.path)))
    assert run_command(["runs"]) == 0 and good.name in capsys.readouterr().out
