"""The `matches` grader: one pattern in Python's syntax (`expected.output_matches`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar

from pydantic import Field, model_validator

from waza.graders.base import Grader, PythonPattern
from waza.graders.text import matches_all
from waza.model import Check, Trace

_FLAGS = {re.ASCII: "a", re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s", re.UNICODE: "u", re.VERBOSE: "x"}


class MatchesGrader(Grader):
    r"""Check that a pattern with Python's syntax and meaning matches somewhere in the output.

    ```yaml
    - type: matches
      name: has_reference
      config:
        pattern: 'Confirmation: [A-Z]{3}\d{6}'
    ```
    """

    waits: ClassVar[bool] = True

    pattern: PythonPattern
    """A pattern for Python's `re`; it runs under a time limit."""
    flags: int = Field(default=0, exclude=True)
    """Flags of Python's `re`, as in `RegexGrader(pattern, re.I)`; they become a part of the pattern, such as `(?i)`."""

    @model_validator(mode="before")
    @classmethod
    def _with_flags(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not data.get("flags") or not isinstance(data.get("pattern"), str):
            return data
        flags = data["flags"]
        if not isinstance(flags, int) or isinstance(flags, bool) or flags & ~sum(_FLAGS):
            known = ", ".join(f"re.{flag.name}" for flag in _FLAGS)
            raise ValueError(f"flags {flags!r} are not known here; use {known}")
        letters = "".join(letter for flag, letter in _FLAGS.items() if flags & flag)
        return data | {"pattern": f"(?{letters}){data['pattern']}", "flags": 0}

    def checks(self, trace: Trace) -> Iterator[Check]:
        """Yield the one match."""
        yield from matches_all([self.pattern], trace.output)
