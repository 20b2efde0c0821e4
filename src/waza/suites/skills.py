"""Skills as the agentskills specification has them: where they are, and what a SKILL.md consists of."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from waza.errors import Problem, SpecError, did_you_mean, nearest, what
from waza.files.paths import SpecFolder, display_path, is_there, skill_folders
from waza.skills import MARK, MAX_SKILL_BYTES, find_skills, read_skill, skills_in, use_for_phrases
from waza.suites.positions import Position
from waza.suites.shapes import TaskShape
from waza.untrusted.text import fold_case
from waza.untrusted.yaml import read_yaml

_HIDDEN_BUT_LOOKED_INTO = {".github", ".claude", ".agents"}
_NOT_LOOKED_INTO = {"node_modules", "runs", "site-packages", "__pycache__"}
_NOT_FOR = "do not use for:"
BYTES_PER_TOKEN = 4


class SkillFile(NamedTuple):
    """A SKILL.md: its front matter with places, and its body."""

    path: Path
    place: Position
    """The positions of the front matter's keys."""
    matter: dict[str, Any]
    body: str
    body_line: int
    """The line in which the body begins."""

    @property
    def name(self) -> str:
        """The name in the front matter; empty where there is none."""
        return self.text("name")

    @property
    def description(self) -> str:
        """The description; empty where there is none."""
        return self.text("description")

    def text(self, key: str) -> str:
        """Return a key of the front matter that is a text; empty where it is not."""
        value = self.matter.get(key)
        return value if isinstance(value, str) else ""


def find_skill(name: str, folder: SpecFolder, directories: Iterable[str], project_folder: str) -> Path | None:
    """Return the folder of a skill: in the suite's folders of skills, the project's, or above the eval file.

    The folder of the eval file and those above it may have another name than the SKILL.md in them: a project that is
    one skill may be checked out anywhere.
    """
    for place in _folders(folder, directories, project_folder):
        if is_there(place / name / MARK):
            return (place / name).resolve()
        if found := next((skill for skill in skills_in(place) if skill.name == name), None):
            return found.resolve()
    above = list(_above(folder))
    by_folder = (path for path in above if path.name == name)
    by_name = (path for path in above if _name_in(path) == name)
    return next((path.resolve() for path in (*by_folder, *by_name)), None)


def skill_names(folder: SpecFolder, directories: Iterable[str], project_folder: str) -> list[str]:
    """Return the skills that could be found, by name."""
    places = _folders(folder, directories, project_folder)
    above = {_name_in(path) or path.name for path in _above(folder)}
    return sorted({skill.name for place in places for skill in skills_in(place)} | above)


def _above(folder: SpecFolder) -> Iterator[Path]:
    """Yield the folders from the eval file's up to the repository's root that hold a SKILL.md."""
    for path in (folder.base, *folder.base.parents):
        if path.is_relative_to(folder.repository) and is_there(path / MARK):
            yield path


def _name_in(folder: Path) -> str:
    """Return the name that the SKILL.md in a folder gives itself; empty where it cannot be read."""
    try:
        return read_skill(folder / MARK).name
    except ValueError:
        return ""


def _folders(folder: SpecFolder, directories: Iterable[str], project_folder: str) -> list[Path]:
    """Return the folders searched for skills: the suite's folders of skills, the project's, the repository's."""
    own = []
    for given in directories:
        with suppress(ValueError):  # reported where its agent's skills are found
            own.append(folder.find_skill_folder(given))
    roots = list(dict.fromkeys((folder.root, folder.repository)))
    project = [place for root in roots for place in (*skill_folders(root), root / project_folder)]
    return list(dict.fromkeys(own + project))


def skills_below(folder: Path) -> Iterator[Path]:
    """Yield the folder of every skill in a project, sorted; hidden folders other than agents' own are left out."""
    for place, names, files in os.walk(folder):
        if MARK in files:
            names.clear()
            yield Path(place)
        elif "pyvenv.cfg" in files:
            names.clear()
        names[:] = sorted(name for name in names if _is_looked_into(name))


def _is_looked_into(name: str) -> bool:
    return name not in _NOT_LOOKED_INTO and (not name.startswith(".") or name in _HIDDEN_BUT_LOOKED_INTO)


