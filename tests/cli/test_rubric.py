"""`waza rubric`, and what `waza check` says about rubrics: real files, documented exit codes."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from waza.cli import run_command
from waza.judges.rubrics import groups, names, parse_rubric

GUIDE = Path(__file__).parent.parent.parent / "docs" / "guide"
SUITE = """
config: {executor: mock}
graders: [{type: prompt, name: style, config: {rubric: rubrics/style.md}}]
tasks: [{id: one, prompt: hi, mock: {output: hello}}]
"""
JUDGE = """
judge:
  type: scripted
  replies:
    - {when: "Your parcel is two days late", tool_calls: [{name: set_waza_grade_pass, arguments: {reason: good}}]}
"""
SAYS_PASS = '    - {tool_calls: [{name: set_waza_grade_pass, arguments: {reason: "so \\e[31m[red]nice"}}]}\n'
SAYS_FAIL = "    - {tool_calls: [{name: set_waza_grade_fail, arguments: {reason: no next step}}]}\n"


@pytest.fixture
def waza(tmp_path, monkeypatch, capsys):
    """Call the command line in an empty folder, in this process: a call in another takes most of a second."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")

    def call(*arguments):
        code = run_command([str(argument) for argument in arguments])
        told = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, code, told.out, told.err)

    return call


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", (GUIDE / page).read_text(), re.S | re.M)


def test_help_has_an_example_for_every_verb(waza):
    assert "rubric" in waza("--help").stdout
    for verb in ("list", "show", "new", "test", "import", "lock"):
        assert "Example:" in waza("rubric", verb, "--help").stdout, verb


def test_a_misspelt_verb_is_answered_with_the_nearest(waza):
    done = waza("rubric", "tets")
    assert done.returncode == 2
    assert "no verb 'tets'; did you mean 'test'?" in done.stderr


def test_it_works_as_a_process(tmp_path):
    call = [sys.executable, "-m", "waza", "rubric", "test", "fluency", "--oracle"]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "agrees on 8 of 8 goldens" in done.stdout


def test_list_shows_both_groups_and_local_rubrics(waza, tmp_path):
    waza("rubric", "new", "style")
    rows = [json.loads(line) for line in waza("rubric", "list", "--json").stdout.splitlines()]
    assert [row["rubric"] for row in rows if row["group"] == "core"] == names()
    assert [row["rubric"] for row in rows if row["group"] == "azure"] == names("azure")
    assert [row["rubric"] for row in rows if row["group"] == "local"] == ["rubrics/style.md"]
    table = waza("rubric", "list").stdout
    assert all(name in table for group in groups() for name in names(group))


def test_show_prints_the_file_so_that_it_can_be_copied(waza):
    shown = waza("rubric", "show", "groundedness").stdout
    assert parse_rubric(shown).name == "groundedness"
    missing = waza("rubric", "show", "groundednes")
    assert missing.returncode == 2
    assert "did you mean 'groundedness'?" in missing.stderr


def test_a_new_rubric_loads_is_locked_and_is_never_overwritten(waza, tmp_path):
    assert waza("rubric", "new", "style").returncode == 0
    made = parse_rubric((tmp_path / "rubrics/style.md").read_text())
    assert (made.name, made.version, len(made.goldens)) == ("style", "0.1.0", 2)
    assert made.hash in (tmp_path / "rubrics/rubrics.lock").read_text()
    (tmp_path / "rubrics/style.md").write_text("mine")
    again = waza("rubric", "new", "style")
    assert again.returncode == 2
    assert "is there already" in again.stderr
    assert (tmp_path / "rubrics/style.md").read_text() == "mine"
    assert waza("rubric", "new", "help-us", "--from", "helpfulness").returncode == 0
    copy = parse_rubric((tmp_path / "rubrics/help-us.md").read_text())
    assert (copy.name, copy.version, len(copy.goldens)) == ("help-us", "0.1.0", 11)


@pytest.mark.parametrize("name", ["../escape", "Not Kebab", "a/b", "x\ny", "", "..", "a\\1"])
def test_a_name_that_could_be_a_path_is_refused(waza, tmp_path, name):
    done = waza("rubric", "new", name)
    assert done.returncode == 2, done.stdout + done.stderr
    assert not list(tmp_path.rglob("*.md")) and not list(tmp_path.parent.glob("*.md"))


