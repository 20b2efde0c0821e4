"""Juries: what votes come to, when nobody else is asked, what is kept, and what is refused."""

import itertools
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_server import FAIL, PASS, OpenAI, Said, http, serving

import waza
from waza import SpecError, Trace
from waza.judges import ScriptedJudge
from waza.judges.jury import EQUAL, Vote, how_many_next, jury_verdict, vote_weight
from waza.runs.judge_card import Calibration, write_calibration
from waza.stats.agreement import Confusion
from waza.suites.load import load_spec, read_spec

TRACE = Trace(input="Greet Ada.", output="Hello Ada!")
RULES = ("majority", "all", "any")


def says(verdict, name="a"):
    """A reply of a juror: a verdict, a score, or none."""
    if verdict is None:
        return {"error": "the line is dead"}
    if isinstance(verdict, int):
        return {"tool_calls": [{"name": "set_waza_grade_score", "arguments": {"score": verdict, "reason": name}}]}
    return {"tool_calls": [{"name": f"set_waza_grade_{verdict}", "arguments": {"reason": f"{name} says {verdict}"}}]}


def juror(name, *verdicts):
    return {"type": "scripted", "model": name, "replies": [says(verdict, name) for verdict in verdicts]}


def graded(*verdicts, grader="prompt", **config):
    members = [juror(name, verdict) for name, verdict in zip("abcdefg", verdicts, strict=False)]
    return waza.load_grader({"type": grader, "prompt": "Is it polite?", "judges": members, **config}).grade(TRACE)


def asked(grade):
    return [vote["juror"] for vote in grade.details["jury"]["votes"]]


@pytest.mark.parametrize(
    ("vote", "verdicts", "status", "who"),
    [
        ("majority", ("pass", "pass", "fail"), "passed", "ab"),
        ("majority", ("pass", "fail", "pass"), "passed", "abc"),
        ("majority", ("fail", "fail", "pass"), "failed", "ab"),
        ("majority", ("pass", "fail", "fail"), "failed", "abc"),
        ("majority", ("pass", None, "pass"), "passed", "abc"),
        ("majority", ("pass", None, "fail"), "error", "abc"),
        ("majority", (None, None, "pass"), "error", "ab"),
        ("majority", ("pass", "pass", "fail", "fail"), "error", "abcd"),
        ("majority", ("pass", "pass", "pass", "fail", "fail"), "passed", "abc"),
        ("all", ("pass", "pass", "pass"), "passed", "abc"),
        ("all", ("pass", "fail", "pass"), "failed", "ab"),
        ("all", (None, "fail", "pass"), "failed", "ab"),
        ("all", (None, "pass", "pass"), "error", "abc"),
        ("any", ("fail", "pass", "fail"), "passed", "ab"),
        ("any", ("fail", "fail", "fail"), "failed", "abc"),
        ("any", (None, "pass", "fail"), "passed", "ab"),
        ("any", ("fail", None, "fail"), "error", "abc"),
    ],
)
def test_a_jury_asks_until_its_verdict_is_settled(vote, verdicts, status, who):
    grade = graded(*verdicts, vote=vote)
    assert (grade.status, "".join(asked(grade))) == (status, who), grade.feedback
    assert grade.details["jury"]["not_asked"] == [name for name in "abcdefg"[: len(verdicts)] if name not in who]


@given(st.sampled_from(RULES), st.lists(st.sampled_from([True, False, None]), min_size=2, max_size=6), st.data())
def test_what_is_settled_holds_whatever_the_open_votes_are(rule, said, data):
    shares = st.floats(0, 1)
    worths = [vote_weight(data.draw(shares), data.draw(shares)) if data.draw(st.booleans()) else EQUAL for _ in said]
    verdict = jury_verdict(rule, [Vote(one) for one in said], worths)
    for filled in itertools.product((True, False), repeat=said.count(None)):
        rest = iter(filled)
        whole = [Vote(next(rest) if one is None else one) for one in said]
        if verdict is not None:
            assert jury_verdict(rule, whole, worths) is verdict


@given(st.sampled_from(RULES), st.lists(st.sampled_from([True, False, None]), min_size=2, max_size=7))
def test_to_stop_early_never_changes_the_verdict(rule, answers):
    votes, asked_ones = [Vote()] * len(answers), set()
    worths = [EQUAL] * len(answers)
    while jury_verdict(rule, votes, worths) is None:
        waiting = [place for place in range(len(answers)) if place not in asked_ones]
        if not (count := how_many_next(rule, votes, worths, waiting)):
            break
        for place in waiting[:count]:
            asked_ones.add(place)
            votes[place] = Vote(answers[place])
    assert jury_verdict(rule, votes, worths) is jury_verdict(rule, [Vote(one) for one in answers], worths)


