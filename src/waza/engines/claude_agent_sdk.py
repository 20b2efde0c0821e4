"""The `claude-agent-sdk` engine: Claude Code, driven by Anthropic's own library instead of its command line."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from waza.engines._start import AgentTurn, Launch, typed_form
from waza.engines.claude_code import ClaudeCodeEngine
from waza.errors import EngineError
from waza.model import Trace
from waza.traces.claude_agent_sdk import ClaudeAgentSdkReader

_CHILD = Path(__file__).with_name("_sdk_session.py")
_MODES = {"all": "bypassPermissions", "edits": "acceptEdits", "read": "dontAsk"}


class ClaudeAgentSdkEngine(ClaudeCodeEngine):
    """Run Claude Code through claude-agent-sdk, as programs that build on it do; otherwise as `claude-code`.

    ```yaml
    config:
      executor: claude-agent-sdk
      model: sonnet
    ```

    The program is the `claude` on PATH, else the one bundled with the package.
    """

    install = "pip install claude-agent-sdk"
    reader = ClaudeAgentSdkReader

    @classmethod
    def library(cls) -> Path | None:
        """Return the folder that the package is in; None when it is not installed."""
        package = find_spec("claude_agent_sdk")
        return Path(package.origin).parent.parent if package and package.origin else None

    @classmethod
    def locate(cls) -> str | None:
        """Return the program, if the package is installed too."""
        return super().locate() if cls.library() else None

    def program_path(self) -> str:
        """Return the path of the program; raise EngineError that says how to install the package."""
        if path := self.locate():
            return path
        raise EngineError(f"the package claude-agent-sdk is not installed; {self.install}")

    def executable(self) -> str:
        """Return Python, which runs the SDK."""
        return sys.executable

    def launch(self, turn: AgentTurn) -> Launch:
        """Return how the SDK's session is started, its request on standard input."""
        servers = self.servers()
        options: dict[str, Any] = {
            "cli_path": self.program_path(),
            "cwd": str(turn.trial_folder.workdir),
            "model": turn.model or None,
            "permission_mode": _MODES[self.permission_mode],
            "effort": self.reasoning_effort,
            "resume": turn.session or None,
            "mcp_servers": {name: typed_form(server) for name, server in servers.items()},
            "strict_mcp_config": True,
            "extra_args": _by_flag(self.extra_arguments),
        }
        if turn.is_judging:
            options |= {"setting_sources": ["user"], "allowed_tools": [f"mcp__{name}" for name in servers]}
        request = {"sdk": "claude", "library": str(self.library()), "prompt": turn.prompt, "options": options}
        return Launch(["-P", str(_CHILD)], super().launch(turn).environment, json.dumps(request))

    def adjusted(self, trace: Trace, turn: AgentTurn) -> Trace:
        """Return the trace with how the agent was driven."""
        return replace(trace, extra=trace.extra | {"through": "claude-agent-sdk"})


def _by_flag(words: list[str]) -> dict[str, str | None]:
    """Return command-line arguments as the SDK takes them: each flag with its value, if it has one."""
    flags: dict[str, str | None] = {}
    flag = ""
    for word in words:
        if word.startswith("--"):
            flag, _, value = word.removeprefix("--").partition("=")
            flags[flag] = value or None
        elif flag:
            flags[flag] = word
    return flags
