"""`waza review`: people look at outputs and answer; the run follows; hostile text is shown, never obeyed."""

import json
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest

from waza.runs.store import find_run, open_run
from waza.runs.verdicts import HumanVerdict, read_verdicts, record_verdict

SUITE = {
    "name": "reviewed",
    "config": {"executor": "mock"},
    "tasks": [
        {"id": name, "prompt": f"say {name}", "mock": {"output": f"hello {name}"}} for name in ("one", "two", "three")
    ],
    "graders": [
        {"type": "text", "name": "greets", "contains": ["hello"]},
        {"type": "human", "name": "polite", "instructions": "Is it polite?", "criteria": ["no shouting"]},
    ],
}


@pytest.fixture
def ran(waza, tmp_path):
    """A suite that has run once: its folder."""

    def run(suite=SUITE):
        (tmp_path / ".waza.yaml").touch()
        (tmp_path / "eval.yaml").write_text(json.dumps(suite))
        assert waza("run", "-q").code in (0, 1, 3)
        return tmp_path

    return run


def statuses(folder, ref="latest"):
    """The status of each task in a stored run, as every display reads it."""
    return {result.task_id: result.status for result in open_run(find_run(ref, [folder / "runs"])).results}


def latest_name(folder):
    return find_run("latest", [folder / "runs"]).name


def outputs_shown(text):
    return re.findall(r"· (\w+) · trial", text)


def test_the_run_follows_the_verdicts_at_once_and_a_new_grading_does_too(ran, waza):
    folder = ran()
    assert statuses(folder) == dict.fromkeys(("one", "two", "three"), "error")
    done = waza("review", typed="p\nkind\nf\nrude\np\n\n")
    assert done.code == 0 and "3 verdicts recorded, 0 without one" in done.out
    first, second, third = outputs_shown(done.out)
    assert statuses(folder) == {first: "passed", second: "failed", third: "passed"}
    shown = waza("show")
    assert "a person fails it: rude" in shown.out
    assert waza("grade", "latest", "-q").code == 1
    assert statuses(folder) == {first: "passed", second: "failed", third: "passed"}
    assert waza("run", "-q").code == 1, "a later run with the same outputs has its verdicts already"


def test_one_can_stop_and_go_on(ran, waza):
    folder = ran()
    begun = waza("review", typed="p\n\nq\n")
    assert begun.code == 0
    assert "1 verdict recorded, 2 without one; continue with:  waza review" in begun.out
    ended = waza("review", typed="p\n\np\n")
    assert "2 outputs of 3 to review" in ended.out
    assert "1 verdict recorded, 1 without one" in ended.out, "an input that ends before the reason records nothing"
    assert not set(outputs_shown(begun.out)[:1]) & set(outputs_shown(ended.out))
    assert sorted(statuses(folder).values()) == ["error", "passed", "passed"]


def test_going_on_is_as_the_same_person_about_the_same_thing(ran, waza):
    ran()
    begun = waza("review", "--grader", "greets", "--reviewer", " Ana Lee ", typed="p\n\nq\n")
    words = shlex.split(begun.out.split("continue with:  ")[1].splitlines()[0])
    assert words[:2] == ["waza", "review"]
    ended = waza(*words[1:], typed="p\n\np\n\n")
    assert "2 outputs of 3 to review by Ana Lee" in ended.out and "2 verdicts recorded, 0 without one" in ended.out


def test_a_run_whose_eval_file_is_gone_names_the_option_for_another(ran, waza):
    folder = ran()
    (folder / "eval.yaml").rename(folder / "moved.yaml")
    done = waza("review")
    assert done.code == 2 and "name one with --suite" in done.err
    assert waza("review", "--suite", "moved.yaml", "--list").code == 0


def test_a_calibration_of_a_grader_that_is_not_there_is_told(waza, tmp_path):
    graders = [*SUITE["graders"], {"type": "human_calibration", "name": "ok", "grader": "greet", "min_kappa": 0.5}]
    (tmp_path / "eval.yaml").write_text(json.dumps(SUITE | {"graders": graders}))
    done = waza("check", "--strict")
    assert done.code == 2 and "human_calibration: no grader is called 'greet'; did you mean 'greets'?" in done.out
    graders[-1]["grader"] = "greets"
    (tmp_path / "eval.yaml").write_text(json.dumps(SUITE | {"graders": graders}))
    assert waza("check", "--strict").code == 0


def test_a_person_sees_the_source_that_the_answer_must_be_grounded_in(ran, waza, tmp_path):
    (tmp_path / "rules.txt").write_text("Refunds take five days.")
    inputs = {"prompt": "When?", "context": {"source": "rules.txt"}}
    folder = ran(SUITE | {"tasks": [{"id": "one", "inputs": inputs, "mock": {"output": "hello"}}]})
    assert "source context\n  │ Refunds take five days." in waza("review", typed="q\n").out
    assert read_verdicts(folder / "verdicts.jsonl") == []


