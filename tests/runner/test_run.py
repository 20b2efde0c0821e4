"""A run: trials in order under one limit, three outcomes never mixed, one broken part never ends it."""

import asyncio
import json
import threading
import time

import pytest

import waza
from waza.cli import run_command
from waza.runner.request import request_for, runs_folder
from waza.runner.run import Listeners, execute
from waza.runs.journal import read_journal
from waza.runs.summary import summarize
from waza.suites.load import load_spec

GRADERS = "graders: [{type: text, name: says_yes, config: {contains: ['yes']}}]\n"


def statuses(run):
    return {result.task_id: (result.status, result.reason) for result in run.results}


def test_passed_failed_and_undecided_are_kept_apart(suite):
    folder = suite(
        GRADERS
        + """
config: {executor: mock}
tasks:
  - {id: good, prompt: x, mock: {output: "yes"}}
  - {id: bad, prompt: x, mock: {output: "no"}}
  - {id: broken, prompt: x, mock: {error: "no credit left"}}
  - {id: late, prompt: x, timeout_seconds: 0.05, mock: {output: "yes", delay_s: 5}}
  - {id: unknown, prompt: x, mock: {output: "yes"}, expected: {behavior: {max_tokens: 5}}}
"""
    )
    assert statuses(waza.run(folder)) == {
        "good": ("passed", ""),
        "bad": ("failed", ""),
        "broken": ("error", "no credit left"),
        "late": ("failed", "timeout"),
        "unknown": ("error", ""),
    }


def test_an_agent_that_could_not_run_is_not_graded(suite):
    folder = suite(GRADERS + "config: {executor: mock}\ntasks: [{id: a, prompt: x, mock: {error: down}}]")
    [result] = waza.run(folder).results
    assert (result.grades, result.trace.status) == ([], "error")


def test_only_infrastructure_errors_are_tried_again_and_attempts_are_recorded(suite):
    folder = suite(
        GRADERS
        + """
config: {executor: python, agent: "flaky:answer", max_attempts: 3}
tasks: [{id: wobbly, prompt: wobbly}, {id: wrong, prompt: wrong}]
""",
        flaky__py="""
        CALLS = {}
        def answer(prompt):
            CALLS[prompt] = CALLS.get(prompt, 0) + 1
            if prompt == "wobbly" and CALLS[prompt] < 3:
                raise ConnectionError("reset")
            return "yes" if prompt == "wobbly" else "no"
        """,
    )
    by_task = {result.task_id: result for result in waza.run(folder).results}
    assert (by_task["wobbly"].status, by_task["wobbly"].attempts) == ("passed", 3)
    assert (by_task["wrong"].status, by_task["wrong"].attempts) == ("failed", 1)


def test_a_broken_grader_does_not_discard_the_others(suite):
    folder = suite(
        """
        config: {executor: mock}
        graders:
          - {type: text, name: fine, config: {contains: ['yes']}}
          - {type: code, name: hangs, config: {assertions: ["all(True for a in range(10**12))"]}}
        tasks: [{id: a, prompt: x, mock: {output: "yes"}}]
        """
    )
    [result] = waza.run(folder).results
    assert [(grade.name, grade.status) for grade in result.grades] == [("fine", "passed"), ("hangs", "error")]


AGENT = """
    import asyncio, threading, time
    RUNNING = 0
    MOST = 0
    STARTED = []
    LOCK = threading.Lock()

    def _enter(prompt):
        global RUNNING, MOST
        with LOCK:
            STARTED.append(prompt)
            RUNNING += 1
            MOST = max(MOST, RUNNING)

    def _leave():
        global RUNNING
        with LOCK:
            RUNNING -= 1

    def blocking(prompt):
        _enter(prompt)
        time.sleep(0.2)
        _leave()
        return "yes"

    async def waiting(prompt):
        _enter(prompt)
        await asyncio.sleep(0.05)
        _leave()
        return "yes"
    """


@pytest.mark.parametrize("function", ["blocking", "waiting"])
def test_trials_run_at_once_under_one_limit_and_start_in_order(suite, function):
    module = f"agent_{function}"
    folder = suite(
        GRADERS
        + f"config: {{executor: python, agent: '{module}:{function}', trials_per_task: 2}}\n"
        + "tasks: ["
        + ", ".join(f"{{id: t{n:02}, prompt: 't{n:02}'}}" for n in range(12))
        + "]",
        **{f"{module}__py": AGENT},
    )
    started = []
    heard = Listeners(on_start=lambda trial: started.append((trial.task.id, trial.number)))
    run = execute(request_for(load_spec(folder), workers=24), heard)
    assert all(result.status == "passed" for result in run.results)
    assert sorted(started) == started and len(started) == 24
    import sys

    agent = sys.modules[module]
    assert agent.MOST == 24, "a blocking agent needs a thread for each trial"
    if function == "waiting":  # when threads come up is up to the system
        assert sorted(agent.STARTED) == agent.STARTED
    agent.MOST = 0
    waza.run(folder, workers=3)
    assert agent.MOST == 3


