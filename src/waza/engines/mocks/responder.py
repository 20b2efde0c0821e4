"""Answers for the mocks of one trial: finds the answer that matches, keeps the state, records every call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from waza.engines.mocks.shapes import MockAnswer, Mocks
from waza.graders.text_checks import excerpt
from waza.model import JSON
from waza.untrusted.text import well_formed_data

MAX_LOG_BYTES = 16 << 20
"""The size of all recorded calls of a trial; beyond it mocks do not answer."""
_MAX_REMARKS = 3
NOT_FOUND = 127
"""The exit code of a mocked program without a matching answer, as if it were not installed."""


class MockResponder:
    """Answers requests of one trial's mocks."""

    def __init__(self, mocks: Mocks, workspace: Path, files: Path | None = None) -> None:
        self._servers = {server.name: server for server in mocks.servers}
        self._commands = {command.name: command for command in mocks.commands}
        self._workspace = workspace
        self._files = files
        self.state: dict[str, JSON] = {}
        self.calls: list[dict[str, JSON]] = []
        self._left_bytes = MAX_LOG_BYTES

    def reply(self, request: Mapping[str, Any]) -> dict[str, JSON]:
        """Return the reply to a mock program; raise KeyError, TypeError or ValueError for an invalid request."""
        if "command" in request:
            return self._run(request)
        server = self._servers[request["server"]]
        if "tool" in request:
            return self._call(request)
        return {
            "tools": [
                {"name": name, "description": tool.description, "inputSchema": tool.input_schema}
                for name, tool in server.tools.items()
            ]
        }

    def outcome(self) -> dict[str, JSON]:
        """Return the calls and the state of the mocks, for the trace."""
        return {"calls": list(self.calls), "state": dict(self.state)}

    def remarks(self) -> list[str]:
        """Return a message for each of the first calls without a matching answer, and one for the rest."""
        lines = list(dict.fromkeys(_line(call) for call in self.calls if call["answer"] is None))
        remarks = [f"no answer of a mock fits {excerpt(line)}" for line in lines[:_MAX_REMARKS]]
        more = len(lines) - _MAX_REMARKS
        return remarks + ([f"and {more} more calls that no answer fits"] if more > 0 else [])

    def _call(self, request: Mapping[str, Any]) -> dict[str, JSON]:
        server, name, args = str(request["server"]), str(request["tool"]), dict(request["args"])
        call: dict[str, JSON] = {"server": server, "tool": name, "args": args}
        tool = self._servers[server].tools.get(name)
        if tool is None:
            return self._failed(call, f"the mocked server '{server}' has no tool '{name}'")
        if problems := tool.schema_of_arguments.problems(args):
            return self._failed(call, "the arguments do not fit: " + "; ".join(problems))
        for number, answer in enumerate(tool.responses, 1):
            if answer.fits(args, self.state):
                self._record(call | {"answer": number}, answer)
                text = _text(answer.returns) if answer.error is None else answer.error
                return {"text": text, "is_error": answer.error is not None}
        return self._failed(call, f"the mock of '{name}' has no answer to these arguments")

    def _failed(self, call: dict[str, JSON], why: str) -> dict[str, JSON]:
        self._record(call | {"answer": None, "error": why})
        return {"text": why, "is_error": True}

    def _run(self, request: Mapping[str, Any]) -> dict[str, JSON]:
        name, args = str(request["command"]), [str(word) for word in request["args"]]
        place, variables = self._relative_to_workspace(str(request["cwd"])), dict(request["env"])
        call: dict[str, JSON] = {"command": name, "args": args}
        for number, answer in enumerate(self._commands[name].responses, 1):
            if answer.fits(args, place, variables, self.state):
                self._record(call | {"answer": number, "exit_code": answer.exit_code}, answer)
                return {"stdout": _text(answer.stdout), "stderr": answer.stderr, "exit_code": answer.exit_code}
        why = f"{name}: the mock of this program has no answer to these arguments"
        self._record(call | {"answer": None, "exit_code": NOT_FOUND, "error": why})
        return {"stdout": "", "stderr": f"{why}\n", "exit_code": NOT_FOUND}

    def _relative_to_workspace(self, folder: str) -> Path:
        path = Path(folder).resolve()
        return path.relative_to(self._workspace) if path.is_relative_to(self._workspace) else path

    def _record(self, call: dict[str, JSON], answer: MockAnswer | None = None) -> None:
        """Record a call and change the state as its answer declares."""
        call = well_formed_data(call)
        line = json.dumps(call) + "\n"
        self._left_bytes -= len(line)
        if self._left_bytes < 0:
            raise ValueError(f"the calls of mocks take more than {MAX_LOG_BYTES >> 20} MiB")
        self.calls.append(call)
        if self._files is not None:
            with (self._files / "calls.jsonl").open("a", encoding="utf-8") as log:
                log.write(line)
        if answer is not None and answer.set:
            self.state |= answer.set
            if self._files is not None:
                (self._files / "state.json").write_text(json.dumps(self.state), encoding="utf-8")


def _text(value: JSON) -> str:
    """Return a value as a mock program prints it."""
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def _line(call: Mapping[str, JSON]) -> str:
    """Return a call as a person would write it."""
    if "command" in call:
        return json.dumps([call["command"], *call["args"]], ensure_ascii=False)
    return f"{call['server']}.{call['tool']}({json.dumps(call['args'], ensure_ascii=False)})"
