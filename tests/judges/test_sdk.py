"""Everything a model server can do wrong, through the vendors' own SDKs: a right verdict or an error, never a score."""

import gzip
import json
import re
from email.utils import formatdate
from time import time

import pytest
from model_server import (
    FAIL,
    HANG,
    PASS,
    RESET,
    Anthropic,
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

from campaign import count
from waza import Trace
from waza.graders.composed import CompositeGrader
from waza.graders.llm import LlmGrader
from waza.graders.prompt import PromptGrader
from waza.judges.anthropic import AnthropicJudge
from waza.judges.openai import OpenaiJudge
from waza.runs.outcomes import judge_spending
from waza.spending import metering

pytestmark = pytest.mark.sampled

PATIENT = {"connect_seconds": 10, "first_byte_seconds": 10, "idle_seconds": 10, "total_seconds": 20}
QUICK = {"connect_seconds": 10, "first_byte_seconds": 0.4, "idle_seconds": 0.4, "total_seconds": 1.2}
"""For servers that hang; a right answer may be late then, on a busy machine, and is asked for once more."""
WAYS = {
    "openai": (OpenaiJudge, OpenAI(), True),
    "openai-whole": (OpenaiJudge, OpenAI(), False),
    "anthropic": (AnthropicJudge, Anthropic(), True),
    "anthropic-whole": (AnthropicJudge, Anthropic(), False),
}


class Way:
    """One SDK in one of its two modes, with a vendor's words for what a model says."""

    def __init__(self, name):
        self.cls, self.vendor, self.stream = WAYS[name]

    def says(self, *calls, **how):
        said = Said(*calls, **how)
        return pieces(self.vendor.events(said)) if self.stream else http(200, self.vendor.whole(said))

    def error(self, *args, **how):
        return self.vendor.error(*args, **how)

    def body(self, raw, kind="application/json"):
        """A body that is not what it should be, as a stream or whole."""
        return pieces([raw], "text/event-stream") if self.stream else http(200, raw, kind=kind)

    def grade(self, server, grader=None, **settings):
        given = {"model": "judge-1", "retries": 2, "max_wait_seconds": 0.01, "timeouts": PATIENT} | settings
        judge = self.cls(base_url=server.url + self.vendor.path, stream=self.stream, **given)
        return (grader or PromptGrader(prompt="Is it polite?")).grade(Trace(input="hi", output="hello"), judge=judge)


def no_verdict(grade):
    """Count a fault, and say whether it came to an error rather than to a verdict."""
    count("judge faults")
    count("verdicts from a fault", (grade.status, grade.score) != ("error", 0.0))
    return (grade.status, grade.score) == ("error", 0.0)


@pytest.fixture(params=WAYS)
def way(request):
    return Way(request.param)


def right(way):
    return way.says(PASS)


RETRY_AFTER = {
    "none": {},
    "seconds": {"retry-after": "1"},
    "zero": {"retry-after": "0"},
    "fraction": {"retry-after": "0.5"},
    "negative": {"retry-after": "-5"},
    "absurd": {"retry-after": "99999999999"},
    "infinite": {"retry-after": "inf"},
    "no number": {"retry-after": "nan"},
    "words": {"retry-after": "soon"},
    "a date": {"retry-after": formatdate(time() + 30, usegmt=True)},
    "a date gone by": {"retry-after": formatdate(time() - 3000, usegmt=True)},
    "a date far off": {"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"},
    "milliseconds": {"retry-after-ms": "20"},
    "milliseconds below zero": {"retry-after-ms": "-20", "retry-after": "3"},
}


@pytest.mark.parametrize("headers", RETRY_AFTER.values(), ids=RETRY_AFTER)
def test_too_many_requests_is_waited_for_as_asked_but_not_for_ever(headers):
    way = Way("openai")
    with serving(way.error(429, "rate_limit_error", "slow down", headers=headers), right(way)) as server:
        grade = way.grade(server)
    assert (grade.status, grade.score, len(server.requests)) == ("passed", 1.0, 2), grade.feedback


PASSING = {
    "429": lambda way: way.error(429, "rate_limit_error", "slow down", headers={"retry-after": "7"}),
    "500": lambda way: way.error(500, "server_error", "oops"),
    "502 as a page": lambda way: http(502, b"<html><h1>Bad gateway</h1></html>", kind="text/html"),
    "503": lambda way: http(503, b""),
    "529": lambda way: way.error(529, "overloaded_error", "overloaded"),
    "408": lambda way: http(408, b"{}"),
    "409": lambda way: http(409, b"{}"),
    "dropped": lambda way: dropped,
    "dropped in the head": lambda way: lambda to: (to.write(b"HTTP/1.1 200 OK\r\ncontent-"), to.reset()),
}


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_what_passes_is_asked_again(way, fault):
    with serving(fault(way), right(way)) as server:
        grade = way.grade(server)
    assert (grade.status, grade.score, len(server.requests)) == ("passed", 1.0, 2), grade.feedback


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_what_does_not_pass_is_an_error_after_all_attempts(way, fault):
    with serving(fault(way)) as server:
        grade = way.grade(server, retries=1)
    assert no_verdict(grade) and len(server.requests) == 2
    assert "could not answer" in grade.feedback and "2 attempts" in grade.feedback


def test_a_server_that_hangs_is_left_and_asked_again(way):
    with serving(silent, right(way)) as server:
        grade = way.grade(server, timeouts=QUICK, retries=4)
    assert grade.status == "passed" and len(server.requests) >= 2, grade.feedback
    with serving(silent) as server:
        grade = way.grade(server, timeouts=QUICK, retries=0)
    assert grade.status == "error" and "within" in grade.feedback


FINAL = {
    "401": lambda way: way.error(401, "authentication_error", "bad key"),
    "403": lambda way: way.error(403, "permission_error", "not yours"),
    "404": lambda way: way.error(404, "not_found_error", "no such model"),
    "context too long": lambda way: way.error(400, "context_length_exceeded", "maximum context length is 8192"),
    "413": lambda way: way.error(413, "request_too_large", "too large"),
    "422": lambda way: way.error(422, "invalid_request_error", "what?"),
    "400 as a page": lambda way: http(400, b"<html>no</html>", kind="text/html"),
    "302 to itself": lambda way: http(302, b"", {"location": "/elsewhere"}),
    "a page": lambda way: http(200, b"<html><body>Welcome</body></html>", kind="text/html"),
    "a page that says pass": lambda way: http(200, b"<html>set_waza_grade_pass({})</html>", kind="text/html"),
    "nothing": lambda way: http(200, b""),
    "broken JSON": lambda way: way.body(b'data: {"choices": [\n\n' if way.stream else b'{"choices": ['),
    "not UTF-8": lambda way: way.body(b"data: \xff\xfe\n\n" if way.stream else b"\xff\xfe"),
    "a list": lambda way: way.body(b"event: message_start\ndata: []\n\n" if way.stream else b"[]"),
    "a number": lambda way: way.body(b"event: message_start\ndata: 7\n\n" if way.stream else b"7"),
    "null": lambda way: way.body(b"event: message_start\ndata: null\n\n" if way.stream else b"null"),
    "a text": lambda way: way.body(b'event: message_start\ndata: "pass"\n\n' if way.stream else b'"pass"'),
    "an empty object": lambda way: way.body(b"event: message_start\ndata: {}\n\n" if way.stream else b"{}"),
    "no gzip": lambda way: http(200, b"not gzip at all", {"content-encoding": "gzip"}),
    "half a gzip": lambda way: http(200, gzip.compress(b"{}" * 999)[:20], {"content-encoding": "gzip"}),
    "less than promised": lambda way: http(200, b'{"choices"', {"content-length": "9999"}),
    "cut off by length": lambda way: way.says(PASS, end="length"),
    "stopped by a filter": lambda way: way.says(PASS, end="filter"),
    "refusal": lambda way: way.says(refusal="I cannot help with that"),
    "refusal beside a pass": lambda way: way.says(PASS, refusal="I cannot help with that"),
    "another model": lambda way: way.says(PASS, model="other-9"),
    "a smaller model": lambda way: way.says(PASS, model="judge-1-mini"),
    "too much": lambda way: way.says(PASS, text="x" * 2_000_000),
}


@pytest.mark.parametrize("fault", FINAL.values(), ids=FINAL)
def test_what_asking_again_cannot_mend_is_an_error(way, fault):
    with serving(fault(way)) as server:
        grade = way.grade(server)
    assert no_verdict(grade), grade.feedback
    assert grade.details["judge"]["type"] == way.cls.type_name()


NO_VERDICT = {
    "only words": lambda way: way.says(text="I think it passes."),
    "words that look like a call": lambda way: way.says(text='{"name": "set_waza_grade_pass", "arguments": {}}'),
    "nothing said": lambda way: way.says(),
    "unknown tool": lambda way: way.says(("grade_pass", {})),
    "no name": lambda way: way.says(("", {})),
    "the name in capitals": lambda way: way.says(("SET_WAZA_GRADE_PASS", {})),
    "another kind of verdict": lambda way: way.says(("set_waza_grade_score", {"score": 5})),
    "a pass beside an unknown tool": lambda way: way.says(PASS, ("shell", {"command": "ls"})),
    "a pass beside a broken fail": lambda way: way.says(PASS, ("set_waza_grade_fail", {"reason": 7})),
    "arguments are a list": lambda way: way.says(("set_waza_grade_pass", [])),
    "arguments are a text": lambda way: way.says(("set_waza_grade_pass", '"yes"')),
    "arguments are a number": lambda way: way.says(("set_waza_grade_pass", "1")),
    "arguments are null": lambda way: way.says(("set_waza_grade_pass", "null")),
    "a reason that is a number": lambda way: way.says(("set_waza_grade_pass", {"reason": 1})),
    "a reason that is a list": lambda way: way.says(("set_waza_grade_pass", {"reason": ["ok"]})),
    "a reason that is null": lambda way: way.says(("set_waza_grade_pass", {"reason": None})),
    "two extra arguments": lambda way: way.says(("set_waza_grade_pass", {"reason": "ok", "score": 1, "x": 2})),
    "half an argument": lambda way: way.says(("set_waza_grade_pass", '{"reason": "o')),
    "two arguments in one": lambda way: way.says(("set_waza_grade_pass", '{"reason": "a"}{"reason": "b"}')),
    "a key twice": lambda way: way.says(("set_waza_grade_pass", '{"reason": 1, "reason": 2}')),
    "no number": lambda way: way.says(("set_waza_grade_pass", '{"reason": NaN}')),
    "nested too deeply": lambda way: way.says(("set_waza_grade_pass", '{"reason": ' + "[" * 400 + "]" * 400 + "}")),
}


@pytest.mark.parametrize("fault", NO_VERDICT.values(), ids=NO_VERDICT)
def test_what_is_no_verdict_is_an_error_after_one_reminder(way, fault):
    with serving(fault(way)) as server:
        grade = way.grade(server)
    assert no_verdict(grade), grade.feedback
    assert len(server.requests) <= 2


def test_a_verdict_after_the_reminder_counts(way):
    with serving(way.says(text="It passes."), way.says(FAIL)) as server:
        grade = way.grade(server)
    assert (grade.status, grade.score, grade.details["judge"]["reminders"]) == ("failed", 0.0, 1)
    assert "no valid verdict came" in json.dumps(server.requests[1])
    assert grade.details["judge"]["tokens"] == {"input": 240, "output": 34}


def test_right_verdicts_are_taken(way):
    with serving(way.says(PASS), way.says(FAIL), way.says(PASS, FAIL), way.says(PASS, PASS, text="Both.")) as server:
        grades = [way.grade(server, prices={"input": 1.0, "output": 2.0}) for _ in range(4)]
    assert [(grade.status, grade.score) for grade in grades] == [
        ("passed", 1.0),
        ("failed", 0.0),
        ("failed", 0.5),
        ("passed", 1.0),
    ]
    judge = grades[0].details["judge"]
    assert judge["tokens"] == {"input": 120, "output": 17}
    assert judge["cost_usd"] == pytest.approx((120 + 34) / 1e6)
    assert judge["answered_by"] == "judge-1" and not judge["cached"]


def test_a_dated_release_is_the_model_that_was_asked(way):
    with serving(way.says(PASS, model="judge-1-2026-11-01"), way.says(PASS, model="deployed")) as server:
        dated = way.grade(server)
        named = way.grade(server, accept_models=["deploy*"])
    assert dated.status == named.status == "passed"
    assert dated.details["judge"]["answered_by"] == "judge-1-2026-11-01"


def test_what_was_not_counted_costs_nobody_knows_what(way):
    with serving(way.says(PASS, usage=False)) as server:
        judge = way.grade(server, prices={"input": 1.0, "output": 2.0}).details["judge"]
    assert judge["cost_usd"] is None and judge["tokens"] == {"input": None, "output": None}


SCORES = {
    "0": 0,
    "6": 6,
    "4.5": 4.5,
    "a text": '"5"',
    "true": "true",
    "null": "null",
    "minus": -3,
    "1e1": "1e1",
}


@pytest.mark.parametrize("score", SCORES)
def test_a_score_that_is_not_on_the_scale_is_no_score(way, score):
    with serving(way.says(("set_waza_grade_score", f'{{"score": {score}}}'))) as server:
        grade = way.grade(server, LlmGrader(prompt="How polite?"))
    assert no_verdict(grade)


def test_scores_that_do_not_agree_are_no_score(way):
    calls = [("set_waza_grade_score", {"score": score}) for score in (5, 1)]
    with serving(way.says(*calls), way.says(*calls), way.says(calls[0])) as server:
        assert way.grade(server, LlmGrader(prompt="How polite?")).status == "error"
        grade = way.grade(server, LlmGrader(prompt="How polite?"))
    assert (grade.status, grade.score) == ("passed", 1.0)


def broken_streams(vendor):
    """Streams of a pass that go wrong in the middle, and whether asking again may help."""
    good = vendor.events(Said(PASS, text="Let me see."))
    half = good[: len(good) // 2]
    before_end = good[:-3]
    return {
        "hangs in the middle": ([*half, HANG], True),
        "hangs before its end": ([*before_end, HANG], True),
        "is dropped in the middle": ([*half, RESET], True),
        "drips": ([piece for byte in b"".join(good) for piece in (bytes([byte]), 0.01)], True),
        "drips in events": ([piece for one in good for piece in (one, 0.25)], True),
        "ends in the middle": (half, False),
        "ends before its end": (before_end, False),
        "is overloaded": ([*half, vendor.error_event("overloaded_error", "overloaded")], True),
        "has an error": ([*half, vendor.error_event("invalid_request_error", "no")], False),
        "has garbage": ([*half, b"event: content_block_delta\ndata: {{{\n\n", *good[len(half) :]], False),
        "is only comments": ([b": wait\n\n"] * 3, False),
        "is only keep-alive": ([b": wait\n\n", HANG], True),
    }


@pytest.mark.parametrize("vendor", [OpenAI(), Anthropic()], ids=["openai", "anthropic"])
@pytest.mark.parametrize("name", broken_streams(OpenAI()))
def test_a_broken_stream_is_never_a_verdict(vendor, name):
    way = Way("openai" if isinstance(vendor, OpenAI) else "anthropic")
    parts, passes = broken_streams(vendor)[name]
    with serving(pieces(parts)) as server:
        grade = way.grade(server, timeouts=QUICK, retries=0)
    assert no_verdict(grade)
    with serving(pieces(parts), right(way)) as server:
        grade = way.grade(server, timeouts=QUICK, retries=4)
    assert grade.status == ("passed" if passes else "error"), grade.feedback


WRONG_TYPES = [
    {"choices": "pass"},
    {"choices": {}},
    {"choices": []},
    {"choices": [[]]},
    {"choices": [None]},
    {"choices": [{"index": 0, "finish_reason": "stop", "DELTA": "pass"}]},
    {"choices": [{"index": 0, "finish_reason": "stop", "DELTA": {"content": 5}}]},
    {"choices": [{"index": 0, "finish_reason": 1, "DELTA": {"content": "x"}}]},
    {"choices": [{"index": 0, "finish_reason": "stop", "DELTA": {"tool_calls": "set_waza_grade_pass"}}]},
    {"choices": [{"index": 0, "finish_reason": "stop", "DELTA": {"tool_calls": {"name": "set_waza_grade_pass"}}}]},
    {"choices": [{"index": 0, "finish_reason": "stop", "DELTA": {"tool_calls": ["set_waza_grade_pass"]}}]},
    {"choices": [{"index": 0, "finish_reason": "stop", "DELTA": {"tool_calls": [{"index": 0, "function": "x"}]}}]},
    {
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "DELTA": {"tool_calls": [{"index": 0, "function": {"name": "set_waza_grade_pass", "arguments": 1}}]},
            }
        ]
    },
    {
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "DELTA": {"function_call": {"name": "set_waza_grade_pass", "arguments": "{}"}},
            }
        ]
    },
    {
        "choices": [
            {
                "index": number,
                "finish_reason": "tool_calls",
                "DELTA": {
                    "tool_calls": [
                        {"index": 0, "id": "c", "function": {"name": f"set_waza_grade_{verdict}", "arguments": "{}"}}
                    ]
                },
            }
            for number, verdict in enumerate(("pass", "fail"))
        ]
    },
]


