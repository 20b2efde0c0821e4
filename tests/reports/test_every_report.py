"""What holds for every report: it is registered by its file, and no text of an agent's stops it."""

import json

import pytest
from hostile import STRINGS, hostile_run
from msgspec.structs import replace

import waza
from results_made import a_result, a_run
from waza.reports.base import REPORTS, Report
from waza.reports.json import JsonReport
from waza.reports.run_before import EarlierRun, before_from_file
from waza.runs.store import RunFolder, open_run
from waza.untrusted.text import well_formed


def test_the_folder_is_the_registry():
    assert REPORTS.built_in() == ["csv", "github", "html", "json", "junit", "markdown", "table"]
    for name in REPORTS.built_in():
        assert issubclass(REPORTS.load(name), Report)
    assert len({REPORTS.load(name).file for name in REPORTS.built_in()}) == len(REPORTS.built_in())


@pytest.mark.parametrize("name", REPORTS.built_in())
def test_no_text_stops_a_report_and_a_terminal_obeys_none_of_it(name):
    for text in STRINGS:
        made = b"".join(REPORTS.load(name)().render(hostile_run(text), EarlierRun(text, {text: text}))).decode("utf-8")
        assert name == "json" or "\x1b" not in made
        assert made.count("\n") > 3


@pytest.mark.parametrize("name", REPORTS.built_in())
def test_a_run_without_results_or_tasks_has_every_report(name):
    assert b"".join(REPORTS.load(name)().render(a_run()))
    assert b"".join(REPORTS.load(name)().render(a_run(tasks=["a"], complete=False)))


@pytest.mark.parametrize("name", [name for name in REPORTS.built_in() if name != "csv"])
def test_a_metric_of_an_unknown_name_says_next_to_its_value_what_it_is(name):
    run = a_run([a_result("a"), a_result("b", status="failed")], spec={"metrics": [{"name": "readiness"}]})
    made = b"".join(REPORTS.load(name)().render(run)).decode("utf-8")
    assert "(as task_completion)" in made
    assert "(as " not in b"".join(REPORTS.load(name)().render(a_run([a_result()]))).decode("utf-8")


@pytest.mark.parametrize("name", ["github", "html", "json", "markdown", "table"])
def test_a_rule_that_applied_in_no_trial_is_named(name):
    grader = waza.load_grader({"type": "trace_rules", "config": {"rules": [{"require": "get", "before": "delete"}]}})
    trace = waza.Trace.from_json({"input": "", "output": "", "tool_events": []})
    run = a_run([a_result(status="error", grades=[grader.grade(trace)])])
    assert "1 rule applied in no trial: get before delete" in b"".join(REPORTS.load(name)().render(run)).decode()


@pytest.mark.parametrize("name", REPORTS.built_in())
def test_a_stored_run_and_one_whose_trials_ended_in_another_order_give_the_same_report(name, tmp_path):
    results = [a_result("a"), a_result("b", 1, status="failed"), a_result("b", 2)]
    run = a_run(results, tasks=["a", "b"], config={"trials_per_task": 2}, id="one")
    with RunFolder.create(tmp_path, run) as folder:
        folder.append(*results)
    stored = replace(open_run(tmp_path / "one"), complete=True)
    made = {b"".join(REPORTS.load(name)().render(one)) for one in (run, stored, replace(run, results=results[::-1]))}
    assert len(made) == 1


@pytest.mark.parametrize("text", STRINGS, ids=range(len(STRINGS)))
def test_results_json_gives_every_text_back(text):
    def refuse(constant):
        raise ValueError(f"{constant} is not JSON")

    tree = json.loads(b"".join(JsonReport().render(hostile_run(text))), parse_constant=refuse)
    whole = well_formed(text)
    assert (tree["eval_name"], tree["skill"], tree["tasks"][0]["test_id"]) == (whole, whole, f"{whole}#0")
    trial = tree["tasks"][0]["runs"][0]
    assert trial["prompt"] == trial["final_output"] == trial.get("error_msg", "") == trial.get("reason", "") == whole
    check = trial["grades"][0]["checks"][0]
    assert (check["claim"], check["actual"]) == (whole, [whole, {whole: whole}])
    assert trial["tool_events"][1]["error"] == whole


def test_a_results_json_can_be_compared_with(tmp_path):
    file = tmp_path / "results.json"
    file.write_bytes(b"".join(JsonReport().render(a_run([a_result("a"), a_result("b", status="failed")], id="old"))))
    assert before_from_file(file) == EarlierRun("old", {"a": "passed", "b": "failed"}, {"a": (1, 1), "b": (0, 1)})
