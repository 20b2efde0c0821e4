"""Files that `waza new` and `waza suggest` write: a skill's tests, which run offline, and tasks from recordings.

Exact arguments of a recorded task are a draft: the author loosens what may differ and deletes what does not matter.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from textwrap import indent

import yaml

from waza.cli._scaffold import schema_line
from waza.errors import UsageError
from waza.files.paths import inner_path, project_root
from waza.model import JSON, ToolEvent, Trace
from waza.suites.skill_prompts import SuggestedPrompt, SuggestedTask, Suggestions, slug
from waza.suites.tasks import names_in
from waza.traces.aliases import ARGUMENTS, dialect_of

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


MOST_CALLS = 20
"""For a trace with more calls, only the names of the tools are expected."""
_MOST_ARGUMENTS = 8
_DEEPEST = 4
_SHORT = 200
_EXCERPT = 80
_PATHS = next(group for group in ARGUMENTS if "path" in group)
_STEP = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_BRACES = "open_braces"

HEAD = """\
# Written from {source}. The checks say what happened there:
# keep what matters, loosen what may differ (contains, regex, range), delete the rest.
"""


def task_text(trace: Trace, name: str, source: str, prompt: str = "") -> str:
    """Return the text of a task file; `prompt` is used where the recording has none.

    Raises UsageError when there is no prompt, or nothing that could be checked.
    """
    prompts = _prompts(trace, prompt)
    if not prompts[0].strip():
        raise UsageError(f"{source} does not have the prompt; give it with --prompt TEXT")
    expected, graders = list(_expected(trace)), list(_graders(trace))
    if all(line.lstrip().startswith("#") for line in (*expected, *graders)):
        raise UsageError(f"nothing in {source} could be checked: no answer, no tool call that succeeded, no skill")
    parts = [HEAD.format(source=quoted(source)), f"id: {quoted(name)}\n", _inputs(prompts), "\n"]
    for key, lines in (("expected", expected), ("graders", graders)):
        if lines:
            is_comment = all(line.lstrip().startswith("#") for line in lines)
            parts += ["# " if is_comment else "", f"{key}:\n", *(f"{line}\n" for line in lines)]
    return "".join(parts)


def _prompts(trace: Trace, prompt: str) -> list[str]:
    """Return the prompts, in order."""
    asked = [turn.input for turn in trace.turns or []]
    return asked if len(asked) > 1 and all(map(str.strip, asked)) else [trace.input if trace.input.strip() else prompt]


def _inputs(prompts: list[str]) -> str:
    """Return `inputs:`; `{{` in a prompt becomes a value, so that it is not read as a name."""
    has_names = any(map(names_in, prompts))
    first, *later = [text.replace("{{", "{{" + _BRACES + "}}") if has_names else text for text in prompts]
    lines = ["inputs:", f"  prompt: {text_at(first, 2)}"]
    if later:
        lines += ["  follow_up_prompts:", *(f"    - {quoted(text)}" for text in later)]
    if has_names:
        lines += ["  context:", f'    {_BRACES}: "{{{{"']
    return "\n".join(lines) + "\n"


def _expected(trace: Trace) -> Iterator[str]:
    """Yield the lines below `expected:`."""
    if trace.status == "success" and trace.output:
        yield "  task_completed: true"
    if trace.output.strip():
        yield f"  # output_contains: [{quoted(_excerpt(trace.output))}]   # what of the answer matters?"
    if trace.tool_events is None:
        return
    if not trace.tool_events:
        yield "  # max_tool_calls: 0   # no tool was called"
    calls = [event for event in trace.tool_events if _is_expected(event, trace)]
    if left := len(trace.tool_events) - len(calls):
        yield f"  # left out: {left} of {len(trace.tool_events)} calls (failed, a sub-agent's, or the use of a skill)"
    if len(calls) > MOST_CALLS:
        yield f"  # {len(calls)} calls; their arguments are left out"
        yield f"  tools_called: {flow(list(dict.fromkeys(event.tool_name for event in calls)))}"
    elif calls:
        yield "  tool_calls:"
        yield from _calls(calls)


def _is_expected(event: ToolEvent, trace: Trace) -> bool:
    """Return whether an author would expect this call."""
    words = dialect_of(trace)
    is_skill = words is not None and "skill" in words.kinds(event) and bool(trace.skill_invocations)
    return event.success and _is_name(event.tool_name) and "parent_tool_call_id" not in event.extra and not is_skill


def _is_name(name: str) -> bool:
    """Return whether a recorded name can be written in a suite."""
    return bool(name) and name == name.strip() and "|" not in name


def _calls(calls: list[ToolEvent]) -> Iterator[str]:
    """Yield one entry per distinct call."""
    alike = Counter("\n".join(_call(event)) for event in calls)
    for text, count in alike.items():
        yield text
        if count > 1:
            yield f"      count: {{min: {count}}}"


def _call(event: ToolEvent) -> Iterator[str]:
    yield f"    - name: {word(event.tool_name)}"
    found = list(islice(((key, matcher) for key, matcher in _matchers(event.args) if matcher), _MOST_ARGUMENTS))
    if found:
        yield "      args:"
        yield from (f"        {word(key)}: {matcher}" for key, matcher in found)


def _matchers(args: JSON, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield path and matcher of each argument, nested ones too."""
    for key, value in args.items() if isinstance(args, dict) and prefix.count(".") <= _DEEPEST else ():
        path = prefix + key
        if not key or (prefix and not _STEP.fullmatch(key)):
            continue
        if _STEP.fullmatch(key) and isinstance(value, dict):
            yield from _matchers(value, f"{path}.")
        elif _STEP.fullmatch(key) and isinstance(value, list) and any(isinstance(item, dict) for item in value):
            for index, item in enumerate(value):
                yield from _matchers(item, f"{path}[{index}].")
        else:
            yield path, _matcher(key, value)