def test_import_makes_a_rubric_tells_what_is_left_out_and_never_overwrites(waza, tmp_path):
    (tmp_path / "security.prompty").write_text(blocks("azure.md", "prompty")[0])
    done = waza("rubric", "import", "security.prompty")
    assert done.returncode == 0, done.stderr
    assert "its model settings are left out" in done.stderr
    before = (tmp_path / "rubrics/security-review.md").read_text()
    assert "Request: (shown below as Task input)" in before
    again = waza("rubric", "import", "security.prompty", "--scale", "1-5")
    assert again.returncode == 2
    assert (tmp_path / "rubrics/security-review.md").read_text() == before
    (tmp_path / "bad.prompty").write_bytes(b"\xff")
    assert "not UTF-8" in waza("rubric", "import", "bad.prompty").stderr
    assert waza("rubric", "import", "gone.prompty").returncode == 2


def test_the_oracle_agrees_and_says_that_it_proves_nothing_about_a_judge(waza):
    done = waza("rubric", "test", "groundedness", "relevance-1-5", "--oracle")
    assert done.returncode == 0
    assert "agrees on 11 of 11 goldens (100 %, 95 % interval 72 % to 100 %)" in done.stdout
    assert "in all: agrees on 17 of 17 goldens" in done.stdout
    assert "nothing about one" in done.stderr


def test_every_rubric_passes_its_goldens_with_the_oracle(waza):
    found = json.loads(waza("rubric", "test", "--all", "--oracle", "--json").stdout)
    assert len(found["rubrics"]) == len([name for group in groups() for name in names(group)])
    assert found["oracle"] is True
    assert found["agreement"]["agreed"] == found["agreement"]["decided"] > 150
    assert found["agreement"]["undecided"] == 0


def test_all_leaves_out_local_rubrics_without_goldens_and_says_so(waza, tmp_path):
    (tmp_path / "rubrics").mkdir()
    (tmp_path / "rubrics/bare.md").write_text(
        "---\nname: bare\nversion: 1.0.0\nscale: pass-fail\ndescription: d\n---\nbody"
    )
    done = waza("rubric", "test", "--all", "--oracle")
    assert done.returncode == 0
    assert "rubrics/bare.md: no goldens, not tested" in done.stderr


@pytest.mark.parametrize(
    ("reply", "options", "code", "part"),
    [
        (SAYS_FAIL, [], 0, "agrees on 2 of 2 goldens"),
        (SAYS_PASS, [], 1, "agrees on 1 of 2 goldens (50 %, 95 % interval 1 % to 99 %)"),
        (SAYS_PASS, ["--min-agreement", "0.5"], 0, "agrees on 1 of 2 goldens"),
        ("", [], 3, "agrees on 1 of 1 golden (100 %, 95 % interval 3 % to 100 %); 1 without a verdict"),
    ],
)
def test_the_configured_judge_is_asked_and_the_exit_code_tells(waza, tmp_path, reply, options, code, part):
    (tmp_path / ".waza.yaml").write_text(JUDGE + reply)
    waza("rubric", "new", "style")
    done = waza("rubric", "test", "rubrics/style.md", *options)
    assert done.returncode == code, done.stdout + done.stderr
    assert part in done.stdout
    assert "\x1b" not in done.stdout
    if reply == SAYS_PASS:
        assert r"so \e[31m[red]nice" in done.stdout


def test_the_judge_of_a_suite_can_be_asked(waza, tmp_path):
    waza("rubric", "new", "style")
    judge = "".join(f"  {line}\n" for line in (JUDGE + SAYS_FAIL).strip().split("\n"))
    (tmp_path / "eval.yaml").write_text(
        SUITE.replace("config: {executor: mock}", f"config:\n  executor: mock\n{judge}")
    )
    done = waza("rubric", "test", "rubrics/style.md", "--suite", ".")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["helpfulness"], "no judge is set up"),
        ([], "which rubric?"),
        (["bare.md", "--oracle"], "no goldens, so there is nothing to test"),
        (["gone.md", "--oracle"], "gone.md: cannot be read: No such file"),
        (["bad.md"], "bad.md: version 'one' is not semver; write it like 1.0.0\n"),
    ],
)
def test_a_call_that_could_test_nothing_is_refused(waza, tmp_path, arguments, part):
    (tmp_path / "bare.md").write_text("---\nname: bare\nversion: 1.0.0\nscale: pass-fail\ndescription: d\n---\nbody")
    (tmp_path / "bad.md").write_text((tmp_path / "bare.md").read_text().replace("1.0.0", "one"))
    done = waza("rubric", "test", *arguments)
    assert done.returncode == 2
    assert part in done.stderr and "validation error" not in done.stderr


def changed(path, old, new):
    path.write_text(path.read_text().replace(old, new))


