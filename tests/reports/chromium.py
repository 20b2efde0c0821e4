"""A page opened in a real Chromium, driven over its debugging pipe: its requests, scripts and looks."""

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
    """The browser's path; without one the test is skipped, or fails where WAZA_NEEDS_CHROMIUM is set."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None and os.environ.get("WAZA_NEEDS_CHROMIUM"):
        pytest.fail("WAZA_NEEDS_CHROMIUM is set, and there is no Chromium; Debian's package is called chromium")
    return found or pytest.skip("no Chromium on this machine")


class Browser:
    """One tab; `events` has every event it reported since it was opened."""

    def __init__(self, to_browser, from_browser):
        self._to, self._from = to_browser, from_browser
        self._buffer, self._number, self._session = b"", 0, None
        self.events = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            answer = self._next(1.0)
            if answer and answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
        raise TimeoutError(method)

    def _next(self, wait_s):
        """The next message, stored if it is an event; None when there is none in time."""
        while b"\0" not in self._buffer:
            if not select.select([self._from], [], [], wait_s)[0]:
                return None
            piece = os.read(self._from, 1 << 16)
            assert piece, "the browser went away"
            self._buffer += piece
        text, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(text)
        if "method" in message:
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
    """Start Chromium and end it."""
    path = find_chromium()
    to_read, to_browser = os.pipe()
    from_browser, from_write = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        options += ["--disable-background-networking", "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{to_read} 4>&{from_write}', "bash", path, *options],
            pass_fds=(to_read, from_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(from_write)
        try:
            yield Browser(to_browser, from_browser)
        finally:
            process.kill()
            process.wait(timeout=30)
            os.close(to_browser)
            os.close(from_browser)
