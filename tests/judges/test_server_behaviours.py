"""What a judge's server may do, in one table: the status of the grade, the requests it took, and words of the message.

Nothing passes or fails by accident: a row is a right verdict, or an error that says what happened and what may help.
"""

import gzip
import json
from typing import NamedTuple

import pytest
from model_server import (
    FAIL,
    HANG,
    PASS,
    RESET,
    Answer,
    Connection,
    ModelServer,
    OpenAI,
    Said,
    dropped,
    event,
    http,
    pieces,
    serving,
    silent,
)

from waza import Trace
from waza.graders.llm import LlmGrader
from waza.graders.prompt import PromptGrader
from waza.judges.openai import OpenaiJudge

VENDOR = OpenAI()
POLITE = PromptGrader(prompt="Is it polite?")
CLEAR = LlmGrader(prompt="How clear is it?")
BETTER = PromptGrader(prompt="Which is better?", mode="pairwise")
QUICK = {"connect_seconds": 10, "first_byte_seconds": 0.4, "idle_seconds": 0.4, "total_seconds": 0.8}
STREAM, JSON_MODE = {"stream": True}, {"verdict_by": "json_schema"}


class Row(NamedTuple):
    """One behaviour of a server and what comes of it; a retry is made once."""

    answer: Answer
    status: str
    requests: int
    words: str = ""
    grader: object = POLITE
    settings: dict = {}


def says(*calls, **how):
    return http(200, VENDOR.whole(Said(*calls, **how)))


def streams(*calls, **how):
    return pieces(VENDOR.events(Said(*calls, **how)))


def scoring(arguments):
    return says(("set_waza_grade_score", arguments))


def first_then(first, second):
    """One answer to the first request, another to all later ones."""

    def answer(to: Connection, asked=[]):  # noqa: B006  one list for all requests
        asked.append(1)
        (first if len(asked) == 1 else second)(to)

    return answer


def in_json(before="", after="", **changes):
    """The verdict as JSON of the schema, with this text around it."""

    def answer(to: Connection):
        schema = to.body["response_format"]["json_schema"]["schema"]["properties"]
        verdict = {"ticket": schema["ticket"]["enum"][0], "arguments": {"reason": "ok"}, "tool": "set_waza_grade_pass"}
        http(200, VENDOR.whole(Said(text=before + json.dumps(verdict | changes) + after)))(to)

    return answer


def compressed(raw):
    return http(200, gzip.compress(raw), {"content-encoding": "gzip"})


def split_call(*parts):
    chunks = [VENDOR.chunk({"tool_calls": [{"index": 0, "id": "c", "function": part}]}) for part in parts]
    return pieces([*chunks, VENDOR.chunk({}, "tool_calls"), event("[DONE]")])


GOOD = says(PASS)
WHOLE = json.dumps(VENDOR.whole(Said(PASS))).encode()
WRONG_KEY = {"error": {"message": "Incorrect API key provided", "type": "invalid_request_error"}}
PAGE = b"<html><body>set_waza_grade_pass</body></html>"

VERDICTS = {
    "a pass": Row(GOOD, "passed", 1),
    "a fail": Row(says(FAIL), "failed", 1),
    "a stream": Row(streams(PASS), "passed", 1, settings=STREAM),
    "a stream of a fail": Row(streams(FAIL, text="Hm."), "failed", 1, settings=STREAM),
    "a compressed answer": Row(compressed(WHOLE), "passed", 1),
    "a pass and a fail": Row(says(PASS, FAIL), "failed", 1),
    "the same score twice": Row(
        says(*[("set_waza_grade_score", {"reason": "r", "score": 5})] * 2), "passed", 1, grader=CLEAR
    ),
    "a call in many chunks": Row(
        split_call({"name": "set_waza_grade_pass"}, {"arguments": '{"rea'}, {"arguments": 'son": "ok"}'}),
        "passed",
        1,
        settings=STREAM,
    ),
    "score 4.0": Row(scoring({"reason": "r", "score": 4.0}), "passed", 1, grader=CLEAR),
    "score 2.0": Row(scoring({"reason": "r", "score": 2.0}), "failed", 1, grader=CLEAR),
    "one extra argument": Row(says(("set_waza_grade_fail", {"reason": "r", "confidence": 0.9})), "failed", 1),
    "a functions. prefix": Row(says(("functions.set_waza_grade_pass", {"reason": "r"})), "passed", 1),
    "JSON": Row(in_json(), "passed", 1, settings=JSON_MODE),
    "JSON of a fail": Row(in_json(tool="set_waza_grade_fail"), "failed", 1, settings=JSON_MODE),
    "JSON with one extra key": Row(in_json(confidence=1), "passed", 1, settings=JSON_MODE),
    "fenced JSON": Row(in_json("```json\n", "\n```"), "passed", 1, settings=JSON_MODE),
    "fenced JSON in one line": Row(in_json("``` ", " ```"), "passed", 1, settings=JSON_MODE),
    "JSON after <think>": Row(in_json('<think>It {"tool": 1} greets.</think>\n'), "passed", 1, settings=JSON_MODE),
    "fenced JSON after <think>": Row(
        in_json("<think>\nHm.\n</think>\n\n```json\n", "\n```\n"), "passed", 1, settings=JSON_MODE
    ),
    "no reason, then one": Row(first_then(says(("set_waza_grade_pass", {})), GOOD), "passed", 2),
    "no reason, then another verdict": Row(first_then(says(("set_waza_grade_pass", {})), says(FAIL)), "failed", 2),
    "no reason, then nothing": Row(
        first_then(says(("set_waza_grade_pass", {"reason": " "})), says(text="no")), "passed", 2, "no reason given"
    ),
    "words, then a verdict": Row(first_then(says(text="It passes."), says(FAIL)), "failed", 2),
    "503, then a verdict": Row(first_then(http(503, b""), GOOD), "passed", 2),
    "429, then a verdict": Row(first_then(http(429, b"", {"retry-after": "0"}), GOOD), "passed", 2),
    "a dropped connection, then a verdict": Row(first_then(dropped, GOOD), "passed", 2),
}