def read_skill_file(path: Path) -> SkillFile:
    """Return a SKILL.md with the places of its keys; raise SpecError where it cannot be read or has no front matter."""
    name = display_path(path)
    try:
        if path.stat().st_size > MAX_SKILL_BYTES:
            raise SpecError(Problem(f"has more than {MAX_SKILL_BYTES:,} bytes", name))
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(Problem(f"cannot be read: {error}", name)) from None
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        raise SpecError(
            Problem("begins without front matter: a line of '---', then `name:` and `description:`", name, 1, 1)
        )
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        raise SpecError(Problem("the front matter is never closed; end it with a line of '---'", name, 1, 1))
    matter = read_yaml("\n" + "\n".join(lines[1:end]), name, may_be_empty=True)
    if not isinstance(matter, dict):
        raise SpecError(Problem(f"the front matter is {what(matter)}; keys such as `name:` are needed", name, 1, 1))
    return SkillFile(path, Position(name, matter), matter, "\n".join(lines[end + 1 :]), end + 2)


def delivery_problems(task: TaskShape, place: Position, folder: SpecFolder) -> Iterator[Problem]:
    """Yield what is wrong with the skills and instructions that a task names."""
    for index, name in enumerate(task.skill_directories or ()):
        try:
            find_skills([name], folder)
        except ValueError as error:
            yield place.at("skill_directories", index).problem(str(error))
    for index, name in enumerate(task.instruction_files):
        try:
            folder.find(name).read_text(encoding="utf-8")
        except (ValueError, OSError) as error:
            yield place.at("instruction_files", index).problem(str(error))


def not_for_phrases(description: str) -> list[str]:
    """Return the phrases after `DO NOT USE FOR:`, found as those after `USE FOR:` are."""
    start = fold_case(description).find(_NOT_FOR)
    return use_for_phrases(f"USE FOR:{description[start + len(_NOT_FOR) :]}") if start >= 0 else []


def estimated_tokens(text: str) -> int:
    """Return about how many tokens a text has: one for every four bytes, as is usual for English prose."""
    return -(-len(text.encode()) // BYTES_PER_TOKEN)


# What is wrong with a skill, or could be better: front matter, name, description, links, size.
#
# Errors are what the agentskills specification refuses, and links that lead nowhere. Warnings are what keeps a skill
# from
# being chosen or read; notes are advice.

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
"""Keys that some agents read in addition to the specification's."""
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
        yield here.problem(f"'{name}' is not the name of its folder, '{folder}'; agents expect both to be the same")


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
        message = (
            f"has {len(text)} characters; {USUAL_DESCRIPTION} or more are enough for what it does and when to use it"
        )
        yield here.problem(message, "note")
    if "<" in text and ">" in text:
        yield here.warning("has angle brackets: some agents take them for markup and refuse the skill")
    phrases, others = use_for_phrases(text), not_for_phrases(text)
    if not phrases and not _WHEN.search(text):
        yield here.warning("does not say when to use the skill; add `USE FOR:` with phrases a user would say")
    if not others and not _WHEN_NOT.search(text):
        yield here.problem("does not say when to leave it; `DO NOT USE FOR:` keeps it silent next door", "note")
    for phrase in sorted({fold_case(one) for one in phrases} & {fold_case(other) for other in others}):
        yield here.problem(f"'{phrase}' is under `USE FOR:` and under `DO NOT USE FOR:`")


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
    """Yield links to files that do not exist, or are outside of the skill."""
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
        yield at._replace(message=f"the link to {target[:60]} cannot be resolved")
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
        message = f"{fact} at most {MOST_TOKENS:,} and {MOST_LINES}: move details to files of their own and link them"
        yield Problem(message, skill.place.file, skill.body_line, 1, severity="warning")


def skill_line(folder: Path) -> str:
    """Return the size of a skill in words: what is always read, and what is read once it is chosen."""
    try:
        skill = read_skill_file(folder / MARK)
    except SpecError:
        return ""
    listed, body = estimated_tokens(f"{skill.name} {skill.description}"), estimated_tokens(skill.body)
    return f"about {listed:,} tokens to list, {body:,} to use"
