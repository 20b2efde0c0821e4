"""A page opened in a real Chromium, driven over its debugging pipe: its requests, scripts and looks."""

import atexit
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET_S = 0.7
"""So long nothing may happen after a page has loaded."""


def find_chromium():
    """Return the browser's path; without one the test is skipped, or fails where WAZA_NEEDS_CHROMIUM is set."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None and os.environ.get("WAZA_NEEDS_CHROMIUM"):
        pytest.fail("WAZA_NEEDS_CHROMIUM is set, and there is no Chromium; Debian's package is called chromium")
    return found or pytest.skip("no Chromium on this machine")


class Chromium:
    """One browser process and its debugging pipe; tabs share it."""

    def __init__(self):
        to_read, self._to = os.pipe()
        self._from, from_write = os.pipe()
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        options += ["--disable-background-networking", "--remote-debugging-pipe"]
        options += [f"--user-data-dir={self._profile.name}"]
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{to_read} 4>&{from_write}', "bash", find_chromium(), *options],
            pass_fds=(to_read, from_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(from_write)
        self._buffer, self._number = b"", 0

    def send(self, method, parameters, session):
        """Send one command and return its number."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        return self._number

    def receive(self, wait_s):
        """Return the next message, or None when there is none in time."""
        while b"\0" not in self._buffer:
            if not select.select([self._from], [], [], wait_s)[0]:
                return None
            piece = os.read(self._from, 1 << 16)
            assert piece, "the browser went away"
            self._buffer += piece
        text, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(text)

    def is_running(self):
        return self._process.poll() is None

    def end(self):
        self._process.kill()
        self._process.wait(timeout=30)
        os.close(self._to)
        os.close(self._from)
        self._profile.cleanup()


class Browser:
    """One tab with cookies and storage of its own; `events` has every event it reported since it was opened."""

    def __init__(self, chromium):
        self._chromium, self._session = chromium, None
        self.events = []
        self._context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=self._context)["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def is_open(self):
        return self._chromium.is_running()

    def close(self):
        """Close the tab and forget its cookies and storage."""
        self._session = None
        self.call("Target.disposeBrowserContext", browserContextId=self._context)

    def call(self, method, **parameters):
        number = self._chromium.send(method, parameters, self._session)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            answer = self._next(1.0)
            if answer and answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]
        raise TimeoutError(method)

    def _next(self, wait_s):
        """The next message, stored if it is an event of this tab; None when there is none in time."""
        message = self._chromium.receive(wait_s)
        if message and "method" in message and message.get("sessionId") == self._session:
            self.events.append(message)
        return message

    def open(self, url):
        """Open a page and wait until it has loaded and nothing happens any more."""
        self.events.clear()
        self.call("Page.navigate", url=url)
        deadline = time.monotonic() + 60
        while not self.named("Page.loadEventFired"):
            assert time.monotonic() < deadline, "the page does not load"
            self._next(1.0)
        while self._next(QUIET_S):
            assert time.monotonic() < deadline, "the page does not come to rest"

    def named(self, method):
        return [event["params"] for event in self.events if event["method"] == method]

    def requests(self):
        return [event["request"]["url"] for event in self.named("Network.requestWillBeSent")]

    def stopped(self):
        """The addresses among them that were not let out, by the page's policy or the browser's own."""
        failed = self.named("Network.loadingFailed")
        kept = {event["requestId"] for event in failed if event.get("blockedReason")}
        sent = self.named("Network.requestWillBeSent")
        return [event["request"]["url"] for event in sent if event["requestId"] in kept]

    def value(self, expression):
        """What an expression of ours comes to in the page."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")


@contextmanager
def browser():
    """Open a tab in this process's Chromium, which is started when first needed, and close it."""
    tab = Browser(_chromium())
    try:
        yield tab
    finally:
        if tab.is_open():
            tab.close()


def _chromium():
    """Return the Chromium of this process; another one if the last one ended."""
    if _started and _started[-1].is_running():
        return _started[-1]
    _started.append(Chromium())
    atexit.register(_started[-1].end)
    return _started[-1]


_started = []
