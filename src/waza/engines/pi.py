"""The `pi` engine: the pi coding agent."""

from __future__ import annotations

import json
from typing import Any, Literal

from waza.engines._agent import AgentEngine
from waza.engines._start import AgentTurn, Launch, write
from waza.engines.base import TrialFolder
from waza.traces.pi import PiReader

_READ_ONLY_TOOLS = "read,grep,find,ls"


class PiEngine(AgentEngine):
    """Run pi (`pi -p`).

    ```yaml
    config:
      executor: pi
      model: anthropic/claude-sonnet-4-5
    ```

    Credentials are the keys of the vendors; the model is `vendor/model`. With `base_url`, a server with OpenAI's chat
    completions API, it is the model alone. pi does not support MCP.
    """

    name = "pi"
    program = "pi"
    install = "npm install -g @mariozechner/pi-coding-agent"
    reader = PiReader
    credentials = (
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_OAUTH_TOKEN",
        "OPENAI_API_KEY",
        "OPENROUTER_API_KEY",
        "GEMINI_API_KEY",
        "MISTRAL_API_KEY",
        "GROQ_API_KEY",
        "XAI_API_KEY",
    )
    skills_at = ".pi/agent/skills"
    instructions_at = ".pi/agent/AGENTS.md"
    modes = {"all": (), "edits": ("--tools", f"{_READ_ONLY_TOOLS},edit,write"), "read": ("--tools", _READ_ONLY_TOOLS)}
    has_mcp = False
    mocks = ("command_mocks",)

    reasoning_effort: Literal["low", "medium", "high", "xhigh"] | None = None
    """How hard the model thinks."""

    def prepare(self, trial_folder: TrialFolder, model: str) -> None:
        """Write the model server that the suite names."""
        if server := self.server():
            provider: dict[str, Any] = {"baseUrl": server.url, "api": "openai-completions", "apiKey": "WAZA_MODEL_KEY"}
            provider["models"] = [{"id": model}]
            write(trial_folder.home / ".pi/agent/models.json", json.dumps({"providers": {"server": provider}}))

    def launch(self, turn: AgentTurn) -> Launch:
        """Return the command line; the prompt comes on standard input."""
        arguments = ["-p", "--mode", "json", *self.modes[self.permission_mode]]
        arguments += ["--model", turn.model] if turn.model else []
        arguments += ["--thinking", self.reasoning_effort] if self.reasoning_effort else []
        arguments += ["--session", turn.session] if turn.session else []
        variables = {
            "PI_CODING_AGENT_DIR": str(turn.trial_folder.home / ".pi/agent"),
            "PI_OFFLINE": "1",
            "PI_TELEMETRY": "0",
        }
        if server := self.server():
            arguments += ["--provider", "server"]
            variables["WAZA_MODEL_KEY"] = server.key
        return Launch(arguments, variables, turn.prompt)