@pytest.mark.parametrize("name", ["openai", "openai-whole"])
@pytest.mark.parametrize("number", range(len(WRONG_TYPES)))
def test_a_chat_completion_of_another_shape_is_no_verdict(name, number):
    way = Way(name)
    key = "delta" if way.stream else "message"
    body = json.loads(json.dumps({"id": "x", "model": "judge-1", **WRONG_TYPES[number]}).replace("DELTA", key))
    with serving(pieces([event(body), event("[DONE]")]) if way.stream else http(200, body)) as server:
        grade = way.grade(server)
    assert no_verdict(grade), grade.feedback


WRONG_BLOCKS = [
    "set_waza_grade_pass",
    {"type": "tool_use", "name": 5, "input": {}},
    {"type": "tool_use", "name": "set_waza_grade_pass", "input": "yes"},
    {"type": "tool_use", "name": "set_waza_grade_pass", "input": [1]},
    {"type": "server_tool_use", "name": "set_waza_grade_pass", "input": {}},
    {"type": "text", "text": 7},
    {"type": 1},
    {},
]


@pytest.mark.parametrize("name", ["anthropic", "anthropic-whole"])
@pytest.mark.parametrize("number", range(len(WRONG_BLOCKS)))
def test_a_message_of_another_shape_is_no_verdict(name, number):
    way = Way(name)
    block = WRONG_BLOCKS[number]
    message = way.vendor.whole(Said()) | {"content": [] if way.stream else [block], "stop_reason": "tool_use"}
    events = [
        event({"type": "message_start", "message": message}, "message_start"),
        event({"type": "content_block_start", "index": 0, "content_block": block}, "content_block_start"),
        event({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}, "message_delta"),
    ]
    with serving(pieces(events) if way.stream else http(200, message)) as server:
        grade = way.grade(server)
    assert no_verdict(grade), grade.feedback


