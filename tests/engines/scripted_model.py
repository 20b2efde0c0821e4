"""A model on loopback that does what a script says, for real agent programs that are told to ask it.

It speaks Anthropic's Messages, OpenAI's Chat Completions and Responses, and Gemini's generateContent, in pieces or at
once. It keeps no state: the last `[[script:NAME]]` in the user's words names the script, and the number of tool results
since then is the step. A judge's question, which repeats the task's words, names its own by `[[judge:NAME]]`. Every
answer claims 120 tokens in and 17 out.

    python tests/engines/scripted_model.py --port 8765      serves until it is interrupted
"""

from __future__ import annotations

import argparse
import json
import re
import threading
import time
import uuid
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKENS_IN, TOKENS_OUT = 120, 17
SHELLS = ("Bash", "bash", "exec_command", "shell", "shell_command", "run_shell_command")
SKILL_TOOLS = ("Skill", "skill", "activate_skill")
SEARCHED = '"name": "tool_search", "arguments"'
MARK = re.compile(r"\[\[script:(\w+)\]\]")
JUDGE_MARK = re.compile(r"\[\[judge:(\w+)\]\]")


def shell(command):
    """A call of the agent's shell."""
    return {"shell": command}


def say(text):
    """An answer that ends the turn."""
    return {"say": text}


def skill(name):
    """A call of the agent's skill tool; without one, a look into the skill's file."""
    return {"skill": name}


def tool(name, arguments):
    """A call of the tool whose name ends so; `{workspace}` in its arguments is the agent's folder."""
    return {"tool": name, "arguments": arguments}


def refuse(status, message):
    """An answer of the server, not of the model."""
    return {"status": status, "message": message}


SCRIPTS = {
    "hello": [shell("echo hello > hello.txt && cat hello.txt"), say("Created hello.txt with the text hello.")],
    "report": [skill("csv-report"), shell("echo 'rows: 3' > report.txt"), say("Used csv-report and wrote report.txt.")],
    "wrong": [shell("exit 3"), say("I could not do it.")],
    "hang": [shell("echo begun > begun.txt"), shell("sleep 300"), say("Never said.")],
    "refused": [refuse(401, "scripted: invalid api key")],
    "remember": [shell("echo blue > colour.txt"), say("I will remember blue.")],
    "recall": [shell("cat colour.txt"), say("It was blue.")],
    "servers": [tool("add", {"a": 2, "b": 3}), say("2+3=5.")],
    "talk": [say("Hello, I am a scripted model.")],
}


class ScriptedModel:
    """The server; `requests` holds every body it was sent."""

    def __init__(self, scripts=None, port=0):
        self.scripts = scripts or SCRIPTS
        self.requests = []
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                listed = {"id": "scripted", "object": "model", "type": "model", "display_name": "scripted"}
                self.answer({"object": "list", "data": [listed], "has_more": False})

            def do_HEAD(self):
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
                path = self.path.split("?")[0]
                model.requests.append({"path": path, "headers": dict(self.headers), "body": body})
                if path.endswith(("/count_tokens", ":countTokens")):
                    self.answer({"input_tokens": TOKENS_IN, "totalTokens": TOKENS_IN})
                    return
                dialect = next((speak for end, speak in DIALECTS.items() if end in path), None)
                if dialect is None:
                    self.answer({"error": {"message": "no such address", "type": "not_found"}}, 404)
                    return
                status, reply = dialect(model, body, ":stream" in path or bool(body.get("stream")))
                self.answer(reply, status) if isinstance(reply, dict) else self.stream(reply)

            def answer(self, value, status=200):
                raw = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def stream(self, events):
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                self.close_connection = True
                for name, value in events:
                    head = f"event: {name}\n" if name else ""
                    text = value if isinstance(value, str) else json.dumps(value)
                    self.wfile.write(f"{head}data: {text}\n\n".encode())
                    self.wfile.flush()

            def log_message(self, *_):
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def close(self):
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def step(self, tools, talk, whole):
        """Return what to do: `talk` is what the user said and None for each group of tool results, in order."""
        if not tools:
            return say("Scripted title")
        told = [(at, MARK.findall(text)) for at, text in enumerate(talk) if text and MARK.search(text)]
        if not told:
            return say("No script is named.")
        at, names = told[-1]
        names += JUDGE_MARK.findall(talk[at])
        script, text = self.scripts[names[-1]], json.dumps(whole)
        done = talk[at:].count(None) - text.count(SEARCHED)
        return _meant(script[min(done, len(script) - 1)], tools, text)


