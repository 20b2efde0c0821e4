"""Stored runs compared by one yardstick: where graders differ, the change is split into the agent's part and theirs."""

from pathlib import Path

import pytest

import waza
from waza.analysis.compare import ComparisonMode, compare_runs
from waza.errors import UsageError

OUTPUTS = [f"done {n}" for n in range(8)]


@pytest.fixture
def made(suite):
    """Run a suite of eight tasks with these graders and outputs; return the run's folder."""

    def run(graders, outputs=OUTPUTS, prompt="hi", **files):
        tasks = [
            f'  - {{id: t{n}, prompt: "{prompt}", mock: {{output: "{output}", tool_events: []}}}}'
            for n, output in enumerate(outputs)
        ]
        text = f"config: {{executor: mock}}\ngraders: {graders}\ntasks:\n" + "\n".join(tasks)
        return Path(waza.run(suite(text, **files), allow_local_code=bool(files)).folder)

    return run


def contains(word):
    return f"[{{type: text, name: says, config: {{contains: ['{word}']}}}}]"


def test_two_runs_whose_only_change_is_a_grader_and_all_of_it_is_the_grader_s(made):
    before, after = made(contains("done")), made(contains("7"))
    found = compare_runs(before, after, ComparisonMode())
    shares = found.attribution
    assert (shares.pass_total, shares.pass_agent, shares.pass_graders) == (-0.875, 0.0, -0.875)
    assert (shares.score_total, shares.score_agent, shares.score_graders) == (-0.875, 0.0, -0.875)
    assert len(shares.tasks) == 8
    assert shares.graded == "before"
    assert found.verdict.difference == 0.0
    assert {task.kind for task in found.tasks} == {"same"}


def test_when_both_change_each_gets_its_part(made):
    before = made(contains("done"))
    after = made(contains("7"), ["other"] * 4 + ["done 7"] * 4)
    shares = compare_runs(before, after, ComparisonMode()).attribution
    assert (shares.pass_total, shares.pass_agent, shares.pass_graders) == (-0.5, 0.375, -0.875)


def test_runs_by_the_same_graders_are_not_graded_again(made):
    before, after = made(contains("done")), made(contains("done"), ["no"] * 8)
    found = compare_runs(before, after, ComparisonMode())
    assert found.attribution is None
    assert (found.verdict.word, found.verdict.difference) == ("worse", -1.0)


def test_when_only_the_earlier_graders_are_there_the_later_traces_are_graded_by_them(made, tmp_path):
    script = "#!/bin/sh\ngrep -q 7\n"
    program = "[{type: program, name: says, config: {command: sh, args: [check.sh]}}]"
    after = made(program, check__sh=script)
    before = made(contains("done"))
    found = compare_runs(before, after, ComparisonMode())
    assert found.attribution.graded == "after"
    assert found.attribution.pass_agent == 0.0


def test_graders_are_taken_from_the_run_folder_where_the_suite_is_gone(made, tmp_path):
    before, after = made(contains("done")), made(contains("7"))
    (tmp_path / "eval.yaml").unlink()
    assert compare_runs(before, after, ComparisonMode()).attribution.pass_graders == -0.875


def test_a_program_named_in_a_run_folder_is_never_started(made, tmp_path):
    program = f"[{{type: program, name: says, config: {{command: touch, args: [{tmp_path}/started]}}}}]"
    before, after = made(contains("done")), made(program)
    (tmp_path / "started").unlink(missing_ok=True)
    other = made("[{type: diff, name: kept, config: {expected_files: [{path: a, contains: ['+x']}]}}]")
    (tmp_path / "eval.yaml").unlink()
    with pytest.raises(UsageError, match=r"cannot be taken from the run folder.*--as-graded"):
        compare_runs(other, after, ComparisonMode())
    assert not (tmp_path / "started").exists()
    found = compare_runs(before, after, ComparisonMode(as_graded=True))
    assert found.attribution is None
    assert "graders of" in found.warnings[0]


def test_a_judge_is_asked_again_only_where_that_is_allowed(made, tmp_path):
    def prompts(word):
        return f"[{{type: prompt, name: judged, config: {{prompt: 'Is it {word}?'}}}}]"

    reply = "{tool_calls: [{name: set_waza_grade_pass, arguments: {reason: ok}}]}"
    (tmp_path / ".waza.yaml").write_text(f"judge: {{type: scripted, replies: [{reply}]}}")
    text = "config: {executor: mock}\ngraders: %s\ntasks: [{id: t, prompt: hi, mock: {output: x}}]"
    folders = []
    for word in ("good", "fine"):
        (tmp_path / "eval.yaml").write_text(text % prompts(word))
        folders.append(Path(waza.run(tmp_path).folder))
    with pytest.raises(UsageError, match="--ask-judge"):
        compare_runs(*folders, ComparisonMode())
    assert compare_runs(*folders, ComparisonMode(ask_judge=True)).attribution.tasks == ["t"]


def test_runs_without_a_task_in_common_are_refused(made, tmp_path):
    before = made(contains("done"))
    (tmp_path / "eval.yaml").write_text(
        "config: {executor: mock}\ngraders: [{type: text, config: {contains: [x]}}]\n"
        "tasks: [{id: other, prompt: hi, mock: {output: x}}]"
    )
    after = Path(waza.run(tmp_path).folder)
    with pytest.raises(UsageError, match="no graded task in common"):
        compare_runs(before, after, ComparisonMode())


def test_a_run_that_lost_trials_is_compared_with_a_warning(made):
    before, after = made(contains("done")), made(contains("done"))
    lines = (after / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (after / "journal.jsonl").write_bytes(b"".join(lines[:5]))
    found = compare_runs(before, after, ComparisonMode())
    assert "is not complete" in found.warnings[0]
    assert (found.before.undecided, found.after.undecided) == (0, 4)


DATA = Path(__file__).parent.parent / "data" / "traces"


def test_a_results_file_is_the_same_run(made):
    before, after = made(contains("done")), made(contains("done"), ["no"] * 5 + ["done"] * 3)
    stored = compare_runs(before, after, ComparisonMode())
    files = compare_runs(before / "results.json", after / "results.json", ComparisonMode())
    assert files.tasks == stored.tasks
    assert (files.verdict, files.graders) == (stored.verdict, stored.graders)
    assert "does not say by which graders" in files.warnings[0]


@pytest.mark.parametrize("version", ["1.0", "1.5"])
def test_a_results_file_of_the_original_can_be_compared(version):
    file = DATA / f"results-{version}.json"
    found = compare_runs(file, file, ComparisonMode())
    assert found.tasks
    assert {task.kind for task in found.tasks} == {"same"}


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"eval_id": 1, "tasks": 3}', "[" * 5_000])
def test_what_is_no_results_file_is_refused(tmp_path, content):
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(UsageError, match=r"is not a results\.json"):
        compare_runs(tmp_path / "x.json", tmp_path / "x.json", ComparisonMode())
