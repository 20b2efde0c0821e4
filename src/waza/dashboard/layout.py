"""The frame around every page: head, navigation, where one is; and the same page as a file that stands alone."""

from __future__ import annotations

from waza.dashboard.assets import STYLES, digest, text_of
from waza.dashboard.markup import Element, Html, Node, el, href, render, short
from waza.dashboard.registry import Ask, View, all_pages

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


def document(view: View, ask: Ask) -> str:
    """Return a whole page."""
    body = [el("a", "skip to the content", href="#main", class_="skip"), _header(ask, view), _main(view), _keys()]
    scripts = [el("script", src=f"/static/{name}", defer=True) for name in ("app.js", *view.scripts)]
    styles = [el("link", rel="stylesheet", href=f"/static/{name}") for name in STYLES]
    icon = el("link", rel="icon", href="/static/icon.svg", type="image/svg+xml")
    theme = el("script", src="/static/theme.js")
    head = el("head", *_meta(view), icon, theme, *styles, *scripts)
    return "<!DOCTYPE html>\n" + render(el("html", head, el("body", *body), lang="en"))


def exported(view: View) -> str:
    """Return a page that opens from disk: nothing is loaded, no script runs but what draws charts and unfolds calls."""
    style = text_of(*STYLES)
    script = text_of(*(name for name in view.scripts if name not in _NEED_SERVER))
    policy = f"default-src 'none'; style-src {digest(style)}; base-uri 'none'; form-action 'none'"
    policy += f"; script-src {digest(script)}; require-trusted-types-for 'script'" if script else ""
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        *_meta(view)[1:],
        el("style", Html(style)),
    )
    end = el("script", Html(script)) if script else None
    body = el("body", _main(view), end, class_="export")
    return "<!DOCTYPE html>\n" + render(el("html", head, body, lang="en"), is_export=True)


def _meta(view: View) -> list[Element]:
    return [
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="referrer", content="no-referrer"),
        el("title", f"{short(view.title, 100)} · waza"),
    ]


def _header(ask: Ask, view: View) -> Element:
    pages = sorted((page for page in all_pages() if page.nav), key=lambda page: page.place)
    shown = [page for page in pages if ask.can_review or page.accept is None]
    here = ask.address.split("?")[0]
    links = [
        el("a", page.nav, href=page.path, aria_current="page" if page.path == here else None, data_key=page.key)
        for page in shown
    ]
    mark = "&" if "?" in ask.address else "?"
    tools = el(
        "span",
        el("a", "Export", href=f"{ask.address}{mark}export=1", id="export", title="save this page as one file (e)"),
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
    """Return where a page below the list of runs stands."""
    return [("Runs", href()), *steps]