def _meant(step, tools, whole):
    """Return a step with the names this agent uses: a call is `{"name": …, "arguments": …}`."""
    if "skill" in step:
        offered = next((name for name in SKILL_TOOLS if name in tools), None)
        if offered:
            key = next((key for key in ("skill", "name") if key in tools[offered].get("properties", {})), "name")
            return {"name": offered, "arguments": _filled(tools[offered], {key: step["skill"]})}
        path = re.search(rf"([\w.~-]*)(/[\w./~-]*{step['skill']}/SKILL\.md)", whole)
        root = path and re.search(rf"`{path[1]}` = `([^`]+)`", whole)  # Codex: short paths and a table of roots
        file = f"{root[1] if root else path[1]}{path[2]}" if path else ""
        step = shell(f"cat {file}" if path else f"echo no skill {step['skill']}; exit 9")
    if "shell" in step:
        offered = next((name for name in SHELLS if name in tools), None)
        if offered is None:
            return say("No shell is offered: " + ", ".join(tools))
        key = "command" if "command" in tools[offered].get("properties", {}) else "cmd"
        return {"name": offered, "arguments": _filled(tools[offered], {key: step["shell"]})}
    if "tool" in step:
        offered = next((name for name in tools if re.search(rf"(^|[_\-.]){step['tool']}$", name)), None)
        deferred = re.search(rf"mcp__\w+__{step['tool']}\b", whole)
        if offered is None and deferred and "tool_search" in tools:  # Qwen: tools that are fetched first
            return {"name": "tool_search", "arguments": {"query": f"select:{deferred[0]}"}}
        place = re.search(r"/[\w./-]+/workspace\b", whole)  # as the agent tells its model where it works
        filled = json.loads(json.dumps(step["arguments"]).replace("{workspace}", place[0] if place else ""))
        return {"name": offered, "arguments": filled} if offered else say("There is no such tool.")
    return step


def _filled(schema, arguments):
    """Return arguments with something in each place that the tool's schema requires."""
    blank = {"boolean": False, "integer": 1, "number": 1, "array": [], "object": {}}
    out = dict(arguments)
    for key in schema.get("required", []):
        if key not in out:
            wanted = schema["properties"].get(key, {})
            out[key] = wanted["enum"][0] if wanted.get("enum") else blank.get(wanted.get("type"), "scripted")
    return out


