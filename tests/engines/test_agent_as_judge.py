"""A judge that goes on in the agent's session (`continue_session`), on a copy that it may only look at."""

import asyncio
import hashlib
import json
from base64 import b64encode
from contextlib import suppress
from types import SimpleNamespace

import pytest
from agent_programs import address_for, agents, model_of, need, play, write
from click.testing import CliRunner
from scripted_model import SCRIPTS, TOKENS_IN, TOKENS_OUT, refuse, say, scripted_model, shell, tool

import waza
from waza.cli.check import command as check
from waza.engines._sdk_session import allows
from waza.engines.agent_as_judge import AgentSession, StoredSession
from waza.errors import SpecError
from waza.files.trial_folder import make_trial_folder
from waza.graders.prompt import PromptGrader
from waza.judges.asking import Question, Unanswered, answer
from waza.judges.fencing import Data
from waza.judges.verdict_tools import PASS_FAIL
from waza.model import Task, Trace, Trial
from waza.runner.regrade import ask_missing, from_run, graded, source_of
from waza.runner.request import request_for
from waza.runner.run import execute
from waza.runner.suite import Listeners
from waza.runs.store import open_run
from waza.suites.load import load_spec, read_spec
from waza.suites.mocks import session_problems

CAN = ("claude-code", "claude-agent-sdk", "codex", "copilot", "copilot-sdk")
SHELL = {
    "name": "bash",
    "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    "command": ["sh", "-c", "{command}"],
}
CALL = {"description": "colour", "reason": "it was said"}
VERDICTS = {
    "good": [tool("set_waza_grade_pass", CALL), say("Judged.")],
    "bad": [tool("set_waza_grade_pass", CALL), tool("set_waza_grade_fail", CALL), say("Judged.")],
    "each": [
        tool("set_waza_grade_pass", {"reason": "it was said", "criterion": 1}),
        tool("set_waza_grade_fail", {"reason": "blue", "criterion": 2}),
        say("Judged."),
    ],
    "silent": [say("It is fine, pass.")],
    "wrong": [tool("set_waza_grade_pass", {"verdict": "pass", "grade": 1}), say("Judged.")],
    "refused": [refuse(401, "scripted: invalid api key")],
    "limited": [refuse(429, "scripted: rate limit reached, try again in 0.3s")],
    "meddling": [shell("touch pwned; echo red > colour.txt"), tool("set_waza_grade_pass", CALL), say("Judged.")],
}


@pytest.fixture
def model():
    with scripted_model(SCRIPTS | VERDICTS) as served:
        yield served


def suite(folder, name, model, judge="good", **config):
    """An eval file whose one grader asks the agent itself."""
    about = {"executor": name, "model": model_of(name), "base_url": address_for(name, model), "timeout_seconds": 90}
    about |= {"tools": [SHELL], "prices": {"input": 1, "output": 1}} if name == "openai" else {}
    config = {"prompt": f"Was a colour kept? [[judge:{judge}]]", "continue_session": True} | config
    grader = {"type": "prompt", "name": "itself", "config": config}
    task = {"id": "t", "prompt": "Keep it. [[script:remember]]"}
    write(folder / "eval.yaml", json.dumps({"name": "s", "config": about, "graders": [grader], "tasks": [task]}))
    return folder / "eval.yaml"


def only(run):
    (result,) = run.results
    (grade,) = result.grades
    return result, grade


def test_the_agent_judges_in_its_own_session_and_the_result_says_so(tmp_path, model):
    result, grade = only(waza.run(suite(tmp_path, "openai", model)))
    assert (grade.status, grade.score, grade.details["passes"]) == ("passed", 1.0, ["pass: colour: it was said"])
    told = grade.details["judge"]
    assert grade.details["continued_session"] == {"engine": "openai", "session_id": result.trace.session_id}
    assert told["tokens"] == {"input": 2 * TOKENS_IN, "output": 2 * TOKENS_OUT} and told["answered_by"] == "scripted"
    assert told["cost_usd"] == pytest.approx(2 * (TOKENS_IN + TOKENS_OUT) / 1e6)
    assert result.trace.usage.input_tokens == 2 * TOKENS_IN, "what the judge needs is not the agent's"
    asked = model.requests[-1]["body"]
    assert "I will remember blue." in json.dumps(asked["messages"]), "the judge sees what was said before"
    offered = [one["function"]["name"] for one in asked["tools"]]
    assert offered == ["mcp__waza_verdict__set_waza_grade_pass", "mcp__waza_verdict__set_waza_grade_fail"]


@pytest.mark.parametrize(
    ("judge", "status", "words"),
    [
        ("bad", "failed", "colour: it was said"),
        ("silent", "error", "no verdict, also after a reminder: the judge called no tool"),
        ("wrong", "error", "unknown arguments"),
        ("refused", "error", "401"),
    ],
)
def test_only_a_call_of_the_verdict_tools_is_a_verdict(judge, status, words, tmp_path, model):
    _, grade = only(waza.run(suite(tmp_path, "openai", model, judge)))
    assert grade.status == status and words in grade.feedback


