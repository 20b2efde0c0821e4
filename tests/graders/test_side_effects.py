"""The `side_effects` grader: conformance, the ledger, what is uncertain, what is refused, and files from a run."""

import hashlib
import json
import os
from pathlib import Path

import pytest
from file_cases import cases, check_case
from msgspec.structs import replace
from tool_cases import BOMB

import waza as waza_face
from waza.files.snapshot import SnapshotFiles, hash_files, take
from waza.files.workspace import Workspace
from waza.graders.composed import AfterTurnGrader, CompositeGrader
from waza.model import Trace
from waza.runner.regrade import from_run, regrade
from waza.runs.results_json import results_json
from waza.suites.load import load_spec
from waza.traces.reading import read_traces


@pytest.mark.parametrize("case", cases("side_effects"))
def test_conformance(case, tmp_path):
    check_case(case, tmp_path)


def load(**config):
    return waza_face.load_grader({"type": "side_effects", "name": "g", "config": config})


def trace(*calls, **fields):
    events = [{"tool_name": "bash", "args": {"command": call}} if isinstance(call, str) else call for call in calls]
    return Trace.from_json({"input": "", "output": "", "tool_events": events, **fields})


def effects(grade):
    return [(one["kind"], one["target"], one["call"], one["done"], one["sure"]) for one in grade.details["effects"]]


