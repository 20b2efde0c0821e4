"""Canaries: known goldens judged in every run, never from the cache, kept with it; a drift is named by compare."""

import json
import re

import pytest
from biased_judges import KnowingJudge
from model_server import Connection, OpenAI, Said, http, serving

import waza
from waza.analysis.judge_card import make_card
from waza.cli import run_command
from waza.files.paths import SpecFolder
from waza.graders.prompt import PromptGrader
from waza.judges.rubrics import find_rubric, names
from waza.reports.html import HtmlReport
from waza.runner.judge_checks import some
from waza.runs.canaries import Canary, canaries_of, canary_line, drift
from waza.runs.judge_card import write_card
from waza.runs.store import read_run

SUITE = """
name: canaries
config:
  executor: mock
  judge: %s
%s
tasks: [{id: one, prompt: Is 1009 a prime number?, mock: {output: "Yes."}}]
graders: [{type: prompt, name: helps, rubric: helpfulness}]
"""


class Model:
    """A server's model that may be exchanged for another one."""

    def __init__(self):
        self.name, self.is_harsh = "judge-1-2026-01", False

    def __call__(self, to: Connection) -> None:
        asked = to.body["messages"][-1]["content"]
        fails = self.is_harsh or re.search("official documentation|fascinating history", asked)
        call = ("set_waza_grade_fail" if fails else "set_waza_grade_pass", {"reason": "so"})
        http(200, OpenAI().whole(Said(call, model=self.name)))(to)


