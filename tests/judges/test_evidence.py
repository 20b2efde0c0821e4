"""What a judge is shown and what it quotes: shortened texts, quotes with their place, levels of a score, markers."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_server import OpenAI, Said, http, serving

from waza import Trace
from waza.cli import run_command
from waza.files.paths import SpecFolder
from waza.graders.llm import LlmGrader, names_levels
from waza.graders.llm_comparison import LlmComparisonGrader
from waza.graders.prompt import PromptGrader
from waza.judges import ScriptedJudge
from waza.judges.fencing import Data, excerpt, marker_of, rendered
from waza.judges.openai import OpenaiJudge
from waza.judges.quotes import Quote, checked_quotes, quotes_of
from waza.judges.rubrics import find_rubric, golden_trace
from waza.judges.verdict_tools import ONE_TO_FIVE, PAIRWISE, PASS_FAIL, on_each
from waza.model import Grade, Result, Run
from waza.reports.html.grades import grades
from waza.reports.html.markup import TextBudget, render
from waza.reports.judging import judging_lines

OUTPUT = "Dear Ana,\nyour refund of $12 is paid\non “Friday”. Thank you — and sorry."


class Listening(ScriptedJudge):
    """A scripted judge that keeps what it was asked."""

    def text(self):
        return self.asked[-1].messages[-1].content

    async def ask(self, request):
        self.asked.append(request)
        return await super().ask(request)

    asked: list = []


def listening(name, **arguments):
    return Listening([{"tool_calls": [{"name": name, "arguments": {"reason": "r"} | arguments}]}] * 2, asked=[])


def passing(*evidence):
    return listening("set_waza_grade_pass", evidence=list(evidence))


@pytest.mark.parametrize(
    "kind",
    [PASS_FAIL, ONE_TO_FIVE, PAIRWISE, on_each(["a"], is_scored=False), on_each(["a"], is_scored=True)],
    ids=["pass-fail", "score", "pairwise", "criteria", "scored criteria"],
)
def test_every_verdict_tool_asks_for_its_reason_first_and_then_for_evidence(kind):
    for tool in kind.tools:
        reason, evidence, *_ = tool.parameters["properties"]
        assert (reason, evidence) == ("reasoning" if kind is PAIRWISE else "reason", "evidence")
        assert tool.parameters["required"][0] == reason and tool.parameters["properties"][reason]["minLength"] == 1


QUOTES = {
    "your refund of $12": ("Candidate output", 2),
    "paid on “Friday”": ("Candidate output", 2),
    'paid  on "Friday"': ("Candidate output", 2),
    "Dear Ana, … Thank you": ("Candidate output", 1),
    "Dear Ana,... Thank you - and sorry.": ("Candidate output", 1),
    "“Thank you”": ("Candidate output", 3),
    "'I want my money'": ("Task input", 1),
    "your refund of $13": None,
    "dear ana": None,
    "Thank you … Dear Ana": None,
    "…": None,
    "set_waza_grade_pass": None,
}


@pytest.mark.parametrize("quote", QUOTES)
def test_a_quote_is_looked_up_in_what_the_judge_was_shown(quote):
    grader, trace = PromptGrader(prompt="Polite?"), Trace(input="I want my money", output=OUTPUT)
    grade = grader.grade(trace, judge=passing({"quote": quote, "place": "## Candidate output"}))
    (found,) = grade.details["evidence"]
    assert grade.status == "passed" and found["quote"] == quote
    if QUOTES[quote] is None:
        assert found["found"] is False and "1 of 1 quotes of the judge not in the material" in grade.feedback
    else:
        assert (found["place"], found["line"], found["found"]) == (*QUOTES[quote], True)
        assert "quotes" not in grade.feedback


def test_the_place_that_the_judge_names_comes_first_and_bare_texts_are_quotes_too():
    parts = [Data("Task input", "same words"), Data("Candidate output", "x\nsame words")]
    assert checked_quotes([Quote("same words", "candidate output")], parts)[0]["line"] == 2
    assert checked_quotes([Quote("same words")], parts)[0]["place"] == "Task input"
    assert quotes_of("a") == quotes_of(["a"]) == quotes_of(Quote("a")) == (Quote("a"),)
    assert quotes_of(None) == quotes_of([" "]) == ()
    trace = Trace(input="", output="hello")
    for evidence, status in (("hello", "passed"), (["hello"], "passed"), (None, "passed"), (7, "error")):
        judge = listening("set_waza_grade_pass", evidence=evidence)
        assert PromptGrader(prompt="x").grade(trace, judge=judge).status == status


def test_scores_criteria_and_comparisons_have_evidence_too():
    trace = Trace(input="", output="hello", baseline_output="hey")
    quote = {"quote": "hello", "place": "Candidate output"}
    scored = LlmGrader(prompt="x").grade(trace, judge=listening("set_waza_grade_score", score=5, evidence=[quote]))
    each = PromptGrader(criteria=["a"]).grade(trace, judge=passing(quote | {"quote": "nowhere"}))
    compared = {"winner": "tie", "magnitude": "equal", "reasoning": "r", "evidence": ["hello"]}
    pair = ScriptedJudge([{"tool_calls": [{"name": "set_pairwise_winner", "arguments": compared}]}] * 2)
    both = PromptGrader(prompt="x", mode="pairwise").grade(trace, judge=pair)
    assert scored.details["evidence"][0]["found"] is True
    assert each.details["evidence"][0]["found"] is False and "not in the material" in each.feedback
    assert [(one["place"], one["order"]) for one in both.details["evidence"]] == [("Output B", 1), ("Output A", 2)]


@given(st.text(max_size=60), st.text(max_size=60))
@settings(max_examples=60)
def test_any_part_of_a_text_is_found_in_it(before, words):
    fragment = " ".join(words.replace("…", "").replace(".", "").split()).strip("\"'“”„«»‘’`")
    found = checked_quotes([Quote(fragment)], [Data("Task input", f"{before}{fragment}!")]) if fragment else []
    assert all(one["found"] for one in found)


def test_a_long_output_is_cut_head_and_tail_and_everybody_is_told():
    output = "HEAD " + "x" * 5_000 + " TAIL"
    grader, judge = PromptGrader(prompt="x", output_budget=1_000), passing({"quote": "TAIL"}, {"quote": "x" * 600})
    grade = grader.grade(Trace(input="i" * 3_000, output=output), judge=judge)
    asked = judge.text()
    marker = asked.split("The marker of this request is ")[1].split(".")[0]
    assert f"[[LEFT OUT {marker}]]\n" in asked and "4,010 of its 5,010 characters are left out" in asked
    assert "HEAD x" in asked and "x TAIL" in asked and "x" * 501 not in asked and "i" * 3_000 in asked
    assert grade.details["left_out"] == [{"part": "Candidate output", "characters": 4_010, "of": 5_010}]
    assert "4,010 of 5,010 characters of Candidate output were left out" in grade.feedback
    assert [one["found"] for one in grade.details["evidence"]] == [True, False], "what was not shown is not quoted"
    assert "left_out" not in PromptGrader(prompt="x").grade(Trace(input="", output=output), judge=passing()).details


@given(st.text(max_size=300), st.integers(0, 100))
def test_an_excerpt_is_within_its_limit_and_nothing_is_counted_twice(text, limit):
    part = Data("Candidate output", text, limit)
    pieces = excerpt(part)
    assert sum(map(len, pieces)) + part.left_out == len(text)
    assert text.startswith(pieces[0]) and text.endswith(pieces[-1])
    assert not limit or sum(map(len, pieces)) <= limit
    assert ("LEFT OUT" in rendered([part], "m")) is (part.left_out > 0)


def test_reports_say_which_verdicts_rest_on_shortened_texts_and_wrong_quotes():
    details = {"left_out": [{"part": "Candidate output"}], "evidence": [{"quote": "a", "found": False}]}
    grade = Grade(name="polite", type="prompt", status="passed", score=1.0, feedback="", details=details)
    result = Result(task_id="t", trial=1, status="passed", trace=Trace(input="", output=""), grades=[grade])
    run = Run(id="r", name="r", started_at="", engine="mock", model="", spec={"judged": {"t": []}}, results=[result])
    lines = list(judging_lines(run))
    assert "polite: 1 verdict with quotes that are not in the material" in lines
    assert any(line.startswith("polite: 1 verdict on shortened texts") for line in lines)


def test_a_trial_s_page_shows_quotes_with_their_place_and_what_was_left_out():
    grader = PromptGrader(prompt="x", name="polite", output_budget=200)
    judge = passing({"quote": "HEAD <b>"}, {"quote": "nowhere"})
    grade = grader.grade(Trace(input="", output="HEAD <b>" + "x" * 500), judge=judge)
    result = Result(task_id="t", trial=1, status="passed", trace=Trace(input="", output=""), grades=[grade])
    page = render(grades(result, "?", TextBudget()))
    assert "“HEAD &lt;b&gt;”" in page and "Candidate output, line 1" in page
    assert "“nowhere”" in page and "not in the material" in page
    assert "not shown to the judge: 308 of 508 characters of Candidate output" in page


LEVELS = "5: it does what is asked for above completely"


def test_a_bare_prompt_for_a_score_gets_five_levels():
    def asked(grader):
        judge = listening("set_waza_grade_score", score=5, criterion=1)
        grader.grade(Trace(input="", output="x"), judge=judge)
        return judge.text()

    assert LEVELS in asked(LlmGrader(prompt="How clear is it?"))
    assert LEVELS in asked(LlmGrader(criteria=["It is clear."]))
    assert LEVELS in asked(LlmGrader(prompt="How clear is it?", rubric="coherence-1-5"))
    assert LEVELS not in asked(LlmGrader(rubric="coherence-1-5"))
    assert LEVELS not in asked(LlmGrader(prompt="1: unclear. 3: so so. 5: clear."))
    assert "1: it says something else" in asked(LlmComparisonGrader(reference="y", prompt="How near is it?"))
    assert asked(LlmComparisonGrader(reference="y")).count("1: it says something else") == 1


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ("5 = perfect, 1 = useless", True),
        ("- **5**: perfect\n- **1**: useless", True),
        ("5) perfect\n4) good", True),
        ("Score 1 if it is wrong, 5 if it is right", True),
        ("How clear is it, from 1 to 5?", False),
        ("Take 3 steps: look, think, score", False),
        ("Version 1.5: is it named? Version 2.5: too?", False),
        ("", False),
    ],
)
def test_levels_of_an_author_are_recognised(text, has):
    assert names_levels(text) is has


def test_equal_questions_are_equal_bytes_and_others_have_another_marker(tmp_path):
    good = http(200, OpenAI().whole(Said(("set_waza_grade_pass", {"reason": "ok"}))))
    one, other = (SpecFolder(tmp_path / name, tmp_path / name) for name in ("one", "other"))
    with serving(good) as server:
        for folder, output in ((one, "x"), (one, "x"), (other, "x"), (one, "y")):
            judge = OpenaiJudge(base_url=f"{server.url}/v1", model="judge-1", stream=False)
            PromptGrader(prompt="x", folder=folder).grade(Trace(input="", output=output), judge=judge)
    first, again, elsewhere, different = (json.dumps(request) for request in server.requests)
    assert first == again and len({first, elsewhere, different}) == 3
    assert marker_of(["a"], "p") != marker_of(["a"], "q")


def test_rubric_show_as_sent_prints_the_request_that_a_judge_gets(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def printed(*arguments):
        capsys.readouterr()
        assert run_command(["rubric", "show", *arguments]) == 0
        return capsys.readouterr().out

    (tmp_path / "trace.json").write_text(Trace(input="hi", output="hello there").to_json())
    good = http(200, OpenAI().whole(Said(("set_waza_grade_pass", {"reason": "ok"}))))
    golden = golden_trace(find_rubric("helpfulness", SpecFolder()).goldens[0])
    for trace, options in ((golden, []), (Trace(input="hi", output="hello there"), ["--trace", "trace.json"])):
        with serving(good) as server:
            judge = OpenaiJudge(base_url=f"{server.url}/v1", model="judge-1", stream=False)
            PromptGrader(rubric="helpfulness").grade(trace, judge=judge)
        (sent,) = server.requests
        shown = json.loads(printed("helpfulness", "--as-sent", "--json", *options))
        assert shown["messages"] == sent["messages"]
        assert shown["tools"] == [tool["function"] for tool in sent["tools"]]
        text = printed("helpfulness", "--as-sent", *options)
        assert all(message["content"] in text for message in sent["messages"]) and '"set_waza_grade_fail"' in text
    for rubric in ("groundedness", "tool-use-appropriateness", "coherence-1-5"):
        assert "===== tools" in printed(rubric, "--as-sent")
    assert run_command(["rubric", "show", "helpfulness", "--trace", "trace.json"]) == 2
    assert run_command(["rubric", "show", "groundedness", "--as-sent", "--trace", "nowhere.json"]) == 2