def test_nobody_there_is_an_error(way):
    server = ModelServer(right(way))
    server.close()
    grade = way.grade(server, retries=1)
    assert grade.status == "error" and "no connection" in grade.feedback


def test_what_is_asked_is_the_question_and_the_tools(way):
    with serving(right(way)) as server:
        way.grade(server, temperature=0, reasoning_effort="low", max_tokens=500)
    (asked,) = server.requests
    text = json.dumps(asked)
    assert "Is it polite?" in text and "## Candidate output" in text and "hello" in text
    assert "set_waza_grade_pass" in text and "set_waza_grade_fail" in text
    assert asked["temperature"] == 0 and asked["max_tokens"] == 500
    assert asked["tool_choice"] in ("required", {"type": "any"}) and "low" in text


PRICES = {"input": 1000.0, "output": 10000.0}
ONCE = (120 * 1000 + 17 * 10000) / 1e6
"""What an answer of the server is billed at these prices."""


def cut_off(way):
    """An answer whose stream breaks off at its end; a whole one that says no reason for its end."""
    if not way.stream:
        body = way.vendor.whole(Said(PASS))
        for part in (body, *body.get("choices", ())):
            part |= {key: None for key in ("finish_reason", "stop_reason") if key in part}
        return http(200, body)
    events = [one for one in way.vendor.events(Said(PASS)) if b"[DONE]" not in one and b"message_stop" not in one]
    return pieces([re.sub(rb'_reason": "\w+"', b'_reason": null', one) for one in events])


