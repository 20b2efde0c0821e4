"""What a run gathers while it goes on is what its journal says: nobody can tell whether it was read again."""

from dataclasses import replace

import pytest

import waza
from results_made import a_result
from waza.runner.request import request_for
from waza.runner.run import Listeners, execute
from waza.runs import lazy_results
from waza.runs.lazy_results import ProgressResults, RunProgress
from waza.runs.outcomes import outcomes_of
from waza.runs.results_json import results_json, task_text
from waza.runs.store import RunFolder, open_run

AGENT = """
ODD = ["yes", "\\ud800 half", "\\x00\\x1b[2J", '"runs": []', "</script>", "\\u2028", "x" * 100_000]

async def answer(prompt):
    return {"output": ODD[int(prompt) % len(ODD)], "outcome": {"share": float("nan"), "deep": [[[prompt]]]}}
"""
SUITE = """
graders: [{type: text, name: says_yes, config: {contains: ['yes']}}]
config: {executor: python, agent: "odd:answer", trials_per_task: 3, workers: 4}
tasks: [%s]
"""


def odd_suite(suite):
    tasks = ", ".join(
        f'{{id: "t{number}", name: \'"runs": []\', prompt: "{number}"}}' for number in reversed(range(14))
    )
    return suite(SUITE % tasks, odd__py=AGENT)


def test_the_end_of_a_run_says_what_reading_it_again_says(suite):
    made = execute(request_for(waza.load_spec(odd_suite(suite)), workers=4), Listeners())
    again = open_run(made.folder)
    assert outcomes_of(made.results) == outcomes_of(again.results) and len(made.results) == 42
    assert list(made.results) == list(again.results)
    written = b"".join(results_json(again))
    with open(f"{made.folder}/results.json", "rb") as file:
        assert file.read() == written


def test_listeners_hear_what_was_kept_not_what_was_handed_over(suite):
    heard = []
    made = execute(request_for(waza.load_spec(odd_suite(suite)), workers=4), Listeners(on_result=heard.append))
    assert sorted(heard, key=str) == sorted(made.results, key=str)


def test_texts_that_do_not_fit_in_memory_come_from_a_file(suite, monkeypatch):
    monkeypatch.setattr(lazy_results, "_MOST_HELD", 200_000)
    made = execute(request_for(waza.load_spec(odd_suite(suite)), workers=4), Listeners())
    assert made.results._complete.texts._rolled
    with open(f"{made.folder}/results.json", "rb") as file:
        assert file.read() == b"".join(results_json(open_run(made.folder)))


def test_a_stopped_run_says_of_tasks_that_were_not_run_what_its_journal_says(suite):
    listeners = Listeners()
    stopping = replace(listeners, on_done=lambda result: listeners.stop("enough"))
    made = execute(request_for(waza.load_spec(odd_suite(suite)), workers=2), stopping)
    assert isinstance(made.results, ProgressResults) and 0 < len(made.results) < 42
    with open(f"{made.folder}/results.json", "rb") as file:
        assert file.read() == b"".join(results_json(open_run(made.folder)))


def a_folder(parent, **config):
    spec = {"tasks": [{"id": "a"}, {"id": "b"}], "config": config}
    return RunFolder.create(parent, waza.model.Run(id="", name="n", started_at="", engine="mock", spec=spec))


def test_a_disk_without_room_for_the_texts_costs_no_result(tmp_path, monkeypatch):
    monkeypatch.setattr(lazy_results, "_MOST_HELD", 0)
    with a_folder(tmp_path) as folder:
        for is_full in (False, True):
            gathering = RunProgress(folder.run, task_text)
            if is_full:
                gathering._complete_ones.texts = open("/dev/full", "wb", buffering=0)  # noqa: SIM115  closed with it
            [kept] = map(gathering.add, folder.append(a_result("a")))
            assert kept.task_id == "a"
            assert (gathering.results() is None) == is_full


@pytest.mark.parametrize("task_id, trial, planned", [("stranger", 1, 1), ("a", 2, 1), ("b", 1, 9)])
def test_what_has_no_place_among_the_tasks_or_no_room_makes_the_end_read_the_journal(
    tmp_path, monkeypatch, task_id, trial, planned
):
    """A task the suite does not have; a trial more than planned; texts that wait too long for the other trials."""
    monkeypatch.setattr(lazy_results, "_MOST_PENDING", 100)
    with a_folder(tmp_path, trials_per_task=planned) as folder:
        gathering = RunProgress(folder.run, task_text)
        for result in (a_result("a"), a_result(task_id, trial)):
            [kept] = map(gathering.add, folder.append(result))
            assert kept.task_id == result.task_id
        assert gathering.results() is None
