"""Options that commands share which let agents work, and which tell what came of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


trust_option = click.option(
    "--trust",
    "--allow-local-code",
    "trust",
    is_flag=True,
    help="Trust this project for this call: its Python is imported; `waza trust` does it for good.",
)
"""Trust that ends with the call; `--allow-local-code` is its earlier name."""


def working_options(unit: str, of: str) -> Callable[[Command], Command]:
    """Add what a command needs that runs agents: `unit` is what it runs, `of` what a stored run is one of."""
    return _all(
        click.option("--workers", type=click.IntRange(1), help="How many trials run at once."),
        click.option(
            "--timeout",
            type=click.FloatRange(0, min_open=True),
            help=f"Seconds per {unit}, instead of the suite's.",
        ),
        click.option(
            "--resume",
            is_flag=False,
            flag_value="newest",
            metavar="[RUN]",
            help=f"Go on with a stored run: the newest of {of}, or RUN.",
        ),
        click.option("--rerun-changed", is_flag=True, help=f"With --resume: run {unit}s again that changed."),
        click.option("--rerun-errors", is_flag=True, help="With --resume: run trials again whose agent could not run."),
        click.option(
            "--max-cost",
            type=click.FloatRange(0, min_open=True),
            help="Start no further trial once this many dollars are spent; refused where agents never tell their cost.",
        ),
        click.option("--dry-run", is_flag=True, help="Check everything and say what would run."),
        click.option("--keep-workspace", is_flag=True, help="Do not remove the agents' folders; say where they are."),
    )


def telling_options(
    detail: str = "check, not only those that did not hold", *, several: str = ""
) -> Callable[[Command], Command]:
    """Add what a command needs that shows a run; `detail` is what `--verbose` shows, `several` what --json adds."""
    return _all(
        click.option(
            "-o",
            "--output",
            type=click.Path(path_type=Path),
            help="Write results.json here too; `-` is the same as --json.",
        ),
        click.option("--json", "as_json", is_flag=True, help=f"Print results.json on standard output{several}."),
        click.option("-v", "--verbose", is_flag=True, help=f"Show every {detail}."),
        click.option("-q", "--quiet", is_flag=True, help="Show the summary only."),
    )


def with_stdout(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options with `-o -` taken for `--json`."""
    return options | {"output": None, "as_json": True} if options["output"] == Path("-") else options


def _all(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add