@pytest.mark.parametrize("workers", [1, 2])
def test_each_result_is_stored_before_anyone_hears_of_it(suite, workers):
    folder = suite(GRADERS + "config: {executor: mock}\ntasks: [{id: a, prompt: x}, {id: b, prompt: x}]")
    stored = []

    def listen(result):
        [journal] = runs_folder(load_spec(folder)).glob("*/journal.jsonl")
        on_disk = [record.task_id for record in read_journal(journal)[0] if isinstance(record, waza.Result)]
        stored.append(result.task_id in on_disk)

    waza.run(folder, on_result=listen, workers=workers)
    assert stored == [True, True]


def test_files_of_the_agent_are_graded_from_a_copy_and_can_be_graded_again(suite):
    folder = suite(
        """
        config: {executor: mock}
        graders: [{type: file, name: wrote, config: {must_exist: [out/report.md]}}]
        tasks: [{id: a, prompt: x, mock: {output: done, files: {out/report.md: "# hi"}}}]
        """
    )
    run = waza.run(folder)
    assert run.results[0].status == "passed"
    from waza.runner.regrade import from_run, regrade

    spec = load_spec(folder)
    from pathlib import Path

    [again] = [regrade(item, spec) for item in from_run(Path(run.folder), spec)]
    assert again.status == "passed"


def test_what_changes_the_workspace_after_the_agent_changes_no_grade(suite):
    folder = suite(
        """
        config: {executor: python, agent: "writer:answer"}
        graders:
          - {type: program, name: tampers, config: {command: sh, args: [tamper.sh], may_change: [where]}}
          - {type: file, name: kept, config: {must_exist: [made.txt], must_not_exist: [planted.txt]}}
        tasks: [{id: a, prompt: x}]
        """,
        writer__py="""
        import pathlib
        def answer(prompt, context):
            work = context.workspace
            (work / "made.txt").write_text("made")
            pathlib.Path(__file__).with_name("where").write_text(str(work))
            return "done"
        """,
        tamper__sh="""
        cd "$(cat where)" && test -e made.txt && rm made.txt && touch planted.txt
        """,
    )
    [result] = waza.run(folder).results
    assert [(grade.name, grade.status) for grade in result.grades] == [("tampers", "passed"), ("kept", "passed")]


def test_hooks_run_around_the_run_and_each_task(suite):
    folder = suite(
        GRADERS
        + """
config: {executor: mock}
hooks:
  before_run: [{command: "sh -c 'echo before >> log'"}]
  after_run: [{command: "sh -c 'echo after >> log'"}]
  before_task: [{command: "sh -c 'echo task $WAZA_TASK_ID >> log'"}]
  after_task: [{command: "false"}]
tasks: [{id: a, prompt: x, mock: {output: "yes"}}, {id: b, prompt: x, mock: {output: "yes"}}]
"""
    )
    assert all(result.status == "passed" for result in waza.run(folder).results)
    assert (folder / "log").read_text().split("\n") == ["before", "task a", "task b", "after", ""]


def test_a_failing_hook_with_error_on_fail_makes_the_task_an_error(suite):
    folder = suite(
        GRADERS
        + """
config: {executor: mock}
hooks: {before_task: [{command: "sh -c 'echo no luck >&2; exit 4'", error_on_fail: true}]}
tasks: [{id: a, prompt: x, mock: {output: "yes"}}]
"""
    )
    [result] = waza.run(folder).results
    assert result.status == "error"
    assert "exit code 4" in result.reason and "no luck" in result.reason


def test_the_results_file_can_be_made_again_from_the_journal(suite):
    folder = suite(GRADERS + "config: {executor: mock}\ntasks: [{id: a, prompt: x, mock: {output: 'yes'}}]")
    run = waza.run(folder)
    from pathlib import Path

    from waza.reports.json import JsonReport
    from waza.runs.store import read_run

    written = (Path(run.folder) / "results.json").read_text()
    assert JsonReport().text(read_run(run.folder)) == written
    assert json.loads(written)["tasks"][0]["status"] == "passed"


def test_waza_run_works_beside_a_running_event_loop(suite):
    folder = suite(GRADERS + "config: {executor: mock}\ntasks: [{id: a, prompt: x, mock: {output: 'yes'}}]")

    async def main():
        return await asyncio.to_thread(waza.run, folder)

    assert asyncio.run(main()).results[0].status == "passed"