@pytest.fixture
def suite(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(server, more="", **settings):
        judge = {"type": "openai", "model": "judge-1", "base_url": f"{server.url}/v1", "stream": False}
        judge |= {"accept_models": ["judge-*"], "prices": {"input": 1, "output": 1}, "retries": 0} | settings
        (tmp_path / "eval.yaml").write_text(SUITE % (json.dumps(judge), more))
        return tmp_path

    return write


def test_canaries_are_judged_in_every_run_and_never_from_the_cache(suite):
    with serving(Model()) as server:
        folder = suite(server)
        first = waza.run(folder)
        assert len(server.requests) == 3
        second = waza.run(folder)
        assert len(server.requests) == 5, "the trial's verdict is remembered, the canaries' are not"
    found = canaries_of(read_run(second.folder))
    assert found == canaries_of(first)
    assert [(canary.golden, canary.said, canary.agrees) for canary in found] == [
        ("advice-to-look-it-up-fails", "fail", True),
        ("direct-answer-passes", "pass", True),
    ]
    assert canary_line(found) == "canaries: 2 of 2 as expected; $0.0003"
    assert [canary.answered_by for canary in found] == ["judge-1-2026-01"] * 2


def test_a_drift_between_two_runs_is_named(suite, capsys):
    model = Model()
    with serving(model) as server:
        folder = suite(server)
        first = waza.run(folder)
        model.name, model.is_harsh = "judge-1-2026-07", True
        second = waza.run(folder)
        assert run_command(["run", str(folder)]) == 0, "the remembered verdict hides the drift; the canary does not"
        assert (
            "canaries: 1 of 2 as expected; $0.0003 (helpfulness/direct-answer-passes: fail)" in capsys.readouterr().out
        )
    assert run_command(["compare", first.folder, second.folder]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert (
        "the judge drifted: 1 of 2 canaries have other verdicts (helpfulness/direct-answer-passes pass → fail)" in told
    )
    assert "the judge's model called itself judge-1-2026-01 before and judge-1-2026-07 after" in told
    assert list(drift(first, first)) == []


def test_a_dry_run_counts_them_and_asks_nobody(suite, capsys):
    with serving(Model()) as server:
        assert run_command(["run", str(suite(server)), "--dry-run"]) == 0
        assert not server.requests
    assert "2 goldens put to the judge before the first trial (canaries)" in capsys.readouterr().out


def test_canaries_can_be_turned_off_and_need_a_rubric_with_goldens(suite):
    with serving(Model()) as server:
        off = waza.run(suite(server, "  canaries: 0"))
        assert (len(server.requests), canaries_of(off)) == (1, [])
        folder = suite(server)
        (folder / "eval.yaml").write_text(
            (folder / "eval.yaml").read_text().replace("rubric: helpfulness", "prompt: OK?")
        )
        assert canaries_of(waza.run(folder)) == []


def test_what_canaries_cost_counts_against_the_limit(suite):
    with serving(Model()) as server:
        folder = suite(server, "  trials_per_task: 3", prices={"input": 1000, "output": 1000})
        assert run_command(["run", str(folder), "--max-cost", "0.3"]) == 3
    run = read_run(next((folder / "runs").glob("2*")))
    assert len(run.results) == 1


def test_a_judge_that_is_down_leaves_canaries_without_a_verdict(suite):
    with serving(http(500, {})) as server:
        run = waza.run(suite(server))
    assert {canary.agrees for canary in canaries_of(run)} == {None}
    assert canary_line(canaries_of(run)).startswith("canaries: 0 of 2 as expected, 2 without a verdict")


def test_each_juror_has_its_canaries(suite):
    with serving(Model()) as server:
        folder = suite(server)
        text = (folder / "eval.yaml").read_text()
        (folder / "eval.yaml").write_text(text.replace("helpfulness}", "helpfulness, judges: [judge-1, judge-2]}"))
        found = canaries_of(waza.run(folder))
    assert {(canary.model, canary.golden) for canary in found} == {
        (model, golden)
        for model in ("judge-1", "judge-2")
        for golden in ("direct-answer-passes", "advice-to-look-it-up-fails")
    }


def test_a_resumed_run_keeps_its_canaries(suite):
    with serving(Model()) as server:
        folder = suite(server)
        run = waza.run(folder)
        asked = len(server.requests)
        assert run_command(["run", str(folder), "--resume", run.id]) == 0
        assert len(server.requests) == asked
    assert canaries_of(read_run(run.folder)) == canaries_of(run)


def test_the_card_of_a_rubric_and_model_stands_beside_its_verdicts(suite, capsys):
    with serving(Model()) as server:
        folder = suite(server)
        rubric = find_rubric("helpfulness", SpecFolder())
        judge = KnowingJudge(rubric=rubric, model="judge-1")
        write_card(folder, make_card(rubric, PromptGrader(rubric="helpfulness"), judge, repeats=1))
        run_command(["run", str(folder)])
    told = " ".join(capsys.readouterr().out.split())
    assert re.search(
        r"judge card: helpfulness by judge-1: agrees .* same when asked again 11 of 11 .*attacks that worked", told
    )
    page = b"".join(HtmlReport().render(read_run(next((folder / "runs").glob("2*"))))).decode()
    assert "judge card: helpfulness by judge-1" in page and "canaries: 2 of 2 as expected" in page


def test_the_same_goldens_are_taken_every_time_of_both_kinds():
    for name in names():
        rubric = find_rubric(name, SpecFolder())
        assert some(rubric, 4) == some(rubric, 4)
        assert {rubric.passes(golden.expected) for golden in some(rubric, 2)} == {True, False}


def test_canaries_in_a_shape_nobody_knows_are_none():
    run = waza.Run(id="r", name="n", started_at="", engine="mock", spec={"canaries": [{"golden": 3}]})
    assert canaries_of(run) == []


def test_a_score_that_moves_by_more_than_one_is_a_drift():
    def run(said):
        canary = Canary(
            rubric="r",
            rubric_hash="h",
            golden="g",
            judge="openai",
            model="m",
            expected=4,
            said=said,
            passes=True,
            agrees=True,
        )
        return waza.Run(
            id="r", name="n", started_at="", engine="mock", spec={"canaries": [json.loads(_encoded(canary))]}
        )

    assert list(drift(run(3), run(4))) == []
    assert "1 of 1 canaries have other verdicts (r/g 3 → 5)" in next(drift(run(3), run(5)))


def _encoded(canary):
    import msgspec

    return msgspec.json.encode(canary)
