"""`--reporter`, `--base` and `--otel`: which reports are wanted, and each of them written, whatever the run came to."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import click
from msgspec import json

from waza.cli._runs import the_run
from waza.cli._screen import console, remark, say
from waza.cli._stdout import emit
from waza.errors import EXIT_PASSED, EXIT_UNDECIDED, StoreError, UsageError, WazaError
from waza.files.disk import write_atomically
from waza.files.paths import display_path
from waza.model import Result, Run
from waza.reports.base import REPORTS, Report
from waza.reports.run_before import EarlierRun, before_from_file, before_of
from waza.runs.remote_store import is_url
from waza.runs.results_json import results_json
from waza.runs.store import RUN, open_run
from waza.runs.summary import summarize

STDOUT = "-"
MOST_OF_A_NAME = 80
Command = TypeVar("Command", bound=Callable[..., Any])


class WantedReport(NamedTuple):
    """One requested report."""

    kind: str
    report: Report
    path: str
    """Where to write it; empty for the run folder, `-` for standard output."""


class Reports(NamedTuple):
    """All requested reports, and the run they compare with."""

    wanted: list[WantedReport]
    before: EarlierRun | None = None

    @property
    def take_stdout(self) -> bool:
        """Whether one of them is printed, so that nothing else may be."""
        return any(wanted.path == STDOUT for wanted in self.wanted)


def reporter_options(command: Command) -> Command:
    """Add `--reporter` and `--base` to a command."""
    base = click.option(
        "--base",
        metavar="RUN",
        help="A run or a results.json that reports compare with: which tasks have another result.",
    )
    reporter = click.option(
        "--reporter",
        "reporters",
        multiple=True,
        metavar="KIND[:PATH]",
        help="Write a report (`waza list reports`) to PATH, to the run's folder, or with `-` to standard output; "
        "may be repeated.",
    )
    return reporter(base(command))


def wanted_reports(reporters: Iterable[str], base: str | None, *, as_json: bool = False) -> Reports:
    """Return what `--reporter` and `--base` ask for; raise UsageError before the run, not after it."""
    wanted = [_wanted(text) for text in reporters]
    named = [_same(one.path) for one in wanted if one.path]
    if as_json:
        named.append(STDOUT)
    if twice := next((path for path in named if named.count(path) > 1), None):
        raise UsageError(f"two reports cannot both be written to {'standard output' if twice == STDOUT else twice}")
    if base is not None and not wanted:
        raise UsageError("--base needs --reporter")
    return Reports(wanted, _before(base) if base is not None else None)


def _wanted(text: str) -> WantedReport:
    kind, colon, path = text.partition(":")
    if colon and not path:
        raise UsageError(f"--reporter {text}: the path is missing")
    if path and path != STDOUT and Path(path).is_dir():
        raise UsageError(f"--reporter {text}: {path} is a folder; name a file in it")
    return WantedReport(kind, REPORTS.load(kind)(), path)


def _same(path: str) -> str:
    return path if path == STDOUT else str(Path(path).absolute())


def _before(base: str) -> EarlierRun:
    path = Path(base)
    if path.is_file() and not (path.parent / RUN).is_file():
        return before_from_file(path)
    return before_of(open_run(the_run(base)))


class WrittenReports(NamedTuple):
    """The reports that were written."""

    paths: dict[str, Path]
    """By kind: its file."""
    is_whole: bool
    """False when one could not be written."""

    def print_paths(self) -> None:
        """Print their paths."""
        for kind, path in self.paths.items():
            say(f"{kind}: {display_path(path.resolve())}", "dim")


def write_reports(run: Run, reports: Reports, *, suffix: str = "") -> WrittenReports:
    """Write every report; one that cannot be written is reported and does not stop the others."""
    results = [(wanted.kind, _write(run, wanted, reports.before, suffix)) for wanted in reports.wanted]
    paths = {kind: path for kind, path in results if path is not None and str(path) != STDOUT}
    return WrittenReports(paths, all(path is not None for _, path in results))


def _write(run: Run, wanted: WantedReport, before: EarlierRun | None, suffix: str) -> Path | None:
    """Write one report and return its path; None if that failed, which is reported."""
    path = _path(run, wanted, suffix)
    try:
        if wanted.path == STDOUT:
            console().file.flush()
            pieces = wanted.report.render(run, before)
            for piece in on_one_line(pieces) if suffix and wanted.kind == "json" else pieces:
                emit(piece, nl=False)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, wanted.report.render(run, before), mode=0o644 if wanted.path else 0o600)
        for line in wanted.report.publish(run, before):
            click.echo(line, err=True)
    except BrokenPipeError:
        raise
    except (OSError, StoreError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
    except Exception as error:  # noqa: BLE001  a broken report must not cost a paid run its exit code
        why = f"it failed with {type(error).__name__}: {error}"
    else:
        return path
    again = f"waza show {run.id} --reporter {wanted.kind}"
    remark(f"no {wanted.kind} report in {path}: {why}; the results are safe, write it again with: {again}", "bold red")
    return None


def on_one_line(pieces: Iterable[bytes]) -> list[bytes]:
    """Return a JSON document on one line, as readers of several need it."""
    return [json.format(b"".join(pieces), indent=-1), b"\n"]


def _path(run: Run, wanted: WantedReport, suffix: str) -> Path:
    if not wanted.path:
        return Path(run.folder) / wanted.report.file
    return with_suffix(Path(wanted.path), suffix) if wanted.path != STDOUT else Path(STDOUT)


def with_suffix(path: Path, suffix: str) -> Path:
    """Return the path with a model's name in it, so that several models do not share a file."""
    return path.with_name(f"{path.stem}_{suffix}{path.suffix}") if suffix else path


