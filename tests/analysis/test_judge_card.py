"""The judge card: it finds each known bias, stays quiet without one, and is kept where verdicts can show it."""

import json
import re
from pathlib import Path

import pytest
from biased_judges import (
    FickleJudge,
    FirstJudge,
    KnowingJudge,
    LazyJudge,
    LongerJudge,
    NoisyJudge,
    ObedientJudge,
    VainJudge,
)
from hypothesis import given
from hypothesis import strategies as st
from model_server import Connection, OpenAI, Said, http, serving
from msgspec.structs import replace
from scipy.stats import binomtest, fisher_exact

from waza.analysis.judge_card import attacks, make_card, paraphrases, partner, questions, reordered
from waza.cli import run_command
from waza.errors import StoreError
from waza.files.paths import SpecFolder
from waza.graders.prompt import PromptGrader
from waza.judges.base import Call, Judge
from waza.judges.rubrics import find_rubric, names
from waza.runs.judge_card import card_line, read_card, read_cards, write_card
from waza.stats.intervals import invariance
from waza.stats.scores import more_often, one_sided_sign
from waza.suites.load import read_spec

LONGER = {"it passes failing outputs once they are longer", "it prefers the longer output"}
VAIN = {"it passes failing outputs that carry its own name", "it prefers the output that carries its own name"}
BIASES = [
    (LongerJudge, LONGER),
    (FirstJudge, {"it prefers the first output"}),
    (VainJudge, VAIN),
    (ObedientJudge, {"texts in an output talk it into a pass"}),
    (LazyJudge, {"its verdicts change with the order of the criteria"}),
]


def rubric(name):
    return find_rubric(name, SpecFolder())


def card_of(kind, name="helpfulness", **settings):
    judge = kind(rubric=rubric(name), **settings)
    return make_card(rubric(name), PromptGrader(rubric=name), judge)


@pytest.mark.parametrize("name", names())
def test_a_judge_without_a_bias_has_a_quiet_card(name):
    card = card_of(KnowingJudge, name)
    assert card.findings == []
    assert all(probe.invariance.kept == probe.invariance.decided > 0 for probe in card.probes)
    assert (card.agreed.kept, card.agreed.decided, card.attacks.passed) == (card.goldens, card.goldens, 0)
    assert card.attacks.decided >= 40
    assert card.requests == questions(rubric(name))
    assert card.cost_usd == pytest.approx(card.requests * 0.001)


@pytest.mark.parametrize("name", ["groundedness", "tool-use-appropriateness"])
@pytest.mark.parametrize(("kind", "findings"), BIASES, ids=[kind.__name__ for kind, _ in BIASES])
def test_a_known_bias_is_found_and_nothing_else(kind, findings, name):
    assert set(card_of(kind, name).findings) == findings


def test_a_judge_that_minds_the_words_is_found():
    assert card_of(FickleJudge, "groundedness").findings == ["its verdicts change with the wording"]


@pytest.mark.parametrize("wrong", [0.05, 0.2])
def test_a_judge_that_errs_by_chance_is_hardly_ever_called_biased(wrong):
    cards = [card_of(NoisyJudge, wrong=wrong, seed=seed) for seed in range(6)]
    assert sum(bool(card.findings) for card in cards) <= 1
    assert any(probe.invariance.kept < probe.invariance.decided for card in cards for probe in card.probes)


class ScoringJudge(KnowingJudge):
    """Give 5 to what passes and 1 to what fails."""

    async def ask(self, request):
        reply = await super().ask(request)
        call = reply.tool_calls[0]
        if call.name == "set_pairwise_winner":
            return reply
        score = 5 if call.name.endswith("pass") else 1
        return replace(reply, tool_calls=(Call("set_waza_grade_score", {"reason": "so", "score": score}),))


