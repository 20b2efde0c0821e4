"""The web app: routes to pages, files and event streams, behind the guard."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from functools import cache, partial
from hmac import compare_digest
from importlib.resources import files
from urllib.parse import parse_qsl, quote, urlencode

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from waza.errors import StoreError
from waza.reports.html.markup import Element, Html, Node, el, head_of_file, href, meta, render, short
from waza.reports.html.view import NotFound, PageRequest, Query, View
from waza.server.guard import BrowserSession, Guard
from waza.server.live import list_events, run_events
from waza.server.pages import Page, all_pages
from waza.server.store import RunReader

MOST_FORM = 64_000
MOST_FIELDS = 100
Endpoint = Callable[[Request], Awaitable[Response]]


def make_app(store: RunReader, session: BrowserSession, hosts: Collection[str], *, can_review: bool = False) -> Guard:
    """Return the dashboard as an ASGI app that answers to these hosts alone."""
    pages = [page for page in all_pages() if can_review or page.accept is None]
    form_key = session.form_key() if can_review else ""
    routes = [
        Route(page.path, _page(page, store, form_key), methods=["GET", "POST"] if page.accept else ["GET"])
        for page in pages
    ]
    routes += [
        Route("/static/{name}", _static),
        Route("/events", partial(list_events, store=store)),
        Route("/runs/{run}/events", partial(run_events, store=store)),
    ]

    async def nothing(request: Request, error: Exception) -> Response:
        return _shown(
            _problem("There is no such page", "The list of runs leads to every page.", 404), _page_request(request)
        )

    async def broken(request: Request, error: Exception) -> Response:
        message = "This is a bug in waza; see the terminal in which `waza serve` runs. Other pages may work."
        return _shown(_problem("This page failed", message, 500), _page_request(request))

    writable = [page.path for page in pages if page.accept]
    return Guard(Starlette(routes=routes, exception_handlers={404: nothing, 500: broken}), session, hosts, writable)


def _page(page: Page, store: RunReader, form_key: str) -> Endpoint:
    async def answer(request: Request) -> Response:
        page_request = _page_request(request, form_key)
        try:
            if request.method == "POST":
                return await _written(page, store, request, page_request)
            view = await run_in_threadpool(page.show, page_request, store)
        except NotFound as error:
            view = _problem("Not there", str(error), 404)
        except StoreError as error:
            view = _problem("This run cannot be read", str(error), 200)
        return await run_in_threadpool(_shown, view, page_request)

    return answer


async def _written(page: Page, store: RunReader, request: Request, page_request: PageRequest) -> Response:
    """Pass a form to its page, and redirect to the address it returns."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_FORM:
            return Response("too much", 413)
    try:
        fields = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        return Response(f"more than {MOST_FIELDS} fields", 400)
    form = Query(fields)
    if page.accept is None or not compare_digest(form.get("form_key").encode(), page_request.form_key.encode()):
        return Response("the form is not one of this session's", 403)
    return Response("", 303, {"location": await run_in_threadpool(page.accept, page_request, store, form)})


def _page_request(request: Request, form_key: str = "") -> PageRequest:
    query = Query(request.query_params.multi_items())
    pairs = [(key, value) for key, value in query.pairs if key != "export"]
    path = "/" + request.scope["path"].lstrip("/")  # two slashes would name a host
    address = quote(path.encode("utf-8", "replace")) + (f"?{urlencode(pairs)}" if pairs else "")
    return PageRequest(request.path_params, query, address, query.get("export") == "1", bool(form_key), form_key)


def _shown(view: View, page_request: PageRequest) -> Response:
    if not page_request.is_export:
        return Response(document(view, page_request), view.status, media_type="text/html")
    headers = {"content-disposition": 'attachment; filename="waza-page.html"'}
    return Response(exported(view), view.status, headers, media_type="text/html")


def _problem(title: str, words: str, status: int) -> View:
    return View(title=title, body=[el("h1", title), el("p", words)], status=status, crumbs=[("Runs", "/")])


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    found = asset(name)
    return Response(status_code=404) if found is None else Response(found, media_type=media_type(name))


# Static files are looked up by name, never by path.

_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
_OURS = ("app.css", "theme.js", "app.js", "charts.js", "live.js", "icon.svg", "trial.css", "trial.js", "review.js")
_VENDORED = ("uPlot.iife.min.js", "uPlot.min.css")
STYLES = ("report.css", "uPlot.min.css", "app.css", "trial.css")


