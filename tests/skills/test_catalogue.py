"""A catalogue of skills: the confusion matrix, in numbers, in the terminal and on the page; and the example."""

import json
import re
import shutil

import pytest
from msgspec.structs import replace

from waza.cli import run_command
from waza.files.paths import SpecFolder
from waza.reports.html import HtmlReport
from waza.runs.store import list_runs, read_run
from waza.runs.summary import summarize
from waza.runs.trigger_catalogue import catalogue_of
from waza.skills import find_skills

ALPHA, BETA, GAMMA = "alpha", "beta", "gamma"


def catalogue(folder, rules, *, trials=1, prompts=None):
    """Write three skills, two of them with prompts, run them, and return the exit code and the run."""
    prompts = prompts or {ALPHA: (["a one", "a two"], ["b one"]), BETA: (["b one"], ["a one"])}
    for name in (ALPHA, BETA, GAMMA):
        (folder / "skills" / name).mkdir(parents=True, exist_ok=True)
        text = f"---\nname: {name}\ndescription: 'USE FOR: {name[0]} one.'\n---\nWords about {name}.\n"
        (folder / "skills" / name / "SKILL.md").write_text(text)
    for name, (should, should_not) in prompts.items():
        tests = {
            "skill": name,
            "should_trigger_prompts": [{"prompt": prompt} for prompt in should],
            "should_not_trigger_prompts": [{"prompt": prompt} for prompt in should_not],
        }
        (folder / "skills" / name / "trigger_tests.yaml").write_text(json.dumps(tests))
    (folder / "mock.yaml").write_text(json.dumps({"triggers": [{"skill": s, "when": w} for s, w in rules]}))
    (folder / "eval.yaml").write_text(json.dumps({"name": "c", "config": {"executor": "mock"}}))
    arguments = ["trigger", str(folder), "--catalogue", str(folder / "skills"), "--trials", str(trials)]
    code = run_command(arguments)
    runs = list_runs(folder / "runs")
    return code, read_run(runs[0].folder) if runs else None


RIGHT = [(ALPHA, "alpha|^a "), (BETA, "beta|^b ")]
CONFUSED = [(BETA, "beta|^b |two"), (ALPHA, "alpha|^a ")]


def test_a_catalogue_without_confusion_has_a_diagonal(tmp_path, capsys):
    code, run = catalogue(tmp_path, RIGHT)
    found = catalogue_of(run)
    assert code == 0
    assert found.skills == [ALPHA, BETA, GAMMA], "one without tests is a column too"
    assert [(row.skill, row.observed.used) for row in found.rows] == [(ALPHA, {ALPHA: 2}), (BETA, {BETA: 1})]
    assert [(row.observed.recall, row.observed.exclusivity) for row in found.rows] == [(1.0, 1.0)] * 2
    assert "without trigger tests of their own: gamma" in capsys.readouterr().out


def test_what_is_taken_for_what_is_counted_and_told(tmp_path, capsys):
    code, run = catalogue(tmp_path, CONFUSED, trials=3)
    found = catalogue_of(run)
    assert code == 1
    alpha, beta = found.rows
    assert (alpha.observed.used, alpha.observed.recall, alpha.observed.exclusivity) == ({ALPHA: 3, BETA: 3}, 0.5, 0.5)
    assert (beta.taken, beta.observed.recall) == (3, 1.0)
    first = found.pairs[0]
    assert (first.skill, first.other, first.observed, first.total) == (ALPHA, BETA, 3, 6)
    assert "confused: alpha → beta: 3 of 6 trials" in capsys.readouterr().out


def test_observed_and_expected_by_the_words_stand_side_by_side(tmp_path):
    _, run = catalogue(tmp_path, CONFUSED)
    found = catalogue_of(run)
    assert [row.heuristic.recall for row in found.rows] == [0.5, 1.0]
    relevance = {row.id: row.relevance for row in found.prompts}
    assert relevance["trigger:alpha:should-1"][ALPHA] == 1.0
    told = json.loads((tmp_path / "runs" / run.id / "results.json").read_text())["trigger_catalogue"]
    assert told["rows"][0]["observed"]["used"] == {ALPHA: 1, BETA: 1}
    assert told["prompts"][0]["relevance"] == relevance["trigger:alpha:should-1"]


def test_trigger_tests_beside_the_eval_file_are_not_left_out_in_silence(tmp_path, capsys):
    for name, why in (("delta", "'delta' is not in the catalogue"), (ALPHA, "'alpha' has tests in its own folder")):
        tests = {"skill": name, "should_trigger_prompts": [{"prompt": "d one"}]}
        (tmp_path / "trigger_tests.yaml").write_text(json.dumps(tests))
        _, run = catalogue(tmp_path, RIGHT)
        assert all(prompt["prompt"] != "d one" for prompt in run.spec["triggers"]["prompts"])
        told = " ".join(capsys.readouterr().err.split())
        assert f"warning: these trigger tests are left out: {why}" in told


