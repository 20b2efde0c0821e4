"""A real server on the loopback address and a real browser, one of each a module."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "reports"))  # its hostile strings and its browser

if all(map(find_spec, ("starlette", "uvicorn"))):
    from chromium import browser
    from serving import served
else:
    collect_ignore_glob = ["test_*.py"]  # the extra `dashboard` is not installed


@pytest.fixture(scope="module")
def tab():
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder with the runs of a module: below `x/runs`."""
    return tmp_path_factory.mktemp("project")


@pytest.fixture(scope="module")
def site(folder):
    """A dashboard over that folder, without a session in any browser yet."""
    with served(folder, index=folder / "index.sqlite") as found:
        yield found