ERRORS = {
    "401": Row(http(401, WRONG_KEY), "error", 1, "answered 401; no key was sent, name its variable in api_key_env"),
    "403": Row(http(403, b"no"), "error", 1, "answered 403"),
    "404": Row(http(404, PAGE, kind="text/html"), "error", 1, "are base_url and model right?: <html>"),
    "400 context too long": Row(http(400, {"error": {"message": "maximum context length"}}), "error", 1, "maximum"),
    "400 no tools": Row(http(400, {"error": "tools are not supported"}), "error", 1, "verdict_by: json_schema"),
    "400 no streams": Row(
        http(400, {"error": "stream is not supported"}), "error", 1, "set stream: false", settings=STREAM
    ),
    "413": Row(http(413, b""), "error", 1, "answered 413"),
    "429": Row(http(429, b"slow down"), "error", 2, "requests_per_minute"),
    "500": Row(http(500, b"oops"), "error", 2, "answered 500: oops (2 attempts)"),
    "502 as a page": Row(http(502, PAGE, kind="text/html"), "error", 2, "answered 502: <html>"),
    "503": Row(http(503, b""), "error", 2, "answered 503"),
    "529": Row(http(529, b"overloaded"), "error", 2, "answered 529: overloaded"),
    "a redirect without an address": Row(http(302, b""), "error", 1, "302"),
    "a page": Row(http(200, PAGE, kind="text/html"), "error", 1, "answered 200: <html>"),
    "a page for a stream": Row(http(200, PAGE, kind="text/html"), "error", 1, "answered 200: <html>", settings=STREAM),
    "an empty body": Row(http(200, b""), "error", 1, "with an empty body"),
    "an empty stream": Row(pieces([]), "error", 1, "set stream: false", settings=STREAM),
    "a whole answer for a stream": Row(http(200, WHOLE), "error", 1, "set stream: false", settings=STREAM),
    "half of the JSON": Row(http(200, WHOLE[:40]), "error", 1, 'answered 200: {"id"'),
    "less than promised": Row(http(200, WHOLE[:40], {"content-length": "9999"}), "error", 2, "no connection"),
    "not UTF-8": Row(http(200, b"\xff\xfe"), "error", 1, "answered 200"),
    "a list": Row(http(200, b"[]"), "error", 1, "answered 200: []"),
    "no choices": Row(http(200, {"id": "x", "model": "judge-1", "choices": []}), "error", 1, "answered 200"),
    "what is not gzip": Row(http(200, b"plain", {"content-encoding": "gzip"}), "error", 1, "127.0.0.1"),
    "cut off by length": Row(says(PASS, end="length"), "error", 1, "raise max_tokens"),
    "stopped by a filter": Row(says(PASS, end="filter"), "error", 1, "stopped by a filter"),
    "a refusal": Row(says(PASS, refusal="I cannot"), "error", 1, "refused to judge"),
    "another model": Row(says(PASS, model="other-9"), "error", 1, "accept_models"),
    "too much": Row(says(PASS, text="x" * 1_100_000), "error", 1, "longer than"),
    "silence": Row(silent, "error", 2, "within", settings={"timeouts": QUICK}),
    "a stream that hangs": Row(
        pieces([*VENDOR.events(Said(PASS))[:2], HANG]), "error", 2, "within", settings={"timeouts": QUICK} | STREAM
    ),
    "a stream that is dropped": Row(
        pieces([*VENDOR.events(Said(PASS))[:2], RESET]), "error", 2, "no connection", settings=STREAM
    ),
    "a stream that ends early": Row(
        pieces(VENDOR.events(Said(PASS))[:3]), "error", 1, "ended before the model did", settings=STREAM
    ),
    "an error in a stream": Row(
        pieces([VENDOR.error_event("invalid_request_error", "no")]), "error", 1, "no", settings=STREAM
    ),
    "a dropped connection": Row(dropped, "error", 2, "no connection to the judge's model at http://127.0.0.1"),
    "words": Row(says(text="I think it passes."), "error", 2, "I think it passes.; if its server ignores tool_choice"),
    "nothing": Row(says(), "error", 2, "called no tool"),
    "another tool": Row(says(("shell", {"command": "ls"})), "error", 2, "called 'shell', which is not a verdict"),
    "a pass next to another tool": Row(says(PASS, ("shell", {})), "error", 2, "'shell'"),
    "a pass next to a broken fail": Row(says(PASS, ("set_waza_grade_fail", {"reason": 7})), "error", 2, "wrong"),
    "another prefix": Row(says(("tools.set_waza_grade_pass", {"reason": "r"})), "error", 2, "not a verdict"),
    "two extra arguments": Row(says(("set_waza_grade_pass", {"reason": "r", "a": 1, "b": 2})), "error", 2, "a, b"),
    "arguments that are a text": Row(says(("set_waza_grade_pass", '"yes"')), "error", 2, "not a JSON object"),
    "half of the arguments": Row(says(("set_waza_grade_pass", '{"reason": "o')), "error", 2, "not a JSON object"),
    "score 4.5": Row(scoring({"reason": "r", "score": 4.5}), "error", 2, "wrong arguments", CLEAR),
    "score 6": Row(scoring({"reason": "r", "score": 6}), "error", 2, "wrong arguments", CLEAR),
    'score "4"': Row(scoring({"reason": "r", "score": "4"}), "error", 2, "wrong arguments", CLEAR),
    "two different scores": Row(
        says(*[("set_waza_grade_score", {"reason": "r", "score": score}) for score in (5, 1)]),
        "error",
        2,
        "different verdicts",
        CLEAR,
    ),
    "always the first of two": Row(
        says(("set_pairwise_winner", {"reasoning": "r", "winner": "A", "magnitude": "equal"})),
        "error",
        2,
        "inconclusive",
        BETTER,
    ),
    "JSON without the ticket": Row(in_json(ticket="0"), "error", 2, "called no tool", settings=JSON_MODE),
    "JSON with two extra keys": Row(in_json(a=1, b=2), "error", 2, "called no tool", settings=JSON_MODE),
    "JSON twice": Row(in_json("{} "), "error", 2, "called no tool", settings=JSON_MODE),
    "JSON in words": Row(in_json("It passes: "), "error", 2, "It passes:", settings=JSON_MODE),
    "JSON inside <think>": Row(in_json("<think>", "</think>"), "error", 2, "no verdict", settings=JSON_MODE),
}
BEHAVIOURS = VERDICTS | ERRORS
ONE_REQUEST = ("score 4.0", "one extra argument", "a functions. prefix", "fenced JSON", "JSON after <think>")


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_a_behaviour_of_the_server_is_a_right_verdict_or_an_error_that_says_why(name):
    row = BEHAVIOURS[name]
    with serving(row.answer) as server:
        given = {"model": "judge-1", "retries": 1, "max_wait_seconds": 0.01, "stream": False} | row.settings
        judge = OpenaiJudge(base_url=f"{server.url}/v1", **given)
        grade = row.grader.grade(Trace(input="hi", output="hello", baseline_output="hey"), judge=judge)
        requests = len(server.requests)
    assert (grade.status, requests) == (row.status, row.requests), grade.feedback
    assert row.words in grade.feedback + json.dumps(grade.details), grade.feedback
    assert grade.score == 0.0 or grade.status != "error"
    if grade.status == "error" and row.grader is not BETTER:
        assert server.url in grade.feedback, "an error names the address"
    if not given["stream"]:
        assert "stream: false" not in grade.feedback


def test_the_table_has_what_it_must():
    assert len(BEHAVIOURS) >= 43 and all(BEHAVIOURS[name].requests == 1 for name in ONE_REQUEST)
    assert {row.status for row in VERDICTS.values()} == {"passed", "failed"}
    assert {row.status for row in ERRORS.values()} == {"error"}


def test_nobody_there():
    server = ModelServer(GOOD)
    server.close()
    grade = POLITE.grade(Trace(input="", output="x"), judge=OpenaiJudge(base_url=server.url, model="m", retries=0))
    assert grade.status == "error" and f"no connection to the judge's model at {server.url}" in grade.feedback
