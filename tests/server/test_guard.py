"""Access: everything but this machine's own session is refused, before any page is built."""

import asyncio

import pytest
from runs_made import a_history
from serving import served

from waza.server.guard import HEADERS, BrowserSession

SECRET = "canary-outside-every-run"


@pytest.fixture(scope="module", autouse=True)
def runs(folder):
    made = a_history(folder / "x" / "runs", runs=2, tasks=2)
    (folder / "x" / "secret.txt").write_text(SECRET)
    (folder / "x" / "runs" / "secret.txt").write_text(SECRET)
    (folder / "elsewhere").mkdir()
    (folder / "x" / "runs" / "linked").symlink_to(made[0])
    (folder / "x" / "runs" / "up").symlink_to(folder)
    return made


def status_of(site, *lines, path="/", method="GET"):
    request = "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "Connection: close", "", ""])
    answer = site.raw(request.encode("latin-1"))
    return int(answer.split(b" ", 2)[1]) if answer else 400, answer


def ours(site, *, host=True, cookie=True):
    return ([f"Host: {site.host}"] if host else []) + ([f"Cookie: {site.cookie}"] if cookie else [])


def test_what_is_ours_is_answered(site):
    for more in ([], [f"Origin: http://{site.host}"], ["Sec-Fetch-Site: same-origin"], ["Sec-Fetch-Site: none"]):
        assert status_of(site, *ours(site), *more)[0] == 200
    local = [f"Host: localhost:{site.port}", f"Cookie: {site.cookie}"]
    assert status_of(site, *local)[0] == 200
    assert status_of(site, *ours(site), method="HEAD")[0] == 200


HOSTS = [
    "evil.com", "evil.com:{p}", "localhost.evil.com:{p}", "127.0.0.1.evil.com:{p}", "evil.com:{p}.127.0.0.1:{p}",
    "127.0.0.1", "localhost", "127.0.0.1:1", "127.0.0.1:80", "127.0.0.1:{p}0", "127.0.0.1:0{p}", "127.0.0.1:+{p}",
    "127.0.0.1:", "127.0.0.1.:{p}", "localhost.:{p}", "user@127.0.0.1:{p}", "127.0.0.1:{p}@evil.com", "[::1]:{p}",
    "0.0.0.0:{p}", "127.1:{p}", "2130706433:{p}", "0x7f.0.0.1:{p}", "127.0.0.2:{p}", "http://127.0.0.1:{p}",
    "127.0.0.1:{p}/", "127.0.0.1:{p},evil.com", "127.0.0.1:{p} evil.com", "LOCALHOST:{p}", "*", "", "-",
]  # fmt: skip


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("path", ["/", "/static/app.js"])
def test_another_host_is_refused(site, host, path):
    status, answer = status_of(site, f"Host: {host.format(p=site.port)}", f"Cookie: {site.cookie}", path=path)
    assert status in (400, 421), answer[:300]


def test_no_host_and_two_hosts_are_refused(site):
    assert status_of(site, *ours(site, host=False))[0] in (400, 421)
    assert status_of(site, *ours(site), f"Host: {site.host}")[0] in (400, 421)
    assert status_of(site, *ours(site), "Host: evil.com")[0] in (400, 421)
    assert status_of(site, *ours(site), path=f"http://evil.com:{site.port}/")[0] != 200
    assert status_of(site, f"Cookie: {site.cookie}", f"X-Forwarded-Host: {site.host}", "Host: evil.com")[0] == 421


ORIGINS = [
    "https://evil.com", "http://evil.com", "null", "http://127.0.0.1", "http://127.0.0.1:1", "https://127.0.0.1:{p}",
    "http://127.0.0.1:{p}.evil.com", "http://127.0.0.1:{p}@evil.com", "http://127.0.0.1:{p}/", "http://localhost",
    "http://localhost.evil.com:{p}", "HTTP://127.0.0.1:{p}", "127.0.0.1:{p}", "file://", "http://[::1]:{p}",
    "http://127.0.0.1:{p} http://evil.com", "http://127.0.0.1:{p}, http://evil.com", "chrome-extension://abc", "", "*",
]  # fmt: skip


@pytest.mark.parametrize("origin", ORIGINS)
def test_another_origin_is_refused(site, origin):
    assert status_of(site, *ours(site), f"Origin: {origin.format(p=site.port)}")[0] == 403


@pytest.mark.parametrize("place", ["cross-site", "same-site", "Same-Origin", "none, same-origin", "", "x"])
def test_another_site_is_refused_by_what_the_browser_says_of_it(site, place):
    assert status_of(site, *ours(site), f"Sec-Fetch-Site: {place}")[0] == 403
    assert status_of(site, *ours(site), "Sec-Fetch-Site: none", f"Sec-Fetch-Site: {place}")[0] == 403


METHODS = ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "MKCOL", "LOCK", "PURGE", "FOO", "get"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("path", ["/", "/static/app.js", "/trends", "/review"])
def test_nothing_but_reading_is_allowed(site, method, path):
    status, answer = status_of(site, *ours(site), "Content-Length: 0", method=method, path=path)
    assert status == 405
    assert b"allow: GET, HEAD" in answer


def test_no_cross_origin_header_is_ever_sent(site):
    for origin in (f"http://{site.host}", "http://evil.com"):
        answer = status_of(site, *ours(site), f"Origin: {origin}", "Access-Control-Request-Method: GET")[1]
        assert b"access-control" not in answer.lower()