REFUSED = {
    "this grader checks nothing; give at least one of: allowed, forbidden, required, at_most": {"forbidden": []},
    "a selector has one of: created, changed, deleted, file, call, command": {"forbidden": [{}]},
    "unknown key 'creatd'; did you mean 'created'?": {"forbidden": [{"creatd": "a"}]},
    "'../x' leaves the workspace": {"allowed": [], "ignore": ["../x"]},
    "'src/' is a folder; the files below it are 'src/**'": {"forbidden": [{"deleted": "src/"}]},
    "'count' is missing": {"at_most": [{"call": "a"}]},
    "{call: a} is required and forbidden: both cannot hold": {
        "required": [{"call": "a"}],
        "forbidden": [{"call": "a"}],
    },
    "{created: a.md} is required, but {file: **} forbids it: both cannot hold": {
        "required": [{"created": "a.md"}],
        "forbidden": [{"file": "**"}],
    },
    "{call: a} is required and at most 0: both cannot hold": {
        "required": [{"call": "a"}],
        "at_most": [{"call": "a", "count": 0}],
    },
    "'a' is one file: at most 2 always holds": {"at_most": [{"created": "a", "count": 2}]},
    "'call' is about calls, which 'watch' leaves out": {"watch": ["files"], "forbidden": [{"call": "a"}]},
    "'other_tools' has no effect without 'allowed'": {"forbidden": [{"call": "a"}], "other_tools": "mutating"},
    "'read_only_tools' has no effect: no check is about calls": {
        "allowed": [],
        "watch": ["files"],
        "read_only_tools": ["a"],
    },
    "'ignore' has no effect: no check is about files": {"forbidden": [{"call": "a"}], "ignore": ["a"]},
    "'unknown_commands' has no effect: no check is about commands": {
        "forbidden": [{"call": "a"}],
        "unknown_commands": "mutating",
    },
    "a '(' is never closed": {"allowed": [], "mutating_commands": ["("]},
    "must not be empty": {"allowed": [], "watch": []},
    "this check could not fail": {"watch": ["files", "commands"], "allowed": [{"file": "**"}, {"command": ".+"}]},
    "'allowed' allows everything that 'watch' looks at": {
        "watch": ["calls"],
        "allowed": [],
        "other_tools": "read_only",
    },
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_could_not_be_enforced_is_refused(message):
    with pytest.raises(waza_face.SpecError) as refused:
        load(**REFUSED[message])
    assert message in str(refused.value)


def test_one_file_under_at_most_is_allowed_next_to_allowed(tmp_path):
    (tmp_path / "a").touch()
    bounded = load(allowed=[], at_most=[{"created": "a", "count": 1}], watch=["files"])
    assert bounded.grade(trace(files_before={}), workspace=tmp_path).passed


def test_each_kind_of_effect_is_in_the_ledger_with_the_call_it_came_from(tmp_path):
    (tmp_path / "new.txt").write_text("n")
    (tmp_path / "same.txt").write_text("s")
    (tmp_path / "other.txt").write_text("after")
    before = {"same.txt": hashlib.sha256(b"s").hexdigest().upper(), "other.txt": "0" * 64, "gone.txt": "0" * 64}
    failed = {"tool_name": "pay", "success": False}
    seen = trace("ls", "make it", failed, "rm gone.txt", {"tool_name": "sync"}, files_before=before)
    grade = load(allowed=[{"file": "**"}], mutating_tools=["pay"]).grade(seen, workspace=tmp_path)
    assert effects(grade) == [
        ("deleted", "gone.txt", None, True, True),
        ("created", "new.txt", None, True, True),
        ("changed", "other.txt", None, True, True),
        ("command", "make it", 1, True, False),
        ("call", "pay", 2, False, True),
        ("command", "rm gone.txt", 3, True, True),
        ("call", "sync", 4, True, False),
    ]
    assert grade.feedback == (
        'not allowed: called pay (which failed), ran "rm gone.txt"; '
        'cannot determine whether "make it" changes anything; cannot determine whether sync changes anything'
    )


def test_only_sources_that_a_check_is_about_are_in_the_ledger():
    grade = load(forbidden=[{"call": "pay"}]).grade(trace("rm x", {"tool_name": "sync"}))
    assert (grade.status, grade.details) == ("passed", {"effects": []})


def test_uncertain_effects_decide_nothing_and_sure_ones_decide_in_spite_of_them():
    unsure, sure = "make x", "rm x"
    required, bounded = load(required=[{"command": "x"}]), load(at_most=[{"command": "x", "count": 1}])
    forbidden = load(forbidden=[{"command": "x"}])
    table = {(): "failed", (unsure,): "error", (sure,): "passed", (unsure, sure): "passed"}
    assert {calls: required.grade(trace(*calls)).status for calls in table} == table
    table = {(): "passed", (unsure,): "error", (sure,): "failed", (unsure, sure): "failed"}
    assert {calls: forbidden.grade(trace(*calls)).status for calls in table} == table
    table = {(unsure,): "passed", (unsure, sure): "error", (sure, sure): "failed", (sure, sure, unsure): "failed"}
    assert {calls: bounded.grade(trace(*calls)).status for calls in table} == table


def test_an_author_classifies_lines_before_the_tables_do():
    watched = {"watch": ["commands"], "allowed": []}
    assert load(**watched, read_only_commands=["^rm -n"]).grade(trace("rm -n x")).passed
    both = load(**watched, mutating_commands=["^make"], read_only_commands=["make"])
    assert both.grade(trace("make x")).status == "failed" and both.grade(trace("cmake x")).passed
    assert load(**watched, unknown_commands="read_only").grade(trace("make x")).passed


@pytest.mark.parametrize("command", [None, 7, [], ["rm", 1], {"a": 1}])
def test_a_command_that_cannot_be_read_is_uncertain(command):
    seen = trace({"tool_name": "bash", "args": {"command": command}})
    grade = load(watch=["commands"], allowed=[]).grade(seen)
    assert grade.feedback == "cannot determine whether a command that was not recorded changes anything"
    assert load(forbidden=[{"command": "rm"}], unknown_commands="mutating").grade(seen).status == "error"


def test_a_list_of_words_is_a_line_in_which_each_stays_one_word():
    def line(*words):
        [effect] = load(forbidden=[{"command": "."}], unknown_commands="mutating").grade(
            trace({"tool_name": "shell", "args": {"command": list(words)}})
        ).details["effects"] or [{"target": None}]
        return effect["target"]

    assert line("bash", "-lc", "rm 'a b'") == """bash -lc 'rm '"'"'a b'"'"''"""
    assert line("echo", "a > b") is None and line("ls; rm x") == "ls; rm x"


def test_a_pattern_that_runs_out_of_time_makes_its_check_undecided():
    slow = trace("a" * 3_000)
    grade = load(forbidden=[{"command": BOMB}], unknown_commands="mutating").grade(slow)
    assert grade.status == "error" and "cannot determine whether a pattern matches" in grade.feedback
    declared = load(watch=["commands"], allowed=[], read_only_commands=[BOMB], unknown_commands="mutating")
    assert declared.grade(slow).status == "error"


def test_tools_of_the_agents_own_program_are_no_effects_and_names_are_aliases():
    own = [{"tool_name": name} for name in ("Read", "Edit", "Grep", "WebFetch", "TodoWrite", "Task", "Skill")]
    nothing = load(watch=["calls", "commands"], allowed=[])
    assert nothing.grade(trace(*own, engine="claude-code")).passed
    assert nothing.grade(trace(*own)).status == "error", "of an unknown program no tool is known"
    assert nothing.grade(trace({"tool_name": "mcp__x__Edit"}, engine="claude-code")).status == "error"
    removal = {"tool_name": "Bash", "args": {"command": "rm x"}}
    assert nothing.grade(trace(removal, engine="claude-code")).status == "failed"
    named = load(forbidden=[{"call": "edit_file"}])
    assert named.grade(trace(*own, engine="claude-code")).status == "failed"
    assert load(forbidden=[{"call": "edit_file"}], tool_names="exact").grade(trace(*own, engine="claude-code")).passed
    other_shell = load(watch=["commands"], allowed=[], shell_tools=["run_*"])
    assert other_shell.grade(trace(removal)).passed
    assert other_shell.grade(trace({"tool_name": "run_it", "args": {"cmd": "rm x"}})).status == "failed"


def test_links_are_no_files_and_what_cannot_be_read_is_a_missing_source(tmp_path):
    hashes = {"a": hashlib.sha256(b"a").hexdigest(), "b": hashlib.sha256(b"b").hexdigest()}
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    nothing, seen = load(allowed=[], watch=["files"]), trace(files_before=hashes)
    (tmp_path / "link").symlink_to("/etc/hostname")
    assert nothing.grade(seen, workspace=tmp_path).passed
    os.link(tmp_path / "a", tmp_path / "second")
    grade = nothing.grade(seen, workspace=tmp_path)
    assert grade.status == "failed" and grade.feedback == "not allowed: created second"
    assert grade.details["not_recorded"]["files"].startswith("a cannot be read: has further hard links")
    assert load(forbidden=[{"deleted": "**"}]).grade(seen, workspace=tmp_path).status == "error"
    assert load(forbidden=[{"file": "x"}], ignore=["a"]).grade(seen, workspace=tmp_path).passed
    (tmp_path / "b").unlink()
    (tmp_path / "b").symlink_to("a")
    assert load(required=[{"deleted": "b"}]).grade(seen, workspace=tmp_path).passed


def test_a_stored_workspace_is_compared_without_reading_it_and_secrets_do_not_differ(tmp_path):
    work, store = tmp_path / "work", tmp_path / "store"
    work.mkdir()
    (work / "key.txt").write_text("the key is hunter22")
    (work / "~odd").write_text("x")
    os.mkdir(work / os.fsdecode(b"not-utf-\xff"))
    (work / os.fsdecode(b"not-utf-\xff") / "f").write_text("y")

    def clean(content):
        return content.replace(b"hunter22", b"[REDACTED]")

    before = hash_files(Workspace(work), clean)
    assert set(before) == {"key.txt", "~odd", "not-utf-\ufffd/f"}
    files = SnapshotFiles(store, take(work, store, clean))
    nothing = load(allowed=[], watch=["files"])
    assert nothing.grade(trace(files_before=before), workspace=files).passed
    assert hash_files(files) == before and hash_files(Workspace(work)) != before
    (work / "key.txt").write_text("the key is hunter23")
    changed = SnapshotFiles(store, take(work, store, clean))
    assert nothing.grade(trace(files_before=before), workspace=changed).feedback == "not allowed: changed key.txt"


def test_a_long_ledger_is_cut_in_details_and_named_in_short(tmp_path):
    before = {f"f{number}": "0" * 64 for number in range(1_200)}
    grade = load(forbidden=[{"deleted": "f*"}]).grade(trace(files_before=before), workspace=tmp_path)
    assert (len(grade.details["effects"]), grade.details["effects_left_out"]) == (1_000, 200)
    [effect] = load(forbidden=[{"command": "x"}]).grade(trace(f"rm {'x' * 9_000}")).details["effects"]
    assert len(effect["target"]) < 3_000
    assert grade.feedback.endswith(": deleted f0, deleted f1, deleted f10, deleted f100, deleted f1000, and 1195 more")


SUITE = """
config: {executor: mock}
tasks:
  - id: edits
    prompt: edit
    inputs: {files: [{path: a.txt, content: old}, {path: sub/b.txt, content: same}]}
    graders:
      - {type: side_effects, name: only_a, config: {allowed: [{changed: a.txt}], required: [{changed: a.txt}]}}
    mock: {output: done, files: {a.txt: new}, tool_events: []}
  - id: nothing
    prompt: nothing
    graders: [{type: side_effects, name: none, config: {allowed: [], watch: [files]}}]
    mock: {output: done, tool_events: []}
  - id: other
    prompt: other
    inputs: {files: [{path: a.txt, content: old}]}
    graders: [{type: text, config: {contains: [done]}}]
    mock: {output: done}
"""


def test_a_run_records_the_files_before_only_where_a_grader_needs_them_and_grades_them_again(tmp_path):
    (tmp_path / "eval.yaml").write_text(SUITE)
    run = waza_face.run(tmp_path)
    found = {result.task_id: result for result in run.results}
    assert {name: result.status for name, result in found.items()} == dict.fromkeys(found, "passed")
    digests = {path: hashlib.sha256(text).hexdigest() for path, text in (("a.txt", b"old"), ("sub/b.txt", b"same"))}
    assert found["edits"].trace.files_before == digests
    assert found["nothing"].trace.files_before == {} and found["other"].trace.files_before is None
    (tmp_path / "eval.yaml").write_text(SUITE.replace("allowed: [{changed: a.txt}], required", "forbidden"))
    spec = load_spec(tmp_path)
    again = [regrade(recorded, spec) for recorded in from_run(Path(run.folder), spec)]
    tree = json.loads(b"".join(results_json(replace(run, results=again))))
    [trial] = tree["tasks"][0]["runs"]
    assert trial["files_before"] == digests
    [grade] = trial["grades"]
    assert grade["feedback"] == "forbidden {changed: a.txt}: changed a.txt"
    assert grade["details"]["effects"][0]["target"] == "a.txt"
    (tmp_path / "results.json").write_text(json.dumps(tree))
    [read, *_] = read_traces(tmp_path / "results.json")
    assert read.files_before == digests


def test_a_checkpoint_compares_with_the_beginning_and_a_single_turn_with_the_one_before(tmp_path):
    store, work = tmp_path / "store", tmp_path / "work"
    work.mkdir()
    before = hash_files(Workspace(work))
    snapshots = {}
    for number in (1, 2):
        (work / f"{number}.txt").write_text("x")
        snapshots[str(number)] = take(work, store)
    turns = [Trace(input="", output="", tool_events=[]) for _ in range(2)]
    whole = Trace(input="", output="", turns=turns, files_before=before)
    grader = load(allowed=[{"created": "2.txt"}], watch=["files"])
    files = SnapshotFiles(store, snapshots["2"], snapshots)
    alone = AfterTurnGrader(grader=grader, turn=2, prompts=2, is_alone=True)
    assert alone.grade(whole, workspace=files).passed
    since_the_start = AfterTurnGrader(grader=grader, turn=2, prompts=2).grade(whole, workspace=files)
    assert since_the_start.feedback == "not allowed: created 1.txt"
    turns = [replace(turn, tool_events=trace("ls", "rm x").tool_events) for turn in turns]
    commands = AfterTurnGrader(grader=load(forbidden=[{"command": "rm"}]), turn=2, prompts=2, is_alone=True)
    assert effects(commands.grade(replace(whole, turns=turns))) == [("command", "rm x", 3, True, True)]
    assert CompositeGrader(graders=[alone]).needs_files_before
    negated = {"type": "not", "config": {"grader": {"type": "side_effects", "forbidden": [{"deleted": "**"}]}}}
    assert waza_face.load_grader(negated).needs_files_before
    assert not CompositeGrader(graders=[load(forbidden=[{"call": "a"}])]).needs_files_before


def test_a_failed_call_is_an_attempt():
    tried = trace({"tool_name": "pay", "success": False})
    grade = load(required=[{"call": "pay"}]).grade(tried)
    assert grade.feedback == "required {call: pay}: there is none, only 1 call that failed"
    assert load(at_most=[{"call": "pay", "count": 0}]).grade(tried).status == "failed"