def with_usage(way, status):
    """An error that carries what the request was billed all the same."""
    names = ("prompt_tokens", "completion_tokens") if way.cls is OpenaiJudge else ("input_tokens", "output_tokens")
    usage = {names[0]: 120, names[1]: 17}
    return http(status, {"type": "error", "error": {"type": "api_error", "message": "no"}, "usage": usage})


BILLED = {
    "truncated": (lambda way: way.says(PASS, end="length"), 1),
    "filtered": (lambda way: way.says(PASS, end="filter"), 1),
    "refused": (lambda way: way.says(refusal="I cannot"), 1),
    "another model": (lambda way: way.says(PASS, model="other-9"), 1),
    "no verdict": (lambda way: way.says(text="looks good"), 2),
    "a tool of its own": (lambda way: way.says(("rm", {})), 2),
    "cut off": (cut_off, 1),
    "too long": (lambda way: way.says(text="x" * 1_100_000), 1),
    "an error with its usage": (lambda way: with_usage(way, 400), 1),
    "an error with its usage, asked again": (lambda way: with_usage(way, 500), 3),
}


@pytest.mark.parametrize(("answer", "requests"), BILLED.values(), ids=BILLED)
def test_every_billed_request_counts_whatever_came_of_it(way, answer, requests):
    """The server reports usage with each of these: it is booked, though there is no verdict."""
    with serving(answer(way)) as server, metering() as meter:
        grade = way.grade(server, prices=PRICES)
    assert (grade.status, len(server.requests)) == ("error", requests), grade.feedback
    judge = grade.details["judge"]
    assert judge["tokens"] == {"input": 120 * requests, "output": 17 * requests}, grade.feedback
    assert judge["cost_usd"] == pytest.approx(ONCE * requests)
    assert judge["requests"] == requests and "requests_without_cost" not in judge
    assert meter.spending.cost_usd == pytest.approx(ONCE * requests)


