"""`waza docs`: the reference, made from the docstrings and fields of the program itself."""

from __future__ import annotations

from pathlib import Path

import click

from waza.cli._screen import say
from waza.errors import EXIT_FAILED, EXIT_PASSED
from waza.reports._text import plural


@click.command(epilog="Example:  waza docs -o docs/reference  ·  waza docs --check")
@click.option(
    "-o", "--output", "folder", type=click.Path(path_type=Path), default=Path("docs/reference"), show_default=True
)
@click.option("--check", is_flag=True, help="Write nothing; fail if anything is undocumented or an example is wrong.")
def command(folder: Path, check: bool) -> int:
    """Write the reference pages: every grader, engine, file and command.

    With --check, say which option has no text and which example does not load; docs/guide and README are read too.
    """
    from waza.cli._reference import faults, pages

    if check:
        found = faults(Path())
        for fault in found:
            say(fault)
        say(f"{plural(len(found), 'fault')}; mend the docstring or the page named, then run `waza docs --check` again"
            if found else "reference ok: every option has a text, every example loads")  # fmt: skip
        return EXIT_FAILED if found else EXIT_PASSED
    written = 0
    for name, text in pages().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written += 1
    say(f"wrote {plural(written, 'page')} to {folder}")
    return EXIT_PASSED
