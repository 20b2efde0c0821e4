"""`waza serve`: the dashboard."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import click

from waza.cli._runs import runs_parents
from waza.cli._screen import remark, say
from waza.errors import EXIT_PASSED, UsageError


@click.command(epilog="Example:  waza serve  ·  waza serve results --port 9000 --open")
@click.argument("path", type=click.Path(path_type=Path, exists=True, file_okay=False), default=Path())
@click.option("--port", type=click.IntRange(0, 65535), help="The port; without it the first free one from 8731 on.")
@click.option("--open", "is_open", is_flag=True, help="Open the page in the browser.")
@click.option("--review", is_flag=True, help="Let a person give verdicts on the page; without it nothing is written.")
@click.option("--rebuild", is_flag=True, help="Throw the index away and make it anew.")
def command(path: Path, port: int | None, is_open: bool, review: bool, rebuild: bool) -> int:
    """Show the runs below PATH (default: here) as pages: what failed and why, trends, a run while it goes on.

    Only this machine can ask, and only a browser that was opened with the printed link, which works once.
    """
    try:
        from waza.dashboard.serve import dashboard, has_terminal, index_file, new_links_on_enter
    except ImportError as error:
        raise UsageError(f"the dashboard needs {error.name}: pip install 'waza[dashboard]'") from None
    index = index_file(path)
    if rebuild:
        index.unlink(missing_ok=True)
    desk = None
    if review:
        from waza.cli._review_desk import ReviewDesk  # suites and graders are needed for this alone

        desk = ReviewDesk(path)
    with dashboard(lambda: runs_parents(path), port=port, index=index, can_review=review, desk=desk) as made:
        link = made.link()
        say(f"{link}\nThe link opens once{'; press Enter for another' if has_terminal() else ''}. Ctrl-C stops it.")
        if is_open and click.launch(link) != 0:
            remark("no browser could be opened; use the link", "yellow")
        new_links_on_enter(made, say)
        with suppress(KeyboardInterrupt):  # this is how one stops it
            made.run()
    return EXIT_PASSED
