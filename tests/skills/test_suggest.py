"""`waza suggest`: tests for a skill from its phrases or from a model, and files that are never overwritten."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waza.cli import run_command
from waza.cli._new_files import suite_files, trigger_text
from waza.suites.load import read_spec
from waza.suites.skill_prompts import SUGGEST, SuggestedPrompt, SuggestedTask, Suggestions, from_phrases, slug
from waza.untrusted.yaml import read_yaml

DESCRIPTION = 'Makes reports. USE FOR: "make a report", "sum up a table". DO NOT USE FOR: "draw a chart", "write code".'


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".waza.yaml").write_text("{}\n")
    (tmp_path / "skills/csv-report").mkdir(parents=True)
    write_skill(tmp_path, DESCRIPTION)
    return tmp_path


def write_skill(project, description):
    text = f"---\nname: csv-report\ndescription: {json.dumps(description)}\n---\n# Reports\nAlways say TOTAL.\n"
    (project / "skills/csv-report/SKILL.md").write_text(text)


def test_phrases_become_prompts_and_tasks():
    found = from_phrases("csv-report", DESCRIPTION)
    assert [(entry.prompt, entry.phrasing) for entry in found.should_trigger] == [
        ("Use csv-report: make a report", "explicit"),
        ("Make a report", "keyword"),
        ("Sum up a table", "keyword"),
    ]
    assert [entry.prompt for entry in found.should_not_trigger] == ["Draw a chart", "Write code"]
    assert [(task.prompt, task.should_trigger) for task in found.tasks] == [
        ("Make a report", True),
        ("Sum up a table", True),
    ], "an agent that does nothing would pass a task of what the skill is not for: the trigger tests ask that"
    assert len(from_phrases("csv-report", DESCRIPTION, count=1).should_trigger) == 1


def test_without_write_nothing_is_written(project, capsys):
    before = sorted(project.rglob("*"))
    assert run_command(["suggest", "csv-report"]) == 0
    assert 'prompt: "Make a report"' in capsys.readouterr().out
    assert sorted(project.rglob("*")) == before


@pytest.mark.parametrize("named", ["csv-report", "skills/csv-report", "skills/csv-report/SKILL.md"])
def test_what_is_written_runs_as_it_stands(project, named):
    assert run_command(["suggest", named, "--write"]) == 0
    assert run_command(["check", "-q", "--strict"]) == 0
    assert run_command(["run", "evals/csv-report", "-q"]) == 0


def test_the_suite_it_writes_can_be_compared_with_and_without_the_skill(project, capsys):
    run_command(["suggest", "csv-report", "--write"])
    assert run_command(["run", "evals/csv-report", "--baseline"]) == 0
    assert "The control arm is not clean" not in capsys.readouterr().out


def test_what_is_there_is_never_overwritten_and_only_what_it_lacks_is_shown(project, capsys):
    run_command(["suggest", "csv-report", "--write"])
    file = project / "evals/csv-report/trigger_tests.yaml"
    file.write_text("skill: csv-report\nshould_trigger_prompts:\n  - {prompt: make a REPORT}\n")
    (project / "evals/csv-report/mock.yaml").unlink()
    before = {path: path.read_bytes() for path in (project / "evals").rglob("*") if path.is_file()}
    capsys.readouterr()
    assert run_command(["suggest", "csv-report", "--write"]) == 0
    told = capsys.readouterr()
    assert {path: path.read_bytes() for path in before} == before
    assert (project / "evals/csv-report/mock.yaml").is_file()
    assert "trigger_tests.yaml is there already and was left as it is" in told.err
    assert '"Sum up a table"' in told.out
    assert '"Make a report"' not in told.out


@pytest.mark.parametrize("name", ["../../outside", "a/b", "Loud", "a--b"])
def test_a_name_that_no_skill_may_have_is_never_a_path(project, capsys, name):
    text = f"---\nname: {name}\ndescription: {json.dumps(DESCRIPTION)}\n---\nDo it.\n"
    (project / "skills/csv-report/SKILL.md").write_text(text)
    before = sorted(project.rglob("*"))
    assert run_command(["suggest", "skills/csv-report", "--write"]) == 2
    assert f"'{name}' cannot be a skill's name" in capsys.readouterr().err
    assert sorted(project.rglob("*")) == before and not (project.parent / "outside").exists()


def test_a_link_in_the_way_is_not_followed(project):
    (project / "evals/csv-report").mkdir(parents=True)
    (project / "evals/csv-report/eval.yaml").symlink_to(project / "elsewhere.yaml")
    assert run_command(["suggest", "csv-report", "--write"]) == 0
    assert not (project / "elsewhere.yaml").exists()


def test_tests_that_stand_beside_the_skill_stay_there(project):
    (project / "skills/csv-report/trigger_tests.yaml").write_text(
        "skill: csv-report\nshould_trigger_prompts: [{prompt: x}]\n"
    )
    assert run_command(["suggest", "csv-report", "--write"]) == 0
    assert (project / "skills/csv-report/eval.yaml").is_file()
    assert not (project / "evals").exists()


def test_a_skill_without_phrases_needs_a_model(project, capsys):
    write_skill(project, "Makes reports.")
    assert run_command(["suggest", "csv-report"]) == 2
    assert "has no `USE FOR:` phrases, and no judge is configured" in capsys.readouterr().err


def test_a_skill_that_is_not_there_is_a_wrong_call(project, capsys):
    assert run_command(["suggest", "absent"]) == 2
    assert "no skill 'absent'" in capsys.readouterr().err


def judged(project, *replies):
    (project / ".waza.yaml").write_text(json.dumps({"judge": {"type": "scripted", "replies": list(replies)}}))


def reply(**arguments):
    return {"tool_calls": [{"name": SUGGEST.name, "arguments": arguments}]}


GOOD = reply(
    should_trigger=[{"prompt": "How did we do?", "phrasing": "indirect"}, {"prompt": "how did we do?"}],
    should_not_trigger=[{"prompt": "Paint it", "reason": "a picture"}],
    tasks=[{"prompt": "Report\non 'x.csv'", "output_contains": ["TOTAL"]}],
)


def test_a_model_is_asked_where_a_judge_is_configured(project, capsys):
    judged(project, GOOD)
    assert run_command(["suggest", "csv-report", "--write"]) == 0
    spec, problems = read_spec(project / "evals/csv-report/eval.yaml")
    assert problems == []
    [task] = spec.tasks
    assert (task.id, task.prompt) == ("report-on-x-csv", "Report\non 'x.csv'")
    found = read_yaml((project / "evals/csv-report/trigger_tests.yaml").read_text(), "x")
    assert [entry["prompt"] for entry in found["should_trigger_prompts"]] == ["how did we do?"]
    assert run_command(["run", "evals/csv-report", "-q"]) == 0


def test_offline_asks_nobody(project, capsys):
    judged(project)
    assert run_command(["suggest", "csv-report", "--offline"]) == 0


@pytest.mark.parametrize(
    "bad",
    [
        {"text": "here you are"},
        reply(should_trigger=[], should_not_trigger=[], tasks=[]),
        reply(should_trigger=[{"prompt": " "}], should_not_trigger=[], tasks=[]),
        reply(should_trigger=[{"prompt": "x" * 501}], should_not_trigger=[], tasks=[]),
        reply(should_trigger="x", should_not_trigger=[], tasks=[]),
        {"error": "no quota"},
    ],
)
def test_a_model_without_a_usable_answer_is_told_and_nothing_is_written(project, capsys, bad):
    judged(project, bad, bad)
    assert run_command(["suggest", "csv-report", "--write"]) == 3
    assert "--offline" in capsys.readouterr().err
    assert not (project / "evals").exists()


words = st.text(min_size=1, max_size=40).filter(str.strip)
prompts = st.lists(st.builds(SuggestedPrompt, prompt=words, reason=st.text(max_size=20)), min_size=1, max_size=3)
tasks = st.lists(st.builds(SuggestedTask, prompt=words, output_contains=st.lists(words, max_size=2)), max_size=3)


@given(prompts, prompts, tasks)
def test_whatever_a_model_says_is_text_in_the_files_and_never_a_path(tmp_path_factory, should, should_not, made):
    found = Suggestions(should_trigger=should, should_not_trigger=should_not, tasks=made)
    folder = tmp_path_factory.mktemp("p")
    files = suite_files("csv-report", found, folder)
    assert all(path.resolve().is_relative_to(folder.resolve()) for path in files)
    for path, text in files.items():
        data = read_yaml(text.encode("utf-8", "surrogatepass") if "\ud800" not in text else text, path.name)
        assert isinstance(data, dict)
    told = read_yaml(trigger_text("csv-report", found), "x")
    assert [entry["prompt"] for entry in told["should_trigger_prompts"]] == [entry.prompt for entry in should]


@given(st.lists(st.text(), max_size=6))
def test_slugs_are_distinct_names_of_files(texts):
    names = []
    for text in texts:
        names.append(slug(text, names))
    assert len(set(names)) == len(names)
    assert all(name.replace("-", "").isascii() and name.replace("-", "").isalnum() for name in names)
