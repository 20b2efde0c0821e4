"""Click options that several commands share: how agents run, and how a run is shown."""

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
    help="Trust this project for this call: its Python is imported; `waza trust` remembers it.",
)
"""Trust that ends with the call; `--allow-local-code` is its earlier name."""


def execution_options(unit: str, of: str) -> Callable[[Command], Command]:
    """Add the options of a command that runs agents: `unit` is what it runs, `of` what a stored run belongs to."""
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
            help=f"Continue a stored run: the newest of {of}, or RUN.",
        ),
        click.option("--rerun-changed", is_flag=True, help=f"With --resume: rerun {unit}s that changed."),
        click.option("--rerun-errors", is_flag=True, help="With --resume: rerun trials whose agent could not run."),
        click.option(
            "--max-cost",
            type=click.FloatRange(0, min_open=True),
            help="Start no more trials once this many dollars are spent; refused if the agent never reports its cost.",
        ),
        click.option("--dry-run", is_flag=True, help="Check everything and print what would run."),
        click.option("--keep-workspace", is_flag=True, help="Keep the agents' workspaces and print where they are."),
    )


def output_options(detail: str = "check, not only failed ones", *, several: str = "") -> Callable[[Command], Command]:
    """Add the options of a command that shows a run; `detail` is what `--verbose` adds, `several` a note on --json."""
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


def _all(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add
