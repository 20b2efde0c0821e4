"""`waza calibrate`: a judge's verdicts against people's, from recorded verdicts and from files of labels."""

import json
import random
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from results_made import a_grade, a_result, a_run
from waza.analysis.calibration import calibrate, collect_verdicts
from waza.analysis.corrected_rate import corrected_rates
from waza.errors import StoreError
from waza.model import Grade, Result, Run, Trace
from waza.runner.journal_writer import finish
from waza.runner.reviewing import judged_by
from waza.runs.judge_card import (
    CALIBRATIONS_FOLDER,
    Calibration,
    asked_in,
    read_calibration,
    read_calibrations,
    write_calibration,
)
from waza.runs.store import RunFolder, open_run
from waza.stats.agreement import Confusion, confusion
from waza.stats.corrected import transferred

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "judges.md"

# What people and the judge say of the labelled outputs, and what the judge says of the others: the guide's example.
LABELLED = [("pass", "pass")] * 16 + [("pass", "fail")] * 4 + [("fail", "pass")] * 2 + [("fail", "fail")] * 7
REST = ["pass"] * 21 + ["fail"] * 10


def verdict(word, place):
    call = {"name": f"set_waza_grade_{word}", "arguments": {"reason": f"the judge's {word}"}}
    return {"when": f"answer {place:02}", "tool_calls": [call]}


def suite(said, name="polite", **grader):
    judge = {
        "type": "scripted",
        "model": "gpt-4o-mini",
        "replies": [verdict(word, place) for place, word in enumerate(said)],
    }
    return {
        "name": "calibrated",
        "config": {"executor": "mock", "judge": judge},
        "tasks": [
            {"id": f"t{place:02}", "prompt": f"question {place}", "mock": {"output": f"answer {place:02}"}}
            for place in range(len(said))
        ],
        "graders": [{"type": "prompt", "name": name, "prompt": "Is it polite?"} | grader],
    }


@pytest.fixture
def ran(waza, tmp_path):
    def run(written):
        (tmp_path / ".waza.yaml").touch()
        (tmp_path / "eval.yaml").write_text(json.dumps(written))
        assert waza("run", "-q").code in (0, 1, 3)
        return tmp_path

    return run


@pytest.fixture
def example(ran):
    """The guide's example: sixty outputs, twenty-nine of them labelled in a file."""
    folder = ran(suite([said for _, said in LABELLED] + REST))
    rows = [f"t{place:02},{people},{'ana' if place % 3 else 'ben'},seen" for place, (people, _) in enumerate(LABELLED)]
    (folder / "labels.csv").write_text("\n".join(["task,verdict,reviewer,reason", *rows]) + "\n")
    return folder


def test_it_prints_what_the_guide_shows(example, waza):
    done = waza("calibrate", "--grader", "polite", "--labels", "labels.csv")
    assert done.code == 0, done.err
    block = re.search(r"\$ waza calibrate --grader polite\n(.*?)```", GUIDE.read_text(), re.S)[1]
    assert done.out.startswith(block.rstrip() + "\n")
    assert "they differ on 6 outputs" in done.out
    assert "t16 #1: people pass, judge fail\n      people: seen\n      judge: the judge's fail" in done.out
    assert "Krippendorff's alpha between people" not in done.out, "no output has a verdict of two people"


def test_json_has_every_number(example, waza):
    found = json.loads(waza("calibrate", "--labels", "labels.csv", "--json").out)
    (judge,) = found["judges"]
    assert judge["counts"] == {"true_pass": 16, "false_fail": 4, "false_pass": 2, "true_fail": 7}
    assert (judge["constant_answer"], judge["outputs"], judge["tasks"]) == ("pass", 60, 60)
    assert judge["agreement"]["mean"] == pytest.approx(23 / 29)
    # sklearn.metrics.cohen_kappa_score of the table: 0.5445026178010471
    assert judge["kappa"]["mean"] == pytest.approx(0.5445026178010471)
    assert (judge["fail_precision"], judge["fail_recall"]) == pytest.approx((7 / 11, 7 / 9))
    assert set(judge["score"]) == {"raw", "people", "prediction_powered", "rogan_gladen"}
    assert len(judge["differ"]) == 6 and len(judge["label_next"]) == 10
    labelled = {f"t{place:02}" for place in range(29)}
    assert not labelled & {output["task"] for output in judge["label_next"]}


