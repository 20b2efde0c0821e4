"""Real agent programs against the scripted model: which there are, and what a user's own home may hold for each."""

import asyncio
import json
import os
import shlex
import sys
from pathlib import Path

import pytest

from waza.engines.base import ENGINES
from waza.files.paths import SpecFolder
from waza.files.trial_folder import make_trial_folder
from waza.model import Task, Trial

CALCULATOR = str(Path(__file__).with_name("calculator_server.py"))
SKILL = """---
name: {name}
description: Summarise CSV files into a short report.
---
Count the rows and write them down.
"""
MODELS = {"claude-code": "claude-sonnet-4-5", "claude-agent-sdk": "claude-sonnet-4-5", "gemini": "gemini-2.5-flash"}
SAMPLE = ("claude-code", "codex")
ALL = ("claude-code", "claude-agent-sdk", "codex", "copilot", "copilot-sdk", "gemini", "opencode", "pi", "qwen")
QUICK = {
    "claude-code": {"environment": {"CLAUDE_CODE_MAX_RETRIES": "0"}},
    "claude-agent-sdk": {"environment": {"CLAUDE_CODE_MAX_RETRIES": "0"}},
    "codex": {"extra_arguments": ["-c", "model_providers.server.request_max_retries=0"]},
}
"""Options that keep agents from asking again and again."""


def agents(*names, sample=SAMPLE):
    """Parameters for a test: the sample in every run of the tests, the others in campaigns."""
    return [pytest.param(name, marks=() if name in sample else pytest.mark.campaign) for name in names]


def model_of(name):
    return MODELS.get(name, "scripted")


def address_for(name, model):
    return model.url + ("" if name in ("claude-code", "claude-agent-sdk", "gemini") else "/v1")


def need(name):
    """Skip the test where the agent's program is not installed, unless it must be."""
    if not ENGINES.load(name).program or ENGINES.load(name).locate():
        return
    must = os.environ.get("WAZA_NEED_AGENTS", "").split(",")
    (pytest.fail if name in must else pytest.skip)(f"{name} is not installed: {ENGINES.load(name).install}")


def play(name, model, scripts, *, project=".", timeout_s=90, look=None, **options):
    """Let an agent work on prompts that name scripts, and return its trace."""
    prompts = [f"Please do it. [[script:{script}]]" for script in scripts]
    task = Task(id="t", prompt=prompts[0], follow_up_prompts=prompts[1:], timeout_s=timeout_s)
    given = {"base_url": address_for(name, model), "folder": SpecFolder(project)} | options
    engine = ENGINES.load(name).model_validate(given)
    with make_trial_folder(task) as room:
        trace = asyncio.run(engine.run(Trial(task=task, model=model_of(name)), room))
        if look:
            look(room)
    return trace


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if isinstance(text, str) else json.dumps(text))


