"""A model server on loopback that answers as it is told: OpenAI's chat completions and Anthropic's messages.

An answer is a function that writes to the connection, so that every fault of a real server, down to the bytes, can be
acted out. Answers are taken in order; the last one is repeated.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HANG, RESET = object(), object()
"""Pieces of a stream: say nothing more; drop the connection."""
Answer = Callable[["Connection"], None]


class Connection:
    """What an answer writes to."""

    def __init__(self, handler: BaseHTTPRequestHandler, body: dict[str, Any], closing: threading.Event) -> None:
        self._handler = handler
        self.body = body
        self.headers = handler.headers
        self.closing = closing

    def write(self, data: bytes) -> None:
        self._handler.wfile.write(data)
        self._handler.wfile.flush()

    def reset(self) -> None:
        linger = struct.pack("ii", 1, 0)
        self._handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._handler.connection.close()


class ModelServer:
    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[dict[str, Any]] = []
        self.headers: list[Any] = []
        self._at_once = [0]
        self._closing = threading.Event()
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers.get("content-length", 0)))
                with server._lock:
                    server.requests.append(json.loads(raw))
                    server.headers.append(self.headers)
                    answer = server.answers[min(len(server.requests), len(server.answers)) - 1]
                    at_once = server._at_once
                    at_once.append(at_once[-1] + 1)
                try:
                    answer(Connection(self, json.loads(raw), server._closing))
                except (ConnectionError, ValueError, OSError):
                    pass
                finally:
                    with server._lock:
                        at_once.append(at_once[-1] - 1)
                self.close_connection = True

            do_GET = do_POST

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def tell(self, *answers: Answer) -> None:
        """Answer so from now on; what was asked before is forgotten."""
        self._closing = threading.Event()
        self.answers, self.requests, self.headers = list(answers), [], []
        self._at_once = [0]  # whoever was asked before the change ends in the old list

    @property
    def most_at_once(self) -> int:
        """How many requests were being answered at the same time at most."""
        return max(self._at_once)

    def hush(self) -> None:
        """Let go of everyone who still waits for an answer."""
        self._closing.set()

    def close(self) -> None:
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


_SHARED: list[ModelServer] = []


@contextmanager
def serving(*answers: Answer) -> Iterator[ModelServer]:
    """The server of this process with these answers; one address, so that a judge's connections are made once."""
    if not _SHARED:
        _SHARED.append(ModelServer())
    server = _SHARED[0]
    server.tell(*answers)
    try:
        yield server
    finally:
        server.hush()


def http(status: int, body: Any = b"", headers: dict[str, str] | None = None, kind: str = "application/json") -> Answer:
    """A whole answer; `body` is JSON unless it is bytes."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {"content-type": kind, "content-length": str(len(raw)), "connection": "close"} | (headers or {})

    def answer(to: Connection) -> None:
        head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        to.write(f"HTTP/1.1 {status} Status\r\n{head}\r\n".encode() + raw)

    return answer


def pieces(parts: Iterable[Any], kind: str = "text/event-stream") -> Answer:
    """An answer in pieces: bytes are written, a number is a pause in seconds."""

    def answer(to: Connection) -> None:
        to.write(f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n".encode())
        for part in parts:
            if part is HANG:
                to.closing.wait(10)
                return
            if part is RESET:
                to.reset()
                return
            if isinstance(part, float):
                if to.closing.wait(part):
                    return
            else:
                to.write(part)

    return answer


def silent(to: Connection) -> None:
    """Take the request and never answer."""
    to.closing.wait(10)


def dropped(to: Connection) -> None:
    """Drop the connection without a word."""
    to.reset()


def event(data: Any, name: str = "") -> bytes:
    """One server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data)
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


class Said:
    """What a model says, before it is put in a vendor's words."""

    def __init__(
        self,
        *calls: tuple[str, Any],
        text: str = "",
        model: str = "judge-1",
        end: str = "",
        refusal: str = "",
        usage: bool = True,
    ) -> None:
        self.calls = [(name, args if isinstance(args, str) else json.dumps(args)) for name, args in calls]
        self.text, self.model, self.end, self.refusal, self.usage = text, model, end, refusal, usage


PASS = ("set_waza_grade_pass", {"description": "polite", "reason": "it greets"})
FAIL = ("set_waza_grade_fail", {"description": "polite", "reason": "it does not greet"})