def test_check_fails_when_a_text_changed_and_its_version_did_not(waza, tmp_path):
    (tmp_path / "eval.yaml").write_text(SUITE)
    waza("rubric", "new", "style")
    rubric = tmp_path / "rubrics/style.md"
    assert waza("check").returncode == 0
    changed(rubric, "Both must hold.", "One must hold.")
    before = (tmp_path / "rubrics/rubrics.lock").read_bytes()
    done = waza("check")
    assert done.returncode == 2
    assert "rubrics/style.md: the text of rubric 'style' differs from that of 0.1.0 in rubrics.lock" in done.stdout
    assert "raise the version, then run `waza rubric lock rubrics`" in done.stdout
    assert (tmp_path / "rubrics/rubrics.lock").read_bytes() == before
    refused = waza("rubric", "lock")
    assert refused.returncode == 2
    assert "raise its version" in refused.stderr
    changed(rubric, "version: 0.1.0", "version: 0.2.0")
    assert "run `waza rubric lock rubrics`" in waza("check").stdout
    assert waza("rubric", "lock").returncode == 0
    assert waza("check", "--strict").stdout.count("rubric") == 0
    changed(rubric, "One must hold.", "Both must hold.")
    assert waza("check").returncode == 2
    assert waza("rubric", "lock", "--redo").returncode == 0
    assert waza("check").returncode == 0


def test_check_finds_rubrics_in_the_checkpoints_of_a_conversation(waza, tmp_path):
    waza("rubric", "new", "style")
    changed(tmp_path / "rubrics/style.md", "Both must hold.", "One must hold.")
    talk = {"after_turn": 1, "graders": [{"type": "prompt", "config": {"rubric": "rubrics/style.md"}}]}
    task = {"id": "talk", "inputs": {"prompt": "hi", "follow_up_prompts": ["and?"]}, "checkpoints": [talk]}
    (tmp_path / "eval.yaml").write_text(json.dumps({"config": {"executor": "mock"}, "tasks": [task]}))
    done = waza("check")
    assert "differs from that of 0.1.0" in done.stdout, done.stdout


def test_check_warns_of_a_rubric_without_a_lock_and_of_a_body_without_a_verdict(waza, tmp_path):
    (tmp_path / "eval.yaml").write_text(SUITE)
    (tmp_path / "rubrics").mkdir()
    (tmp_path / "rubrics/style.md").write_text(
        "---\nname: style\nversion: 1.0.0\nscale: pass-fail\ndescription: d\n---\nLook at it.\n"
    )
    done = waza("check")
    assert done.returncode == 0
    assert "warning: rubric 'style' is not in rubrics.lock" in done.stdout
    assert "warning: the body never names set_waza_grade_pass and set_waza_grade_fail" in done.stdout
    (tmp_path / "rubrics/rubrics.lock").write_text("nonsense")
    broken = waza("check")
    assert broken.returncode == 2
    assert "rubrics.lock: a mapping of rubric names is needed" in broken.stdout


def test_goldens_and_description_may_change_under_the_same_version(waza, tmp_path):
    (tmp_path / "eval.yaml").write_text(SUITE)
    waza("rubric", "new", "style")
    changed(tmp_path / "rubrics/style.md", "no-next-step-fails", "nothing-to-do-fails")
    changed(tmp_path / "rubrics/style.md", "description: Whether", "description: If")
    assert waza("check").returncode == 0


def test_lock_leaves_other_markdown_alone(waza, tmp_path):
    waza("rubric", "new", "style")
    (tmp_path / "rubrics/README.md").write_text("# Ours\n")
    (tmp_path / "rubrics/SKILL.md").write_text("---\nname: skill\ndescription: d\n---\n")
    done = waza("rubric", "lock")
    assert done.stdout == "wrote rubrics/rubrics.lock: 1 rubric\n"
    assert waza("rubric", "lock", "elsewhere").returncode == 2


@pytest.mark.parametrize("page", ["rubrics.md", "azure.md"])
def test_the_commands_of_the_guides_run_in_order(waza, tmp_path, page):
    (tmp_path / "security.prompty").write_text(blocks("azure.md", "prompty")[0])
    for block in blocks(page, "sh"):
        for line in block.strip().split("\n"):
            program, *arguments = line.split()
            assert program == "waza"
            done = waza(*arguments)
            assert done.returncode == 0, line + done.stderr


@pytest.mark.parametrize("page", ["rubrics.md", "azure.md"])
def test_the_suites_and_files_of_the_guides_load(waza, tmp_path, page):
    for text in blocks(page, "markdown"):
        rubric = parse_rubric(text)
        (tmp_path / "rubrics").mkdir()
        (tmp_path / f"rubrics/{rubric.name}.md").write_text(text)
        assert waza("rubric", "test", f"rubrics/{rubric.name}.md", "--oracle").returncode == 0
    (graders,) = blocks(page, "yaml")
    (tmp_path / "eval.yaml").write_text(f"config: {{executor: mock}}\n{graders}\ntasks: [{{id: one, prompt: hi}}]\n")
    done = waza("check")
    assert done.returncode == 0, done.stdout
