"""Access to the dashboard: only the browser session that the printed link opened; every other request is refused.

Host and Origin are compared whole, the link's token works once, only GET and HEAD are answered, and every answer
carries the headers that keep a browser from running or fetching anything else. Nothing is ever logged here.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode

from waza.reports.html.markup import el, render

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
_SITES = ("same-origin", "none")
_MOST_QUERY = 8_000
_MOST_LINKS = 8
"""Links that were printed and not used yet."""


class BrowserSession:
    """The one session of a server: links that open it once each, and the cookie they are exchanged for."""

    def __init__(self, port: int) -> None:
        self.cookie_name = f"waza-{port}"
        self._secret = secrets.token_urlsafe(32)
        self._links: list[str] = []

    def new_token(self) -> str:
        """Return a token that opens the session once."""
        self._links = [*self._links[1 - _MOST_LINKS :], secrets.token_urlsafe(24)]
        return self._links[-1]

    def redeem(self, token: str) -> bool:
        """Return whether a token opens the session; it works once."""
        used = [link for link in self._links if hmac.compare_digest(link.encode(), token.encode("utf-8", "replace"))]
        self._links = [link for link in self._links if link not in used]
        return bool(used)

    def cookie(self) -> str:
        """Return the cookie of the session, as the value of a header."""
        return f"{self.cookie_name}={self._secret}; Path=/; HttpOnly; SameSite=Strict"

    def matches(self, header: str) -> bool:
        """Return whether a browser's cookies include the session's."""
        try:
            found = SimpleCookie(header).get(self.cookie_name)
        except CookieError:
            return False
        return found is not None and hmac.compare_digest(found.value.encode("utf-8", "replace"), self._secret.encode())

    def form_key(self) -> str:
        """Return the key that a form must send; only the session's own pages know it."""
        return hmac.new(self._secret.encode(), b"form", "sha256").hexdigest()


class Guard:
    """Lets requests through to an app that may be answered, and puts the headers on every answer."""

    def __init__(
        self, app: App, session: BrowserSession, hosts: Collection[str], writable: Collection[str] = ()
    ) -> None:
        self._app = app
        self._session = session
        self._hosts = frozenset(hosts)
        self._origins = frozenset(f"http://{host}" for host in hosts)
        self._writable = frozenset(writable)
        """Paths that may be written to; the page itself checks the form's key."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._http(scope, receive, _with_headers(send))

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = scope["headers"]
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await _answer(send, *refusal)
            return
        query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        is_known = self._session.matches("; ".join(_all(headers, b"cookie")))
        if scope["path"] == "/" and "token" in query:
            await self._open(send, query, is_known)
        elif not is_known:
            await _answer(send, 401, "This page opens with the link that `waza serve` printed. Each link works once.")
        else:
            await self._app(scope, receive, send)

    def _refusal(self, scope: Scope, headers: list[tuple[bytes, bytes]]) -> tuple[int, str] | None:
        hosts, origins, sites = (_all(headers, name) for name in (b"host", b"origin", b"sec-fetch-site"))
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return 421, "The dashboard answers to its own address only."
        if len(origins) > 1 or any(origin not in self._origins for origin in origins):
            return 403, "Another site requested this page."
        if len(sites) > 1 or any(site not in _SITES for site in sites):
            return 403, "Another site requested this page."
        if scope["method"] not in ("GET", "HEAD") and not (
            scope["method"] == "POST" and scope["path"] in self._writable and origins
        ):
            return 405, "The dashboard only shows: GET and HEAD."
        if len(scope["query_string"]) > _MOST_QUERY:
            return 414, "The address is too long."
        return None

    async def _open(self, send: Send, query: dict[str, str], is_known: bool) -> None:
        """Exchange a link's token for the cookie, and lead on to the page without it."""
        if not self._session.redeem(query.pop("token")) and not is_known:
            reason = "This link was used already, or belongs to an earlier server."
            await _answer(send, 401, f"{reason} Press Enter in the terminal for a new one.")
            return
        target = "/" + (f"?{urlencode(query)}" if query else "")
        await _answer(send, 303, "", {"location": target, "set-cookie": self._session.cookie()})


def _all(headers: list[tuple[bytes, bytes]], name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in headers if key.lower() == name]


def _with_headers(send: Send) -> Send:
    ours = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
    names = {name for name, _ in ours}

    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            others = [(name, value) for name, value in message.get("headers", []) if name.lower() not in names]
            message = {**message, "headers": others + ours}
        await send(message)

    return sending


async def _answer(send: Send, status: int, words: str, headers: dict[str, str] | None = None) -> None:
    body = ("<!DOCTYPE html>" + render(_plain_page(words))).encode() if words else b""
    sent = {"content-type": "text/html; charset=utf-8", "content-length": str(len(body))} | (headers or {})
    sent |= {"allow": "GET, HEAD"} if status == 405 else {}
    raw = [(name.encode(), value.encode("latin-1")) for name, value in sent.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


def _plain_page(words: str) -> Any:
    head = el("head", el("meta", charset="utf-8"), el("title", "waza"))
    return el("html", head, el("body", el("main", el("h1", "waza"), el("p", words))), lang="en")
