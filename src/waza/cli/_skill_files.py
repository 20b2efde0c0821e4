"""The files `waza new skill` and `waza suggest` write for a skill: its tests run unchanged, offline."""

from __future__ import annotations

import re
from pathlib import Path

from waza.cli._recorded_task import quoted, word
from waza.cli._scaffold import schema_line
from waza.files.paths import project_root
from waza.suites.skill_prompts import SuggestedPrompt, SuggestedTask, Suggestions, slug

SKILL = """\
---
name: {name}
description: {description}
---

# {title}

Say here what the agent is to do, step by step, as you would to a colleague who is new to it.

1. Look at what the user gave.
2. Do the work.
3. Say what was done, and what is left open.
"""
EVAL = """\
name: {name}
description: Does the skill {name} trigger where it should, and does it help?
skill: {name}

config:
  executor: mock        # scripted, offline; name your agent here, `waza list engines` shows which there are
  trials_per_task: 1

tasks:
  - "tasks/*.yaml"
"""
_TASK = """\
id: {name}
inputs:
  prompt: {prompt}

expected:
  task_completed: true
  should_trigger: {should}
{contains}
# Add what a right answer must hold: `waza list graders`. Then see whether the skill helps: waza run --baseline

mock:                   # what the mock engine does instead of an agent; a real engine ignores this
  output: {output}
  skill_invocations: [{used}]
  without_skill: {{skill_invocations: []}}
"""
_MOCK = """\
# What the mock engine does with the prompts of trigger_tests.yaml; a real engine ignores this.
triggers:
  - skill: {name}
    when: {when}
"""


def default_description(use_for: list[str], not_for: list[str], about: str) -> str:
    """Return a description in the form that `waza check` looks for."""
    uses = ", ".join(f'"{phrase}"' for phrase in use_for)
    others = ", ".join(f'"{phrase}"' for phrase in not_for)
    return f"{about} USE FOR: {uses}. DO NOT USE FOR: {others}."


def skill_text(name: str, description: str) -> str:
    """Return a first SKILL.md."""
    return SKILL.format(name=word(name), description=quoted(description), title=name.replace("-", " ").capitalize())


def suite_files(name: str, found: Suggestions, folder: Path) -> dict[Path, str]:
    """Return the files of a suite for a skill, by their paths."""
    root = project_root(Path.cwd())
    files = {
        folder / "eval.yaml": EVAL.format(name=word(name)),
        folder / "trigger_tests.yaml": trigger_text(name, found),
    }
    names: list[str] = []
    for task in found.tasks:
        names.append(slug(task.prompt, names))
        files[folder / "tasks" / f"{names[-1]}.yaml"] = _task_text(names[-1], name, task)
    files[folder / "mock.yaml"] = _MOCK.format(name=word(name), when=quoted(_when(name, found)))
    kinds = {"eval.yaml": "eval", "mock.yaml": "mock"}
    return {
        path: (schema_line(path.resolve(), root, kind) if (kind := _kind(path, kinds)) else "") + text
        for path, text in files.items()
    }


def _kind(path: Path, kinds: dict[str, str]) -> str:
    return kinds.get(path.name) or ("task" if path.parent.name == "tasks" else "")


def trigger_text(name: str, found: Suggestions) -> str:
    """Return a `trigger_tests.yaml`."""
    parts = [f"skill: {word(name)}\n"]
    lists = (("should_trigger_prompts", found.should_trigger), ("should_not_trigger_prompts", found.should_not_trigger))
    for key, prompts in lists:
        if prompts:
            parts.append(f"{key}:\n" + prompt_lines(prompts))
    return "\n".join(parts)


def prompt_lines(prompts: list[SuggestedPrompt]) -> str:
    """Return prompts as entries of a list in `trigger_tests.yaml`."""
    return "".join(_prompt(prompt) for prompt in prompts)


def _prompt(prompt: SuggestedPrompt) -> str:
    lines = [f"  - prompt: {quoted(prompt.prompt)}"]
    lines += [f"    reason: {quoted(prompt.reason)}"] if prompt.reason else []
    lines += [f"    phrasing: {prompt.phrasing}"] if prompt.phrasing else []
    return "\n".join(lines) + "\n"


def _task_text(name: str, skill: str, task: SuggestedTask) -> str:
    contains = ", ".join(quoted(text) for text in task.output_contains if text.strip())
    return _TASK.format(
        name=word(name),
        prompt=quoted(task.prompt),
        should="true" if task.should_trigger else "false",
        contains=f"  output_contains: [{contains}]\n" if contains else "",
        output=quoted(" ".join(["Done.", *task.output_contains])),
        used=word(skill) if task.should_trigger else "",
    )


def _when(name: str, found: Suggestions) -> str:
    """Return the pattern of every prompt that should trigger, and of one that names the skill to load it."""
    prompts = "|".join(re.escape(prompt.prompt) for prompt in found.should_trigger)
    return f"^({prompts})$|^Use the skill {re.escape(name)}"
