"""`waza serve` as a person starts and stops it."""

import contextlib
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import time

import pytest
from runs_made import a_history
from serving import served

from waza.cli import run_command
from waza.cli.serve import StoredReviewQueue


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


def test_a_port_in_use_is_reported(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert run_command(["serve", "--port", str(taken.getsockname()[1])]) == 2
    assert "leave --port out" in capsys.readouterr().err


def test_no_other_address_can_be_bound(capsys):
    assert run_command(["serve", "--host", "0.0.0.0"]) == 2
    assert "No such option" in capsys.readouterr().err


def test_the_files_of_the_pages_are_in_the_package():
    from importlib.resources import files

    static = files("waza.server").joinpath("static")
    for name in ("app.css", "app.js", "theme.js", "charts.js", "live.js", "icon.svg", "vendor/uPlot.LICENSE"):
        assert static.joinpath(name).is_file()
    script = static.joinpath("vendor/uPlot.iife.min.js").read_text()
    assert "innerHTML" not in script and "http://" not in script


def test_no_script_of_ours_makes_markup_out_of_text():
    from importlib.resources import files

    static = files("waza.server").joinpath("static")
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


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_folder_name_that_is_not_utf8_hides_no_run_and_has_pages_of_its_own(tmp_path, waza):
    odd = [os.fsencode(tmp_path / "x" / "runs") + b"/2026-\xff\xfe"[:-1] + bytes([last]) for last in (0xFC, 0xFD, 0xFE)]
    for folder, name in zip(a_history(tmp_path / "x" / "runs", runs=4, tasks=1), odd, strict=False):
        os.rename(os.fsencode(folder), name)
    for index in (tmp_path / "index.sqlite", tmp_path / "index.sqlite"):
        with served(tmp_path, index=index) as site:
            status, _, page = site.get("/")
            keys = sorted(set(re.findall(r'href="/runs/([^"/?#]+)"', page)))
            assert status == 200 and len(keys) == 4, keys
            assert site.get("/trends")[0] == 200
            for key in keys:
                status, _, text = site.get(f"/runs/{key}")
                assert status == 200 and "cannot be read" not in text, key
    for command in (("list", "runs"), ("list", "runs", "--json"), ("trend",)):
        done = waza(*command, *([tmp_path / "x"] if command[0] == "list" else []))
        assert done.returncode in (0, 1, 2, 3) and "Traceback" not in done.stderr, done.stderr


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="links cannot be refused here")
@pytest.mark.parametrize("name", ["run.json", "journal.jsonl"])
def test_links_in_a_run_folder_are_not_followed(tmp_path, waza, name):
    kept, linked = a_history(tmp_path / "runs", runs=2)
    (linked / name).rename(tmp_path / f"secret-{name}")
    (linked / name).symlink_to(tmp_path / f"secret-{name}")
    with served(tmp_path) as site:
        page = site.get("/")[2]
        assert page.count("not a regular file") == 1 and kept.name in page
        assert "not a regular file" in site.get(f"/runs/{linked.name}")[2]
        assert "not a regular file" not in site.get(f"/runs/{kept.name}")[2]
    for command in ("show", "grade", "gate", "compare"):
        done = waza(command, linked, *(["--min-pass-rate", "0"] if command == "gate" else []))
        assert done.returncode in (2, 3) and "not a regular file" in done.stderr, (command, done.stdout, done.stderr)
    before = (tmp_path / f"secret-{name}").read_bytes()
    assert "not a regular file" in waza("review", linked).stderr
    assert (tmp_path / f"secret-{name}").read_bytes() == before


def test_a_form_of_too_many_fields_is_a_bad_request(tmp_path):
    a_history(tmp_path / "runs", runs=1)
    with served(tmp_path, can_review=True, review_queue=StoredReviewQueue(tmp_path)) as site:
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": f"http://{site.host}"}
        assert site.get("/review", "POST", headers, "&".join(["a=1"] * 101))[0] == 400
        assert site.get("/review", "POST", headers, "&".join(["a=1"] * 100))[0] == 403
        assert site.get("/")[0] == 200


def half_sent(site):
    """Requests that are begun and not ended, by name."""
    head = f"Host: {site.host}\r\nCookie: {site.cookie}\r\n"
    form = f"Origin: http://{site.host}\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    yield "nothing", b""
    yield "a part of the first line", b"GET / HT"
    yield "headers without an end", f"GET / HTTP/1.1\r\n{head}X-Slow: ".encode()
    yield "a second request", f"GET /static/app.css HTTP/1.1\r\n{head}\r\nGET / HTTP/1.1\r\nHo".encode()
    yield "half a form", f"POST /review HTTP/1.1\r\n{head}{form}Content-Length: 900\r\n\r\na=1".encode()


def test_half_sent_requests_are_ended_however_slowly_they_go_on(tmp_path):
    a_history(tmp_path / "runs", runs=1)
    with served(tmp_path, can_review=True, review_queue=StoredReviewQueue(tmp_path), request_s=0.5) as site:
        with contextlib.ExitStack() as stack:
            wires = {}
            for name, begun in half_sent(site):
                wires[name] = stack.enter_context(socket.create_connection(("127.0.0.1", site.port), timeout=20))
                wires[name].sendall(begun)
            slow = stack.enter_context(socket.create_connection(("127.0.0.1", site.port), timeout=20))
            slow.sendall(b"GET / HTTP/1.1\r\nX-Slow: ")
            started = time.monotonic()
            with contextlib.suppress(OSError):
                while time.monotonic() - started < 5:
                    slow.sendall(b"x")
                    time.sleep(0.05)
            assert time.monotonic() - started < 4, "one byte at a time keeps no connection open"
            for name, wire in wires.items():
                answer = b""
                while piece := _received(wire):
                    answer += piece
                if name not in ("nothing", "a second request"):
                    assert answer.startswith(b"HTTP/1.1 408 "), (name, answer)
        stream = http.client.HTTPConnection(site.host, timeout=30)
        stream.request("GET", "/events", headers={"Cookie": site.cookie})
        answer = stream.getresponse()
        assert answer.read(10) == b"event: liv"
        time.sleep(1)
        assert site.get("/")[0] == 200
        assert stream.sock is not None or answer.fp is not None, "an answer may take as long as it takes"
        stream.close()


def _received(wire):
    try:
        return wire.recv(1 << 16)
    except ConnectionResetError:
        return b""