def test_everyone_can_be_asked_though_it_is_settled():
    grade = graded("pass", "pass", "fail", ask_everyone=True)
    assert (grade.status, asked(grade), grade.details["jury"]["is_unanimous"]) == ("passed", ["a", "b", "c"], False)


def test_an_undecided_juror_is_kept_apart_and_told():
    grade = graded("pass", None, "fail", "fail", "fail")
    jury = grade.details["jury"]
    assert (jury["passes"], jury["fails"], jury["undecided"]) == (1, 3, 1)
    assert "b gave no verdict: the judge could not answer: the line is dead" in grade.feedback
    assert [vote["status"] for vote in jury["votes"]] == ["passed", "error", "failed", "failed", "failed"]


def test_each_verdict_is_kept_with_its_reason_and_disagreement_is_shown():
    grade = graded("pass", "fail", "pass")
    assert grade.feedback == "the jury passes it (majority of 3): a, c pass; b fails: b says fail"
    assert grade.details["jury"]["is_unanimous"] is False
    assert grade.details["jury"]["votes"][1]["details"]["failures"] == ["fail: b says fail"]
    assert [check.ok for check in grade.checks] == [True]
    assert graded("pass", "pass", "fail").details["jury"]["is_unanimous"] is True


def test_the_score_is_that_of_the_side_that_won_whoever_else_was_asked():
    assert graded("pass", "fail", "pass").score == graded("pass", "pass", "fail").score == 1.0
    grade = graded(5, 4, 1, grader="llm", threshold=0.75)
    assert (grade.status, grade.score) == ("passed", pytest.approx((1.0 + 0.75) / 2))


@pytest.mark.parametrize(
    ("scores", "status", "score"),
    [
        ((5, 4, 3), "passed", 0.75),
        ((5, 3, 3), "failed", 2 / 3),
        ((5, 5, None), "error", 0.0),
        ((1, 2, None), "failed", 0.125),
    ],
)
def test_a_mean_is_taken_over_all_jurors(scores, status, score):
    grade = graded(*scores, grader="llm", vote="mean", threshold=0.75)
    assert (grade.status, grade.score, len(asked(grade))) == (status, pytest.approx(score), 3), grade.feedback


def test_a_mean_that_passes_whatever_a_silent_juror_would_say_passes():
    assert graded(5, 5, 5, None, grader="llm", vote="mean", threshold=0.75).status == "passed"


def test_the_jury_of_a_comparison_names_a_winner():
    def compared(winners):
        calls = [{"winner": winner, "magnitude": "equal", "reasoning": "r"} for winner in winners]
        return [{"tool_calls": [{"name": "set_pairwise_winner", "arguments": call}]} for call in calls]

    members = [
        {"type": "scripted", "model": n, "replies": compared(w)} for n, w in (("a", "BA"), ("b", "AA"), ("c", "BA"))
    ]
    grader = waza.load_grader({"type": "prompt", "prompt": "Better?", "mode": "pairwise", "judges": members})
    grade = grader.grade(Trace(input="", output="new", baseline_output="old"))
    assert (grade.status, grade.details["pairwise"]["winner"]) == ("passed", "candidate"), grade.feedback
    assert grade.details["jury"]["undecided"] == 1


def test_the_models_of_one_judge_can_be_a_jury():
    judge = ScriptedJudge([says("pass"), says("pass")])
    grade = waza.load_grader({"type": "prompt", "prompt": "Polite?", "judges": ["small", "large", "huge"]}).grade(
        TRACE, judge=judge
    )
    assert (grade.status, asked(grade)) == ("passed", ["small", "large"])
    assert grade.details["jury"]["votes"][1]["details"]["judge"]["model"] == "large"


@pytest.mark.parametrize(
    ("config", "fact"),
    [
        ({"judges": ["a"]}, "one judge is not a jury"),
        ({"judges": ["a", "a"]}, "it would vote twice"),
        ({"judges": ["a", " "]}, "judges[1] is blank"),
        ({"judges": ["a", "b"], "model": "c"}, "'model' and 'judges' are both given"),
        ({"judges": ["a", "b"], "vote": "mean"}, "no mean of pass and fail"),
        ({"judges": ["a", "b"], "vote": "plurality"}, "majority"),
        ({"vote": "all"}, "'vote' goes with a jury"),
        ({"ask_everyone": True}, "'ask_everyone' goes with a jury"),
        ({"judges": ["a", {"type": "oracle"}]}, "judges[1].type: unknown judge 'oracle'"),
        ({"judges": ["a", {"type": "openai", "modle": "b"}]}, "judges[1]: unknown key 'modle'; did you mean 'model'?"),
        ({"judges": ["a", {"type": "openai"}]}, "judges[1]: this judge has no model"),
        ({"judges": ["a", {"model": "b", "base_url": "here"}]}, "judges[1].base_url"),
        ({"judges": ["a", {"model": "b", "api_key_env": "sk-1 2"}]}, "judges[1].api_key_env"),
    ],
)
def test_a_jury_that_makes_no_sense_is_refused(config, fact):
    with pytest.raises(SpecError) as refused:
        waza.load_grader({"type": "prompt", "prompt": "Polite?", **config})
    assert fact in str(refused.value)


