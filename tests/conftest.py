"""What several tests share: campaigns run at CI size unless WAZA_CAMPAIGN is `full` or `sample`."""

import gc
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from zlib import crc32

import pytest

import warm_cli

ROOT = Path(__file__).parent.parent
# Without compiled files every worker, and every program a test starts, compiles all of waza again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection():
    """Keep ten thousand collected tests out of every garbage collection, now and later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config, items):
    if os.environ.get("WAZA_CAMPAIGN") in ("full", "sample") or "campaign" in (config.option.markexpr or ""):
        return
    left_to_campaign = [item for item in items if _is_left_to_campaign(item)]
    config.hook.pytest_deselected(items=left_to_campaign)
    items[:] = [item for item in items if not _is_left_to_campaign(item)]


def _is_left_to_campaign(item):
    """Return whether only `make campaign` runs this test: a long one, or two in three of very many of one kind."""
    if item.get_closest_marker("campaign"):
        return True
    return item.get_closest_marker("sampled") is not None and crc32(item.nodeid.encode()) % 3 != 0


def pytest_runtest_setup(item):
    """Let no test inherit the screen of another, and so its width."""
    screen = sys.modules.get("waza.cli._screen")
    if screen is not None:
        screen.console.cache_clear()


def pytest_configure(config):
    # pytest rewrites the asserts of a plug-in's whole package: seconds a worker, and waza's are no tests.
    getattr(config.pluginmanager.rewrite_hook, "_must_rewrite", set()).discard("waza")
    _configure_hypothesis()
    _configure_waza(config)


def _configure_hypothesis():
    """Set no deadline: a slow moment of the machine is not a fault of the code."""
    from hypothesis import HealthCheck, settings  # only now: the line above lets its compiled files be written

    settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("any machine")


def _configure_waza(config):
    """Let no test use the configuration of whoever runs it, and every test the Python of the projects it writes.

    Those about trust have a configuration of their own.
    """
    folder = Path(tempfile.mkdtemp(prefix="waza-config-"))
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    (folder / "waza").mkdir()
    record = folder / "waza" / "trust.json"
    record.write_text('{"version": 1, "folders": {"/": {"trusted_at": "", "files": null}}}')
    record.chmod(0o600)
    os.environ["XDG_CONFIG_HOME"] = str(folder)
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")


@pytest.fixture
def waza(tmp_path, monkeypatch):
    """Call the command line as a user would, in an empty folder of its own; see `warm_cli`."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments, input_text=None, env=None):
        environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "FORCE_COLOR")}
        environment |= {"NO_COLOR": "1", "COLUMNS": "120"} | (env or {})
        words = list(map(str, arguments))
        if not any(key.startswith(("PYTHON", "LD_")) for key in env or {}):
            return warm_cli.call(words, env=environment, cwd=Path.cwd(), input_text=input_text)
        return subprocess.run(
            [sys.executable, "-m", "waza", *words],
            capture_output=True,
            text=True,
            input=input_text,
            env=environment,
            timeout=100,
        )

    return call


@pytest.fixture
def examples():
    """The folder of examples."""
    return ROOT / "examples"
