"""The `gemini` engine: Google's Gemini CLI."""

from __future__ import annotations

import json
import os
from typing import Any

from waza.engines._agent import AgentEngine
from waza.engines._start import AgentTurn, Launch, untyped_form, write
from waza.engines.base import TrialFolder
from waza.traces.gemini import GeminiReader


class GeminiEngine(AgentEngine):
    """Run Gemini CLI (`gemini -p`).

    ```yaml
    config:
      executor: gemini
      model: gemini-2.5-pro
    ```

    The credential is `GEMINI_API_KEY`, or Vertex AI's variables: your own login is not used.
    """

    name = "gemini"
    program = "gemini"
    install = "npm install -g @google/gemini-cli"
    reader = GeminiReader
    has_costs = False
    credentials = (
        "GEMINI_API_KEY",
        "GOOGLE_API_KEY",
        "GOOGLE_GEMINI_BASE_URL",
        "GOOGLE_GENAI_USE_VERTEXAI",
        "GOOGLE_CLOUD_PROJECT",
        "GOOGLE_CLOUD_LOCATION",
        "GOOGLE_APPLICATION_CREDENTIALS",
    )
    skills_at = ".gemini/skills"
    instructions_at = ".gemini/GEMINI.md"
    modes = {
        "all": ("--approval-mode", "yolo"),
        "edits": ("--approval-mode", "auto_edit"),
        "read": ("--approval-mode", "plan"),
    }

    def prepare(self, trial_folder: TrialFolder, model: str) -> None:
        """Write its settings."""
        uses_vertex = self.base_url is None and os.environ.get("GOOGLE_GENAI_USE_VERTEXAI") == "true"
        settings: dict[str, Any] = {
            "security": {"auth": {"selectedType": "vertex-ai" if uses_vertex else "gemini-api-key"}},
            "general": {"enableAutoUpdate": False},
            "privacy": {"usageStatisticsEnabled": False},
            "mcpServers": {name: untyped_form(server) for name, server in self.servers().items()},
        }
        write(trial_folder.home / ".gemini/settings.json", json.dumps(settings))

    def launch(self, turn: AgentTurn) -> Launch:
        """Return the command line; the prompt comes on standard input."""
        arguments = ["--output-format", "stream-json", "--skip-trust", *self.modes[self.permission_mode]]
        arguments += ["-m", turn.model] if turn.model else []
        arguments += ["--resume", "latest"] if turn.session else []
        no_file = str(turn.trial_folder.home / "none.json")
        variables = {"GEMINI_CLI_SYSTEM_SETTINGS_PATH": no_file, "GEMINI_CLI_SYSTEM_DEFAULTS_PATH": no_file}
        if server := self.server():
            variables |= {"GOOGLE_GEMINI_BASE_URL": server.url, "GEMINI_API_KEY": server.key}
        return Launch(arguments, variables, turn.prompt)
