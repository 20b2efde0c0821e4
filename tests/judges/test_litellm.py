"""The `litellm` judge over real HTTP. Its package is an extra: most of these need it to be installed."""

from importlib.util import find_spec

import pytest
from model_server import FAIL, PASS, OpenAI, Said, http, serving

import waza
from waza.judges.litellm import LitellmJudge

HAS_IT = find_spec("litellm") is not None
needs_it = pytest.mark.skipif(not HAS_IT, reason="the litellm extra is not installed")
TRACE = waza.Trace(input="hi", output="hello")
SERVER = OpenAI()


def verdict_with(judge):
    return waza.load_grader({"type": "prompt", "prompt": "Is it short?"}).grade(TRACE, judge=judge)


def asked(monkeypatch, *answers):
    monkeypatch.setenv("SOME_JUDGE_KEY", "key-of-nobody")
    with serving(*answers) as server:
        settings = {"base_url": f"{server.url}/v1", "api_key_env": "SOME_JUDGE_KEY", "retries": 0}
        return verdict_with(LitellmJudge(model="openai/judge-1", **settings))


@pytest.mark.skipif(HAS_IT, reason="litellm is installed")
def test_without_its_package_the_judge_says_how_to_get_it():
    grade = verdict_with(LitellmJudge(model="openai/judge-1"))
    assert grade.status == "error"
    assert "pip install 'waza[litellm]'" in grade.feedback


@needs_it
@pytest.mark.parametrize(("said", "status"), [(PASS, "passed"), (FAIL, "failed")])
def test_a_verdict_counts(monkeypatch, said, status):
    grade = asked(monkeypatch, http(200, SERVER.whole(Said(said))))
    assert grade.status == status
    assert grade.details["judge"]["tokens"] == {"input": 120, "output": 17}


@needs_it
@pytest.mark.parametrize(
    "answer",
    [
        SERVER.error(401, "invalid_api_key", "no such key"),
        SERVER.error(500, "server_error", "broken"),
        http(200, b"<html>busy</html>", kind="text/html"),
        http(200, b'{"choices": []}'),
        http(200, SERVER.whole(Said(text="It passes."))),
        http(200, SERVER.whole(Said(("set_waza_grade_pass", "{")))),
        http(200, SERVER.whole(Said(("grade_pass", {})))),
        http(200, SERVER.whole(Said(PASS, end="length"))),
    ],
    ids=["401", "500", "html", "no-choices", "text", "broken-arguments", "unknown-tool", "cut"],
)
def test_anything_else_is_an_error(monkeypatch, answer):
    grade = asked(monkeypatch, answer)
    assert (grade.status, grade.score) == ("error", 0.0)
