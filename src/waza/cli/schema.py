"""`waza schema`: JSON Schema for editors."""

from __future__ import annotations

import json
from pathlib import Path

import click

from waza.cli._screen import say
from waza.cli._stdout import emit
from waza.suites.reference import file_schema
from waza.suites.shapes import FILES


@click.command(epilog="Example:  waza schema eval > .waza/eval.schema.json  ·  waza schema -o .waza")
@click.argument("kind", type=click.Choice(["eval", "task", "project", "mock", "trigger_tests"]), default="eval")
@click.option("-o", "--output", "folder", type=click.Path(path_type=Path), help="Write all schemas into this folder.")
def command(kind: str, folder: Path | None) -> int:
    """Print the JSON Schema of a kind of file, for completion and hints in your editor.

    A file uses it by its first line: # yaml-language-server: $schema=PATH
    """
    if folder is None:
        emit(json.dumps(file_schema(kind), indent=2))
    else:
        for path in write_schemas(folder):
            say(f"wrote {path}")
    return 0


def write_schemas(folder: Path) -> list[Path]:
    """Write the schema of every kind of file into a folder and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for kind in FILES:
        path = folder / f"{kind}.schema.json"
        path.write_text(json.dumps(file_schema(kind), indent=2) + "\n", encoding="utf-8")
        paths.append(path)
    return paths