def test_no_thread_or_process_is_left_after_a_run(suite):
    folder = suite(
        GRADERS
        + "config: {executor: command, command: ['echo', 'yes']}\ntasks: [{id: a, prompt: x}, {id: b, prompt: x}]"
    )
    before = threading.active_count()
    waza.run(folder)
    time.sleep(0.2)
    assert threading.active_count() <= before + 2


def test_a_failing_hook_after_a_task_makes_it_an_error(suite):
    folder = suite(
        GRADERS
        + """
config: {executor: mock}
hooks: {after_task: [{command: "false", error_on_fail: true}], after_run: [{command: "false", error_on_fail: true}]}
tasks: [{id: a, prompt: x, mock: {output: "yes"}}]
"""
    )
    run = waza.run(folder)
    assert (run.results[0].status, run.complete) == ("error", True)


def test_a_listener_that_raises_ends_the_run_instead_of_hanging_it(suite):
    hooks = "hooks: {after_run: [{command: touch ended}]}\n"
    folder = suite(GRADERS + hooks + "config: {executor: mock}\ntasks: [{id: a, prompt: x}, {id: b, prompt: x}]")

    def raises(result):
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        waza.run(folder, workers=4, on_result=raises)
    assert (folder / "ended").exists(), "the last hooks run all the same"


def test_an_engine_error_that_is_a_timeout_is_not_the_agents_timeout(suite):
    folder = suite(
        GRADERS + "config: {executor: python, agent: 'timing:answer'}\ntasks: [{id: a, prompt: x}]",
        timing__py="def answer(prompt):\n    raise TimeoutError('connect to api timed out')\n",
    )
    assert waza.run(folder).results[0].status == "error"


CRASHING = """
config: {executor: command, command: [sh, -c, "echo ran >> $LOG; echo fine; echo no luck >&2; %s"], max_attempts: 2%s}
graders: [{type: text, config: {not_contains: [secret]}}]
tasks: [{id: a, prompt: x, inputs: {environment: {LOG: '%s'}}}]
"""


@pytest.mark.parametrize(
    ("ending", "policy", "verdict", "starts"),
    [
        ("exit 1", "", ("failed", "the agent exited with code 1: no luck"), 1),
        ("sh -c 'kill -9 $$'; exit $?", "", ("failed", "the agent exited with code 137: "), 1),
        (
            "kill -SEGV $$",
            ", on_agent_crash: fail",
            ("failed", "the agent was ended by signal 11 (SIGSEGV): no luck"),
            1,
        ),
        ("exit 1", ", on_agent_crash: error", ("error", "the agent exited with code 1: no luck"), 1),
        ("exit 1", ", on_agent_crash: grade", ("passed", ""), 1),
        ("exit 127", "", ("error", ""), 2),
    ],
)
def test_a_crash_decides_as_the_suite_says_and_only_other_errors_are_tried_again(
    suite, tmp_path, ending, policy, verdict, starts
):
    folder = suite(CRASHING % (ending, policy, tmp_path / "log"))
    run = waza.run(folder)
    [result] = run.results
    assert (tmp_path / "log").read_text().count("ran") == result.attempts == starts
    assert result.status == verdict[0] and result.reason.startswith(verdict[1])
    crashed = starts == 1
    assert [grade.status for grade in result.grades] == (["passed"] if crashed else [])
    assert result.trace.output == "fine", "what it said before counts or not, but it is kept"
    summary = summarize(run)
    assert summary.exit_code == {"passed": 0, "failed": 1, "error": 3}[verdict[0]]
    assert (summary.aggregate_score is None) == (verdict[0] == "error")