def model_suffixes(models: Iterable[str]) -> dict[str, str]:
    """Return for each of several models a safe, distinct part of a file name; nothing for a single one."""
    models = list(models)
    found: dict[str, str] = {}
    taken: set[str] = set()
    for model in models if len(models) > 1 else ():
        safe = "".join(letter if letter.isalnum() or letter in "-._" else "-" for letter in model)[:MOST_OF_A_NAME]
        name, number = safe, 1
        while name.lower() in taken:
            number += 1
            name = f"{safe}-{number}"
        taken.add(name.lower())
        found[model] = name
    return found


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """How a finished run is shown, and where its reports are written."""

    output: Path | None = None
    as_json: bool = False
    verbose: bool = False
    quiet: bool = False
    interpret: bool = False
    reporters: tuple[str, ...] = ()
    base: str | None = None
    otel: str | None = None

    @classmethod
    def from_click(cls, **values: Any) -> Self:
        """Return the options; raise UsageError for wrong ones before anything runs. `-o -` is `--json`."""
        if values["output"] == Path(STDOUT):
            values |= {"output": None, "as_json": True}
        options = cls(**values)
        if options.output and options.output.is_dir():
            raise UsageError(f"{options.output} is a folder; -o names a file")
        _ = options.reports
        if options.otel is not None:
            traces_url(options.otel)
        return options

    @cached_property
    def reports(self) -> Reports:
        """The reports that `--reporter` and `--base` ask for."""
        return wanted_reports(self.reporters, self.base, as_json=self.as_json)

    @property
    def hides_progress(self) -> bool:
        """Whether no progress is shown."""
        return self.quiet or self.as_json

    @property
    def prints_summary(self) -> bool:
        """Whether standard output is for people, and not left empty or used for a document."""
        return not self.quiet and not self.as_json and not self.reports.take_stdout


def report(run: Run, options: OutputOptions, *, suffix: str = "") -> int:
    """Show a run as the options ask, write its reports, and return its exit code.

    A report that cannot be written is reported; the exit code of a run that passed is then `EXIT_UNDECIDED`.
    """
    reports = options.reports
    code = summarize(run).exit_code
    written = write_reports(run, reports, suffix=suffix)
    if not written.is_whole and code == EXIT_PASSED:
        code = EXIT_UNDECIDED
    if options.output:
        _write_file(run, with_suffix(options.output, suffix))
    if options.as_json:
        pieces = results_json(run)
        for piece in on_one_line(pieces) if suffix else pieces:
            emit(piece, nl=False)
    elif not reports.take_stdout:
        _show(run, options)
        if not options.quiet:
            written.print_paths()
    return code


