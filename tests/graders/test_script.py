import json

import pytest
from file_cases import CaseFolders, lay

import waza

ECHO = """
import json, sys
context = json.load(sys.stdin)
print(json.dumps({"score": 1.0, "passed": True, "details": {"context": context, "argv": sys.argv[1:]}}))
"""


@pytest.fixture
def case_folders(tmp_path):
    return CaseFolders(tmp_path)


def printing(case_folders, text, **config):
    """The grade of a script that prints `text`."""
    lay(case_folders.spec, {"judge.py": f"import sys\nsys.stdin.read()\nprint({text!r})"})
    return case_folders.grade("script", script="judge.py", **config)


def test_a_script_gives_score_verdict_message_and_details(case_folders):
    verdict = {"score": 0.75, "passed": False, "message": "nearly", "details": {"missing": ["x"]}}
    grade = printing(case_folders, json.dumps(verdict))
    assert (grade.status, grade.score, grade.feedback) == ("failed", 0.75, "nearly")
    assert grade.details == {"missing": ["x"]}
    passed = printing(case_folders, '{"score": 1, "passed": true}')
    assert (passed.status, passed.score, passed.feedback) == ("passed", 1.0, "Script passed")
    assert printing(case_folders, '{"score": 0, "passed": false}').feedback == "judge.py did not pass it"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "passed",
        "[]",
        "{}",
        '{"score": 1}',
        '{"passed": true}',
        '{"score": 1.5, "passed": true}',
        '{"score": -0.1, "passed": true}',
        '{"score": NaN, "passed": true}',
        '{"score": 1e999, "passed": true}',
        '{"score": true, "passed": true}',
        '{"score": "1", "passed": true}',
        '{"score": null, "passed": true}',
        '{"score": 1, "passed": 1}',
        '{"score": 1, "passed": "yes"}',
        '{"score": 1, "passed": true, "message": 5}',
        '{"score": 1, "passed": true, "details": []}',
        '{"score": 1, "passed": true, "verdict": "x"}',
        '{"score": 0, "score": 1, "passed": true}',
        'log line\n{"score": 1, "passed": true}',
        '{"score": 1, "passed": true}\n{"score": 1, "passed": true}',
    ],
)
def test_anything_else_is_an_error_and_never_a_verdict(case_folders, text):
    grade = printing(case_folders, text)
    assert (grade.status, grade.score) == ("error", 0.0)
    assert "judge.py" in grade.feedback


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise ValueError('broken')", "ValueError: broken"),
        ("raise SystemExit(127)", "code 127"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("import os; os.kill(os.getpid(), 9)", "signal 9"),
        ("import time; time.sleep(20)", "time limit"),
        ("syntax error(", "SyntaxError"),
    ],
)
def test_a_script_that_breaks_decides_nothing_even_after_it_printed_a_verdict(case_folders, code, reason):
    printed = """print('{"score": 1, "passed": true}', flush=True)\n"""
    lay(case_folders.spec, {"judge.py": (printed if "(" in code and "syntax" not in code else "") + code})
    grade = case_folders.grade("script", script="judge.py", timeout=1)
    assert grade.status == "error"
    assert reason in grade.feedback


@pytest.mark.parametrize("code", ["sys.exit(1)", "sys.exit(-1)", "sys.exit('not good')", "os._exit(137)"])
def test_a_script_that_ends_itself_with_another_code_fails(case_folders, code):
    lay(case_folders.spec, {"judge.py": 'import os, sys\nprint(\'{"score": 1, "passed": true}\', flush=True)\n' + code})
    grade = case_folders.grade("script", script="judge.py")
    assert (grade.status, grade.score) == ("failed", 0.0)
    assert "judge.py ended with code" in grade.feedback