def test_the_verdict_on_a_crash_is_kept_by_whoever_reads_the_run(suite, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = suite(CRASHING % ("printf 'a\\\\033[31mb\\\\n' >&2; exit 3", "", tmp_path / "log"))
    assert run_command(["run", str(folder), "-o", str(tmp_path / "results.json")]) == 1
    reason = "the agent exited with code 3: ab"
    assert reason in (shown := capsys.readouterr().out) and "no luck" in shown
    stored = json.loads((tmp_path / "results.json").read_text())["tasks"][0]["runs"][0]
    assert (stored["status"], stored["reason"], stored["error_msg"]) == ("failed", reason, reason)
    assert stored["crash"] == {"exit_code": 3, "stderr": "no luck\nab"}
    for again in (
        ["run", str(folder), "--resume"],
        ["grade", "latest"],
        ["grade", str(tmp_path / "results.json"), "--graders", str(folder)],
    ):
        assert run_command([*again]) == 1, again
        assert reason in capsys.readouterr().out
    assert run_command(["run", str(folder), "--replay", str(tmp_path / "results.json")]) == 1
    capsys.readouterr()
    assert run_command(["show", "latest", "--reporter", "junit:-"]) == 0
    assert f'message="{reason}"' in capsys.readouterr().out
    assert run_command(["show", "latest", "--task", "a"]) == 0
    assert "no luck" in (shown := capsys.readouterr().out) and reason in shown


def test_an_agent_that_removes_the_folder_of_rooms_spoils_nothing(suite):
    folder = suite(
        GRADERS
        + """
config: {executor: command, command: [sh, -c, 'echo yes; rm -rf "$(dirname "$(dirname "$WAZA_WORKSPACE_DIR")")"']}
tasks: [{id: a, prompt: x}, {id: b, prompt: x}]
"""
    )
    assert [result.status for result in waza.run(folder).results] == ["passed", "passed"]


def test_an_agent_that_leaves_one_process_behind_has_a_result_that_counts_it(suite):
    folder = suite(
        GRADERS
        + """
config: {executor: command, command: [sh, -c, "sleep 30 >/dev/null 2>&1 & echo yes"]}
tasks: [{id: a, prompt: x}]
"""
    )
    run = waza.run(folder)
    assert run.complete and [result.trace.leftovers for result in run.results] == [1]
    assert run.results[0].trace.leftovers is not True


def test_output_that_was_cut_cannot_pass_a_check_on_what_is_missing(suite):
    noise = "head -c 3000000 /dev/zero | tr '[:cntrl:]' a"
    agent = f"{noise}; echo SECRET; {noise}"
    folder = suite(
        f"""
        config: {{executor: command, max_output_mb: 1, command: [sh, -c, "{agent}"]}}
        tasks: [{{id: a, prompt: x, expected: {{output_not_contains: [SECRET]}}}}]
        """
    )
    [result] = waza.run(folder).results
    assert result.status == "error" and "max_output_mb" in result.reason


def test_a_number_of_trials_that_no_stored_run_may_have_is_refused_before_anything_runs(suite):
    spec = load_spec(
        suite(
            "config: {executor: mock}\ntasks: [{id: a, prompt: hi}]\ngraders: [{type: text, config: {contains: [x]}}]\n"
        )
    )
    with pytest.raises(waza.errors.UsageError, match="2000000 trials a task are more than 1000000"):
        request_for(spec, trials=2_000_000)


def test_a_suite_for_the_mock_without_scripts_is_undecided_in_one_sentence(suite, capsys):
    tasks = "tasks: [{id: a, prompt: x}, {id: b, prompt: y}, {id: c, prompt: z}]\n"
    graders = "graders: [{type: text, config: {not_contains: [secret]}}]\n"
    folder = suite("config: {executor: mock, max_attempts: 3}\n" + tasks + graders)
    assert run_command(["run", str(folder)]) == 3
    shown = " ".join("".join(capsys.readouterr()).split())
    assert shown.count("default: {echo: true}") == shown.count("--engine") == 1
    assert "the same error in 2 more tasks" in shown
    assert run_command(["run", str(folder), "--json"]) == 3
    runs = [task["runs"][0] for task in json.loads(capsys.readouterr().out)["tasks"]]
    assert [(one["status"], one["attempts"]) for one in runs] == [("error", 1)] * 3
    assert [one["reason"].partition(";")[0] for one in runs] == [f"no mock script for task '{name}'" for name in "abc"]
    (folder / "mock.yaml").write_text("default: {echo: true}\n")
    assert run_command(["run", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tasks"][1]["runs"][0]["final_output"] == "Mock response for: y"


def test_a_script_that_no_task_gets_is_told_with_the_nearest_task(suite, capsys):
    folder = suite(
        GRADERS + "config: {executor: mock}\ntasks: [{id: refund-1, prompt: x}, {id: greet, prompt: x}]",
        mock__yaml="""
        default: {output: "yes"}
        tasks:
          "refund-*": {output: "yes"}
          "refunds-*": {output: "yes"}
          gret: {output: "yes"}
          nothing-like-it: {output: "yes"}
        """,
    )
    assert run_command(["run", str(folder)]) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if "its script is not used" in line]
    assert [line.partition("mock.yaml:")[2].partition(":")[0] for line in told] == ["5", "6", "7"]
    assert [line.rpartition("; ")[2] for line in told] == [
        "did you mean 'refund-1'?",
        "did you mean 'greet'?",
        "tasks: refund-1, greet",
    ]