@cache
def asset(name: str) -> bytes | None:
    """Return a file by its name; None where there is none."""
    here = files("waza.server").joinpath("static")
    if name == "report.css":
        return files("waza.reports.html").joinpath(name).read_bytes()
    if name in _OURS:
        return here.joinpath(name).read_bytes()
    return here.joinpath("vendor", name).read_bytes() if name in _VENDORED else None


def media_type(name: str) -> str:
    """Return the media type of a file."""
    return _TYPES[name.rpartition(".")[2]]


def text_of(*names: str) -> str:
    """Return files joined, for a page that has them inline."""
    return "\n".join((asset(name) or b"").decode() for name in names)


_KEYS = (
    ("/", "search"),
    ("j  k", "next, previous row"),
    ("Enter", "open the row"),
    ("n", "next that failed"),
    ("c", "choose the run, to compare it"),
    ("u", "up to the page above"),
    ("[  ]", "page before, page after"),
    ("g then r, t, c, v", "runs, trends, compare, review"),
    ("d", "dark or light"),
    ("e", "export this page"),
    ("?", "these keys"),
)
_NEED_SERVER = ("live.js", "review.js")


def document(view: View, page_request: PageRequest) -> str:
    """Return a whole page."""
    body = [
        el("a", "skip to the content", href="#main", class_="skip"),
        _header(page_request, view),
        _main(view),
        _keys(),
    ]
    scripts = [el("script", src=f"/static/{name}", defer=True) for name in ("app.js", *view.scripts)]
    styles = [el("link", rel="stylesheet", href=f"/static/{name}") for name in STYLES]
    icon = el("link", rel="icon", href="/static/icon.svg", type="image/svg+xml")
    theme = el("script", src="/static/theme.js")
    head = el("head", el("meta", charset="utf-8"), *meta(_title(view)), icon, theme, *styles, *scripts)
    return "<!DOCTYPE html>\n" + render(el("html", head, el("body", *body), lang="en"))


def exported(view: View) -> str:
    """Return a page that opens from disk: nothing is loaded, no script runs but what draws charts and unfolds calls."""
    style = text_of(*STYLES)
    script = text_of(*(name for name in view.scripts if name not in _NEED_SERVER))
    head = head_of_file(_title(view), style, script)
    end = el("script", Html(script)) if script else None
    body = el("body", _main(view), end, class_="export")
    return "<!DOCTYPE html>\n" + render(el("html", head, body, lang="en"), is_export=True)


def _title(view: View) -> str:
    return f"{short(view.title, 100)} · waza"


def _header(page_request: PageRequest, view: View) -> Element:
    shown = [page for page in all_pages() if page.nav and (page_request.can_review or page.accept is None)]
    here = page_request.address.split("?")[0]
    links = [
        el("a", page.nav, href=page.path, aria_current="page" if page.path == here else None, data_key=page.key)
        for page in shown
    ]
    address = page_request.address
    mark = "&" if "?" in address else "?"
    tools = el(
        "span",
        el(
            "a",
            "Export",
            href=f"{page_request.address}{mark}export=1",
            id="export",
            title="save this page as one file (e)",
        ),
        el("button", "Theme", id="theme", type="button", title="dark or light (d)"),
        el("button", "?", id="help", type="button", title="keys (?)", aria_label="keys"),
        class_="tools",
    )
    brand = el("a", "waza", href="/", class_="brand")
    return el("header", brand, el("nav", *links, aria_label="pages"), tools, class_="top")


def _main(view: View) -> Element:
    crumbs: list[Node] = []
    for name, address in view.crumbs:
        crumbs += [el("a", short(name, 60), href=address), el("span", " / ", aria_hidden="true")]
    where = el("nav", *crumbs, el("span", short(view.title, 60)), class_="crumbs", aria_label="where this is")
    return el("main", where if view.crumbs else None, *view.body, id="main", tabindex="-1")


def _keys() -> Element:
    rows = [el("tr", el("td", el("kbd", keys)), el("td", words)) for keys, words in _KEYS]
    close = el("form", el("button", "close"), method="dialog")
    return el("dialog", el("h2", "Keys"), el("table", el("tbody", *rows)), close, id="keys", aria_label="keys")


def trail(*steps: tuple[str, str]) -> list[tuple[str, str]]:
    """Return the breadcrumbs of a page below the list of runs."""
    return [("Runs", href()), *steps]
