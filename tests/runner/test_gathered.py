"""What a run gathers while it goes on is what its journal says: nobody can tell whether it was read again."""

import errno

import waza
from results_made import a_result
from waza.reports.json import JsonReport, trial_text
from waza.results.gathered import Gathering
from waza.results.outcomes import outcomes_of
from waza.results.store import RunFolder, open_run
from waza.runner.order import order_for
from waza.runner.run import Listeners, conduct

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
    made = conduct(order_for(waza.load_spec(odd_suite(suite)), workers=4), Listeners())
    again = open_run(made.folder)
    assert outcomes_of(made.results) == outcomes_of(again.results) and len(made.results) == 42
    assert list(made.results) == list(again.results)
    written = b"".join(JsonReport().chunks(again))
    with open(f"{made.folder}/results.json", "rb") as file:
        assert file.read() == written


def test_listeners_hear_what_was_kept_not_what_was_handed_over(suite):
    heard = []
    made = conduct(order_for(waza.load_spec(odd_suite(suite)), workers=4), Listeners(on_result=heard.append))
    assert sorted(heard, key=str) == sorted(made.results, key=str)


def test_a_disk_without_room_for_the_texts_costs_no_result(tmp_path):
    run = waza.model.Run(id="", name="n", started_at="", engine="mock", spec={"tasks": [{"id": "a"}]})

    def full(result):
        raise OSError(errno.ENOSPC, "no room")

    with RunFolder.create(tmp_path, run) as folder:
        for text, is_whole in ((trial_text, True), (full, False)):
            gathering = Gathering(folder.run, text)
            [kept] = map(gathering.add, folder.append(a_result("a")))
            assert kept.task_id == "a"
            assert (gathering.results() is not None) == is_whole
