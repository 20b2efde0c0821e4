"""`waza init`: a first suite that runs at once."""

from __future__ import annotations

from pathlib import Path

import click

from waza.cli._scaffold import EVAL, PROJECT, TASK, schema_line, write_new
from waza.cli._screen import say
from waza.errors import UsageError


@click.command(epilog="Example:  waza init && waza run")
@click.argument("folder", type=click.Path(path_type=Path), default=Path())
def command(folder: Path) -> int:
    """Start a project in FOLDER: settings, schemas for your editor, and a suite that passes offline."""
    from waza.cli.schema import write_schemas  # it loads every file's shape, for the last step alone

    suite, task = folder / "eval.yaml", folder / "tasks" / "greet.yaml"
    for path in (suite, task):
        if path.exists():
            raise UsageError(f"{path} is there already; `waza new suite NAME` adds another suite")
    if not (folder / ".waza.yaml").exists():
        say(
            f"wrote {write_new(folder / '.waza.yaml', schema_line(folder / '.waza.yaml', folder, 'project') + PROJECT)}"
        )
    name = folder.resolve().name or "first-suite"
    say(f"wrote {write_new(suite, schema_line(suite, folder, 'eval') + EVAL.format(name=name))}")
    say(f"wrote {write_new(task, schema_line(task, folder, 'task') + TASK.format(name='greet'))}")
    write_schemas(folder / ".waza")
    say(f"wrote {folder / '.waza'} (schemas for your editor)")
    here = "" if folder == Path() else f" {folder}"
    say(f"\nNext:  waza run{here}   runs it offline and passes")
    say("Then:  put your own prompt into tasks/greet.yaml and say what a good answer holds,")
    say("       and set config.executor in eval.yaml to the engine of your agent (`waza list engines`).")
    return 0