def test_each_skill_has_a_control_of_its_own_and_one_that_fails_makes_the_run_invalid(tmp_path, capsys):
    code, run = catalogue(tmp_path, [(ALPHA, "alpha|^a "), (BETA, "^b ")])
    assert code == 3
    assert summarize(run).triggers.reasons == [
        "the control that names 'beta' outright did not register: no skill use was detected"
    ]
    shown = capsys.readouterr().out
    assert "INVALID" in shown
    assert "Which skill was used" not in shown
    assert "Which skill was used" not in b"".join(HtmlReport().render(run)).decode()
    assert "trigger_catalogue" not in json.loads((tmp_path / "runs" / run.id / "results.json").read_text())


def test_what_was_not_asked_is_no_error_in_the_matrix_either(tmp_path):
    _, run = catalogue(tmp_path, RIGHT)
    half = replace(run, triggers=[result for result in run.triggers if "beta:should" not in result.task_id])
    alpha, beta = catalogue_of(half).rows
    assert (alpha.errors, beta.errors, beta.observed.total, beta.observed.recall) == (0, 0, 0, None)


def test_a_trial_nobody_can_tell_is_not_counted_as_taken_by_another_skill(tmp_path):
    _, run = catalogue(tmp_path, CONFUSED)
    broken = [replace(result, trace=replace(result.trace, status="error", error="no net")) for result in run.triggers]
    alpha, beta = catalogue_of(replace(run, triggers=broken)).rows
    assert (alpha.errors, alpha.observed.used, beta.taken) == (1, {ALPHA: 1}, 0)


def test_each_skill_has_its_own_measures(tmp_path):
    _, run = catalogue(tmp_path, CONFUSED)
    by_skill = {one.skill: one.all.recall for one in summarize(run).triggers.skills}
    assert by_skill == {ALPHA: 0.5, BETA: 1.0}


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        (lambda skills: [shutil.rmtree(skills / name) for name in (ALPHA, BETA, GAMMA)], "has no skill"),
        (lambda skills: [(skills / name / "trigger_tests.yaml").unlink() for name in (ALPHA, BETA)], "no skill in"),
        (lambda skills: (skills / "beta/trigger_tests.yaml").write_text("skill: alpha"), "no prompt"),
        (
            lambda skills: (skills / "beta/trigger_tests.yaml").write_text(
                '{"skill": "alpha", "should_trigger_prompts": [{"prompt": "x"}]}'
            ),
            "this is in the folder of skill 'beta'",
        ),
    ],
)
def test_a_catalogue_that_cannot_be_run_is_refused(change, fact, tmp_path, capsys):
    catalogue(tmp_path, RIGHT)
    change(tmp_path / "skills")
    assert run_command(["trigger", str(tmp_path), "--catalogue", str(tmp_path / "skills")]) == 2
    assert fact in capsys.readouterr().err


def test_names_and_prompts_are_never_markup(tmp_path):
    hostile = "a one <script>alert(1)</script> \x1b[31m"
    _, run = catalogue(tmp_path, RIGHT, prompts={ALPHA: ([hostile], ["b"]), BETA: (["b one"], ["a"])})
    page = b"".join(HtmlReport().render(run)).decode()
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "\x1b" not in page


def test_the_example_has_many_skills_and_its_matrix_is_in_the_terminal_and_on_the_page(examples, tmp_path, capsys):
    folder = shutil.copytree(examples / "catalogue", tmp_path / "catalogue", ignore=shutil.ignore_patterns("runs"))
    skills = find_skills([str(folder / "skills")], SpecFolder(folder))
    assert len(skills) >= 12
    report = tmp_path / "report.html"
    arguments = ["trigger", str(folder), "--catalogue", str(folder / "skills"), "--reporter", f"html:{report}"]
    assert run_command(arguments) == 0
    shown, page = capsys.readouterr().out, report.read_text()
    found = catalogue_of(read_run(list_runs(folder / "runs")[0].folder))
    assert [row.skill for row in found.rows] == sorted(skills)
    assert "confused: invoice-check → pdf-extract: 1 of 4 trials" in shown
    assert "confused: invoice-check → pdf-extract: 1 of 4 trials" in page
    for number, name in enumerate(sorted(skills), 1):
        assert f"{number}  {name}" in shown
        assert f'<td class="number">{number}</td><td>{name}</td>' in page
    assert "explicit 14 of 14 · keyword 14 of 14 · generic 12 of 14 · indirect 2 of 14" in shown


def test_the_example_runs_as_a_suite_too(examples, tmp_path):
    folder = shutil.copytree(examples / "catalogue", tmp_path / "catalogue", ignore=shutil.ignore_patterns("runs"))
    assert run_command(["run", str(folder), "-q"]) == 0


def test_the_guide_shows_what_the_example_prints(examples, tmp_path, capsys):
    folder = shutil.copytree(examples / "catalogue", tmp_path / "catalogue", ignore=shutil.ignore_patterns("runs"))
    run_command(["trigger", str(folder)])
    run_command(["trigger", str(folder), "--catalogue", str(folder / "skills")])
    rules = (folder / "mock.yaml").read_text()
    (folder / "mock.yaml").write_text(rules.replace("csv-report|", ""))
    run_command(["trigger", str(folder)])
    printed = {line.rstrip() for line in capsys.readouterr().out.splitlines()}
    guide = (examples.parent / "docs/guide/skills.md").read_text()
    does_it_trigger = guide.partition("## Does it trigger")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```text\n(.*?)^```", does_it_trigger, re.S | re.M)
    assert len(blocks) == 3
    assert {line for block in blocks for line in block.splitlines()} <= printed
