"""For GitHub: a comment that fits, a summary that is added to, annotations that say what they say and nothing else."""

import re

import pytest
from hostile import STRINGS, hostile_run
from test_markdown import refused

from results_made import a_result, a_run
from waza.reports.github import MOST_ANNOTATIONS, GithubReport
from waza.reports.run_before import EarlierRun
from waza.untrusted.text import clipped, visible

KINDS = ("error", "warning")


def comment(run, before=None):
    return b"".join(GithubReport().render(run, before)).decode("utf-8")


def command(line):
    """A workflow command as GitHub's runner reads it: kind, properties, message."""
    kind, properties, message = re.fullmatch(r"::(\w+)(?: (.*?))?::(.*)", line).groups()
    pairs = (pair.partition("=")[::2] for pair in (properties or "").split(",") if pair)
    return kind, {name: unescaped(value) for name, value in pairs}, unescaped(message)


def unescaped(text):
    for escape, character in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(escape, character)
    return text


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """No workflow around the tests, even where one runs them."""
    for name in ("GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("text", STRINGS, ids=range(len(STRINGS)))
def test_an_annotation_is_one_line_and_comes_back_whole(text):
    lines = list(GithubReport().publish(hostile_run(text)))
    assert len(lines) == 1 and "\n" not in lines[0] and "\r" not in lines[0]
    kind, properties, message = command(lines[0])
    assert kind == "error"
    assert properties.pop("file").endswith(visible(text.rpartition("/")[2]))
    assert properties == {"line": "3", "title": visible(clipped(f"{text}#0: failed", 120))}
    assert message.startswith(visible(text[:900], lines=True))


@pytest.mark.parametrize("text", STRINGS, ids=range(len(STRINGS)))
def test_a_comment_is_plain_markdown_of_ours(text):
    made = comment(hostile_run(text), EarlierRun(text, {f"{text}#0": "passed"}))
    assert refused(made) == []
    assert re.match(r"<!-- waza [A-Za-z0-9_.-]+ [A-Za-z0-9_.-]+ -->\n", made)


def test_annotations_point_at_the_line_of_the_task(tmp_path, monkeypatch):
    project = tmp_path / "repo" / "evals: a, b"
    spec = {"file": "../eval.yaml", "places": {"t": {"file": "tasks/t.yaml", "line": 7}}}
    run = a_run([a_result(status="failed")], spec=spec, folder=str(project / "runs" / "one"))
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path / "repo"))
    (line,) = GithubReport().publish(run)
    assert line.startswith("::error file=evals%3A a%2C b/tasks/t.yaml,line=7,title=t%3A failed::")
    assert command(line)[1]["file"] == "evals: a, b/tasks/t.yaml"


def test_an_undecided_task_is_a_warning():
    lines = GithubReport().publish(a_run([a_result(status="error", grades=[], reason="no key")], tasks=["t", "unrun"]))
    assert [command(line)[::2] for line in lines] == [("warning", "no key"), ("warning", "not run")]


def test_no_more_annotations_than_github_shows():
    statuses = [*["failed"] * 30, *["error"] * 30, "passed"]
    run = a_run([a_result(f"t{number}", status=status) for number, status in enumerate(statuses)])
    kinds = [command(line)[0] for line in GithubReport().publish(run)]
    assert [kinds.count(kind) for kind in KINDS] == [MOST_ANNOTATIONS] * 2


def test_a_comment_of_a_huge_run_fits_and_says_that_something_is_missing():
    names = [f"task-{number}-" + "é" * 150 for number in range(2_000)]
    results = [a_result(name, status="failed", output="\U0001f600" * 2_000, reason="x" * 5_000) for name in names]
    made = comment(a_run(results), EarlierRun("old", dict.fromkeys(names, "passed")))
    assert 30_000 < len(made) < 65_536
    assert len(made.encode()) < 262_144
    assert "… more tasks failed than fit here." in made
    assert "### Tasks" in made
    assert made.rstrip().endswith("`waza show` and the other reports have all of it.")
    assert refused(made) == []


def test_the_summary_is_added_to_what_other_steps_wrote(tmp_path, monkeypatch):
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    for model in ("m1", "m2"):
        list(GithubReport().publish(a_run([a_result()], model=model)))
    text = summary.read_text()
    assert text.startswith("before\n")
    assert text.index("model `m1`") < text.index("model `m2`")


def test_summaries_of_many_models_stay_below_what_a_step_may_write(tmp_path, monkeypatch):
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    results = [a_result(f"t{number}", status="failed", output="\U0001f600" * 2_000) for number in range(1_500)]
    for _ in range(5):
        list(GithubReport().publish(a_run(results)))
    assert 250_000 < summary.stat().st_size < 1024 * 1024