def test_a_vote_counts_for_how_much_likelier_it_is_when_it_is_right():
    assert vote_weight(0.9, 0.8) == pytest.approx((math.log(0.9 / 0.2), math.log(0.8 / 0.1)))
    assert vote_weight(0.5, 0.5) == vote_weight(0.2, 0.3) == (0.0, 0.0)
    assert all(math.isfinite(number) for number in vote_weight(1.0, 1.0))


def accuracy(shares, worths):
    """How often a jury is right whose members are right so often, each on its own; a split counts for half."""
    right = 0.0
    for votes in itertools.product((True, False), repeat=len(shares)):
        chance = math.prod(share if vote else 1 - share for share, vote in zip(shares, votes, strict=True))
        verdict = jury_verdict("majority", [Vote(vote) for vote in votes], worths)
        right += chance * (0.5 if verdict is None else verdict)
    return right


@given(st.lists(st.floats(0.05, 0.98), min_size=2, max_size=6))
def test_votes_by_measured_error_are_right_as_often_as_the_best_juror_and_as_a_plain_majority(shares):
    weighted = accuracy(shares, [vote_weight(share, share) for share in shares])
    assert weighted >= max(0.5, *shares, accuracy(shares, [EQUAL] * len(shares))) - 1e-6


def test_a_plain_majority_may_be_worse_than_its_best_member():
    shares = [0.95, 0.6, 0.6]
    assert accuracy(shares, [EQUAL] * 3) == pytest.approx(0.816)
    assert accuracy(shares, [vote_weight(share, share) for share in shares]) == pytest.approx(0.95)


def calibrated(root, model, *, right, wrong, address=""):
    counts = Confusion(true_pass=right, true_fail=right, false_pass=wrong, false_fail=wrong)
    asked = waza.load_grader({"type": "prompt", "prompt": "Polite?"}).question_name
    write_calibration(root, Calibration(grader="prompt", question=asked, model=model, counts=counts, address=address))


def test_votes_count_by_measured_error_once_every_juror_is_calibrated(tmp_path):
    def verdict():
        members = [juror("a", "pass"), juror("b", "fail"), juror("c", "fail")]
        config = {"type": "prompt", "prompt": "Polite?", "judges": members}
        grader = waza.load_grader(config, base_dir=tmp_path)
        return grader, grader.grade(TRACE)

    (tmp_path / ".waza.yaml").write_text("")
    calibrated(tmp_path, "a", right=49, wrong=1)
    calibrated(tmp_path, "b", right=30, wrong=20)
    before, grade = verdict()
    assert (grade.status, grade.details["jury"]["weighted_by"]) == ("failed", None)
    calibrated(tmp_path, "c", right=30, wrong=20)
    after, grade = verdict()
    assert (grade.status, grade.details["jury"]["weighted_by"]) == ("passed", "measured error"), grade.feedback
    assert grade.details["jury"]["votes"][0]["worth"]["passing"] > 3
    assert before.asks() != after.asks(), "a run knows that its votes were counted in another way"


@pytest.mark.parametrize(
    "changes",
    [
        {"prompt": "Polite!"},
        {"type": "llm", "threshold": 0.5},
        {"needs": ["files"]},
        {"mode": "pairwise"},
        {"rubric": "helpfulness"},
    ],
)
def test_what_was_measured_about_one_question_counts_for_no_other(tmp_path, changes):
    (tmp_path / ".waza.yaml").write_text("")
    config = {"type": "prompt", "prompt": "Polite?", "judges": ["a", "b"]}
    plain = waza.load_grader(config, base_dir=tmp_path)
    for model in "ab":
        write_calibration(
            tmp_path, Calibration(grader="prompt", model=model, counts=Confusion(true_pass=9, true_fail=9))
        )
    assert waza.load_grader(config, base_dir=tmp_path).asks() == plain.asks(), "it does not say what was asked"
    for model in "ab":
        calibrated(tmp_path, model, right=49, wrong=1)
    assert waza.load_grader(config | {"name": "another"}, base_dir=tmp_path).asks() != plain.asks()
    other = waza.load_grader(config | changes, base_dir=tmp_path)
    rubrics = [other.rubric_in_use.hash] if other.rubric_in_use else []
    assert other.asks() == rubrics, "no votes are weighed"


