"""The files that `waza init` and `waza new` write; each runs unchanged."""

from __future__ import annotations

from pathlib import Path

from waza.errors import UsageError

SCHEMA_LINE = "# yaml-language-server: $schema={}\n"

PROJECT = """\
# What holds for every suite here; a suite's own words win.
defaults:
  engine: mock
"""

EVAL = """\
name: {name}
description: Does the agent greet people by name and stay polite?

config:
  executor: mock        # scripted, offline; `waza list engines` shows what else there is
  trials_per_task: 1
  timeout_seconds: 60

graders:                # every task gets these
  - type: text
    name: polite
    config:
      not_contains: ["go away"]

tasks:
  - "tasks/*.yaml"
"""

TASK = """\
id: {name}
inputs:
  prompt: "Say hello to Ada."

expected:
  output_contains: ["Hello", "Ada"]
  output_not_contains: ["say hello"]    # an agent that only repeats the question has not answered it

mock:                   # what the mock engine does instead of an agent; a real engine ignores this
  output: "Hello Ada, how are you?"
"""

GRADER = '''\
"""The `{name}` grader of this project."""

from collections.abc import Iterator

import waza


class {class_name}(waza.Grader):
    """Check that the output is not too long.

    ```yaml
    - type: {name}
      config:
        max_words: 100
    ```
    """

    max_words: int = 100
    """Most words allowed."""

    def checks(self, trace: waza.Trace) -> Iterator[waza.Check]:
        """Yield the one bound."""
        words = len(trace.output.split())
        yield waza.Check(
            words <= self.max_words,
            f"the output has at most {{self.max_words}} words",
            f"too long: {{words}} words",
            self.max_words,
            words,
        )
'''


def write_new(path: Path, text: str) -> Path:
    """Write a file that must not be there yet and return its path; raise UsageError if it is."""
    if path.exists():
        raise UsageError(f"{path} is there already; remove it first, or choose another name")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def schema_line(path: Path, root: Path, kind: str) -> str:
    """Return the first line of a file, which names its JSON Schema for editors."""
    import os

    return SCHEMA_LINE.format(os.path.relpath(root / ".waza" / f"{kind}.schema.json", path.parent).replace("\\", "/"))