def test_the_agent_gives_one_verdict_on_each_criterion(tmp_path, model):
    points = ["A colour was kept.", "It is red."]
    _, grade = only(waza.run(suite(tmp_path, "openai", model, "each", criteria=points)))
    assert (grade.status, grade.score, [check.ok for check in grade.checks]) == ("failed", 0.5, [True, False])


def test_a_vendor_that_refuses_the_judge_for_its_rate_limit_pauses_the_agents_too(tmp_path, model):
    said = []
    file = suite(tmp_path, "openai", model, "limited")
    _, grade = only(execute(request_for(load_spec(file)), Listeners(on_remark=said.append)))
    assert grade.status == "error" and "429" in grade.feedback
    assert [remark for remark in said if "no agent starts" in remark] == [
        "the vendor's rate limit is reached: no agent starts for 0 s"
    ]


def test_several_judges_go_on_in_the_same_session_without_meeting(tmp_path, model):
    file = suite(tmp_path, "openai", model)
    tree = json.loads(file.read_text())
    (grader,) = tree["graders"]
    other = {"prompt": "Was it kind? [[judge:bad]]", "continue_session": True}
    tree["graders"].append(grader | {"name": "other", "config": other})
    write(file, json.dumps(tree))
    (result,) = waza.run(file).results
    assert [(grade.name, grade.status) for grade in result.grades] == [("itself", "passed"), ("other", "failed")]
    assert "Was it kind?" not in json.dumps([r["body"] for r in model.requests if "[[judge:good]]" in str(r["body"])])


def test_a_scale_works_in_a_session_too(tmp_path):
    write(
        tmp_path / "tone.md",
        "---\nname: tone\nversion: 1.0.0\nscale: 1-5\ndescription: The tone.\n---\n\nHow kind? [[judge:score]]\n",
    )
    score = {"score": [tool("set_waza_grade_score", {"score": 4, "reason": "kind"}), say("Judged.")]}
    with scripted_model(SCRIPTS | score) as model:
        _, grade = only(waza.run(suite(tmp_path, "openai", model, prompt="", rubric="./tone.md")))
    assert (grade.status, grade.score) == ("passed", 0.75)


def test_a_stored_run_cannot_be_judged_in_a_session_that_is_gone(tmp_path, model):
    file = suite(tmp_path, "openai", model)
    run = waza.run(file)
    spec = load_spec(file)
    folder = tmp_path / "runs" / run.id
    again = graded(spec, from_run(folder, spec), source_of(open_run(folder)))
    _, grade = only(again)
    assert (grade.status, grade.score) == ("error", 0.0) and "session is gone" in grade.feedback
    kept = ask_missing(spec, folder, None)
    assert only(kept)[1].status == "passed", "a verdict that was given stays"


def test_no_other_judge_may_stand_in():
    judge = waza.judges.ScriptedJudge([{"tool_calls": [{"name": "set_waza_grade_pass", "arguments": {}}]}])
    grade = PromptGrader(prompt="x", continue_session=True).grade(Trace(input="", output="x"), judge=judge)
    assert grade.status == "error" and "session is gone" in grade.feedback


@pytest.mark.parametrize("other", [{"mode": "pairwise"}, {"judges": ["a", "b"]}, {"reasoning_effort": "low"}])
def test_what_does_not_go_with_it_is_refused(other, tmp_path):
    with pytest.raises(SpecError, match="continue_session asks the agent alone"):
        waza.load_grader({"type": "prompt", "prompt": "x", "continue_session": True} | other, base_dir=tmp_path)


def test_a_checkpoint_is_no_place_for_it(tmp_path, model):
    file = suite(tmp_path, "openai", model)
    tree = json.loads(file.read_text())
    tree["tasks"][0]["inputs"] = {"follow_up_prompts": ["And then?"]}
    tree["tasks"][0]["checkpoints"] = [{"after_turn": 1, "graders": ["itself"]}]
    write(file, json.dumps(tree))
    assert any("not at a checkpoint" in problem.message for problem in read_spec(file)[1])


def test_an_engine_that_cannot_is_refused_by_check_with_a_sentence(tmp_path, model):
    done = CliRunner().invoke(check, [str(suite(tmp_path, "gemini", model)), "--json"], standalone_mode=False)
    told = map(json.loads, done.stdout.splitlines())
    (problem,) = [one for one in told if one["severity"] != "note"]
    assert (done.return_value, problem["severity"], problem["path"]) == (2, "error", "config.executor")
    assert "engine 'gemini' cannot let a judge go on in an agent's session, as itself would" in problem["message"]
    assert "engines that can: claude-agent-sdk, claude-code, codex, copilot" in problem["message"]


def test_an_engine_that_can_is_warned_of_and_needs_no_other_judge(tmp_path, model):
    spec = load_spec(suite(tmp_path, "codex", model))
    (problem,) = session_problems("codex", spec.graders, spec.place)
    assert problem.severity == "warning" and "lenient with itself" in problem.message
    assert spec.judge() is None and not [note for note in spec.notes if "judge" in note.message]
    with pytest.raises(SpecError, match="engine 'mock' cannot"):
        spec.engine("mock")


