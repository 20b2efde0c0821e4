"""`waza explain`: every rule with its windows, what each binds, and which calls count."""

import json

import pytest

from waza import run
from waza.cli import run_command
from waza.cli._screen import console

SUITE = """
name: orders
config: {executor: mock}
tasks:
  - id: t
    prompt: hi
    mock: {output: ok, tool_events: [{tool_name: send_mail, turn: 1}, {tool_name: approve, turn: 2}]}
graders:
  - type: any_of
    graders:
      - type: trace_rules
        name: careful
        rules:
          - name: the order that is deleted was read
            require: {name: get_order, args: {id: {bound: order}}}
            before: {name: delete_order, bind: {order: args.id}}
          - {forbid: send_mail, until: approve}
"""


@pytest.fixture
def explain(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "eval.yaml").write_text(SUITE)
    calls = [("get_order", 7), ("delete_order", 7), ("delete_order", 8)]
    events = [{"tool_name": name, "args": {"id": id_}, "turn": turn} for turn, (name, id_) in enumerate(calls, 1)]
    (tmp_path / "trace.json").write_text(json.dumps({"input": "", "output": "", "tool_events": events}))

    def call(*args):
        console.cache_clear()
        code = run_command(["explain", *args])
        shown = capsys.readouterr()
        return code, shown.out + shown.err

    return call


def test_a_rule_is_explained_window_by_window(explain):
    code, text = explain("eval.yaml", "trace.json", "--rule", "1")
    assert code == 1
    assert text.splitlines() == [
        "careful: 3 calls, order: turns",
        "",
        "the order that is deleted was read: violated",
        "  get_order (id = bound order) before each delete_order",
        "  window 1 of 2, call 2 (delete_order), order = 7: 1 found, at least 1 needed: holds",
        "    * call 1 (get_order)",
        "  window 2 of 2, call 3 (delete_order), order = 8: 0 found, at least 1 needed: violated",
        "      call 1 (get_order)",
        "      call 2 (delete_order)",
        "  no get_order (id = bound order) before call 3 (delete_order), seen in calls 1-3",
    ]


def test_the_trace_may_be_a_trial_of_a_stored_run(explain, tmp_path):
    run(tmp_path)
    code, text = explain("eval.yaml", "latest", "--task", "t", "--grader", "careful")
    assert code == 1 and "its trigger never occurs; when_absent: skip" in text
    assert "call 1 (send_mail) until approve is forbidden, seen in call 1" in text
    code, text = explain("eval.yaml", "trace.json", "--rule", "no send_mail until approve")
    assert code == 0 and "at most 0 allowed: holds" in text


def test_unknown_names_get_a_suggestion(explain):
    assert "did you mean 'careful'?" in explain("eval.yaml", "trace.json", "--grader", "carefull")[1]
    assert explain("eval.yaml", "trace.json", "--rule", "nothing like it")[0] == 2
