"""A run as OpenTelemetry spans, by the GenAI conventions, sent over OTLP/HTTP during the run.

    the run ─ a trial ─┬─ invoke_agent ─ execute_tool …     with a `gen_ai.evaluation.result` event per grade
                       └─ evaluate …                        one per grade

Needs opentelemetry-sdk and its OTLP/HTTP exporter. Messages and tool arguments are sent only on demand.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.util.types import AttributeValue

from waza import __version__
from waza.model import JSON, Grade, Result, ToolEvent, Trace, Usage
from waza.traces import READERS
from waza.untrusted.text import well_formed

CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The variable that makes GenAI instrumentations send messages."""
_TEXT_CHARS = 8_192
_TRIAL_STATUS = {"passed": "pass", "failed": "fail"}
_MS = 1_000_000
_EXPORT_S = 5
_QUEUE = 1 << 16

Attributes = Mapping[str, AttributeValue | None]


class Telemetry:
    """Hears of results and sends them on; never waits for the other side, and never breaks the run."""

    def __init__(self, traces_url: str, *, suite: str, engine: str, model: str = "") -> None:
        self._engine, self._model = engine, model
        self._counts: Counter[str] = Counter()
        self._faults = _Faults()
        self._sent = _Counted(OTLPSpanExporter(endpoint=traces_url, timeout=_EXPORT_S))
        self._content = os.environ.get(CONTENT, "").lower() in ("true", "span_only", "span_and_event")
        named = {} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": "waza"}
        self._provider = TracerProvider(
            resource=Resource.create(named | {"service.version": __version__}),
            shutdown_on_exit=False,
            span_limits=SpanLimits(max_events=10_000, max_span_attribute_length=_TEXT_CHARS),
        )
        self._provider.add_span_processor(BatchSpanProcessor(self._sent, max_queue_size=_QUEUE))
        self._tracer = self._provider.get_tracer("waza", __version__)
        self._made = 0
        self._run = self._span(f"run {suite}", None, time.time_ns(), {"test.suite.name": suite, "waza.engine": engine})

    def on_result(self, result: Result) -> None:
        """Make the spans of a trial."""
        self._counts[result.status] += 1
        start = _nanos(result.started_at, result.duration_ms)
        end = start + round(result.duration_ms * _MS)
        about = {
            "test.case.name": result.task_id,
            "test.case.result.status": _TRIAL_STATUS.get(result.status),
            "waza.trial": result.trial,
            "waza.status": result.status,
            "error.type": "agent_error" if result.status == "error" else None,
        }
        trial = self._span(f"trial {result.task_id}", self._run, start, about)
        agent_end = self._agent(result, trial, start, end)
        for grade in result.grades:
            agent_end = self._graded(grade, trial, agent_end, end)
        _settle(trial, result.reason if result.status == "error" else "")
        trial.end(end)

    def close(self, *, complete: bool) -> str:
        """Send what is left; return what did not arrive, and why, or nothing."""
        status = "failure" if self._counts["failed"] or self._counts["error"] else "success"
        self._run.set_attribute("test.suite.run.status", status if complete else "aborted")
        self._run.end()
        self._provider.shutdown()
        self._faults.close()
        lost = self._made - self._sent.arrived
        return f"{lost} of {self._made} spans were not sent: {self._faults.first or 'no reason given'}" if lost else ""

    def _agent(self, result: Result, trial: Span, start: int, latest: int) -> int:
        """Make the span of what the agent did, and return when it ended."""
        trace = result.trace
        end = min(start + round((trace.duration_ms or result.duration_ms) * _MS), latest)
        engine = trace.engine or self._engine
        name = f"invoke_agent {engine}"
        span = self._span(name, trial, start, _agent_facts(trace, engine, trace.model or self._model))
        if self._content:
            span.set_attribute("gen_ai.input.messages", _messages("user", trace.input))
            span.set_attribute("gen_ai.output.messages", _messages("assistant", trace.output))
        at = start
        for event in trace.tool_events or ():
            at = self._tool(event, span, at, end)
        for grade in result.grades:
            span.add_event("gen_ai.evaluation.result", _given(_verdict(grade)), timestamp=end)
        _settle(span, trace.error or "" if trace.status in ("error", "timeout") else "")
        span.end(end)
        return end

    def _tool(self, event: ToolEvent, agent: Span, start: int, latest: int) -> int:
        """Make the span of a tool call; start times are not recorded, so calls follow each other."""
        end = min(start + round((event.duration_ms or 0) * _MS), latest)
        about: dict[str, AttributeValue | None] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": event.tool_name,
            "gen_ai.tool.call.id": event.tool_call_id,
            "error.type": None if event.success else "tool_error",
            "waza.time.estimated": True,
        }
        if self._content:
            about |= {"gen_ai.tool.call.arguments": _json(event.args), "gen_ai.tool.call.result": _json(event.result)}
        span = self._span(f"execute_tool {event.tool_name}", agent, start, about)
        _settle(span, "" if event.success else event.error or "the tool failed")
        span.end(end)
        return end

    def _graded(self, grade: Grade, trial: Span, start: int, latest: int) -> int:
        """Make the span of a grade, and return when it ended."""
        end = min(start + round((grade.duration_ms or 0) * _MS), latest)
        span = self._span(f"evaluate {grade.name}", trial, start, {"waza.grader.type": grade.type, **_verdict(grade)})
        _settle(span, grade.feedback if grade.status == "error" else "")
        span.end(end)
        return end

    def _span(self, name: str, parent: Span | None, start: int, attributes: Attributes) -> Span:
        self._made += 1
        context = set_span_in_context(parent) if parent is not None else None
        kind, given = SpanKind.INTERNAL, _given(attributes)
        return self._tracer.start_span(well_formed(name), context, kind, given, start_time=start)


