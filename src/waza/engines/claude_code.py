"""The `claude-code` engine: Anthropic's Claude Code."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Literal

from waza.engines._agent import AgentEngine
from waza.engines._start import AgentTurn, Launch, typed_form, write
from waza.engines.base import TrialFolder
from waza.traces.base import Reader
from waza.traces.claude_code import ClaudeCodeReader

_SERVERS = ".claude/waza-mcp.json"


class ClaudeCodeEngine(AgentEngine):
    """Run Claude Code (`claude -p`), from PATH or bundled with the package claude-agent-sdk.

    ```yaml
    config:
      executor: claude-code
      model: sonnet
    ```

    Credentials are `ANTHROPIC_API_KEY`, or `CLAUDE_CODE_OAUTH_TOKEN` as `claude setup-token` prints it: your own
    login is not used.
    """

    name = "claude-code"
    program = "claude"
    install = "npm install -g @anthropic-ai/claude-code"
    reader: ClassVar[type[Reader]] = ClaudeCodeReader
    credentials = (
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "ANTHROPIC_BASE_URL",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "CLAUDE_CODE_USE_BEDROCK",
        "CLAUDE_CODE_USE_VERTEX",
    )
    skills_at = ".claude/skills"
    instructions_at = ".claude/CLAUDE.md"
    sessions_at = ".claude/projects"
    continues = True
    modes = {
        "all": ("--dangerously-skip-permissions",),
        "edits": ("--permission-mode", "acceptEdits"),
        "read": ("--permission-mode", "dontAsk"),
    }

    reasoning_effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    """How hard the model thinks."""

    @classmethod
    def locate(cls) -> str | None:
        """Return the program on PATH, else the one bundled with claude-agent-sdk."""
        package = find_spec("claude_agent_sdk")
        bundled = Path(package.origin).parent / "_bundled" / "claude" if package and package.origin else None
        return super().locate() or (str(bundled) if bundled and bundled.is_file() else None)

    def prepare(self, trial_folder: TrialFolder, model: str) -> None:
        """Write the MCP servers."""
        servers = {name: typed_form(server) for name, server in self.servers().items()}
        write(trial_folder.home / _SERVERS, json.dumps({"mcpServers": servers}))

    def adapt_session(self, turn: AgentTurn) -> None:
        """Put a copied session where Claude Code looks for it: in a folder named after the one it works in."""
        projects = turn.trial_folder.home / self.sessions_at
        here = projects / re.sub(r"[^A-Za-z0-9]", "-", str(turn.trial_folder.workdir))
        for file in [*projects.glob(f"*/{turn.session}.jsonl")]:
            here.mkdir(exist_ok=True)
            file.rename(here / file.name)

    def launch(self, turn: AgentTurn) -> Launch:
        """Return the command line; the prompt comes on standard input."""
        arguments = ["-p", "--output-format", "stream-json", "--verbose", *self.modes[self.permission_mode]]
        arguments += ["--strict-mcp-config", "--mcp-config", str(turn.trial_folder.home / _SERVERS)]
        arguments += ["--model", turn.model] if turn.model else []
        arguments += ["--effort", self.reasoning_effort] if self.reasoning_effort else []
        arguments += ["--resume", turn.session] if turn.session else []
        arguments += ["--setting-sources", "user", *_allowed(self.mcp_servers)] if turn.is_judging else []
        variables = {
            "CLAUDE_CONFIG_DIR": str(turn.trial_folder.home / ".claude"),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_RETRIES": "3",
        }
        if os.geteuid() == 0:
            variables["IS_SANDBOX"] = "1"  # required to skip permission prompts as root
        if server := self.server():
            variables |= {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": server.key}
        return Launch(arguments, variables, turn.prompt)


def _allowed(servers: Iterable[str]) -> list[str]:
    """Return the arguments that allow a judge its MCP servers and nothing else."""
    return ["--allowedTools", ",".join(f"mcp__{name}" for name in servers)]
