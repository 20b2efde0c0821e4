"""`--otel`: what a run sends to a real OTLP receiver, by the names of the GenAI conventions, and what it never does."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes, test_attributes
from opentelemetry.semconv.attributes import error_attributes, service_attributes

KNOWN = {
    value
    for module in (gen_ai_attributes, test_attributes, error_attributes, service_attributes)
    for name, value in vars(module).items()
    if name.isupper() and isinstance(value, str)
}
OPERATIONS = {value.value for value in gen_ai_attributes.GenAiOperationNameValues}
SUITE = {
    "name": "greetings",
    "config": {"executor": "mock", "model": "m1", "trials_per_task": 2},
    "tasks": [
        {
            "id": "good",
            "prompt": "Say hello",
            "expected": {"output_contains": ["hello"]},
            "graders": [{"type": "tool_calls", "name": "reads", "config": {"required_tools": ["read_file"]}}],
            "mock": {
                "output": "hello",
                "tool_events": [
                    {"tool_name": "read_file", "args": {"path": "a"}, "tool_call_id": "c1", "duration_ms": 5},
                    {"tool_name": "shell", "args": {}, "success": False, "error": "exit 1"},
                ],
                "usage": {"input_tokens": 12, "output_tokens": 3},
            },
        },
        {"id": "bad", "prompt": "Say hello", "expected": {"output_contains": ["hello"]}, "mock": {"output": "no"}},
        {"id": "open", "prompt": "x", "expected": {"behavior": {"max_tokens": 5}}, "mock": {"output": "no"}},
    ],
}


class Receiver:
    """A collector on loopback: keeps every span it was sent."""

    def __init__(self, status=200):
        self.paths, self.spans, self.resources = [], [], []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.paths.append(self.path)
                if status == 200:
                    receiver.take(ExportTraceServiceRequest.FromString(body))
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()

    def take(self, request):
        for group in request.resource_spans:
            self.resources.append(attributes(group.resource.attributes))
            self.spans += [span for scope in group.scope_spans for span in scope.spans]

    def named(self, start):
        return [span for span in self.spans if span.name.startswith(start)]


@contextmanager
def collector(status=200):
    receiver = Receiver(status)
    try:
        yield receiver
    finally:
        receiver.http.shutdown()
        receiver.http.server_close()
        receiver.thread.join()


def attributes(pairs):
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


@pytest.fixture
def sent(waza, tmp_path):
    """A run of the suite, at a collector."""
    (tmp_path / "eval.yaml").write_text(json.dumps(SUITE))
    with collector() as receiver:
        receiver.run = waza("run", f"--otel={receiver.url}")
    assert receiver.run.returncode == 1, receiver.run.stderr
    return receiver


def test_a_run_its_trials_its_agents_tools_and_grades_are_one_tree_of_spans(sent):
    by_id = {span.span_id: span for span in sent.spans}
    (run,) = sent.named("run ")
    assert run.name == "run greetings" and run.parent_span_id == b""
    assert {span.trace_id for span in sent.spans} == {run.trace_id}

    def parents(start):
        return {by_id[span.parent_span_id].name.split()[0] for span in sent.named(start)}

    assert (parents("trial "), parents("invoke_agent "), parents("execute_tool "), parents("evaluate ")) == (
        {"run"},
        {"trial"},
        {"invoke_agent"},
        {"trial"},
    )
    counts = [len(sent.named(start)) for start in ("trial ", "invoke_agent ", "execute_tool ", "evaluate ")]
    assert counts == [6, 6, 4, 8]
    for span in sent.spans:
        assert span.start_time_unix_nano <= span.end_time_unix_nano
        parent = by_id.get(span.parent_span_id)
        if parent is not None and parent is not run:
            assert parent.start_time_unix_nano <= span.start_time_unix_nano
            assert span.end_time_unix_nano <= parent.end_time_unix_nano


def test_every_name_is_one_of_the_conventions_or_our_own(sent):
    used = {key for span in sent.spans for key in attributes(span.attributes)}
    used |= {key for span in sent.spans for event in span.events for key in attributes(event.attributes)}
    assert {key for key in used if not key.startswith("waza.")} <= KNOWN
    told = [attributes(span.attributes) for span in sent.spans]
    assert {one["gen_ai.operation.name"] for one in told if "gen_ai.operation.name" in one} <= OPERATIONS
    assert all(one["service.name"] == "waza" for one in sent.resources)


def test_an_agent_has_what_the_conventions_require_and_its_tokens(sent):
    agent = next(span for span in sent.named("invoke_agent ") if "gen_ai.usage.input_tokens" in str(span))
    told = attributes(agent.attributes)
    assert told == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "mock",
        "gen_ai.agent.name": "mock",
        "gen_ai.request.model": "m1",
        "gen_ai.usage.input_tokens": 12,
        "gen_ai.usage.output_tokens": 3,
    }


def test_a_tool_call_that_failed_says_so_and_what_it_was_given_is_not_sent(sent):
    read, shell = (attributes(span.attributes) for span in sent.named("execute_tool ")[:2])
    assert (read["gen_ai.tool.name"], read["gen_ai.tool.call.id"]) == ("read_file", "c1") and "error.type" not in read
    assert (shell["gen_ai.tool.name"], shell["error.type"]) == ("shell", "tool_error")
    assert "Say hello" not in str(sent.spans) and "gen_ai.tool.call.arguments" not in {*read, *shell}


def test_each_grade_is_an_event_of_the_agents_span(sent):
    events = [event for span in sent.named("invoke_agent ") for event in span.events]
    assert {event.name for event in events} == {"gen_ai.evaluation.result"}
    told = {}
    for event in events:
        facts = attributes(event.attributes)
        label, name = facts.get("gen_ai.evaluation.score.label"), facts["gen_ai.evaluation.name"]
        told.setdefault((name, label), facts)
    good = told["reads", "pass"]
    assert good["gen_ai.evaluation.score.value"] == 1.0 and good["gen_ai.evaluation.explanation"]
    assert told["output_contains", "fail"]["gen_ai.evaluation.score.value"] == 0.0
    (undecided,) = (facts for (_, label), facts in told.items() if label is None)
    assert undecided["error.type"] == "undecided" and "gen_ai.evaluation.score.value" not in undecided


def test_the_runs_and_the_trials_outcomes_have_the_names_of_tests(sent):
    (run,) = sent.named("run ")
    assert attributes(run.attributes)["test.suite.run.status"] == "failure"
    statuses = [attributes(span.attributes).get("test.case.result.status") for span in sent.named("trial ")]
    assert sorted(map(str, statuses)) == ["None", "None", "fail", "fail", "pass", "pass"]


def test_what_was_said_is_sent_when_the_usual_variable_asks_for_it_without_secrets(waza, tmp_path):
    suite = json.loads(json.dumps(SUITE))
    suite["tasks"][0]["mock"]["output"] = "hello, the key is sk-hidden-value-123456"
    (tmp_path / "eval.yaml").write_text(json.dumps(suite))
    env = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true", "MY_API_KEY": "sk-hidden-value-123456"}
    with collector() as receiver:
        waza("run", "--task", "good", f"--otel={receiver.url}", env=env)
    agent, read = receiver.named("invoke_agent ")[0], receiver.named("execute_tool ")[0]
    (message,) = json.loads(attributes(agent.attributes)["gen_ai.input.messages"])
    assert message == {"role": "user", "parts": [{"type": "text", "content": "Say hello"}]}
    assert json.loads(attributes(read.attributes)["gen_ai.tool.call.arguments"]) == {"path": "a"}
    assert "hello, the key is" in str(receiver.spans) and "sk-hidden-value-123456" not in str(receiver.spans)


def test_the_endpoint_may_come_from_the_usual_variable_and_graded_runs_are_sent_too(waza, tmp_path):
    (tmp_path / "eval.yaml").write_text(json.dumps(SUITE))
    waza("run", "--task", "good")
    with collector() as receiver:
        done = waza("grade", "latest", "--otel", env={"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url})
    assert set(receiver.paths) == {"/v1/traces"}, done.stderr
    assert len(receiver.named("evaluate ")) == 4


@pytest.mark.parametrize("status", [None, 400, 404])
def test_an_endpoint_that_does_not_take_spans_costs_one_remark_and_nothing_else(waza, tmp_path, status):
    (tmp_path / "eval.yaml").write_text(json.dumps(SUITE))
    if status is None:
        done = waza("run", "--task", "good", "--otel=http://127.0.0.1:9")
    else:
        with collector(status) as receiver:
            done = waza("run", "--task", "good", f"--otel={receiver.url}")
    assert done.returncode == 0
    (line,) = [line for line in done.stderr.splitlines() if "--otel" in line]
    assert "13 of 13 spans were not sent" in line and "Traceback" not in done.stderr
    assert "1 of 1 task passed" in done.stdout


@pytest.mark.parametrize(
    ("words", "fact"), [(["--otel"], "where to?"), (["--otel", "eval.yaml"], "'eval.yaml' is not a URL")]
)
def test_without_an_address_nothing_is_run(waza, tmp_path, words, fact):
    (tmp_path / "eval.yaml").write_text(json.dumps(SUITE))
    done = waza("run", *words)
    assert done.returncode == 2 and fact in done.stderr and not (tmp_path / "runs").exists()