def test_a_copilot_that_judges_may_use_the_server_of_its_verdict_and_no_other():
    given = {"permission_mode": "judge", "session": {"mcp_servers": {"waza_verdict": {}}}}
    asked = [SimpleNamespace(kind="mcp", server_name=name) for name in ("waza_verdict", "github", "")]
    asked += [SimpleNamespace(kind=kind) for kind in ("read", "write", "shell")]
    assert [allows(given, one) for one in asked] == [True, False, False, True, False, False]
    assert not allows(given | {"session": {}}, asked[0])
    assert all(allows(given | {"permission_mode": "all"}, one) for one in asked), "an agent may do what its mode says"


class Plant:
    """What a hostile agent leaves in its workspace for whoever works there next: hooks, and words to be obeyed."""

    def __init__(self, folder):
        self.mark = folder / "hook-was-here"
        hook = {"type": "command", "command": f"touch {self.mark}", "bash": f"touch {self.mark}"}
        claude = {"hooks": {"SessionStart": [{"hooks": [hook]}], "PreToolUse": [{"hooks": [hook]}]}}
        copilot = {"version": 1, "hooks": {"sessionStart": [hook], "preToolUse": [hook]}}
        files = {".claude/settings.json": claude, ".github/hooks/h.json": copilot, ".codex/hooks.json": claude}
        files |= dict.fromkeys(("AGENTS.md", "CLAUDE.md", ".github/copilot-instructions.md"), "planted-words")
        texts = {path: text if isinstance(text, str) else json.dumps(text) for path, text in files.items()}
        lines = [f"echo {b64encode(text.encode()).decode()} | base64 -d > {path}" for path, text in texts.items()]
        command = "; ".join(["mkdir -p .claude .github/hooks .codex", *lines, "echo blue > colour.txt"])
        self.script = [shell(command), say("I will remember blue.")]

    def seen(self, model):
        """What of it was started, or reached the model."""
        found = {"hook": self.mark.exists(), "words": "planted-words" in json.dumps(model.requests[-1]["body"])}
        return {kind for kind, is_there in found.items() if is_there}


@pytest.mark.parametrize("name", agents(*CAN))
def test_a_real_agent_judges_its_own_session_changes_nothing_and_obeys_nothing(name, tmp_path):
    need(name)
    plant = Plant(tmp_path)
    with scripted_model(SCRIPTS | VERDICTS | {"remember": plant.script}) as model:
        run = waza.run(suite(tmp_path, name, model, "meddling"))
        assert plant.seen(model) == set()
        asked = json.dumps(model.requests[-1]["body"])
    result, grade = only(run)
    assert (grade.status, grade.details["passes"]) == ("passed", ["pass: colour: it was said"]), grade.feedback
    told = {"engine": result.trace.engine, "session_id": result.trace.session_id}
    assert grade.details["continued_session"] == told and result.trace.session_id
    assert grade.details["judge"]["tokens"] == {"input": 3 * TOKENS_IN, "output": 3 * TOKENS_OUT}
    assert result.trace.usage.input_tokens == 2 * TOKENS_IN
    assert "I will remember blue." in asked and "touch pwned" in asked, "it sees the session, and it tried to meddle"


@pytest.mark.parametrize("name", agents("claude-code", "claude-agent-sdk", "codex", "copilot-sdk", sample=("codex",)))
def test_control_a_plain_follow_up_would_obey(name, tmp_path):
    """The proof that the test above can fail: the same workspace, and the agent goes on in it as it is."""
    need(name)
    plant = Plant(tmp_path)
    with scripted_model(SCRIPTS | {"plant": plant.script}) as model:
        play(name, model, ["plant", "talk"])
        assert plant.seen(model) == ({"words"} if name == "codex" else {"hook", "words"})


@pytest.mark.parametrize("name", ["openai", *agents(*CAN, sample=("codex",))])
def test_what_the_agent_left_stays_as_it_is(name, tmp_path):
    need(name)
    with scripted_model(SCRIPTS | VERDICTS) as model:
        engine = load_spec(suite(tmp_path, name, model)).engine()
        task = Task(id="t", prompt="Keep it. [[script:remember]]")
        before, after = asyncio.run(_judged(engine, Trial(task=task, model=model_of(name))))
    assert before == after and any(path.endswith("colour.txt") for path in before)


async def _judged(engine, trial):
    """What stands in an agent's room before and after a judge that meddles."""
    with make_trial_folder(trial.task) as room:
        trace = await engine.run(trial, room)
        before = _contents(room.home.parent)
        question = Question(["Was a colour kept? [[judge:meddling]]", Data("Task input", trial.task.prompt)])
        with suppress(Unanswered):
            await answer(AgentSession(StoredSession(engine, trial, trace, room)), question, PASS_FAIL)
        return before, _contents(room.home.parent)


def _contents(folder):
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
