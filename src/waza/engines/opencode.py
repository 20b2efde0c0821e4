"""The `opencode` engine: OpenCode."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from waza.engines._agent import AgentEngine
from waza.engines._start import AgentTurn, Launch, opencode_form, write
from waza.engines.base import TrialFolder
from waza.files.tree import open_regular
from waza.traces.live import Live
from waza.traces.opencode import OpencodeReader

_MAX_STEPS = 20_000_000
_MAX_PART_BYTES = 16 << 20
_DENIED = {"edits": ("bash", "webfetch", "external_directory"), "read": ("bash", "webfetch", "edit")}


class OpencodeEngine(AgentEngine):
    """Run OpenCode (`opencode run`).

    ```yaml
    config:
      executor: opencode
      model: anthropic/claude-sonnet-4-5
    ```

    Credentials are the keys of the vendors; the model is `vendor/model`. With `base_url`, a server with OpenAI's chat
    completions API, it is the model alone. Its skill tool needs ripgrep (`rg`) on PATH.
    """

    name = "opencode"
    program = "opencode"
    install = "npm install -g opencode-ai"
    reader = OpencodeReader
    credentials = (
        "ANTHROPIC_API_KEY",
        "OPENAI_API_KEY",
        "OPENROUTER_API_KEY",
        "GEMINI_API_KEY",
        "GOOGLE_GENERATIVE_AI_API_KEY",
        "OPENCODE_API_KEY",
        "GITHUB_TOKEN",
    )
    skills_at = ".config/opencode/skills"
    instructions_at = ".config/opencode/AGENTS.md"
    modes = {"all": ("--auto",), "edits": (), "read": ()}

    def prepare(self, trial_folder: TrialFolder, model: str) -> None:
        """Write its settings."""
        settings: dict[str, Any] = {
            "autoupdate": False,
            "share": "disabled",
            "permission": dict.fromkeys(_DENIED.get(self.permission_mode, ()), "deny"),
            "mcp": {name: opencode_form(server) for name, server in self.servers().items()},
        }
        write(trial_folder.home / ".config/opencode/opencode.json", json.dumps(settings))

    def launch(self, turn: AgentTurn) -> Launch:
        """Return the command line; the prompt comes on standard input."""
        server = self.server()
        arguments = ["run", "--format", "json", *self.modes[self.permission_mode]]
        arguments += ["-m", f"server/{turn.model}" if server else turn.model] if turn.model else []
        arguments += ["--session", turn.session] if turn.session else []
        variables = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1"}
        if server:
            provider = {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": server.url, "apiKey": server.key}}
            provider |= {"models": {turn.model: {"name": turn.model}}}
            variables["OPENCODE_CONFIG_CONTENT"] = json.dumps({"provider": {"server": provider}})
            variables["OPENCODE_DISABLE_MODELS_FETCH"] = "1"
        return Launch(arguments, variables, turn.prompt)

    def after(self, live: Live, turn: AgentTurn, state: object) -> None:
        """Read the call that was open when the agent was ended: standard output has only completed calls."""
        if live.reader.ended:
            return
        for part in _open_calls(turn.trial_folder.home / ".local/share/opencode/opencode.db"):
            live.feed({"type": "tool_use", "part": part})


def _open_calls(store: Path) -> list[dict[str, Any]]:
    """Return the unfinished tool calls in OpenCode's own store; none when it cannot be read.

    The agent may have written anything there, so the steps and the size of a query are limited.
    """
    try:
        open_regular(store).close()
        with closing(sqlite3.connect(f"file:{quote(str(store))}?mode=ro", uri=True)) as base:
            base.execute("pragma trusted_schema = off")
            base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_PART_BYTES)
            base.set_progress_handler(lambda: 1, _MAX_STEPS)
            rows = base.execute("select data from part order by time_created desc limit 1000").fetchall()
        parts = [json.loads(text) for (text,) in reversed(rows)]
    except (OSError, sqlite3.Error, ValueError, TypeError, RecursionError):
        return []
    return [part for part in parts if isinstance(part, dict) and _is_open(part)]


def _is_open(part: dict[str, Any]) -> bool:
    state = part.get("state")
    return part.get("type") == "tool" and isinstance(state, dict) and state.get("status") in ("pending", "running")
