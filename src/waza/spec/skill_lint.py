"""What is wrong with a skill, or could be better: front matter, name, description, links, size.

Errors are what the agentskills specification refuses, and links that lead nowhere. Warnings are what keeps a skill from
being chosen or read; notes are advice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from waza.engines._skills import MARK
from waza.errors import Problem, SpecError, did_you_mean, nearest, what
from waza.graders._skill import use_for_phrases
from waza.sandbox.folders import is_there
from waza.sandbox.texts import fold_case
from waza.spec.skills import BYTES_PER_TOKEN, SkillFile, estimated_tokens, not_for_phrases, read_skill_file

MOST_NAME = 64
MOST_DESCRIPTION = 1024
USUAL_DESCRIPTION = 150
MOST_COMPATIBILITY = 500
MOST_TOKENS = 5000
MOST_LINES = 500
FIELDS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
EXTENSIONS = (
    *("version", "author", "tags", "model", "user-invocable", "disable-model-invocation", "argument-hint", "agent"),
    *("arguments", "when_to_use", "hooks", "context", "effort", "paths", "shell", "triggers", "dependencies"),
)
"""Keys that some agents read beside the specification's."""
_WHEN = re.compile(r"\bwhen:|(?<!not )\buse (this skill )?(when|whenever|if|to|for)\b", re.IGNORECASE)
_WHEN_NOT = re.compile(r"\b(do not|don't|never|not to) use\b|\bnot for\b", re.IGNORECASE)
_LINK = re.compile(r"!?\[[^\]\n]*\]\(\s*<?([^)>\s]+)>?[^)\n]*\)|^\s{0,3}\[[^\]\n]+\]:\s*<?([^>\s]+)>?", re.MULTILINE)
_CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_ELSEWHERE = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:|//|#")


def skill_problems(folder: Path) -> list[Problem]:
    """Return every problem of the skill in a folder, in the order of its lines."""
    try:
        skill = read_skill_file(folder / MARK)
    except SpecError as error:
        return list(error.problems)
    found = [*_fields(skill), *_name(skill), *_description(skill), *_optional(skill), *_links(skill), *_size(skill)]
    return sorted(found, key=lambda problem: problem.line)


def _fields(skill: SkillFile) -> Iterator[Problem]:
    for key in ("name", "description"):
        if key not in skill.matter and not any(nearest(str(given), [key]) for given in skill.matter):
            yield skill.place.problem(f"'{key}' is missing in the front matter")
    for key in skill.matter:
        here = skill.place.at(key)
        if key in FIELDS:
            continue
        if meant := nearest(str(key), FIELDS):
            yield here.problem(f"unknown key '{key}'; did you mean '{meant}'?")
        elif key in EXTENSIONS:
            yield here.problem(f"'{key}' is not in the agentskills specification; only some agents read it", "note")
        else:
            yield here.warning(
                f"unknown key '{key}'; {did_you_mean(str(key), FIELDS)}; own values go under `metadata:`"
            )


def _name(skill: SkillFile) -> Iterator[Problem]:
    if "name" not in skill.matter:
        return
    here, name = skill.place.at("name"), skill.matter["name"]
    if not isinstance(name, str) or not name:
        yield here.problem(f"a text is needed, found {what(name)}")
        return
    if len(name) > MOST_NAME:
        yield here.problem(f"has {len(name)} characters; at most {MOST_NAME} are allowed")
    if not re.fullmatch(r"[a-z0-9-]+", name):
        yield here.problem(f"'{name}' may have lower-case letters, digits and hyphens only")
    elif name.startswith("-") or name.endswith("-") or "--" in name:
        yield here.problem(f"'{name}' must not begin or end with a hyphen, nor have two in a row")
    folder = skill.path.resolve().parent.name
    if name != folder:
        yield here.problem(f"'{name}' is not the name of its folder, '{folder}'; agents look for both to be the same")


