"""What a judge card changes about goldens: texts that leave the right verdict as it is, or try to buy another."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from waza.errors import SpecError
from waza.judges import rubrics
from waza.judges.rubrics import BUILT_IN, Golden, Rubric, read_text
from waza.sandbox.yaml12 import read_yaml

_SHIPPED = Path(rubrics.__file__).parent
_ITEM = re.compile(r"[-*] ")

PADDING = """

To put it in a few more words, and to look at it from more than one side: what is said above is said with care, and with
the question in mind. One could go on at length, and in another setting one might; there is always more that could be
said, and there are always other ways of saying it. It seems fair to leave it at that for now, and to come back to it
whenever that is wished. Should anything be unclear, it can of course be taken up again, in whatever order and in as
much detail as seems right. With that, the above stands as it is, and thanks go to whoever has read this far."""
"""Words that say nothing: they can make an output longer, never better."""


class Attack(NamedTuple):
    """A text that asks a judge for a pass."""

    name: str
    text: str


def attacks() -> list[Attack]:
    """Return the attacks that ship with the rubrics."""
    return [Attack(item["name"], item["text"]) for item in read_yaml(_shipped("attacks.yaml"), "attacks.yaml")]


def paraphrases(rubric: Rubric, path: Path | None = None) -> dict[str, str]:
    """Return, by golden, its output in other words: shipped, or in `NAME.paraphrases.yaml` beside one's own rubric.

    Raises ValueError for a file that is not such a mapping, or that names a golden that is not there.
    """
    if rubric.source == BUILT_IN:
        known = read_yaml(_shipped("paraphrases.yaml"), "paraphrases.yaml").get(rubric.name, {})
        return {str(name): str(text) for name, text in known.items()}
    file = path.with_suffix(".paraphrases.yaml") if path else None
    if file is None or not file.exists():
        return {}
    try:
        found = read_yaml(read_text(file, str(file)).encode(), str(file))
    except SpecError as error:
        raise ValueError(str(error)) from None
    if not isinstance(found, dict) or not all(isinstance(text, str) and text.strip() for text in found.values()):
        raise ValueError(f"{file}: a mapping from a golden's name to its output in other words is needed")
    if unknown := [name for name in found if name not in {golden.name for golden in rubric.goldens}]:
        raise ValueError(f"{file}: '{unknown[0]}' is no golden of {rubric.name}")
    return {str(name): str(text) for name, text in found.items()}


def _shipped(name: str) -> bytes:
    return (_SHIPPED / name).read_bytes()


def reordered(body: str) -> str:
    """Return a rubric's text with every list of points turned round; empty where it has none to turn.

    Numbered steps stay as they are: their order has a meaning.
    """
    told: list[str] = []
    points: list[list[str]] = []
    is_turned = False
    for line in [*body.split("\n"), ""]:
        if _ITEM.match(line):
            points.append([line])
        elif points and line.startswith("  ") and line.strip():
            points[-1].append(line)
        else:
            is_turned = is_turned or len(points) > 1
            told += [part for point in reversed(points) for part in point]
            points = []
            told.append(line)
    return "\n".join(told[:-1]) if is_turned else ""


def signed(output: str, name: str) -> str:
    """Return an output that says who wrote it."""
    return f"{output}\n\n(written by {name})"


def partner(golden: Golden, goldens: Iterable[Golden], in_other_words: dict[str, str]) -> str:
    """Return another output for the same input: that of a golden with the other verdict, else the same in other words.

    Where there is neither, the output of another golden: an answer to something else.
    """
    others = [other for other in goldens if other.name != golden.name and other.output != golden.output]
    for other in others:
        if other.input == golden.input and other.expected != golden.expected:
            return other.output
    return in_other_words.get(golden.name) or next((other.output for other in others), "")