def test_the_script_sees_the_trace_and_what_was_not_recorded_is_null(case_folders):
    lay(case_folders.spec, {"judge.py": ECHO})
    lay(case_folders.work, {"a.txt": "inner"})
    events = [{"type": "assistant_message", "content": "hi"}]
    calls = [waza.ToolEvent(tool_name="bash", args={"command": "ls"}, result="a.txt", tool_call_id="1")]
    trace = waza.Trace(
        input="do", output="dön\ud800", outcome={"ok": 1}, duration_ms=5, events=events, tool_events=calls, steps=2
    )
    grader = case_folders.load("script", script="judge.py", args=["--strict"])
    details = grader.grade(trace, workspace=case_folders.work).details
    context = details["context"]
    assert context["output"] == "dön?"
    assert (context["input"], context["outcome"], context["duration_ms"]) == ("do", {"ok": 1}, 5)
    assert context["transcript"] == events
    call = {"name": "bash", "arguments": {"command": "ls"}, "result": "a.txt", "success": True, "id": "1"}
    assert context["tool_calls"] == [call]
    assert context["tool_events"][0]["tool_name"] == "bash"
    assert context["workspace_dir"] not in ("", str(case_folders.work))
    assert details["argv"] == ["--strict"]
    empty = grader.grade(waza.Trace(input="", output="")).details["context"]
    assert [empty[name] for name in ("transcript", "tool_events", "tool_calls", "usage", "workspace_dir")] == [None] * 5
    assert empty["status"] == "success"


def test_the_script_reads_the_workspace_and_cannot_change_it(case_folders):
    code = """
import json, pathlib, sys
place = pathlib.Path(json.load(sys.stdin)["workspace_dir"]) / "a.txt"
text = place.read_text()
place.write_text("changed")
print(json.dumps({"score": 1.0, "passed": text == "inner"}))
"""
    lay(case_folders.spec, {"judge.py": code})
    lay(case_folders.work, {"a.txt": "inner"})
    assert case_folders.grade("script", script="judge.py").passed
    assert case_folders.grade("script", script="judge.py").passed
    assert (case_folders.work / "a.txt").read_text() == "inner"


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({}, "'script' is missing"),
        ({"script": "gone.py"}, "is not there"),
        ({"script": "../out.py"}, "leaves the project"),
        ({"script": "folder"}, "is not a file"),
        ({"script": "link.py"}, "leaves the project"),
        ({"script": "judge.py", "timeout": -1}, "at least 1"),
        ({"script": ""}, "empty"),
    ],
)
def test_what_is_wrong_is_refused_when_loaded(case_folders, config, reason):
    lay(case_folders.spec.parent, {"out.py": ""})
    lay(case_folders.spec, {"judge.py": "", "folder/x": ""})
    (case_folders.spec / "link.py").symlink_to("../out.py")
    assert reason in case_folders.refusal("script", **config)


def test_the_agent_can_neither_replace_the_script_nor_its_imports(case_folders):
    lay(case_folders.spec, {"judge.py": "import helper, json\nprint(json.dumps(helper.VERDICT))"})
    lay(case_folders.spec, {"helper.py": 'VERDICT = {"score": 0.0, "passed": False}'})
    forged = 'print(\'{"score": 1, "passed": true}\')\nimport os; os._exit(0)\n'
    lay(case_folders.work, {"judge.py": forged, "helper.py": forged, "json.py": forged, "sitecustomize.py": forged})
    assert case_folders.grade("script", script="judge.py").status == "failed"
    grader = case_folders.load("script", script="judge.py")
    (case_folders.spec / "judge.py").write_text(forged)
    grade = grader.grade(waza.Trace(input="", output=""), workspace=case_folders.work)
    assert grade.status == "error"
    assert "changed after the spec was loaded" in grade.feedback


def test_the_key_may_stand_beside_the_type(case_folders):
    lay(case_folders.spec, {"judge.py": 'print(\'{"score": 1, "passed": true}\')'})
    assert (
        waza.load_grader({"type": "script", "script": "judge.py"}, base_dir=case_folders.spec)
        .grade(waza.Trace(input="", output=""))
        .passed
    )