def wrong_cookies(site):
    name, secret = site.cookie.split("=", 1)
    yield from ["", f"{name}=", f"{name}=x", f"{name}={secret[:-1]}", f"{name}={secret}x", f"{name}={secret.upper()}x"]
    yield from [f"waza={secret}", f"waza-{site.port + 1}={secret}", f"{name}x={secret}", f"{name.upper()}={secret}"]
    yield from [
        f"{secret}",
        f"{name}={'x' * 5000}",
        f'{name}="',
        f"{name}=\xe9",
        f"a=b; {name}=y; c=d",
        f"token={secret}",
    ]


def test_without_the_session_s_cookie_nothing_is_shown(site):
    for path in ("/", "/static/app.js", "/trends", "/events", "/runs/x", "/nowhere"):
        for cookie in wrong_cookies(site):
            status, answer = status_of(site, f"Host: {site.host}", f"Cookie: {cookie}", path=path)
            assert status == 401, (cookie, path)
            assert b"shop" not in answer
        assert status_of(site, f"Host: {site.host}", path=path)[0] == 401


def test_a_link_works_once_and_only_at_the_front_door(site):
    token = site.made.session.new_token()
    bare = [f"Host: {site.host}"]
    for path in (
        f"/trends?token={token}",
        f"/static/app.js?token={token}",
        "/?token=",
        f"/?token={token}x",
        "/?token=%C3%A9",
    ):
        assert status_of(site, *bare, path=path)[0] == 401
    assert status_of(site, *bare, f"Referer: http://{site.host}/?token={token}")[0] == 401
    assert status_of(site, *bare, f"Authorization: Bearer {token}")[0] == 401
    status, answer = status_of(site, *bare, path=f"/?token={token}&suite=shop")
    assert status == 303
    assert b"location: /?suite=shop\r\n" in answer
    cookie = next(line for line in answer.split(b"\r\n") if line.startswith(b"set-cookie: "))
    assert cookie.endswith(b"; Path=/; HttpOnly; SameSite=Strict")
    assert f"waza-{site.port}=".encode() in cookie
    assert status_of(site, *bare, path=f"/?token={token}")[0] == 401
    assert status_of(site, *ours(site), path=f"/?token={token}")[0] == 303


def test_of_many_links_only_the_last_ones_work():
    session = BrowserSession(1)
    links = [session.new_token() for _ in range(20)]
    assert [session.redeem(link) for link in links] == [False] * 12 + [True] * 8
    assert not any(session.redeem(link) for link in links)


STEPS = ["../", "..%2f", "%2e%2e/", "%2e%2e%2f", "..\\", "..%5c", "....//", "%252e%252e%252f", "..;/", "%c0%ae%c0%ae/"]
ODD = [
    "//evil.com/", "//etc/passwd", "/static//etc/passwd", "/static/%00", "/runs/%00", "/runs/.%00/x", "/runs/linked",
    "/runs/up", "/runs/secret.txt", "/runs/linked/live", "/static/vendor/README.md", "/static/vendor%2fREADME.md",
    "/static/app.css/..", "/static/__init__.py", "/static/guard.py", "/runs/" + "a" * 3000, "/runs/*", "/runs/%2e%2e",
]  # fmt: skip
WAYS_OUT = [
    f"{base}{step * 3}{name}"
    for base in ("/static/", "/runs/", "/runs/x/", "/")
    for step in STEPS
    for name in ("x/secret.txt", "etc/passwd")
]


@pytest.mark.parametrize("path", WAYS_OUT + ODD)
def test_no_path_leads_out(site, path):
    status, answer = status_of(site, *ours(site), path=path)
    assert status in (400, 404), path
    assert SECRET.encode() not in answer and b"root:" not in answer and b"import" not in answer


def test_every_answer_carries_the_headers(site, runs):
    paths = ["/", "/trends", f"/runs/{runs[0].name}", "/static/app.js", "/static/nothing", "/nowhere", "/?export=1"]
    answers = [status_of(site, *ours(site), path=path)[1] for path in paths]
    answers += [status_of(site, "Host: evil.com")[1], status_of(site, f"Host: {site.host}")[1]]
    answers += [status_of(site, *ours(site), method="POST")[1]]
    for answer in answers:
        for name, value in HEADERS.items():
            assert f"{name}: {value}\r\n".encode() in answer, (name, answer[:200])
    assert "unsafe" not in HEADERS["content-security-policy"]


def test_long_addresses_and_headers_are_refused(site):
    assert status_of(site, *ours(site), path=f"/?q={'x' * 9000}")[0] in (400, 414)
    assert status_of(site, *ours(site), f"X-Long: {'x' * 200_000}")[0] in (400, 431)


def test_without_the_guard_another_host_would_be_answered(site):
    """Proof that the refusals above come from the guard: the app behind it refuses nothing."""
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "http.request", "body": b""}

    app = site.made.server.config.app._app
    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "server": ("evil.com", 80)}
    scope |= {"scheme": "http", "headers": [(b"host", b"evil.com"), (b"origin", b"http://evil.com")]}
    asyncio.run(app(scope, receive, send))
    assert sent[0]["status"] == 200
    assert b"shop" in sent[1]["body"]


def test_a_page_that_writes_is_not_there_without_review(folder):
    with served(folder) as plain:
        status, answer = status_of(plain, *ours(plain), path="/review")
        assert status == 404 and b"Review" not in answer
