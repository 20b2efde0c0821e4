"""The `codex` engine: OpenAI's Codex."""

from __future__ import annotations

import json
import os
from typing import Any, Literal

from waza.engines._agent import AgentEngine
from waza.engines._start import AgentTurn, Launch, codex_form, without_earlier_turns, write
from waza.engines.base import TrialFolder
from waza.model import Trace
from waza.traces.codex import CodexReader

_KEY = "WAZA_MODEL_KEY"


class CodexEngine(AgentEngine):
    """Run Codex (`codex exec`).

    ```yaml
    config:
      executor: codex
      model: gpt-5-codex
    ```

    The credential is `CODEX_API_KEY` or `OPENAI_API_KEY`: your own login is not used. `base_url` is a server
    with OpenAI's Responses API.
    """

    name = "codex"
    program = "codex"
    install = "npm install -g @openai/codex"
    reader = CodexReader
    has_costs = False
    credentials = ("CODEX_API_KEY", "OPENAI_API_KEY", "OPENAI_ORGANIZATION", "OPENAI_PROJECT")
    skills_at = ".codex/skills"
    instructions_at = ".codex/AGENTS.md"
    sessions_at = ".codex/sessions"
    continues = True
    modes = {"all": ("danger-full-access",), "edits": ("workspace-write",), "read": ("read-only",)}

    reasoning_effort: Literal["low", "medium", "high", "xhigh"] | None = None
    """How hard the model thinks."""

    def prepare(self, trial_folder: TrialFolder, model: str) -> None:
        """Write its settings."""
        settings: dict[str, Any] = {"approval_policy": "never", "sandbox_mode": self.modes[self.permission_mode][0]}
        if self.reasoning_effort:
            settings["model_reasoning_effort"] = self.reasoning_effort
        if server := self.server():
            provider = {"name": "server", "base_url": server.url, "wire_api": "responses", "env_key": _KEY}
            settings |= {"model_provider": "server", "model_providers": {"server": provider}}
        elif url := os.environ.get("OPENAI_BASE_URL"):
            settings["openai_base_url"] = url
        servers = {name: codex_form(server) for name, server in self.servers().items()}
        lines = [f"{key} = {_toml(value)}" for key, value in (settings | {"mcp_servers": servers}).items()]
        write(trial_folder.home / ".codex/config.toml", "\n".join(lines) + "\n")

    def launch(self, turn: AgentTurn) -> Launch:
        """Return the command line; the prompt comes on standard input."""
        arguments = ["exec", *(["resume"] if turn.session else []), "--json", "--skip-git-repo-check"]
        arguments += ["-m", turn.model] if turn.model else []
        if turn.is_judging:
            arguments.append("-cproject_doc_max_bytes=0")
            arguments += [f'-cmcp_servers.{name}.default_tools_approval_mode="approve"' for name in self.mcp_servers]
        arguments += [turn.session, "-"] if turn.session else ["-"]
        variables = {"CODEX_HOME": str(turn.trial_folder.home / ".codex")}
        if server := self.server():
            variables[_KEY] = server.key
        elif "OPENAI_API_KEY" in os.environ:
            variables["CODEX_API_KEY"] = os.environ["OPENAI_API_KEY"]
        return Launch(arguments, variables, turn.prompt)

    def adjusted(self, trace: Trace, turn: AgentTurn) -> Trace:
        """Return the turn with its own tokens: the program reports those of the whole session."""
        return without_earlier_turns(trace, turn)


def _toml(value: Any) -> str:
    """Return a value in TOML, on one line; its strings are written as JSON's are."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value).replace("\x7f", "\\u007f")
