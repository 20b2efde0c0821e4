"""Patterns on a backtracking engine, in a child that is killed when its time runs out."""

from __future__ import annotations

from typing import Literal, NamedTuple

from waza.sandbox.child import Child, NoAnswer

SEARCH_LIMIT_S = 1.0
COMPILE_LIMIT_S = 2.0

CHILD = Child("regex")


class Program(NamedTuple):
    """A pattern for one of the child's engines: `regex`, or Python's own `re`."""

    engine: Literal["regex", "re"]
    pattern: str
    ignore_case: bool = False


def check_program(program: Program) -> None:
    """Raise ValueError with a sentence when the engine cannot compile the program, or not in time."""
    try:
        CHILD.ask(program._asdict(), COMPILE_LIMIT_S)
    except NoAnswer as reason:
        raise ValueError(f"not a usable pattern: it {reason} while it was compiled") from None
    except ValueError as reason:
        raise ValueError(f"not a valid pattern: {reason}") from None


def search(program: Program, text: str) -> bool:
    """Say whether the program matches anywhere in `text`; raise NoAnswer when time or memory runs out."""
    return bool(CHILD.ask(program._asdict() | {"text": text}, SEARCH_LIMIT_S))
