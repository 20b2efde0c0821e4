"""`waza serve` as a person starts and stops it."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from runs_made import a_history

from waza.cli import run_command


@pytest.mark.skipif(sys.platform == "win32", reason="ends by a POSIX signal")
def test_it_prints_one_link_answers_and_ends_at_ctrl_c(tmp_path):
    a_history(tmp_path / "runs", runs=1)
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "NO_COLOR": "1"}
    server = subprocess.Popen(
        [sys.executable, "-m", "waza", "serve", str(tmp_path), "--port", "0"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    try:
        link = server.stdout.readline().strip()
        host, _, token = link.removeprefix("http://").partition("/?token=")
        assert host.startswith("127.0.0.1:") and len(token) > 20
        connection = http.client.HTTPConnection(host, timeout=30)
        connection.request("GET", f"/?token={token}")
        answer = connection.getresponse()
        answer.read()
        cookie = answer.getheader("set-cookie").split(";")[0]
        stream = http.client.HTTPConnection(host, timeout=30)
        stream.request("GET", "/events", headers={"Cookie": cookie})
        assert stream.getresponse().read(10) == b"event: liv"
    finally:
        server.send_signal(signal.SIGINT)
        started = time.monotonic()
        out, errors = server.communicate(timeout=30)
    assert time.monotonic() - started < 15
    assert errors == "" and token not in out
    assert server.returncode == 0
    assert [path.stat().st_mode & 0o077 for path in (tmp_path / "cache" / "waza").iterdir()]


def test_a_port_in_use_is_told(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert run_command(["serve", "--port", str(taken.getsockname()[1])]) == 2
    assert "leave --port out" in capsys.readouterr().err


def test_no_other_address_can_be_bound(capsys):
    assert run_command(["serve", "--host", "0.0.0.0"]) == 2
    assert "No such option" in capsys.readouterr().err


def test_the_files_of_the_pages_are_in_the_package():
    from importlib.resources import files

    static = files("waza.dashboard").joinpath("static")
    for name in ("app.css", "app.js", "theme.js", "charts.js", "live.js", "icon.svg", "vendor/uPlot.LICENSE"):
        assert static.joinpath(name).is_file()
    script = static.joinpath("vendor/uPlot.iife.min.js").read_text()
    assert "innerHTML" not in script and "http://" not in script


def test_no_script_of_ours_makes_markup_out_of_text():
    from importlib.resources import files

    static = files("waza.dashboard").joinpath("static")
    for file in static.iterdir():
        if file.name.endswith(".js"):
            text = file.read_text()
            for word in (
                "innerHTML",
                "outerHTML",
                "insertAdjacent",
                "document.write",
                "eval(",
                "new Function",
                "http:",
            ):
                assert word not in text, f"{file.name}: {word}"