def test_what_was_measured_is_kept_in_the_project_for_juries_and_reports(example, waza):
    assert "kept: .waza/calibration/" in waza("calibrate", "--labels", "labels.csv").out
    (kept,) = read_calibrations(example)
    assert kept == read_calibration(example, question=kept.question, model="gpt-4o-mini")
    assert (kept.n, kept.sensitivity, kept.specificity) == (29, 0.8, pytest.approx(7 / 9))
    assert kept.reviewers == ["ana", "ben"] and kept.when.endswith("Z")
    assert read_calibration(example, question=kept.question, model="another") is None
    shown = waza("show").out
    assert "polite by gpt-4o-mini agrees with people on 79 % of 29 outputs (kappa 0.54" in shown


def test_what_was_measured_is_not_told_of_another_question_with_the_same_name(example, waza):
    waza("calibrate", "--labels", "labels.csv")
    (kept,) = read_calibrations(example)
    told = "polite by gpt-4o-mini agrees with people"
    assert told in waza("show").out
    other = json.loads((example / "eval.yaml").read_text())
    other["graders"][0]["prompt"] = "Is it kind?"
    (example / "eval.yaml").write_text(json.dumps(other))
    waza("grade", "latest", "-q")
    assert told not in waza("show").out
    write_calibration(example, msgspec.structs.replace(kept, question=""))
    shown = waza("show").out
    assert told not in shown
    assert "polite by gpt-4o-mini: its calibration does not record its question and is ignored" in shown


def outputs(*grades):
    """A run with an output for each grade."""
    results = [a_result(f"t{place:02}", output=f"answer {place}", grades=[one]) for place, one in enumerate(grades)]
    return a_run(results, tasks=[result.task_id for result in results], config={"trials_per_task": 1})


def labelled(folder, run):
    """The run on a disk, with a person's label of each output."""
    (folder / ".waza.yaml").touch()
    with RunFolder.create(folder / "runs", run) as kept:
        kept.append(*run.results)
        finish(kept, "", print)
    rows = [f"{result.task_id},{'pass' if place % 2 else 'fail'}" for place, result in enumerate(run.results)]
    (folder / "labels.csv").write_text("\n".join(["task,verdict", *rows]) + "\n")


def test_a_grader_that_asks_each_task_in_its_own_words_is_one_judge_until_the_words_change(waza, tmp_path):
    def asking(*questions):
        grade = a_grade(name="polite", kind="prompt")
        told = [{"judge": {"model": "m"}, "question": question} for question in questions]
        return outputs(*(msgspec.structs.replace(grade, details=details) for details in told))

    first, same, other = (collect_verdicts([run]) for run in (asking("a", "b"), asking("b", "a"), asking("a", "c")))
    (rater,) = first.verdicts
    assert len(first.verdicts[rater]) == 2 and list(same.verdicts) == [rater] != list(other.verdicts)
    assert len(collect_verdicts([asking("a", "b"), asking("a", "c")]).verdicts) == 2, (
        "two wordings are compared with each other"
    )
    run = asking("a", "b")
    kept = [Calibration(grader="polite", question=one, model="m") for one in (rater.question, "a")]
    assert asked_in(run, kept) == {rater.question}


def test_of_a_run_that_does_not_say_what_was_asked_nothing_is_kept(waza, tmp_path):
    grade = msgspec.structs.replace(a_grade(name="polite", kind="prompt"), details={"judge": {"model": "m"}})
    labelled(tmp_path, outputs(grade, grade))
    done = waza("calibrate", "--labels", "labels.csv")
    assert done.code == 0 and "polite · m: not kept, since the run does not say what was asked" in done.err
    assert read_calibrations(tmp_path) == []


def test_a_model_at_two_addresses_is_measured_as_two_judges(waza, tmp_path):
    def jury(*words):
        about = {"details": {"judge": {"model": "m"}}, "feedback": ""}
        seats = [("m", "http://one/v1"), ("m#2", "http://two/v1")]
        votes = [
            about | {"juror": name, "address": address, "status": word}
            for (name, address), word in zip(seats, words, strict=True)
        ]
        details = {"judge": {"model": "m, m#2"}, "question": "q", "jury": {"votes": votes, "not_asked": []}}
        return msgspec.structs.replace(a_grade(name="polite", kind="prompt"), details=details)

    labelled(tmp_path, outputs(jury("passed", "failed"), jury("passed", "passed")))
    out = waza("calibrate", "--labels", "labels.csv").out
    assert "polite · judge m at http://one/v1\n" in out and "polite · judge m at http://two/v1\n" in out
    assert "(polite · m · http://one/v1 · q, polite · m · http://two/v1 · q)" in out
    kept = {one.address: one.accuracy for one in read_calibrations(tmp_path) if one.model == "m"}
    assert kept == {"http://one/v1": 0.5, "http://two/v1": 1.0}


