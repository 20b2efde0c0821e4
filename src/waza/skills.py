"""Skills: reading a SKILL.md, how relevant a prompt is to it (without a model), finding and copying skill folders."""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import yaml

from waza.errors import EngineError
from waza.files.paths import SpecFolder, is_there
from waza.files.trial_folder import lay_out
from waza.model import InputFile
from waza.untrusted.text import fold_case

MAX_SKILL_BYTES = 1_000_000
MAX_DEPTH = 32
_EVENTS = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_COMMON = """
the and for with this that from into your you are was were what where how why not can should using about have has had
but all any too out get let
"""
_STOP_WORDS = frozenset(_COMMON.split())
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_USE_FOR, _DO_NOT_USE_FOR = "use for:", "do not use for:"
_ENDS = (_DO_NOT_USE_FOR, "invokes:", "for single operations:")


class Relevance(NamedTuple):
    """How a prompt relates to a skill."""

    score: float
    phrase_score: float
    matched: list[str]
    """Words of the prompt that are words of the skill, in the prompt's order."""


class Skill:
    """A skill's name, description and body, read once."""

    def __init__(self, name: str, description: str, body: str) -> None:
        self.name = name
        self.description = description
        self.body = body

    @cached_property
    def phrases(self) -> list[str]:
        """The `USE FOR:` phrases of the description."""
        return use_for_phrases(self.description)

    @cached_property
    def keywords(self) -> frozenset[str]:
        """Every word of the skill, but for the `DO NOT USE FOR:` part of the description."""
        end = self.description.translate(_LOWER).find(_DO_NOT_USE_FOR)
        about = self.description if end < 0 else self.description[:end]
        return frozenset(words(" ".join([self.name, about, self.body, *self.phrases])))

    def relevance(self, prompt: str) -> Relevance:
        """Return the share of the prompt's words that the skill has, or its closeness to a phrase if that is higher."""
        prompt_words = dict.fromkeys(words(prompt))
        if not prompt_words:
            return Relevance(0.0, 0.0, [])
        matched = [word for word in prompt_words if word in self.keywords]
        phrase_score = max(
            (_closeness(phrase, fold_case(prompt), prompt_words) for phrase in self.phrases), default=0.0
        )
        return Relevance(max(len(matched) / len(prompt_words), phrase_score), phrase_score, matched)


def _closeness(phrase: str, prompt: str, prompt_words: dict[str, None]) -> float:
    if fold_case(phrase) in prompt:
        return 1.0
    needed = words(phrase)
    return sum(word in prompt_words for word in needed) / len(needed) if needed else 0.0


def words(text: str) -> list[str]:
    """Return the words that carry meaning, lower-case: letters and digits, three bytes or more, no stop words."""
    spaced = "".join(letter if letter.isalnum() else " " for letter in fold_case(text))
    return [word for word in spaced.split() if len(word.encode()) >= 3 and word not in _STOP_WORDS]


def use_for_phrases(description: str) -> list[str]:
    """Return the phrases after `USE FOR:`: the quoted ones if there are any, else those between commas."""
    flat = description.replace("\r", " ").replace("\n", " ")
    lowered = flat.translate(_LOWER)
    start = lowered.find(_USE_FOR)
    while start >= 0 and "not " in lowered[max(0, start - 11) : start]:
        start = lowered.find(_USE_FOR, start + 1)
    if start < 0:
        return []
    start += len(_USE_FOR)
    ends = [end for mark in _ENDS if (end := lowered.find(mark, start)) >= 0]
    text = flat[start : min(ends, default=len(flat))].strip().rstrip(".")
    if quoted := _quoted(text):
        return quoted
    return [phrase for part in text.split(",") if (phrase := _without_aside(part.strip()))]


def _quoted(text: str) -> list[str]:
    parts = text.replace("\u201c", '"').replace("\u201d", '"').split('"')
    return [part.strip() for part in parts[1 : len(parts) - 1 : 2] if part.strip()]


def _without_aside(phrase: str) -> str:
    return phrase[: phrase.rindex("(")].strip() if phrase.endswith(")") and "(" in phrase else phrase


def read_skill(path: Path) -> Skill:
    """Return the skill in a SKILL.md file; raise ValueError with the reason it cannot be read."""
    try:
        if not path.is_file():
            raise ValueError(f"'{path.name}' is not a file")
        if path.stat().st_size > MAX_SKILL_BYTES:
            raise ValueError(f"'{path.name}' has more than {MAX_SKILL_BYTES} bytes")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"'{path.name}' cannot be read: {error}") from None
    return parse_skill(text)


