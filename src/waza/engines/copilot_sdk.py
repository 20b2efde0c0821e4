"""The `copilot-sdk` engine: GitHub Copilot, under the name used by suites written for the original waza."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from waza.engines._start import AgentTurn, Launch, typed_form
from waza.engines.copilot import CopilotEngine
from waza.model import Trace
from waza.traces.live import Live

_CHILD = Path(__file__).with_name("_sdk_session.py")


class CopilotSdkEngine(CopilotEngine):
    """Run GitHub Copilot through github-copilot-sdk where that is installed, else through its CLI.

    ```yaml
    config:
      executor: copilot-sdk
      model: claude-sonnet-4.5
    ```

    Which one ran is in the trace, as `through`. Both need the program `copilot`.
    """

    is_in_original = True

    @classmethod
    def library(cls) -> Path | None:
        """Return the folder that the package is in; None when it is not installed."""
        package = find_spec("copilot")
        place = Path(package.origin).parent if package and package.origin else None
        return place.parent if place and (place / "session_events.py").is_file() else None

    @classmethod
    def remark(cls) -> str:
        """Return a note where the SDK is not installed."""
        if cls.library():
            return ""
        return "github-copilot-sdk is not installed, so Copilot runs through its CLI; `pip install github-copilot-sdk`"

    def executable(self) -> str:
        """Return Python, which runs the SDK, or the CLI."""
        return sys.executable if self.library() else self.program_path()

    def launch(self, turn: AgentTurn) -> Launch:
        """Return how the SDK's session is started, its request on standard input; without the SDK, the CLI."""
        library = self.library()
        if library is None:
            return super().launch(turn)
        variables = {"COPILOT_HOME": str(turn.trial_folder.home / ".copilot")}
        session: dict[str, Any] = {"model": turn.model or None, "working_directory": str(turn.trial_folder.workdir)}
        session["reasoning_effort"] = self.reasoning_effort
        session["trust_working_directory"] = None if turn.session else "session"
        session["skill_directories"] = [str(turn.trial_folder.home / self.skills_at)]
        servers = self.servers().items()
        session["mcp_servers"] = {name: typed_form(server) | {"tools": server.tools} for name, server in servers}
        if server := self.server():
            session["provider"] = {"type": "openai", "base_url": server.url, "api_key": server.key}
        if turn.is_judging:
            session |= {"skip_custom_instructions": True, "enable_file_hooks": False}
        request = {
            "sdk": "copilot",
            "library": str(library),
            "program": self.program_path(),
            "arguments": ["--no-auto-update", "--disable-builtin-mcps", *self.extra_arguments],
            "permission_mode": "judge" if turn.is_judging else self.permission_mode,
            "resume": turn.session,
            "prompt": turn.prompt,
            "session": {key: value for key, value in session.items() if value is not None},
        }
        return Launch(["-P", str(_CHILD)], variables, json.dumps(request))

    def after(self, live: Live, turn: AgentTurn, state: object) -> None:
        """Read the session's own log, unless the SDK reported all of it."""
        if self.library() is None:
            super().after(live, turn, state)

    def adjusted(self, trace: Trace, turn: AgentTurn) -> Trace:
        """Return the trace with how the agent was driven."""
        through = "github-copilot-sdk" if self.library() else "the copilot CLI"
        return replace(trace, extra=trace.extra | {"through": through})