def test_nothing_is_kept_where_that_is_not_wanted(example, waza):
    assert waza("calibrate", "--labels", "labels.csv", "--no-keep").code == 0
    assert read_calibrations(example) == []


def test_recorded_verdicts_are_compared_without_a_file(ran, waza):
    ran(suite(["pass", "fail", "pass", "pass"]))
    waza("review", "--grader", "polite", "--reviewer", "ana", typed="p\n\np\n\nf\n\np\n\n")
    waza("review", "--grader", "polite", "--reviewer", "ben", typed="p\n\nf\n\nf\n\nq\n")
    found = json.loads(waza("calibrate", "--json").out)
    (judge,), (people,) = found["judges"], found["between_people"]
    assert (sum(judge["counts"].values()), judge["divided"], judge["people"]) == (3, 1, ["ana", "ben"])
    assert (people["raters"], people["outputs"]) == (["ana", "ben"], 3)


def test_verdicts_without_a_name_are_no_rater_and_that_is_said(ran, waza):
    ran(suite(["pass", "fail", "pass"]))
    waza("review", "--grader", "polite", "--reviewer", "ana", typed="p\n\np\n\nf\n\n")
    waza("review", "--grader", "polite", typed="p\n\nf\n\nq\n")
    (people,) = json.loads(waza("calibrate", "--json").out)["between_people"]
    assert (people["alpha"], people["raters"], people["outputs"], people["unnamed"]) == (None, ["ana"], 0, 2)
    fact = "agreement between people leaves out 2 verdicts without a name next to ana, from one person or several"
    out = waza("calibrate").out
    assert fact in out and "alpha between people" not in out
    waza("review", "--grader", "polite", "--reviewer", "ben", typed="p\n\np\n\nf\n\n")
    out = waza("calibrate").out
    assert fact.replace("ana", "ana, ben") in out and "alpha between people: 1.00 on 3 outputs (ana, ben)" in out


def test_people_may_have_answered_another_grader(ran, waza):
    written = suite(["pass", "fail"])
    written["graders"].append({"type": "human", "name": "asked", "instructions": "Is it polite?"})
    ran(written)
    waza("review", typed="p\n\np\n\n")
    assert waza("calibrate").code == 3, "nobody has judged what the judge was asked"
    found = json.loads(waza("calibrate", "--people", "asked", "--json").out)
    assert found["judges"][0]["counts"] == {"true_pass": 1, "false_fail": 1, "false_pass": 0, "true_fail": 0}


def test_judges_of_the_same_outputs_are_compared_with_each_other(ran, waza):
    written = suite(["pass", "fail", "pass", "fail"])
    folder = ran(written)
    other = suite(["pass", "fail", "fail", "fail"])
    other["config"]["judge"]["model"] = "another"
    (folder / "eval.yaml").write_text(json.dumps(other))
    waza("grade", "latest", "-q")
    runs = sorted(path.name for path in (folder / "runs").iterdir() if path.is_dir() and path.name[0] != ".")
    found = json.loads(waza("calibrate", *runs, "--json").out)
    (alpha,) = found["between_judges"]
    assert [judge["model"] for judge in found["judges"]] == ["gpt-4o-mini", "another"]
    # krippendorff.alpha(reliability_data=[[1, 0, 1, 0], [1, 0, 0, 0]], level_of_measurement="nominal")
    assert (alpha["alpha"], alpha["outputs"]) == (pytest.approx(0.5333333333333333), 4)


def test_the_same_output_counts_once_whoever_produced_it(ran, waza):
    written = suite(["pass"])
    written["config"]["trials_per_task"] = 3
    ran(written)
    found = json.loads(waza("calibrate", "--json").out)
    assert found["judges"][0]["outputs"] == 1