def parse_skill(text: str) -> Skill:
    """Return the skill a text describes: YAML front matter between `---` lines, if any, then the body."""
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        return Skill("", "", text)
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        raise ValueError("the front matter is never closed; end it with a line of '---'")
    matter = _front_matter("\n".join(lines[1:end]))
    return Skill(matter.get("name", ""), matter.get("description", ""), "\n".join(lines[end + 1 :]))


def _front_matter(text: str) -> dict[str, str]:
    """Return the texts of a front matter by key; every scalar is a text, so that `no` stays a name.

    Built on events: nothing is composed, and a nesting bomb ends at MAX_DEPTH.
    """
    texts: dict[str, str] = {}
    key: str | None = None
    depth = 0
    try:
        for event in yaml.parse(text, Loader=_EVENTS):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > MAX_DEPTH or (depth == 1 and not isinstance(event, yaml.MappingStartEvent)):
                    raise ValueError("the front matter is not a plain mapping of keys")
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
                key = "" if depth == 1 and key is None else key if depth > 1 else None
            elif isinstance(event, yaml.NodeEvent) and depth <= 1:
                value = getattr(event, "value", "")
                if depth == 0 and value:
                    raise ValueError("the front matter is not a plain mapping of keys")
                if key is not None:
                    texts[key] = value
                key = value if key is None else None
    except yaml.YAMLError as error:
        raise ValueError(f"the front matter is not YAML: {str(error).splitlines()[0]}") from None
    return texts


MARK = "SKILL.md"
_DEPTH = 4
"""How deep skills may be nested in a folder of skills."""
_NOT_COPIED = {".git", "evals", "eval.yaml", "tasks", "trigger_tests.yaml", "mock.yaml", "runs"}
"""Test files in a skill's folder that are not copied: an agent would find the answers there."""


def find_skills(
    folders: Iterable[str], place: SpecFolder, also: Mapping[str, Path] | None = None, without: Iterable[str] = ()
) -> dict[str, Path]:
    """Return the skills in these folders and those of `also`, by name, without some of them (`*` means all).

    Raises ValueError when a folder does not exist or has no skill.
    """
    found: dict[str, Path] = {}
    for name in folders:
        folder = place.find_skill_folder(name)
        skills: dict[str, Path] = {}
        for skill in skills_in(folder):
            if skills.setdefault(skill.name, skill) != skill:
                both = " and ".join(str(path.relative_to(folder)) for path in (skills[skill.name], skill))
                raise ValueError(f"'{name}' has two skills called '{skill.name}': {both}; rename one")
        if not skills:
            raise ValueError(f"'{name}' has no skill: there is no {MARK} in it or in a folder of it")
        found = skills | found
    found |= {name: path for name, path in (also or {}).items() if name not in found}
    left_out = set(without)
    return {} if "*" in left_out else {name: path for name, path in found.items() if name not in left_out}


def copy_skills(skills: Mapping[str, Path], place: Path, suite: Path) -> None:
    """Copy skills into the folder from which an agent loads them, without the suite that tests them.

    Raises EngineError when one cannot be copied.
    """
    try:
        files = [
            InputFile(path=f"{name}/{part.name}", source=str(part))
            for name, folder in skills.items()
            for part in parts_of(folder, suite)
        ]
        if files:
            place.mkdir(parents=True, exist_ok=True)
            lay_out(files, place)
    except OSError as error:
        raise EngineError(f"skills cannot be copied: {error}", is_started=False) from None


def parts_of(folder: Path, suite: Path) -> list[Path]:
    """Return the files and folders of a skill that the agent gets: not the suite that tests it."""
    parts = sorted(folder.iterdir())
    return [part for part in parts if part.name not in _NOT_COPIED and not suite.is_relative_to(part)]


def skills_in(folder: Path, depth: int = _DEPTH) -> Iterator[Path]:
    """Yield the skills in a folder of skills, sorted: itself, its folders, and theirs where they only group others."""
    if is_there(folder / MARK):
        yield folder
    elif depth and folder.is_dir():
        for child in sorted(folder.iterdir()):
            if not child.name.startswith(".") and child.is_dir():
                yield from skills_in(child, depth - 1)
