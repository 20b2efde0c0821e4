"""The command line: one file per command, loaded when called."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from typing import Any, NoReturn

import click

from waza import __version__
from waza.cli._stdout import drop_output, output, save_stdout
from waza.errors import EXIT_BUG, EXIT_INTERRUPTED, EXIT_UNDECIDED, EXIT_USAGE, WazaError, exhausted

COMMANDS = {
    "init": "Start a project here: a suite that runs offline right away.",
    "new": "Add a suite, a task, a grader or a skill.",
    "suggest": "Suggest trigger tests and tasks for a skill, from its own text.",
    "run": "Run a suite: run the agent, grade its work, report which checks passed.",
    "trigger": "Test for which prompts the agent uses a skill, and which of several it chooses.",
    "check": "Find every mistake in suites and skills without running anything.",
    "grade": "Grade stored traces or a stored run again; the agent is not called.",
    "import": "Turn recordings of any agent into traces.",
    "show": "Show a stored run, one of its tasks or one trial.",
    "explain": "Explain why the rules of a trace_rules grader passed on a trace or not.",
    "compare": "Compare runs: what changed, and whether it is more than chance.",
    "gate": "Check whether a run is good enough: thresholds, golden tasks, a baseline.",
    "trend": "Plot pass rate, score and cost of a suite over its runs.",
    "serve": "Open the dashboard: runs, failures and their reasons, trends, a live view of a run.",
    "runs": "List stored runs, tag them, remove old ones, export or copy them.",
    "list": "List runs, graders, engines, or the tasks of a suite.",
    "rubric": "Show and write rubrics, and test whether a judge agrees with their goldens.",
    "stats": "Compute agreement, win rates and corrected rates of a table.",
    "judge": "Measure how reliable a judge's verdicts are: judge cards.",
    "review": "Review outputs of a run: pass or fail; `human` graders wait for it.",
    "calibrate": "Measure how well a judge agrees with people, and correct the pass rate for its errors.",
    "trust": "Trust a folder: its Python may be imported; list and remove trusted folders.",
    "schema": "Print the JSON Schema of a file for your editor.",
    "docs": "Write or check the reference pages.",
    "completion": "Print the completion script for your shell.",
}
_FREE_FILES = 24
"""Files a command must be able to open in addition to those open at its start."""


class LazyCommands(click.Group):
    """A group that imports a command's file when it is called, so that `--help` stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order a newcomer needs them."""
        return [*COMMANDS]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Return a command, importing its file."""
        if name not in COMMANDS:
            return None
        found: click.Command = importlib.import_module(f"waza.cli.{name}").command
        if not gc.isenabled():
            gc.freeze()  # what was imported stays: collections need not look at it again
            gc.enable()
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command meant by the first word, or fail with the nearest name."""
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            from waza.errors import did_you_mean  # only for a wrong name

            ctx.fail(f"no command '{args[0]}'; {did_you_mean(args[0], [*COMMANDS])}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([*COMMANDS.items()])


@click.group(
    cls=LazyCommands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example:  waza init && waza run",
)
@click.version_option(__version__, "--version", message="waza %(version)s")
def cli() -> None:
    """Know whether an AI agent did its job.

    Write down what a good agent does (eval.yaml), run the agent or read its trace, and see which checks passed.
    """


def main() -> NoReturn:
    """Run the command line; every end has its exit code."""
    gc.disable()  # imports create objects that stay; `get_command` enables collections again
    _drop_current_folder_from_path()
    save_stdout(sys.argv[1:])
    sys.exit(run_command(sys.argv[1:]))


def _drop_current_folder_from_path() -> None:
    """Take the current folder off the module search path, where `python -m waza` has put it.

    Plug-ins are looked for on that path: the metadata of a package could be in an untrusted folder.
    """
    try:
        here = os.getcwd()  # noqa: PTH109  this file does without pathlib
    except OSError:
        here = ""  # the folder was removed under us
    if sys.path and sys.path[0] in ("", here):
        del sys.path[0]


def run_command(arguments: list[str]) -> int:
    """Return the exit code of one command line; errors are printed in one sentence, bugs leave a crash file."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        _require_open_files()
        outcome: Any = cli.main(args=arguments, prog_name="waza", standalone_mode=False)
        output().flush()
        return outcome if isinstance(outcome, int) else 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.Abort:
        click.echo("stopped", err=True)
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except WazaError as error:
        click.echo(_safe(error), err=True)
        return error.exit_code
    except KeyboardInterrupt:
        click.echo("stopped", err=True)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        drop_output()
        return 0
    except OSError as error:
        if reason := exhausted(error):
            return _report_exhausted(reason)
        click.echo(f"{error.filename or 'the output'}: {error.strerror or error}", err=True)
        return EXIT_USAGE if error.filename else EXIT_UNDECIDED
    except Exception as error:  # noqa: BLE001  the one place where a bug of ours ends: crash file, exit 4
        if reason := exhausted(error):
            return _report_exhausted(reason)
        return _report_bug(error)


def _require_open_files() -> None:
    """Raise OSError if too few files can be opened: a file that cannot be opened must not look like a missing one."""
    try:
        import resource  # not on Windows
    except ImportError:
        return
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if most == resource.RLIM_INFINITY or most >= 4 * _FREE_FILES:
        return
    opened: list[int] = []
    try:
        for _ in range(_FREE_FILES):
            opened.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    finally:
        for fd in opened:
            os.close(fd)


def _report_exhausted(reason: str) -> int:
    click.echo(f"{reason}; what was stored is safe, `waza run --resume` continues a run", err=True)
    return EXIT_UNDECIDED


def _safe(error: Exception) -> str:
    from waza.untrusted.text import visible  # only on an error

    return visible(str(error), lines=True)


def _report_bug(error: Exception) -> int:
    """Write a crash file, print its path, and return the exit code of a bug."""
    import tempfile  # only on a bug
    import traceback

    text = f"waza {__version__} on Python {sys.version}\n\n" + "".join(traceback.format_exception(error))
    for folder in (".", tempfile.gettempdir()):
        try:
            handle, path = tempfile.mkstemp(prefix="crash-", suffix=".txt", dir=folder, text=True)
        except OSError:
            continue
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        click.echo(f"a bug in waza: {type(error).__name__}; the details are in {path}; please report them", err=True)
        return EXIT_BUG
    click.echo(text, err=True)
    return EXIT_BUG