def _description(skill: SkillFile) -> Iterator[Problem]:
    if "description" not in skill.matter:
        return
    here, text = skill.place.at("description"), skill.matter["description"]
    if not isinstance(text, str) or not text.strip():
        yield here.problem(f"a text is needed, found {what(text)}; agents choose a skill by it")
        return
    if len(text) > MOST_DESCRIPTION:
        yield here.problem(f"has {len(text)} characters; at most {MOST_DESCRIPTION} are allowed")
    elif len(text) < USUAL_DESCRIPTION:
        told = f"has {len(text)} characters; {USUAL_DESCRIPTION} or more leave room for what it does and when to use it"
        yield here.problem(told, "note")
    if "<" in text and ">" in text:
        yield here.warning("has angle brackets: some agents take them for markup and refuse the skill")
    phrases, others = use_for_phrases(text), not_for_phrases(text)
    if not phrases and not _WHEN.search(text):
        yield here.warning("does not say when to use the skill; add `USE FOR:` with phrases a user would say")
    if not others and not _WHEN_NOT.search(text):
        yield here.problem("does not say when to leave it; `DO NOT USE FOR:` keeps it silent next door", "note")
    for phrase in sorted({fold_case(one) for one in phrases} & {fold_case(other) for other in others}):
        yield here.problem(f"'{phrase}' stands under `USE FOR:` and under `DO NOT USE FOR:`")


def _optional(skill: SkillFile) -> Iterator[Problem]:
    for key in ("license", "compatibility"):
        if key in skill.matter and not isinstance(skill.matter[key], str):
            yield skill.place.at(key).problem(f"a text is needed, found {what(skill.matter[key])}")
    if len(skill.text("compatibility")) > MOST_COMPATIBILITY:
        length = len(skill.text("compatibility"))
        yield skill.place.at("compatibility").problem(
            f"has {length} characters; at most {MOST_COMPATIBILITY} are allowed"
        )
    tools = skill.matter.get("allowed-tools", "")
    if isinstance(tools, list):
        yield skill.place.at("allowed-tools").warning("a list; the specification has a text with spaces between tools")
    elif not isinstance(tools, str):
        yield skill.place.at("allowed-tools").problem(f"a text is needed, found {what(tools)}")
    yield from _metadata(skill, skill.matter.get("metadata", {}))


def _metadata(skill: SkillFile, metadata: Any) -> Iterator[Problem]:
    here = skill.place.at("metadata")
    if not isinstance(metadata, dict):
        yield here.problem(f"a mapping of keys is needed, found {what(metadata)}")
        return
    for key, value in metadata.items():
        if not isinstance(value, str):
            yield here.at(key).warning(f"a text is needed, found {what(value)}; quote it")


def _links(skill: SkillFile) -> Iterator[Problem]:
    """Yield links to files that are not there, or that stand outside of the skill."""
    text = _CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), skill.body)
    root = skill.path.resolve().parent
    for found in _LINK.finditer(text):
        target = (found[1] or found[2]).split("#")[0].split("?")[0]
        if not target or _ELSEWHERE.match(found[1] or found[2]):
            continue
        line = skill.body_line + text.count("\n", 0, found.start(1 if found[1] else 2))
        yield from _link(target, root, Problem("", skill.place.file, line, 1))


def _link(target: str, root: Path, at: Problem) -> Iterator[Problem]:
    try:
        place = (root / target.replace("%20", " ")).resolve()
    except (OSError, ValueError, RuntimeError):
        yield at._replace(message=f"the link to {target[:60]} cannot be looked up")
        return
    if target.startswith("/") or not place.is_relative_to(root):
        yield at._replace(message=f"the link to {target} leaves the skill's folder: it is not there once installed")
    elif not is_there(place):
        yield at._replace(message=f"the link to {target} leads nowhere")


def _size(skill: SkillFile) -> Iterator[Problem]:
    if not skill.body.strip():
        yield Problem("has no instructions below the front matter", skill.place.file, skill.body_line, 1)
    tokens, lines = estimated_tokens(skill.body), len(skill.body.splitlines())
    how = f"estimated, a token for every {BYTES_PER_TOKEN} bytes"
    if tokens > MOST_TOKENS or lines > MOST_LINES:
        fact = f"the body has about {tokens:,} tokens ({how}) in {lines:,} lines; the specification advises"
        told = f"{fact} at most {MOST_TOKENS:,} and {MOST_LINES}: move details to files of their own and link them"
        yield Problem(told, skill.place.file, skill.body_line, 1, severity="warning")


def skill_line(folder: Path) -> str:
    """Return the size of a skill in words: what is always read, and what is read once it is chosen."""
    try:
        skill = read_skill_file(folder / MARK)
    except SpecError:
        return ""
    listed, body = estimated_tokens(f"{skill.name} {skill.description}"), estimated_tokens(skill.body)
    return f"about {listed:,} tokens to list, {body:,} to use"
