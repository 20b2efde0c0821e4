"""`--otel`: send results of a run as spans to an OTLP endpoint, live."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from waza.cli._screen import remark
from waza.errors import UsageError
from waza.model import Result

Command = TypeVar("Command", bound=Callable[..., Any])
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