def test_scores_and_rubrics_without_other_words_have_cards_too():
    card = card_of(ScoringJudge, "coherence-1-5")
    assert (card.findings, card.agreed.kept) == ([], card.goldens)
    assert {"retest", "position", "longer"} <= {probe.name for probe in card.probes}
    assert "paraphrase" not in {probe.name for probe in card.probes}


class SilentJudge(Judge):
    """Never gives a verdict."""

    needs_model = False

    async def ask(self, request):
        from waza.errors import JudgeError

        raise JudgeError("not today")


def test_what_a_judge_leaves_open_is_counted_apart():
    card = make_card(rubric("helpfulness"), PromptGrader(rubric="helpfulness"), SilentJudge())
    assert (card.agreed.decided, card.agreed.undecided, card.findings) == (0, 11, [])
    assert card.attacks.interval is None
    assert "retest" in {probe.name for probe in card.probes}


@given(*[st.integers(0, 30)] * 4)
def test_the_exact_tests_are_those_of_scipy(a, b, c, d):
    if a + b and c + d and a + c:
        assert more_often(a, a + b, c, c + d) == pytest.approx(fisher_exact([[a, b], [c, d]], "greater")[1])
    if a + b:
        assert one_sided_sign(a, b) == pytest.approx(binomtest(a, a + b, alternative="greater").pvalue)


def test_what_nobody_can_tell_is_no_part_of_a_share():
    found = invariance([True, False, None, True])
    assert (found.kept, found.decided, found.undecided) == (2, 3, 1)
    assert invariance([None]).interval is None


@pytest.mark.parametrize("name", names())
def test_every_golden_of_the_core_rubrics_has_other_words_of_its_own(name):
    words = paraphrases(rubric(name))
    assert set(words) == {golden.name for golden in rubric(name).goldens}
    assert all(words[golden.name].strip() != golden.output.strip() for golden in rubric(name).goldens)
    assert len(set(words.values())) == len(words)


def test_there_are_many_attacks_and_no_two_are_the_same():
    found = attacks()
    assert len({attack.name for attack in found}) == len({attack.text for attack in found}) == len(found) >= 40


def test_points_are_turned_round_and_steps_are_not():
    body = "Decide.\n\n1. first\n2. second\n\n- one\n  more of it\n- two\n\nEnd."
    assert reordered(body) == "Decide.\n\n1. first\n2. second\n\n- two\n- one\n  more of it\n\nEnd."
    assert reordered("1. a\n2. b\n\n- alone") == ""
    for name in names():
        turned = reordered(rubric(name).body)
        assert turned != rubric(name).body
        assert sorted(turned.splitlines()) == sorted(rubric(name).body.splitlines())


def test_the_rival_of_a_golden_is_the_other_answer_to_the_same_question():
    goldens = rubric("helpfulness").goldens
    assert partner(goldens[0], goldens, {}) == goldens[1].output
    assert partner(goldens[2], goldens, {goldens[2].name: "Yes, it is."}) == "Yes, it is."
    assert partner(goldens[2], goldens, {}) == goldens[0].output


def test_a_rubric_of_ones_own_may_bring_other_words(tmp_path):
    file = tmp_path / "mine.md"
    file.write_text(
        "---\nname: mine\nversion: 1.0.0\nscale: pass-fail\ndescription: d\ngoldens:\n"
        "  - {name: a, input: i, output: o, expected: pass}\n---\n\nCall `set_waza_grade_pass`.\n"
    )
    own = find_rubric("./mine.md", SpecFolder(tmp_path))
    assert paraphrases(own, file) == {}
    (tmp_path / "mine.paraphrases.yaml").write_text("a: in other words")
    assert paraphrases(own, file) == {"a": "in other words"}
    (tmp_path / "mine.paraphrases.yaml").write_text("b: in other words")
    with pytest.raises(ValueError, match="'b' is no golden of mine"):
        paraphrases(own, file)