def test_a_juror_that_was_asked_here_and_there_is_shown_and_not_kept(ran, waza):
    def juror(model, said):
        return {
            "type": "scripted",
            "model": model,
            "replies": [verdict(word, place) for place, word in enumerate(said)],
        }

    votes = {"first": ["pass"] * 4, "second": ["pass", "pass", "fail", "fail"], "third": ["pass"] * 4}
    folder = ran(suite(["pass"] * 4, judges=[juror(*one) for one in votes.items()]))
    rows = [{"task": f"t{place:02}", "label": label} for place, label in enumerate([1, "fail", "pass", False])]
    (folder / "labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = waza("calibrate", "--labels", "labels.jsonl")
    assert "the jury settled 2 more without asking it: this is no fair sample" in done.out
    assert "polite · third: not kept, since the jury asked it only about what others had not settled" in done.err
    assert [one.model for one in read_calibrations(folder)] == ["first", "jury of first, second, third", "second"]
    jury = read_calibrations(folder)[1]
    assert (jury.counts.true_pass, jury.counts.false_pass) == (2, 2), "the jury passes all four outputs"
    assert "no corrected rate: the judge agrees with people no better than chance" in waza("show").out
    assert "Krippendorff's alpha between judges" in done.out


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("task,verdict\nt00,maybe\n", "labels.csv:2: the verdict is pass or fail, found 'maybe'"),
        ("task,verdict\nt0,pass\n", "labels.csv:2: no output of task 't0' in these runs; did you mean"),
        ("task,verdict,trial\nt00,pass,2\n", "labels.csv:2: task 't00' has no trial 2"),
        ("task,verdict,trial\nt00,pass,x\n", "labels.csv:2: a trial is a whole number, found 'x'"),
        ("task,verdikt\nt00,pass\n", "labels.csv:2: unknown column 'verdikt'; did you mean 'verdict'?"),
        ("task,verdict\nt00,pass,more\n", "labels.csv:2: has more fields than the header"),
        ('task,verdict\n"t00,pass\n', "is no CSV"),
        ("task,verdict\nt00,fail\nt00,pass\n", "labels.csv:3: says pass of the same output that line 2 says fail of"),
    ],
)
def test_a_label_that_is_wrong_is_named(ran, waza, text, fact):
    folder = ran(suite(["pass", "fail"]))
    (folder / "labels.csv").write_text(text)
    done = waza("calibrate", "--labels", "labels.csv")
    assert done.code == 2 and fact in done.err


def test_a_run_without_a_judge_says_what_to_do(ran, waza):
    written = suite(["pass"])
    written["graders"] = [{"type": "text", "name": "greets", "contains": ["answer"]}]
    folder = ran(written)
    assert "no grader of these runs asks a judge; name another one with --grader" in waza("calibrate").err
    assert "no grade of 'greet' in these runs; did you mean 'greets'?" in waza("calibrate", "--grader", "greet").err
    (folder / "labels.csv").write_text("task,verdict\nt00,fail\n")
    found = json.loads(waza("calibrate", "--grader", "greets", "--labels", "labels.csv", "--json").out)
    assert found["judges"][0]["counts"]["false_pass"] == 1, "any grader that decides can be compared with people"


@pytest.mark.parametrize("trial", ["Infinity", "NaN", "1.7", "null", "[1]", "9" * 400])
def test_a_trial_that_is_no_whole_number_is_refused_whatever_json_has_there(ran, waza, trial):
    folder = ran(suite(["pass", "fail"]))
    (folder / "labels.jsonl").write_text(f'{{"task": "t00", "verdict": "pass", "trial": {trial}}}\n')
    done = waza("calibrate", "--labels", "labels.jsonl")
    assert done.code == 2 and "labels.jsonl:1: a trial is a whole number" in done.err


def test_people_are_not_compared_with_themselves(ran, waza):
    written = suite(["pass", "fail"])
    written["graders"].append({"type": "human", "name": "sendable", "instructions": "Send it?"})
    ran(written)
    waza("review", "--reviewer", "ana", typed="p\n\nf\n\n")
    done = waza("calibrate", "--grader", "sendable")
    assert done.code == 2 and "'sendable' is what people say" in done.err
    assert waza("calibrate", "--people", "sendable").code == 0


def test_outputs_that_the_judge_left_open_are_told(ran, waza):
    written = suite(["pass", "fail", "pass"])
    written["config"]["judge"]["replies"].pop()
    ran(written)
    assert "polite decided nothing about 1 more output; no rate here counts them" in waza("calibrate").err
    written["config"]["judge"]["replies"] = [{"when": "never", "tool_calls": []}]
    ran(written)
    assert "nothing to calibrate: polite decided nothing in these runs" in waza("calibrate").err
    written = suite(["pass", "fail", "pass"])
    ran(written)
    assert "decided nothing" not in waza("calibrate").err


