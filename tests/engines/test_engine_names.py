"""An agent engine is its file, its reader and their tests: no other module names it."""

import ast
from pathlib import Path

from waza.engines._agent import AgentEngine
from waza.engines.base import ENGINES

SOURCE = Path(__file__).parent.parent.parent / "src" / "waza"


def agent_names():
    loaded = {name: ENGINES.load(name) for name in ENGINES.built_in()}
    return {name.replace("_", "-") for name, engine in loaded.items() if issubclass(engine, AgentEngine)}


def named_agents(source, names):
    """Return the string constants of a module that are the name of an agent."""
    constants = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    return sorted({value for value in constants if isinstance(value, str) and value in names})


def test_a_named_agent_is_found():
    assert named_agents('if engine == "codex":\n    pass  # "gemini"\n', agent_names()) == ["codex"]


def test_no_module_outside_engines_and_traces_names_an_agent():
    names = agent_names()
    assert {"claude-code", "codex", "copilot-sdk", "qwen"} <= names
    own = (SOURCE / "engines", SOURCE / "traces")
    found = {
        str(file.relative_to(SOURCE)): used
        for file in sorted(SOURCE.rglob("*.py"))
        if not any(file.is_relative_to(folder) for folder in own)
        and (used := named_agents(file.read_text(encoding="utf-8"), names))
    }
    assert found == {}