def test_the_newest_card_of_a_rubric_and_model_is_found_by_name_or_hash(tmp_path):
    card = card_of(FirstJudge)
    path = write_card(tmp_path, card)
    assert write_card(tmp_path, card) == path
    assert read_card(tmp_path, "helpfulness", "knowing-1") == read_card(tmp_path, card.rubric_hash, "knowing-1") == card
    assert read_card(tmp_path, "helpfulness", "another") is None
    assert read_card(tmp_path / "elsewhere", "helpfulness", "knowing-1") is None
    assert "it prefers the first output" in card_line(card)
    path.write_text("{")
    with pytest.raises(StoreError, match="is not a judge card"):
        read_cards(tmp_path)


class PassingJudge(KnowingJudge):
    """Passes everything, and so has no bias that could show."""

    def passes(self, output, good):
        return True


def test_the_line_of_a_judge_that_passes_everything_says_how_often_it_is_wrong():
    line = card_line(card_of(PassingJudge))
    assert "agrees with the goldens 4 of 11" in line and "attacks not tried" in line


def first_wins(to: Connection) -> None:
    """A server whose model prefers the first of two, and fails what is about sourdough."""
    tools = [tool["function"]["name"] for tool in to.body["tools"]]
    asked = to.body["messages"][-1]["content"]
    call = (
        "set_waza_grade_fail" if re.search("sourdough|February", asked) else "set_waza_grade_pass",
        {"reason": "so"},
    )
    if "set_pairwise_winner" in tools:
        call = ("set_pairwise_winner", {"winner": "A", "magnitude": "equal", "reasoning": "so"})
    http(200, OpenAI().whole(Said(call)))(to)


def test_the_command_makes_keeps_and_lists_a_card(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with serving(first_wins) as server:
        judge = {"type": "openai", "model": "judge-1", "base_url": f"{server.url}/v1", "stream": False}
        (tmp_path / ".waza.yaml").write_text("judge: " + json.dumps(judge | {"prices": {"input": 1, "output": 1}}))
        assert run_command(["judge", "card", "helpfulness", "--repeats", "1", "--strict"]) == 1
        told = capsys.readouterr().out
        card = read_card(tmp_path, "helpfulness", "judge-1")
        assert card.requests == len(server.requests)
    assert "found: it prefers the first output" in told
    assert "attack success rate: 0 of 52 (0 %, 95 % interval 0 % to 7 %)" in told
    assert f"{card.requests} requests, ${card.requests * 137e-6:.4f}" in told
    assert run_command(["judge", "list"]) == 0
    assert "it prefers the first output" in capsys.readouterr().out
    assert run_command(["judge", "card", "no-such"]) == 2


def test_a_judge_that_says_nothing_has_no_card(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with serving(http(400, {"error": {"message": "no"}})) as server:
        judge = {"type": "openai", "model": "judge-1", "base_url": f"{server.url}/v1", "stream": False, "retries": 0}
        (tmp_path / ".waza.yaml").write_text("judge: " + json.dumps(judge))
        assert run_command(["judge", "card", "helpfulness", "--repeats", "1"]) == 3
    told = capsys.readouterr()
    assert "the judge gave no verdict, so there is no card" in told.err and "no bias found" not in told.out
    assert read_cards(tmp_path) == []


def test_the_suites_of_the_guide_load_and_its_attacks_are_counted(tmp_path):
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "judge-card.md").read_text()
    blocks = re.findall(r"^```yaml\n(.*?)^```", guide, re.S | re.M)
    assert len(blocks) == 2
    for block in blocks:
        (tmp_path / "eval.yaml").write_text(
            f"{block}\nname: guide\ntasks: [{{id: one, prompt: p, expected: {{max_steps: 1}}}}]"
        )
        spec, problems = read_spec(tmp_path / "eval.yaml")
        assert spec is not None and not [problem for problem in problems if problem.severity == "error"], problems
    assert f"**Attacks**: {len(attacks())} texts" in guide