def test_a_rubric_in_its_own_words_is_one_question_whatever_the_grader_is_called():
    def named(**config):
        return waza.load_grader({"type": "prompt", **config}).question_name

    assert named(rubric="helpfulness") == "", "the rubric's hash says what is asked"
    assert named(prompt="Polite?") == named(prompt="Polite? ", name="x", model="m") != named(prompt="Kind?")


def test_one_model_at_two_addresses_is_two_jurors(tmp_path):
    (tmp_path / ".waza.yaml").write_text("")
    judges = [{"type": "openai", "model": "m", "base_url": f"http://127.0.0.1:{port}/v1"} for port in (1, 2)]
    config = {"type": "prompt", "prompt": "Polite?", "judges": judges}
    calibrated(tmp_path, "m", right=49, wrong=1)
    calibrated(tmp_path, "m", right=49, wrong=1, address=judges[0]["base_url"])
    assert waza.load_grader(config, base_dir=tmp_path).asks() == [], "one of the two was never measured"
    calibrated(tmp_path, "m", right=30, wrong=20, address=judges[1]["base_url"])
    first, second = waza.load_grader(config, base_dir=tmp_path).asks()
    assert first != second


def test_a_sure_juror_settles_it_alone_and_one_no_better_than_chance_is_not_asked(tmp_path):
    (tmp_path / ".waza.yaml").write_text("")
    for model, right, wrong in (("a", 50, 0), ("b", 25, 25), ("c", 26, 24)):
        calibrated(tmp_path, model, right=right, wrong=wrong)
    members = [juror("a", "pass"), juror("b"), juror("c")]
    grade = waza.load_grader({"type": "prompt", "prompt": "Polite?", "judges": members}, base_dir=tmp_path).grade(TRACE)
    assert (grade.status, asked(grade)) == ("passed", ["a"]), grade.feedback


def test_a_jury_in_which_no_vote_counts_says_why_it_cannot_decide(tmp_path):
    (tmp_path / ".waza.yaml").write_text("")
    for model in "ab":
        calibrated(tmp_path, model, right=25, wrong=25)
    config = {"type": "prompt", "prompt": "Polite?", "judges": [juror("a"), juror("b")]}
    grade = waza.load_grader(config, base_dir=tmp_path).grade(TRACE)
    assert grade.status == "error"
    assert "`waza calibrate` found no juror better than chance, so no vote counts; not asked: a, b" in grade.feedback


SUITE = """
name: jury
config: {executor: mock}
tasks: [{id: one, prompt: first, mock: {output: hello}}]
graders: [{type: prompt, name: polite, prompt: "Is it polite?", judges: %s}]
"""


def test_a_suite_whose_jurors_bring_their_own_judges_needs_no_other(tmp_path):
    with serving(http(200, OpenAI().whole(Said(PASS, model="")))) as server:
        own = [{"type": "openai", "model": m, "base_url": f"{server.url}/v1", "stream": False} for m in "abc"]
        own[0] |= {"prices": {"input": 1.0, "output": 1.0}}
        (tmp_path / "eval.yaml").write_text(SUITE % json.dumps(own))
        first, second = waza.run(tmp_path), waza.run(tmp_path)
    grade = first.results[0].grades[0]
    assert (first.results[0].status, asked(grade), len(server.requests)) == ("passed", ["a", "b"], 2), grade.feedback
    assert grade.details["judge"]["cost_usd"] == pytest.approx(137e-6)
    assert [vote["address"] for vote in grade.details["jury"]["votes"]] == [f"{server.url}/v1"] * 2
    assert second.results[0].grades[0].details["judge"]["cached"] is True
    assert {request["model"] for request in server.requests} == {"a", "b"}


def test_a_jury_of_models_needs_a_judge_but_no_model_of_its_own(tmp_path):
    (tmp_path / "eval.yaml").write_text(SUITE % '["a", "b"]')
    assert any("graders need a judge" in problem.message for problem in read_spec(tmp_path / "eval.yaml")[1])
    with pytest.raises(SpecError, match="graders need a judge"):
        load_spec(tmp_path).judge()
    (tmp_path / ".waza.yaml").write_text("judge: {type: openai, base_url: 'http://127.0.0.1:9/v1'}")
    assert load_spec(tmp_path).judge() is not None


def test_one_juror_that_fails_decides_beside_one_that_is_down(tmp_path):
    down, bad = http(500, {}), http(200, OpenAI().whole(Said(FAIL, model="")))
    with serving(down, bad, bad) as server:
        own = {"type": "openai", "base_url": f"{server.url}/v1", "stream": False, "retries": 0}
        judges = [own | {"model": model} for model in "abc"]
        grader = waza.load_grader({"type": "prompt", "prompt": "Polite?", "judges": judges, "vote": "all"})
        grade = grader.grade(TRACE)
    assert (grade.status, grade.details["jury"]["undecided"], asked(grade)) == ("failed", 1, ["a", "b"]), grade.feedback