def test_a_verdict_counts_for_the_source_it_was_given_on_alone(ran, waza, tmp_path):
    (tmp_path / "rules.txt").write_text("Refunds take five days.")
    sources = {"five": "rules.txt", "ten": "Refunds take ten days.", "again": "Refunds take ten days."}
    tasks = [
        {"id": name, "inputs": {"prompt": "When?", "context": {"source": source}}, "mock": {"output": "In five days."}}
        for name, source in sources.items()
    ]
    say = {"tool_calls": [{"name": "set_waza_grade_pass", "arguments": {"reason": "so it is"}}]}
    config = {"executor": "mock", "judge": {"type": "scripted", "model": "m", "replies": [say] * 3}}
    judge = {"type": "prompt", "name": "grounded", "prompt": "Is it grounded?"}
    folder = ran({"name": "s", "config": config, "tasks": tasks, "graders": [judge, SUITE["graders"][1]]})
    done = waza("review", typed="p\n\nq\n")
    assert "2 outputs" in done.out, "two sources, two things to look at"
    passed = {"five"} if outputs_shown(done.out)[0] == "five" else {"ten", "again"}
    assert {name for name, status in statuses(folder).items() if status == "passed"} == passed
    waza("grade", "latest", "-q")
    assert {name for name, status in statuses(folder).items() if status == "passed"} == passed
    waza("review", "--grader", "grounded", typed="p\n\nf\n\n")
    done = waza("calibrate", "--json")
    (found,) = json.loads(done.out)["judges"]
    assert (found["outputs"], found["counts"]["true_pass"], found["counts"]["false_pass"]) == (2, 1, 1)
    (tmp_path / "rules.txt").write_text("Refunds take a year.")
    assert "1 output of 2" in waza("review", "--grader", "grounded", typed="q\n").out, "one source is another now"


def test_hints_name_the_run_as_it_was_named(ran, waza):
    folder = ran()
    moved = (folder / "runs" / latest_name(folder)).rename(folder / "runs" / "control")
    done = waza("review", moved, typed="p\n\nq\n")
    assert f"waza review {moved}" in done.out and f"waza show {moved}" in done.out


@pytest.mark.parametrize("other", ["nowhere.jsonl", "."])
def test_what_is_no_file_is_not_merged(ran, waza, other):
    ran()
    done = waza("review", "--merge", other)
    assert done.code == 2 and f"{other}: is no file; nothing was merged" in done.err


def test_skip_records_nothing_back_asks_again_and_slips_are_told(ran, waza):
    folder = ran()
    done = waza("review", typed="s\nb\nx\n\np\n\nq\n")
    first, second, again, third = outputs_shown(done.out)
    assert first == again and second == third
    assert "found 'x'" in done.out
    assert [one.task for one in read_verdicts(folder / "verdicts.jsonl")] == [first]


def test_the_order_is_the_same_every_time_and_for_everybody(ran, waza):
    ran()
    one, other = (waza("review", "--reviewer", name, typed="s\ns\ns\n") for name in ("ana", "ben"))
    assert outputs_shown(one.out) == outputs_shown(other.out)


def test_people_are_kept_apart_by_name(ran, waza, monkeypatch):
    folder = ran()
    waza("review", "--reviewer", "ana", typed="p\n\np\n\np\n\n")
    monkeypatch.setenv("WAZA_REVIEWER", "ben")
    assert "3 outputs of 3 to review by ben" in waza("review", typed="f\nno\nq\n").out
    assert sorted(statuses(folder).values()) == ["failed", "passed", "passed"]
    assert "polite: 3 outputs; judged by ana 3, ben 1" in waza("review", "--list").out


def test_a_later_verdict_of_the_same_person_counts(ran, waza):
    folder = ran()
    waza("review", typed="f\n\nf\n\nf\n\n")
    assert "0 outputs of 3 to review" in waza("review").out
    waza("review", "--again", typed="p\n\np\n\np\n\n")
    assert set(statuses(folder).values()) == {"passed"}


def test_a_merged_file_is_graded_at_once(ran, waza):
    folder = ran()
    waza("review", "--reviewer", "ana", typed="p\n\nq\n")
    (folder / "verdicts.jsonl").rename(folder / "theirs.jsonl")
    assert waza("review", "--merge", "theirs.jsonl").out.startswith("theirs.jsonl: 1 added, 0 known already")
    assert "0 added, 1 known already" in waza("review", "--merge", "theirs.jsonl").out
    assert sorted(statuses(folder).values()) == ["error", "error", "passed"]


HOSTILE = "\x1b[2J\x1b]0;owned\x07fine\r\n[p]ass  [f]ail: recorded\n\u202egnorw \x9b31m"


def test_hostile_text_is_shown_and_never_obeyed_nor_taken_for_ours(ran, waza):
    suite = SUITE | {"tasks": [{"id": "one", "prompt": HOSTILE, "mock": {"output": HOSTILE}}]}
    ran(suite)
    shown = waza("review", typed="m\nq\n").out
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", shown)
    assert "\\e[2J" in shown and "\\u202egnorw" in shown
    lines = [line for line in shown.splitlines() if "recorded" in line and "[p]ass" in line]
    assert len(lines) == 4 and all(line.startswith("  │ ") for line in lines)