def _matcher(key: str, value: JSON) -> str:
    """Return the matcher of an argument: itself if it is short, else a part of it; empty if none is useful."""
    match value:
        case str() if key in _PATHS and re.match(r"/|[A-Za-z]:[\\/]", value):
            name = re.split(r"[\\/]", value)[-1]
            return f"{{contains: {quoted(name)}}}" if name else ""
        case str() if len(value) <= _SHORT:
            return quoted(value)
        case str():
            return f"{{contains: {quoted(_excerpt(value))}}}" if value.strip() else ""
        case float() if not math.isfinite(value):
            return ""
        case None | bool() | float():
            return flow(value)
        case int():
            return flow(value) if abs(value) < 2**63 else ""
        case list() if all(isinstance(item, str | bool | None) for item in value) and len(flow(value)) <= _SHORT:
            return flow(value)
        case _:
            return ""


def _excerpt(text: str) -> str:
    """Return the start of the first non-empty line."""
    return text.strip().splitlines()[0].strip()[:_EXCERPT].strip()


def _graders(trace: Trace) -> Iterator[str]:
    """Yield the lines below `graders:`."""
    skills = list(dict.fromkeys(used.name for used in trace.skill_invocations or [] if _is_name(used.name)))
    if skills:
        yield "  - type: skill_invocation"
        yield "    config:"
        yield f"      required_skills: {flow(skills)}"
        yield "      mode: any_order"
    if files := list(dict.fromkeys(_written(trace))):
        yield "#   - type: file   # checked when the task is run: a recording has no files"
        yield f"#     config: {{must_exist: {flow(files)}}}"


def _written(trace: Trace) -> Iterator[str]:
    """Yield the files that calls wrote or changed, as far as their path in the workspace is known."""
    words = dialect_of(trace)
    for event in trace.tool_events or [] if words else ():
        if words and event.success and words.kinds(event) & {"write", "edit"}:
            args = words.args(event, ["path"])
            try:
                yield inner_path(args["path"])
            except (ValueError, TypeError, KeyError):
                continue


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}
"""Plain words that some YAML readers do not read as text."""


class _QuotingDumper(yaml.SafeDumper):
    """Writes every text in double quotes, so that no reader takes it for anything else."""

    def ignore_aliases(self, data: object) -> bool:
        """Return True: a value that occurs twice is written twice."""
        return True


_QuotingDumper.add_representer(str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, '"'))


def flow(value: JSON) -> str:
    """Return any JSON value as YAML on one line; what is invisible is escaped."""
    line = yaml.dump(
        value, Dumper=_QuotingDumper, default_flow_style=True, width=math.inf, allow_unicode=True, sort_keys=False
    )
    line = line.removesuffix("\n").removesuffix("\n...")
    return "".join(letter if letter.isprintable() else f"\\U{ord(letter):08x}" for letter in line)


def quoted(text: str) -> str:
    """Return a text in double quotes, on one line: also safe in a comment."""
    return flow(text)


def word(text: str) -> str:
    """Return a text without quotes where it cannot be read as anything else."""
    return text if _PLAIN.fullmatch(text) and text.lower() not in _WORDS else quoted(text)


def text_at(text: str, spaces: int) -> str:
    """Return a text as the value of a key at column `spaces`: as a block where it has several lines."""
    if not _fits_block(text):
        return quoted(text)
    return ("|\n" if text.endswith("\n") else "|-\n") + indent(text.removesuffix("\n"), " " * (spaces + 2))


def _fits_block(text: str) -> bool:
    """Return whether a text has several lines and needs no escapes: nothing invisible, no line of blanks."""
    lines = text.removesuffix("\n").split("\n")
    return (
        len(lines) > 1
        and lines[0][:1] not in ("", " ", "\t")
        and lines[-1] != ""
        and all(line == "" or (line.strip() and line.replace("\t", " ").isprintable()) for line in lines)
        and "\ufeff" not in text
    )