class OpenAI:
    """OpenAI's chat completions."""

    path = "/v1"
    ends = {"length": "length", "filter": "content_filter"}

    def whole(self, said: Said) -> Any:
        message: dict[str, Any] = {"role": "assistant", "content": said.text or None}
        if said.refusal:
            message["refusal"] = said.refusal
        if said.calls:
            message["tool_calls"] = [
                {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": args}}
                for n, (name, args) in enumerate(said.calls)
            ]
        end = self.ends.get(said.end) or ("tool_calls" if said.calls else "stop")
        found = {"id": "x", "object": "chat.completion", "created": 1, "model": said.model}
        found["choices"] = [{"index": 0, "message": message, "finish_reason": end}]
        return found | ({"usage": {"prompt_tokens": 120, "completion_tokens": 17}} if said.usage else {})

    def chunk(self, delta: Any, end: str | None = None, model: str = "judge-1", index: int = 0) -> bytes:
        choice = {"index": index, "delta": delta, "finish_reason": end}
        return event({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": model, "choices": [choice]})

    def events(self, said: Said) -> list[bytes]:
        found = [self.chunk({"role": "assistant", "content": ""}, model=said.model)]
        if said.text:
            found += [self.chunk({"content": part}, model=said.model) for part in (said.text[:7], said.text[7:])]
        if said.refusal:
            found.append(self.chunk({"refusal": said.refusal}, model=said.model))
        for n, (name, args) in enumerate(said.calls):
            start = {"index": n, "id": f"c{n}", "type": "function", "function": {"name": name, "arguments": ""}}
            found.append(self.chunk({"tool_calls": [start]}, model=said.model))
            for part in (args[:5], args[5:]):
                more = {"index": n, "function": {"arguments": part}}
                found.append(self.chunk({"tool_calls": [more]}, model=said.model))
        end = self.ends.get(said.end) or ("tool_calls" if said.calls else "stop")
        found.append(self.chunk({}, end, model=said.model))
        if said.usage:
            usage = {"prompt_tokens": 120, "completion_tokens": 17}
            found.append(event({"id": "x", "model": said.model, "choices": [], "usage": usage}))
        return [*found, event("[DONE]")]

    def error(self, status: int, kind: str, text: str, headers: dict[str, str] | None = None) -> Answer:
        return http(status, {"error": {"message": text, "type": kind, "code": kind}}, headers)

    def error_event(self, kind: str, text: str) -> bytes:
        return event({"error": {"message": text, "type": kind, "code": kind}})


class Anthropic:
    """Anthropic's messages."""

    path = ""
    ends = {"length": "max_tokens", "filter": "refusal"}

    def whole(self, said: Said) -> Any:
        content: list[Any] = [{"type": "text", "text": said.text}] if said.text else []
        for n, (name, args) in enumerate(said.calls):
            try:
                given = json.loads(args)
            except ValueError:
                given = args
            content.append({"type": "tool_use", "id": f"t{n}", "name": name, "input": given})
        found = {"id": "m", "type": "message", "role": "assistant", "model": said.model, "content": content}
        found["stop_reason"] = self._end(said)
        return found | ({"usage": {"input_tokens": 120, "output_tokens": 17}} if said.usage else {})

    def _end(self, said: Said) -> str:
        if said.refusal:
            return "refusal"
        return self.ends.get(said.end) or ("tool_use" if said.calls else "end_turn")

    def events(self, said: Said) -> list[bytes]:
        message: dict[str, Any] = {"id": "m", "type": "message", "role": "assistant", "model": said.model}
        message |= {"content": [], "stop_reason": None}
        message |= {"usage": {"input_tokens": 120, "output_tokens": 1}} if said.usage else {}
        found = [self._event({"type": "message_start", "message": message}), self._event({"type": "ping"})]
        blocks: list[tuple[Any, list[Any]]] = []
        if said.text:
            parts = [{"type": "text_delta", "text": part} for part in (said.text[:7], said.text[7:])]
            blocks.append(({"type": "text", "text": ""}, parts))
        for n, (name, args) in enumerate(said.calls):
            parts = [{"type": "input_json_delta", "partial_json": part} for part in (args[:5], args[5:])]
            blocks.append(({"type": "tool_use", "id": f"t{n}", "name": name, "input": {}}, parts))
        for index, (block, deltas) in enumerate(blocks):
            found.append(self._event({"type": "content_block_start", "index": index, "content_block": block}))
            found += [self._event({"type": "content_block_delta", "index": index, "delta": d}) for d in deltas]
            found.append(self._event({"type": "content_block_stop", "index": index}))
        usage = {"usage": {"output_tokens": 17}} if said.usage else {}
        found.append(self._event({"type": "message_delta", "delta": {"stop_reason": self._end(said)}} | usage))
        return [*found, self._event({"type": "message_stop"})]

    def _event(self, data: Any) -> bytes:
        return event(data, data["type"])

    def error(self, status: int, kind: str, text: str, headers: dict[str, str] | None = None) -> Answer:
        return http(status, {"type": "error", "error": {"type": kind, "message": text}}, headers)

    def error_event(self, kind: str, text: str) -> bytes:
        return event({"type": "error", "error": {"type": kind, "message": text}}, "error")
