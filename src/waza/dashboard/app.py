"""The web app: routes to pages, files and event streams, behind the guard."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from functools import partial
from hmac import compare_digest
from urllib.parse import parse_qsl, quote, urlencode

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from waza.dashboard.assets import asset, media_type
from waza.dashboard.guard import Guard, Session
from waza.dashboard.layout import document, exported
from waza.dashboard.live import list_events, run_events
from waza.dashboard.markup import el
from waza.dashboard.registry import Ask, NotThere, Page, Query, View, all_pages
from waza.dashboard.store import Store
from waza.errors import StoreError

MOST_FORM = 64_000
MOST_FIELDS = 100
Endpoint = Callable[[Request], Awaitable[Response]]


def make_app(store: Store, session: Session, hosts: Collection[str], *, can_review: bool = False) -> Guard:
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
        return _shown(_problem("There is no such page", "The list of runs leads to every page.", 404), _ask(request))

    async def broken(request: Request, error: Exception) -> Response:
        told = "A bug of ours; the terminal in which `waza serve` runs tells more. Other pages may work."
        return _shown(_problem("This page could not be made", told, 500), _ask(request))

    writable = [page.path for page in pages if page.accept]
    return Guard(Starlette(routes=routes, exception_handlers={404: nothing, 500: broken}), session, hosts, writable)


def _page(page: Page, store: Store, form_key: str) -> Endpoint:
    async def answer(request: Request) -> Response:
        ask = _ask(request, form_key)
        try:
            if request.method == "POST":
                return await _written(page, store, request, ask)
            view = await run_in_threadpool(page.show, ask, store)
        except NotThere as error:
            view = _problem("Not there", str(error), 404)
        except StoreError as error:
            view = _problem("This run cannot be read", str(error), 200)
        return await run_in_threadpool(_shown, view, ask)

    return answer


async def _written(page: Page, store: Store, request: Request, ask: Ask) -> Response:
    """Hand a form of ours to its page, and lead on to where it says."""
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
    if page.accept is None or not compare_digest(form.get("form_key").encode(), ask.form_key.encode()):
        return Response("the form is not one of this session's", 403)
    return Response("", 303, {"location": await run_in_threadpool(page.accept, ask, store, form)})


def _ask(request: Request, form_key: str = "") -> Ask:
    query = Query(request.query_params.multi_items())
    kept = [(key, value) for key, value in query.pairs if key != "export"]
    path = "/" + request.scope["path"].lstrip("/")  # two slashes would name a host
    address = quote(path.encode("utf-8", "replace")) + (f"?{urlencode(kept)}" if kept else "")
    return Ask(request.path_params, query, address, query.get("export") == "1", bool(form_key), form_key)


def _shown(view: View, ask: Ask) -> Response:
    if not ask.is_export:
        return Response(document(view, ask), view.status, media_type="text/html")
    headers = {"content-disposition": 'attachment; filename="waza-page.html"'}
    return Response(exported(view), view.status, headers, media_type="text/html")


def _problem(title: str, words: str, status: int) -> View:
    return View(title=title, body=[el("h1", title), el("p", words)], status=status, crumbs=[("Runs", "/")])


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    found = asset(name)
    return Response(status_code=404) if found is None else Response(found, media_type=media_type(name))
