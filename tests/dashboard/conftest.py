"""A real server on the loopback address and a real browser, one of each a module."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
sys.path.insert(0, str(Path(__file__).parent.parent / "reports"))  # its hostile strings and its browser

from chromium import browser
from serving import served


@pytest.fixture(scope="module")
def tab():
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the runs of a module stand: below `x/runs`."""
    return tmp_path_factory.mktemp("project")


@pytest.fixture(scope="module")
def site(folder):
    """A dashboard over that folder, without a session in any browser yet."""
    with served(folder, index=folder / "index.sqlite") as found:
        yield found
