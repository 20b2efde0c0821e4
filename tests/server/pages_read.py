"""Pages read by a strict parser: which elements, attributes and addresses are on them."""

import re
from functools import lru_cache

import html5lib

ELEMENTS = {
    "html", "head", "meta", "title", "link", "script", "style", "body", "header", "nav", "main", "section", "h1", "h2",
    "h3", "p", "b", "a", "div", "span", "pre", "br", "code", "kbd", "ul", "ol", "li", "table", "thead", "tbody", "tr",
    "th", "td", "details", "summary", "svg", "rect", "polyline", "circle", "line", "path", "text", "g", "form",
    "input", "select", "option", "button", "label", "textarea", "time", "progress", "dialog", "figure", "figcaption",
    "dl", "dt", "dd", "i", "small", "fieldset", "legend", "ins", "del", "em",
}  # fmt: skip
SCRIPTS = re.compile(r"/static/[A-Za-z.]+\.js")
ADDRESSES = re.compile(r"(/(?!/)|#|\?)[!-~]*")


@lru_cache(maxsize=4)
def read(page):
    """The elements of a page."""
    tree = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(page)
    return list(tree.iter())


def local(element):
    return str(element.tag).rpartition("}")[2]


def faults(page, *, is_export=False):
    """What is wrong with a page; nothing if it is one of ours."""
    try:
        elements = read(page)
    except html5lib.html5parser.ParseError as error:
        return [str(error)]
    wrong = [local(element) for element in elements if local(element) not in ELEMENTS]
    for element in elements:
        names = {name.rpartition("}")[2]: value for name, value in element.attrib.items()}
        forbidden = [name for name in names if name.startswith("on") or name in ("style", "srcdoc")]
        wrong += [f"{name} on {local(element)}" for name in forbidden]
        for name in ("href", "src", "action", "formaction", "xlink:href"):
            if name in names and not ADDRESSES.fullmatch(names[name]):
                wrong.append(f"{name}={names[name]!r}")
        if local(element) == "script" and names.get("type") != "application/json" and not is_export:
            wrong += [] if SCRIPTS.fullmatch(names.get("src", "")) and not element.text else ["a script of its own"]
        if is_export and ("src" in names or (local(element) == "a" and not names.get("href", "#").startswith("#"))):
            wrong.append("an export that loads or leads somewhere")
    return wrong


def links(page):
    """The addresses of a page's links."""
    return [element.attrib["href"] for element in read(page) if local(element) == "a" and "href" in element.attrib]