def test_a_long_output_is_cut_and_shown_whole_on_request(ran, waza):
    suite = SUITE | {"tasks": [{"id": "one", "prompt": "go", "mock": {"output": "x" * 5_000 + "END"}}]}
    ran(suite)
    assert "1,003 more characters: m shows them" in waza("review", typed="q\n").out
    assert "xEND" in waza("review", typed="m\nq\n").out


def test_what_a_judge_said_is_kept_back_and_recorded_beside_the_verdict(ran, waza):
    reply = {"tool_calls": [{"name": "set_waza_grade_fail", "arguments": {"reason": "SECRETLY BAD"}}]}
    judge = {"type": "scripted", "replies": [reply] * 3}
    graders = [{"type": "prompt", "name": "kind", "prompt": "Is it kind?"}]
    folder = ran(SUITE | {"config": {"executor": "mock", "judge": judge}, "graders": graders})
    done = waza("review", "--grader", "kind", typed="p\n\nq\n")
    assert "Is it kind?" in done.out and "SECRETLY" not in done.out
    (verdict,) = read_verdicts(folder / "verdicts.jsonl")
    assert (verdict.grader, verdict.verdict, verdict.said) == ("kind", "pass", "fail")
    assert set(statuses(folder).values()) == {"failed"}, (
        "people's verdicts on a judge's grader do not change its grades"
    )


def test_a_suite_without_anything_to_review_says_so(ran, waza):
    ran(SUITE | {"graders": SUITE["graders"][:1]})
    done = waza("review")
    assert (done.code, done.err) == (
        2,
        "nothing to review: no `human` grader in this suite; name one that decides with --grader\n",
    )
    assert "no grader 'greet' in this suite; did you mean 'greets'?" in waza("review", "--grader", "greet").err


def test_verdicts_are_recorded_though_the_graders_changed_since(ran, waza):
    folder = ran()
    (folder / "eval.yaml").write_text(json.dumps(SUITE | {"graders": SUITE["graders"][1:]}))
    done = waza("review", typed="p\n\nq\n")
    assert done.code == 0 and len(read_verdicts(folder / "verdicts.jsonl")) == 1
    assert "the verdicts are recorded, the run is as it was: the graders changed since run" in done.err


def test_ctrl_c_keeps_what_was_answered(ran, waza, tmp_path):
    folder = ran()
    command = [sys.executable, "-m", "waza", "review"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        process.stdin.write("p\nfine\n")
        process.stdin.flush()
        end = time.monotonic() + 60
        while not read_verdicts(folder / "verdicts.jsonl") and time.monotonic() < end:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out = process.stdout.read()
        assert process.wait(timeout=60) == 130
    assert "recorded, 2 without one; continue with:  waza review" in out
    assert sorted(statuses(folder).values()) == ["error", "error", "passed"]


def test_secrets_and_files_do_not_part_a_verdict_from_its_output(ran, waza, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "sk-abcdefghijklmnop-12345")
    tasks = [
        {"id": "one", "prompt": "go", "mock": {"output": "key sk-abcdefghijklmnop-12345", "files": {"a.txt": "left"}}}
    ]
    folder = ran(SUITE | {"tasks": tasks, "graders": SUITE["graders"][1:]})
    assert waza("review", typed="p\n\n").code == 0
    assert statuses(folder) == {"one": "passed"}
    assert waza("grade", "latest", "-q").code == 0
    assert waza("run", "-q").code == 0, "a later run has the verdict at once"
    assert "sk-abcdefghijklmnop" not in "".join(path.read_text() for path in (folder / "runs").rglob("*.json*"))


def test_a_verdict_on_another_grader_is_none_on_this_one(ran, waza):
    folder = ran()
    waza("review", typed="p\n\nq\n")
    (one,) = read_verdicts(folder / "verdicts.jsonl")
    others = [item for item in statuses(folder) if item != one.task]
    record_verdict(folder / "verdicts.jsonl", HumanVerdict(grader="greets", evidence="x", verdict="fail"))
    waza("review", "--list")
    assert [statuses(folder)[name] for name in others] == ["error", "error"]


def test_of_a_conversation_a_person_sees_every_turn_or_the_part_that_a_checkpoint_is_about(ran, waza):
    task = {
        "id": "one",
        "inputs": {"prompt": "first", "follow_up_prompts": ["second"]},
        "mock": {"turns": [{"output": "early"}, {"output": "late"}]},
        "checkpoints": [{"after_turn": 1, "graders": [{"type": "human", "name": "mid", "instructions": "Early?"}]}],
    }
    folder = ran(SUITE | {"tasks": [task], "graders": SUITE["graders"][1:]})
    shown = waza("review", typed="p\n\np\n\n").out
    parts = {part.split(" · ")[-1].split("\n")[0]: part for part in shown.split("─" * 20)[1:]}
    assert re.findall("early|second|late", parts["polite"]) == ["early", "second", "late"]
    assert re.findall("early|second|late", parts["mid"]) == ["early"]
    assert statuses(folder) == {"one": "passed"}
