"""What a shape, grader or engine says about itself: its docstring, its example, its typed fields.

The one source for `waza list`, `waza docs` and `waza schema`. Read from the source text when asked for, so that
loading a spec does not pay for it.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

from pydantic import BaseModel

from waza.engines._base import ENGINES
from waza.engines._base import WRAPPER as ENGINE_WRAPPER
from waza.graders._base import GRADERS
from waza.graders._base import WRAPPER as GRADER_WRAPPER
from waza.judges._base import JUDGES
from waza.judges._base import WRAPPER as JUDGE_WRAPPER

_EXAMPLE = re.compile(r"```(\w+)\n(.*?)```", re.S)


class Field(NamedTuple):
    """One key an author may write."""

    key: str
    type: str
    default: str
    """Empty when the key must be given."""
    text: str
    required: bool


class Page(NamedTuple):
    """All there is to say about one class."""

    name: str
    summary: str
    text: str
    language: str
    example: str
    fields: list[Field]


def grader_page(name: str) -> Page:
    """Return what a grader type says about itself."""
    return page_of(name, GRADERS.load(name), GRADER_WRAPPER)


def engine_page(name: str) -> Page:
    """Return what an engine says about itself."""
    return page_of(name, ENGINES.load(name), ENGINE_WRAPPER)


def judge_page(name: str) -> Page:
    """Return what a judge says about itself."""
    return page_of(name, JUDGES.load(name), JUDGE_WRAPPER)


def page_of(name: str, cls: type[BaseModel], hidden: tuple[str, ...] = ()) -> Page:
    """Return what a class says about itself; `hidden` fields are not for authors."""
    text = inspect.cleandoc(cls.__doc__ or "")
    found = _EXAMPLE.search(text)
    plain = _EXAMPLE.sub("", text).strip()
    return Page(
        name=name,
        summary=plain.split("\n\n")[0].replace("\n", " "),
        text=plain,
        language=found[1] if found else "",
        example=found[2].rstrip() if found else "",
        fields=_fields(cls, hidden),
    )


def _fields(cls: type[BaseModel], hidden: tuple[str, ...]) -> list[Field]:
    texts = field_texts(cls)
    properties = (
        cls.model_json_schema(by_alias=True, mode="validation").get("properties", {}) if cls.model_fields else {}
    )
    definitions = cls.model_json_schema(by_alias=True).get("$defs", {})
    fields = []
    for name, info in cls.model_fields.items():
        if name in hidden:
            continue
        key = info.alias or name
        schema = properties.get(key, {})
        default = "" if info.is_required() else _default(info.get_default(call_default_factory=True))
        fields.append(Field(key, type_words(schema, definitions), default, texts.get(name, ""), info.is_required()))
    return fields


@cache
def field_texts(cls: type[BaseModel]) -> dict[str, str]:
    """Return the text that stands under each field in the source, inherited ones included."""
    texts: dict[str, str] = {}
    for owner in reversed(cls.__mro__):
        if issubclass(owner, BaseModel) and owner is not BaseModel:
            texts |= _own_texts(owner)
    return texts


@cache
def _own_texts(cls: type[BaseModel]) -> dict[str, str]:
    """Return the text under each field that the class itself has."""
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    except (OSError, TypeError, SyntaxError):
        return {}
    texts: dict[str, str] = {}
    for field, text in pairwise(body.body if isinstance(body, ast.ClassDef) else []):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                texts[name] = inspect.cleandoc(words)
    return texts


def type_words(schema: dict[str, Any], definitions: dict[str, Any]) -> str:
    """Return a field's type in an author's words."""
    if "$ref" in schema:
        return type_words(definitions.get(schema["$ref"].rsplit("/", 1)[-1], {}), definitions)
    if "enum" in schema or "const" in schema:
        return " | ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    if options := schema.get("anyOf") or schema.get("oneOf"):
        words = [type_words(option, definitions) for option in options if option.get("type") != "null"]
        return " or ".join(dict.fromkeys(words))
    if schema.get("allOf"):
        return type_words(schema["allOf"][0], definitions)
    if schema.get("format") == "regex":
        return "pattern"
    match schema.get("type"):
        case "array":
            return f"list of {type_words(schema.get('items', {}), definitions)}"
        case "object" if "properties" in schema:
            return "{" + ", ".join(schema["properties"]) + "}"
        case "object":
            return "mapping"
        case "string":
            return "text"
        case "integer":
            return "whole number"
        case "number":
            return "number"
        case "boolean":
            return "true or false"
    return "anything"


def _default(value: Any) -> str:
    if value is None or value == "" or isinstance(value, BaseModel):
        return "not set"
    if isinstance(value, bool):
        return str(value).lower()
    if value in ([], {}):
        return "none"
    return str(value)