def _show(run: Run, options: OutputOptions) -> None:
    """Print the run for a person."""
    from waza.reports.table import TableReport  # rich's tables are not needed for --json

    TableReport(verbose=options.verbose, quiet=options.quiet).print(run, console())
    if options.interpret:
        from waza.reports.interpretation import interpret  # only --interpret needs it

        say("\n" + interpret(run))
    if not options.quiet:
        folder = Path(run.folder).resolve()
        name = run.id if folder.is_relative_to(Path.cwd()) else display_path(folder)
        say(f"\nresults: {display_path(folder / 'results.json')}   ({shlex.join(['waza', 'show', name])})", "dim")


def _write_file(run: Run, path: Path) -> None:
    """Write results.json where the caller asked for it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, results_json(run), mode=0o644)
    except (OSError, StoreError) as error:
        raise UsageError(f"{path} cannot be written ({error}); the results are safe in {run.folder}") from None


def checked_store(url: str | None) -> str | None:
    """Return `paths.results` of a project where it is the URL of a store; raise UsageError if it cannot be written to.

    Called before a run, so that a run that could not be sent is never started.
    """
    if not url or not is_url(url):
        return None
    from waza.runs.remote import require  # most projects keep their runs in a folder

    require(url)
    return url


def sent(run: Run, url: str | None, code: int, *, quiet: bool = False) -> int:
    """Send a run to `url`, if there is one; return the exit code: 3 for a run that passed and could not be sent."""
    if url is None:
        return code
    from waza.runs.remote import push  # most projects keep their runs in a folder

    try:
        pushed = push(Path(run.folder), url)
    except WazaError as error:
        folder = display_path(Path(run.folder).resolve())
        again = shlex.join(["waza", "runs", "push", folder, "--to", url])
        remark(f"not sent: {error}\nthe run is safe in {folder}; send it with:  {again}", "bold red")
        return EXIT_UNDECIDED if code == EXIT_PASSED else code
    if not quiet:
        say(f"sent: {pushed.url}", "dim")
    return code


Listener = Callable[[Result], None]
_BASE, _TRACES = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
_PATH = "/v1/traces"


def otel_option(command: Command) -> Command:
    """Add `--otel` to a command."""
    return click.option(
        "--otel",
        is_flag=False,
        flag_value="",
        metavar="[ENDPOINT]",
        help=f"Send spans over OTLP/HTTP, to ENDPOINT (http://localhost:4318) or to what {_BASE} says.",
    )(command)


def traces_url(value: str) -> str:
    """Return the URL that spans are sent to; raise UsageError if there is none, or a package is missing."""
    _refuse_without_packages()
    if not value and os.environ.get(_TRACES):
        return os.environ[_TRACES]
    base = value or os.environ.get(_BASE, "")
    if not base:
        raise UsageError(f"where to? --otel http://localhost:4318, or set {_BASE}")
    if not base.startswith(("http://", "https://")):
        raise UsageError(f"'{base}' is not a URL; write --otel=http://localhost:4318, or put --otel at the end")
    return base if base.rstrip("/").endswith(_PATH) else base.rstrip("/") + _PATH


def _refuse_without_packages() -> None:
    from importlib.metadata import PackageNotFoundError, version  # it loads the e-mail parser, for --otel only

    for package in ("opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http"):
        try:
            version(package)
        except PackageNotFoundError:
            raise UsageError(f"--otel needs the package {package}; `pip install 'waza[otel]'`") from None


@contextmanager
def telemetry(option: str | None, *, suite: str, engine: str, model: str = "") -> Iterator[Listener]:
    """Yield a listener that sends results as spans; it does nothing without `--otel`.

    What could not be sent is reported once, at the end.
    """
    if option is None:
        yield lambda result: None
        return
    url = traces_url(option)
    from waza.reports.otel import Telemetry  # the SDK takes a third of a second to load

    spans = Telemetry(url, suite=suite, engine=engine, model=model)
    broken: list[str] = []
    complete = False

    def on_result(result: Result) -> None:
        try:
            spans.on_result(result)
        except Exception as error:  # noqa: BLE001  telemetry must not end the run
            broken.append(f"{type(error).__name__}: {error}")

    try:
        yield on_result
        complete = True
    finally:
        lost = spans.close(complete=complete)
        if fault := lost or next(iter(broken), ""):
            remark(f"--otel {url}: {fault}", "yellow")


def both(first: Listener, second: Listener) -> Listener:
    """Return a listener that calls two."""

    def notify(result: Result) -> None:
        first(result)
        second(result)

    return notify
