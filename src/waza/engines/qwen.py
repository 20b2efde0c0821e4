"""The `qwen` engine: Qwen Code."""

from __future__ import annotations

import json

from waza.engines._agent import AgentEngine
from waza.engines._start import AgentTurn, Launch, untyped_form, without_earlier_turns, write
from waza.engines.base import TrialFolder
from waza.model import Trace
from waza.traces.qwen import QwenReader


class QwenEngine(AgentEngine):
    """Run Qwen Code (`qwen -p`).

    ```yaml
    config:
      executor: qwen
      model: qwen3-coder-plus
    ```

    Credentials are `OPENAI_API_KEY` and `OPENAI_BASE_URL`, of any server with OpenAI's chat completions API.
    """

    name = "qwen"
    program = "qwen"
    install = "npm install -g @qwen-code/qwen-code"
    reader = QwenReader
    has_costs = False
    credentials = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "DASHSCOPE_API_KEY")
    skills_at = ".qwen/skills"
    instructions_at = ".qwen/QWEN.md"
    modes = {
        "all": ("--approval-mode", "yolo"),
        "edits": ("--approval-mode", "auto-edit"),
        "read": ("--approval-mode", "plan"),
    }

    def prepare(self, trial_folder: TrialFolder, model: str) -> None:
        """Write its settings."""
        settings = {
            "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
            "privacy": {"usageStatisticsEnabled": False},
            "mcpServers": {name: untyped_form(server) for name, server in self.servers().items()},
        }
        write(trial_folder.home / ".qwen/settings.json", json.dumps(settings))

    def launch(self, turn: AgentTurn) -> Launch:
        """Return the command line; the prompt comes on standard input."""
        arguments = ["--output-format", "stream-json", "--auth-type", "openai", *self.modes[self.permission_mode]]
        arguments += ["-m", turn.model] if turn.model else []
        arguments += ["--resume", turn.session] if turn.session else []
        no_file = str(turn.trial_folder.home / "none.json")
        variables = {"QWEN_CODE_SYSTEM_SETTINGS_PATH": no_file, "QWEN_CODE_SYSTEM_DEFAULTS_PATH": no_file}
        if turn.model:
            variables["OPENAI_MODEL"] = turn.model
        if server := self.server():
            variables |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": server.key}
        return Launch(arguments, variables, turn.prompt)

    def adjusted(self, trace: Trace, turn: AgentTurn) -> Trace:
        """Return the turn with its own tokens: the program reports those of the whole session."""
        return without_earlier_turns(trace, turn)
