"""The `copilot` engine: GitHub's Copilot CLI."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Literal

from waza.engines._agent import AgentEngine
from waza.engines._start import AgentTurn, Launch, typed_form, write
from waza.engines.base import TrialFolder
from waza.files.tree import open_regular
from waza.traces.copilot import CopilotReader
from waza.traces.live import Live

_LOG_ONLY_EVENTS = ("session.usage_record", "skill.invoked")
"""Events that are only in the session's own log."""


class CopilotEngine(AgentEngine):
    """Run GitHub Copilot CLI (`copilot -p`).

    ```yaml
    config:
      executor: copilot
      model: claude-sonnet-4.5
    ```

    The credential is a token in `COPILOT_GITHUB_TOKEN`, `GH_TOKEN` or `GITHUB_TOKEN`: your own login is not used.
    `base_url` is a server with OpenAI's chat completions API.
    """

    name = "copilot"
    program = "copilot"
    install = "npm install -g @github/copilot"
    reader = CopilotReader
    has_costs = False
    credentials = (
        "COPILOT_GITHUB_TOKEN",
        "GH_TOKEN",
        "GITHUB_TOKEN",
        "COPILOT_PROVIDER_TYPE",
        "COPILOT_PROVIDER_BASE_URL",
        "COPILOT_PROVIDER_API_KEY",
        "COPILOT_PROVIDER_BEARER_TOKEN",
    )
    skills_at = ".copilot/skills"
    instructions_at = ".copilot/copilot-instructions.md"
    sessions_at = ".copilot/session-state"
    continues = True
    modes = {"all": ("--allow-all",), "edits": ("--allow-tool=write",), "read": ()}

    reasoning_effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    """How hard the model thinks."""

    def prepare(self, trial_folder: TrialFolder, model: str) -> None:
        """Write the MCP servers."""
        servers = {name: typed_form(server) | {"tools": server.tools} for name, server in self.servers().items()}
        write(trial_folder.home / ".copilot/mcp-config.json", json.dumps({"mcpServers": servers}))

    def adapt_session(self, turn: AgentTurn) -> None:
        """Disable hooks that the agent may have left in its workspace: a judge must not run them."""
        write(turn.trial_folder.home / ".copilot/settings.json", json.dumps({"disableAllHooks": True}))

    def launch(self, turn: AgentTurn) -> Launch:
        """Return the command line; the prompt comes on standard input."""
        arguments = ["--output-format", "json", "--no-auto-update", "--disable-builtin-mcps", "--no-ask-user"]
        arguments += [
            *self.modes[self.permission_mode],
            f"--resume={turn.session}" if turn.session else "--trust-folder",
        ]
        if turn.is_judging:
            arguments += ["--no-custom-instructions", *(f"--allow-tool={name}" for name in self.mcp_servers)]
        arguments += ["--model", turn.model] if turn.model else []
        arguments += ["--reasoning-effort", self.reasoning_effort] if self.reasoning_effort else []
        variables = {"COPILOT_HOME": str(turn.trial_folder.home / ".copilot")}
        if server := self.server():
            variables |= {"COPILOT_PROVIDER_TYPE": "openai", "COPILOT_PROVIDER_BASE_URL": server.url}
            variables |= {"COPILOT_PROVIDER_API_KEY": server.key, "COPILOT_OFFLINE": "true"}
        return Launch(arguments, variables, turn.prompt)

    def before(self, turn: AgentTurn) -> dict[Path, int]:
        """Return the sizes of the session logs."""
        return {path: path.lstat().st_size for path in _logs(turn.trial_folder)}

    def after(self, live: Live, turn: AgentTurn, state: object) -> None:
        """Read tokens and skills, which are not on standard output, from the session's own log."""
        sizes = state if isinstance(state, dict) else {}
        for path in _logs(turn.trial_folder):
            live.reader.draft.session_id = live.reader.draft.session_id or path.parent.name
            with suppress(OSError), open_regular(path) as file:
                file.seek(sizes.get(path, 0))
                for line in file:
                    live.read_line(line, _LOG_ONLY_EVENTS)


def _logs(trial_folder: TrialFolder) -> list[Path]:
    return sorted((trial_folder.home / ".copilot/session-state").glob("*/events.jsonl"))
