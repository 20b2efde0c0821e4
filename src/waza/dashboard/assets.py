"""The files a browser gets besides pages: looked up by name, never by path."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files

_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
_OURS = ("app.css", "theme.js", "app.js", "charts.js", "live.js", "icon.svg", "trial.css", "trial.js", "review.js")
_VENDORED = ("uPlot.iife.min.js", "uPlot.min.css")
STYLES = ("report.css", "uPlot.min.css", "app.css", "trial.css")


@cache
def asset(name: str) -> bytes | None:
    """Return a file by its name; None where there is none."""
    here = files("waza.dashboard").joinpath("static")
    if name == "report.css":
        return files("waza.reports").joinpath("_report.css").read_bytes()
    if name in _OURS:
        return here.joinpath(name).read_bytes()
    return here.joinpath("vendor", name).read_bytes() if name in _VENDORED else None


def media_type(name: str) -> str:
    """Return what a browser is told a file is."""
    return _TYPES[name.rpartition(".")[2]]


def text_of(*names: str) -> str:
    """Return files one after the other, as a page that stands alone holds them."""
    return "\n".join((asset(name) or b"").decode() for name in names)


def digest(text: str) -> str:
    """Return how a policy names a piece of style or script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