class Planted:
    """A user's home with a skill, a memory, an MCP server and a plug-in of their own, for one agent."""

    def __init__(self, name, home, model):
        self.name, self.home, self.url = name, home, address_for(name, model)
        self.server = {"command": sys.executable, "args": [CALCULATOR, str(home / "server-was-here")]}
        self.touch = f"touch {shlex.quote(str(home / 'plug-in-was-here'))}"
        getattr(self, name.replace("-", "_"))()

    def skill_and_memory(self, skills, memory):
        write(self.home / skills / "planted-skill/SKILL.md", SKILL.format(name="planted-skill"))
        write(self.home / memory, "Always remember the planted-memory.\n")

    def seen(self, model):
        """What of it reached the model, or was started."""
        asked = json.dumps([request["body"] for request in model.requests])
        traces = {"skill": "planted-skill" in asked, "memory": "planted-memory" in asked}
        traces |= {"server": (self.home / "server-was-here").exists()}
        traces |= {"plug-in": (self.home / "plug-in-was-here").exists() or "planted-plug-in" in asked}
        return {kind for kind, found in traces.items() if found}

    def claude_code(self):
        self.skill_and_memory(".claude/skills", ".claude/CLAUDE.md")
        hook = {"hooks": [{"type": "command", "command": self.touch}]}
        write(self.home / ".claude/settings.json", {"hooks": {"SessionStart": [hook]}})
        write(self.home / ".claude/.claude.json", {"mcpServers": {"planted": {"type": "stdio"} | self.server}})
        self.variables = {"CLAUDE_CONFIG_DIR": str(self.home / ".claude")}
        self.kinds = {"skill", "memory", "plug-in"}  # `--strict-mcp-config` keeps the server out by itself

    def claude_agent_sdk(self):
        self.claude_code()

    def codex(self):
        self.skill_and_memory(".codex/skills", ".codex/AGENTS.md")
        spoken = f'{{name="s", base_url="{self.url}", wire_api="responses", env_key="WAZA_MODEL_KEY"}}'
        write(
            self.home / ".codex/config.toml",
            f'model_provider = "server"\nsandbox_mode = "danger-full-access"\napproval_policy = "never"\n'
            f"model_providers = {{server = {spoken}}}\nnotify = {json.dumps(['sh', '-c', self.touch])}\n"
            f"mcp_servers = {{planted = {{command = {json.dumps(self.server['command'])},"
            f" args = {json.dumps(self.server['args'])}}}}}\n",
        )
        self.variables = {"CODEX_HOME": str(self.home / ".codex")}
        self.kinds = {"skill", "memory", "server", "plug-in"}

    def copilot(self):
        self.skill_and_memory(".copilot/skills", ".copilot/copilot-instructions.md")
        server = {"type": "stdio", "tools": ["*"]} | self.server
        write(self.home / ".copilot/mcp-config.json", {"mcpServers": {"planted": server}})
        hook = {"type": "command", "bash": self.touch}
        write(self.home / ".copilot/hooks/planted.json", {"version": 1, "hooks": {"sessionStart": [hook]}})
        self.variables = {"COPILOT_HOME": str(self.home / ".copilot")}
        self.kinds = {"skill", "memory", "server", "plug-in"}

    def copilot_sdk(self):
        self.copilot()
        if ENGINES.load("copilot-sdk").library():
            self.kinds.remove("skill")  # folders of skills that are named keep the user's out by themselves

    def gemini(self):
        self.skill_and_memory(".gemini/skills", ".gemini/GEMINI.md")
        chosen = {"auth": {"selectedType": "gemini-api-key"}}
        write(self.home / ".gemini/settings.json", {"security": chosen, "mcpServers": {"planted": self.server}})
        about = {"name": "planted", "version": "1.0.0", "contextFileName": "PLUG.md"}
        write(self.home / ".gemini/extensions/planted/gemini-extension.json", about)
        write(self.home / ".gemini/extensions/planted/PLUG.md", "This is the planted-plug-in.")
        self.variables, self.kinds = {}, {"skill", "memory", "server", "plug-in"}

    def qwen(self):
        self.skill_and_memory(".qwen/skills", ".qwen/QWEN.md")
        write(self.home / ".qwen/settings.json", {"mcpServers": {"planted": self.server}})
        about = {"name": "planted", "version": "1.0.0", "contextFileName": "PLUG.md"}
        write(self.home / ".qwen/extensions/planted/qwen-extension.json", about)
        write(self.home / ".qwen/extensions/planted/PLUG.md", "This is the planted-plug-in.")
        self.variables, self.kinds = {}, {"skill", "memory", "server", "plug-in"}

    def opencode(self):
        self.skill_and_memory(".config/opencode/skills", ".config/opencode/AGENTS.md")
        server = {"type": "local", "command": [self.server["command"], *self.server["args"]], "enabled": True}
        write(self.home / ".config/opencode/opencode.json", {"mcp": {"planted": server}})
        code = f"import fs from 'fs'; fs.writeFileSync({json.dumps(str(self.home / 'plug-in-was-here'))}, '');\n"
        write(self.home / ".config/opencode/plugin/planted.js", code + "export const Planted = async () => ({});\n")
        self.variables = {"XDG_CONFIG_HOME": str(self.home / ".config")}
        self.kinds = {"skill", "memory", "server", "plug-in"}

    def pi(self):
        self.skill_and_memory(".pi/agent/skills", ".pi/agent/AGENTS.md")
        spoken = {"baseUrl": self.url, "api": "openai-completions", "apiKey": "x", "models": [{"id": "scripted"}]}
        write(self.home / ".pi/agent/models.json", {"providers": {"server": spoken}})
        code = f"import fs from 'fs'; fs.writeFileSync({json.dumps(str(self.home / 'plug-in-was-here'))}, '');\n"
        write(self.home / ".pi/agent/extensions/planted.ts", code + "export default function (pi: any) {}\n")
        self.variables = {"PI_CODING_AGENT_DIR": str(self.home / ".pi/agent")}
        self.kinds = {"skill", "memory", "plug-in"}