def _agent_facts(trace: Trace, engine: str, model: str) -> Attributes:
    usage = trace.usage or Usage()
    return {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": _provider(engine),
        "gen_ai.agent.name": engine,
        "gen_ai.request.model": model or None,
        "gen_ai.conversation.id": trace.session_id,
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "waza.cost_usd": usage.cost_usd,
        "error.type": {"error": "agent_error", "timeout": "timeout"}.get(trace.status),
    }


def _provider(engine: str) -> str:
    """Return the vendor of an agent's models, else the agent: the conventions require a name."""
    return (READERS.load(engine).provider if READERS.knows(engine) else "") or engine


def _verdict(grade: Grade) -> Attributes:
    is_open = grade.status == "error"
    return {
        "gen_ai.evaluation.name": grade.name,
        "gen_ai.evaluation.score.value": None if is_open else float(grade.score),
        "gen_ai.evaluation.score.label": {"passed": "pass", "failed": "fail"}.get(grade.status),
        "gen_ai.evaluation.explanation": grade.feedback[:_TEXT_CHARS],
        "error.type": "undecided" if is_open else None,
    }


def _given(attributes: Attributes) -> dict[str, AttributeValue]:
    """Return the attributes that have a value, in texts that can be sent."""
    texts = {key: well_formed(value) if isinstance(value, str) else value for key, value in attributes.items()}
    return {key: value for key, value in texts.items() if value is not None}


def _settle(span: Span, fault: str) -> None:
    if fault:
        span.set_status(Status(StatusCode.ERROR, well_formed(fault[:_TEXT_CHARS])))


def _messages(role: str, text: str) -> str:
    return _json([{"role": role, "parts": [{"type": "text", "content": text}]}])


def _json(value: JSON) -> str:
    return json.dumps(value)


def _nanos(started_at: str, duration_ms: float) -> int:
    """Return when a trial began; one that is graded again began as if it ended now."""
    if not started_at:
        return time.time_ns() - round(duration_ms * _MS)
    return round(datetime.fromisoformat(started_at).timestamp() * 1000) * _MS


class _Counted(SpanExporter):
    """Counts the spans that arrived."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self.arrived = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans."""
        result = self._exporter.export(spans)
        self.arrived += len(spans) if result is SpanExportResult.SUCCESS else 0
        return result

    def shutdown(self) -> None:
        """Send no more."""
        self._exporter.shutdown()


class _Faults(logging.Handler):
    """Keeps what the SDK would print in the middle of a run."""

    _LOGGER = logging.getLogger("opentelemetry")

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.first = ""
        self._LOGGER.addHandler(self)
        self._LOGGER.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the first message; those that follow say less."""
        self.first = self.first or record.getMessage()

    def close(self) -> None:
        """Restore the SDK's logging."""
        self._LOGGER.removeHandler(self)
        self._LOGGER.propagate = True
        super().close()