def _texts(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        for key in ("text", "content", "parts"):
            yield from _texts(value.get(key))


def _talk(groups):
    """Return the user's words and None for each group of results, out of `(is_result, words)`."""
    talk, was_result = [], False
    for is_result, words in groups:
        if is_result and not was_result:
            talk.append(None)
        talk += words
        was_result = is_result
    return talk


def anthropic(model, body, stream):
    tools = {one["name"]: one.get("input_schema", {}) for one in body.get("tools") or []}
    groups = []
    for message in body.get("messages", []):
        blocks = message["content"] if isinstance(message["content"], list) else [message["content"]]
        results = [block for block in blocks if isinstance(block, dict) and block.get("type") == "tool_result"]
        words = [block for block in blocks if block not in results] if message["role"] == "user" else []
        groups += [(True, [])] if results else []
        groups.append((False, list(_texts(words))))
    step = model.step(tools, _talk(groups), body)
    if "status" in step:
        error = {"type": "authentication_error", "message": step["message"]}
        return step["status"], {"type": "error", "error": error}
    if "say" in step:
        block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": step["say"]}
        whole, stop = {"type": "text", "text": step["say"]}, "end_turn"
    else:
        whole = {"type": "tool_use", "id": f"toolu_{_id()}", "name": step["name"], "input": step["arguments"]}
        block, stop = whole | {"input": {}}, "tool_use"
        delta = {"type": "input_json_delta", "partial_json": json.dumps(step["arguments"])}
    usage = {"input_tokens": TOKENS_IN, "output_tokens": TOKENS_OUT}
    usage |= {"cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
    message = {"id": f"msg_{_id()}", "type": "message", "role": "assistant", "model": body.get("model")}
    message |= {"content": [whole], "stop_reason": stop, "stop_sequence": None, "usage": usage}
    if not stream:
        return 200, message
    events = [
        {"type": "message_start", "message": message | {"content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]
    return 200, [(event["type"], event) for event in events]


def chat(model, body, stream):
    tools = {one["function"]["name"]: one["function"].get("parameters", {}) for one in body.get("tools") or []}
    groups = [
        (message["role"] == "tool", list(_texts(message.get("content"))) if message["role"] == "user" else [])
        for message in body.get("messages", [])
    ]
    step = model.step(tools, _talk(groups), body)
    if "status" in step:
        error = {"message": step["message"], "type": "invalid_request_error", "code": "invalid_api_key"}
        return step["status"], {"error": error}
    message = {"role": "assistant", "content": step.get("say")}
    if "name" in step:
        call = {"name": step["name"], "arguments": json.dumps(step["arguments"])}
        message["tool_calls"] = [{"index": 0, "id": f"call_{_id()}", "type": "function", "function": call}]
    base = {"id": f"chatcmpl-{_id()}", "created": int(time.time()), "model": body.get("model")}
    usage = {"prompt_tokens": TOKENS_IN, "completion_tokens": TOKENS_OUT, "total_tokens": TOKENS_IN + TOKENS_OUT}
    stop = "stop" if "say" in step else "tool_calls"
    if not stream:
        choice = {"index": 0, "message": message, "finish_reason": stop}
        return 200, base | {"object": "chat.completion", "choices": [choice], "usage": usage}
    base["object"] = "chat.completion.chunk"
    return 200, [
        (None, base | {"choices": [{"index": 0, "delta": message, "finish_reason": None}]}),
        (None, base | {"choices": [{"index": 0, "delta": {}, "finish_reason": stop}]}),
        (None, base | {"choices": [], "usage": usage}),
        (None, "[DONE]"),
    ]


def responses(model, body, stream):
    tools, spaces = {}, {}
    for one in body.get("tools") or []:
        if one.get("type") == "namespace":
            spaces |= {f"{one['name']}__{inner['name']}": (one["name"], inner["name"]) for inner in one["tools"]}
            tools |= {f"{one['name']}__{inner['name']}": inner.get("parameters") or {} for inner in one["tools"]}
        elif one.get("name"):
            tools[one["name"]] = one.get("parameters") or {}
    items = body["input"] if isinstance(body.get("input"), list) else [{"role": "user", "content": body.get("input")}]
    groups = [
        (str(item.get("type")).endswith("call_output"), list(_texts(item)) if item.get("role") == "user" else [])
        for item in items
        if item.get("type") != "reasoning"
    ]
    step = model.step(tools, _talk(groups), body)
    if "status" in step:
        error = {"message": step["message"], "type": "invalid_request_error", "code": "invalid_api_key"}
        return step["status"], {"error": error}
    if "say" in step:
        part = {"type": "output_text", "text": step["say"], "annotations": []}
        item = {"type": "message", "id": f"msg_{_id()}", "role": "assistant", "status": "completed", "content": [part]}
    else:
        space, name = spaces.get(step["name"], (None, step["name"]))
        item = {"type": "function_call", "id": f"fc_{_id()}", "call_id": f"call_{_id()}", "name": name}
        item |= {"arguments": json.dumps(step["arguments"]), "status": "completed"}
        item |= {"namespace": space} if space else {}
    usage = {"input_tokens": TOKENS_IN, "output_tokens": TOKENS_OUT, "total_tokens": TOKENS_IN + TOKENS_OUT}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    reply = {"id": f"resp_{_id()}", "object": "response", "created_at": int(time.time()), "status": "completed"}
    reply |= {"model": body.get("model"), "output": [item], "error": None, "usage": usage, "tools": []}
    reply |= {"parallel_tool_calls": True, "tool_choice": "auto"}
    if not stream:
        return 200, reply
    events = [
        {"type": "response.created", "response": reply | {"status": "in_progress", "output": [], "usage": None}},
        {"type": "response.output_item.added", "output_index": 0, "item": item | {"status": "in_progress"}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": reply},
    ]
    return 200, [(event["type"], event | {"sequence_number": at}) for at, event in enumerate(events)]


def gemini(model, body, stream):
    declared = [one for group in body.get("tools") or [] for one in group.get("functionDeclarations", [])]
    tools = {one["name"]: one.get("parametersJsonSchema") or one.get("parameters") or {} for one in declared}
    groups = []
    for content in body.get("contents", []):
        is_result = any("functionResponse" in part for part in content.get("parts", []))
        groups.append((is_result, list(_texts(content)) if content.get("role") == "user" else []))
    step = model.step(tools, _talk(groups), body)
    if "status" in step:
        error = {"code": step["status"], "message": step["message"], "status": "UNAUTHENTICATED"}
        return step["status"], {"error": error}
    said = step.get("say")
    if said and "json" in str((body.get("generationConfig") or {}).get("responseMimeType")):
        said = json.dumps({"reasoning": "scripted", "next_speaker": "user", "model_choice": "flash"})
    call = {"functionCall": {"name": step.get("name"), "args": step.get("arguments")}}
    parts = [{"text": said} if said else call]
    usage = {"promptTokenCount": TOKENS_IN, "candidatesTokenCount": TOKENS_OUT}
    usage["totalTokenCount"] = TOKENS_IN + TOKENS_OUT
    candidate = {"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": "STOP"}
    reply = {"candidates": [candidate], "modelVersion": "scripted", "responseId": _id(), "usageMetadata": usage}
    return 200, [(None, reply)] if stream else reply


DIALECTS = {
    "/messages": anthropic,
    "/chat/completions": chat,
    "/responses": responses,
    "enerateContent": gemini,
}


def _id():
    return uuid.uuid4().hex[:16]


@contextmanager
def scripted_model(scripts=None):
    """A model that is there for a while."""
    model = ScriptedModel(scripts)
    try:
        yield model
    finally:
        model.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8765)
    served = ScriptedModel(port=parser.parse_args().port)
    print(served.url, flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        served.close()