def test_requests_before_a_verdict_count_and_an_unknown_cost_does_not_hide_the_known_ones(way):
    """Three requests for one verdict: one is cut off without its usage, one is billed and no verdict."""
    begun = way.vendor.events(Said(PASS, usage=False))[:2]
    lost = pieces([*begun, RESET]) if way.stream else dropped
    with serving(lost, way.says(text="hm"), way.says(PASS)) as server, metering() as meter:
        judge = way.grade(server, prices=PRICES).details["judge"]
    assert len(server.requests) == judge["requests"] == 3
    assert judge["tokens"] == {"input": 240, "output": 34} and judge["cost_usd"] == pytest.approx(2 * ONCE)
    assert judge["requests_without_cost"] == meter.spending.without_cost == 1
    with serving(http(503, b""), http(401, b"{}")) as server:
        judge = way.grade(server, prices=PRICES).details["judge"]
    assert (judge["cost_usd"], judge["requests"]) == (0.0, 2), "what the server refused is not billed"


def test_a_pair_whose_second_asking_fails_costs_both(way):
    first = way.says(("set_pairwise_winner", {"reasoning": "r", "winner": "A", "magnitude": "equal"}))
    trace = Trace(input="hi", output="hello", baseline_output="hey")
    with serving(first, way.says(end="length")) as server, metering() as meter:
        judge = way.cls(
            base_url=server.url + way.vendor.path, stream=way.stream, model="judge-1", prices=PRICES, retries=0
        )
        both = CompositeGrader(graders=[PromptGrader(prompt="Better?", mode="pairwise")])
        grade = both.graders[0].grade(trace, judge=judge)
        assert judge_spending([grade]) == meter.spending and meter.spending.cost_usd == pytest.approx(2 * ONCE)
    with serving(first, way.says(end="length")), metering() as meter:
        both.grade(trace, judge=judge)
    assert meter.spending.cost_usd == pytest.approx(2 * ONCE), "graders inside others ask judges too"