def test_hostile_reasons_are_shown_and_never_obeyed(ran, waza):
    folder = ran(suite(["pass", "fail"]))
    (folder / "labels.csv").write_text("task,verdict,reason\nt00,fail,\x1b[31mred\nt01,fail,\n")
    out = waza("calibrate", "--labels", "labels.csv").out
    assert "\x1b" not in out and "\\e[31mred" in out


def test_a_rubric_and_a_model_name_a_judge_and_no_name_becomes_a_path(tmp_path):
    counts = Confusion(true_pass=3, true_fail=1)
    for grader, rubric, model in [
        ("../../x", "", "a/b"),
        ("g", "hash", "a/b"),
        ("other", "hash", "a/b"),
        ("g", "", ""),
    ]:
        path = write_calibration(tmp_path, Calibration(grader=grader, rubric=rubric, model=model, counts=counts))
        assert path.parent == tmp_path / CALIBRATIONS_FOLDER
    assert len(read_calibrations(tmp_path)) == 3, (
        "the same rubric and model are the same judge, whatever the grader's name"
    )
    assert read_calibration(tmp_path, rubric="hash", model="a/b").grader == "other"
    assert read_calibration(tmp_path, grader="../../x", model="a/b").n == 4
    assert read_calibration(tmp_path, grader="g", rubric="another", model="a/b") is None


def test_a_damaged_calibration_is_named(tmp_path):
    path = write_calibration(tmp_path, Calibration(grader="g"))
    path.write_text("{")
    with pytest.raises(StoreError, match="is not a calibration"):
        read_calibration(tmp_path, grader="g")


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["votes", "model", "status"]), inner),
)


@given(st.dictionaries(st.sampled_from(["judge", "rubric", "jury", "human"]), ODD))
def test_a_run_folder_from_anywhere_breaks_nothing(details):
    grade = Grade(name="g", type="prompt", status="passed", score=1.0, feedback="", details=details)
    result = Result(task_id="t", trial=1, status="passed", trace=Trace(input="a", output="b"), grades=[grade])
    run = Run(id="r", name="n", started_at="", engine="mock", results=[result])
    found = calibrate(collect_verdicts([run], ["g"]), [])
    assert all(judge.counts.n == 0 for judge in found.judges)
    assert judged_by(grade).said == "pass"


def test_reports_show_the_corrected_rate_next_to_the_raw_one(example, waza):
    waza("calibrate", "--labels", "labels.csv")
    shown = waza("show").out
    assert "polite: 65 % pass by the judge (95 % interval 52–77 %), corrected by 29 labels of people: 74 %" in shown
    (rate,) = corrected_rates(open_run(next((example / "runs").glob("2*"))))
    assert rate.corrected.mean == pytest.approx((39 / 60 + 7 / 9 - 1) / (0.8 + 7 / 9 - 1))
    assert rate.corrected.upper - rate.corrected.lower > rate.raw.upper - rate.raw.lower


def test_a_gate_decides_by_the_corrected_rate(example, waza):
    assert waza("gate", "--min-pass-rate", "0.7").code == 3, "65 % pass by the judge"
    without = waza("gate", "--min-pass-rate", "0.7", "--corrected")
    assert (without.code, "no calibration of this judge: waza calibrate --grader polite" in without.out) == (3, True)
    waza("calibrate", "--labels", "labels.csv")
    done = waza("gate", "--min-pass-rate", "0.7", "--corrected")
    assert done.code == 0, done.out
    assert "corrected pass rate of polite" in done.out
    assert waza("gate", "--min-pass-rate", "0.7", "--corrected", "--sure").code == 3


def test_the_corrected_interval_contains_the_truth_of_another_run_in_93_percent():
    """A judge that passes 90 % of good outputs and 25 % of bad ones, of which 60 % are good."""
    source = random.Random(8)

    def says(good):
        return source.random() < (0.9 if good else 0.25)

    covered = 0
    for _ in range(300):
        labelled = [(good, says(good)) for good in (source.random() < 0.6 for _ in range(60))]
        passed = [says(source.random() < 0.6) for _ in range(100)]
        found = transferred(confusion(labelled), sum(passed) / 100, 100)
        covered += found is not None and found.lower <= 0.6 <= found.upper
    assert covered / 300 >= 0.93
