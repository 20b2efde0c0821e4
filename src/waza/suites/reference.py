"""Reference pages of shapes, graders and engines, from docstring, example and typed fields.

The one source for `waza list`, `waza docs` and `waza schema`. Read from the source text when asked for, so that
loading a spec does not pay for it.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from copy import deepcopy
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

from pydantic import BaseModel

from waza.engines.base import ENGINES
from waza.engines.base import WRAPPER as ENGINE_WRAPPER
from waza.graders.base import GRADERS, WRAPPER
from waza.graders.base import WRAPPER as GRADER_WRAPPER
from waza.judges.base import JUDGES
from waza.judges.base import WRAPPER as JUDGE_WRAPPER
from waza.suites.graders import KEYS
from waza.suites.shapes import FILES, AgentShape, ConfigShape, TaskShape
from waza.suites.suite import engine_keys

_EXAMPLE = re.compile(r"```(\w+)\n(.*?)```", re.S)


class Field(NamedTuple):
    """One key an author may write."""

    key: str
    type: str
    default: str
    """Empty when the key must be given."""
    text: str
    required: bool


class ReferencePage(NamedTuple):
    """The reference page of one class."""

    name: str
    summary: str
    text: str
    language: str
    example: str
    fields: list[Field]


def grader_page(name: str) -> ReferencePage:
    """Return the reference page of a grader type."""
    return page_of(name, GRADERS.load(name), GRADER_WRAPPER)


def engine_page(name: str) -> ReferencePage:
    """Return the reference page of an engine."""
    return page_of(name, ENGINES.load(name), ENGINE_WRAPPER)


def judge_page(name: str) -> ReferencePage:
    """Return the reference page of a judge."""
    return page_of(name, JUDGES.load(name), JUDGE_WRAPPER)


def page_of(name: str, cls: type[BaseModel], hidden: tuple[str, ...] = ()) -> ReferencePage:
    """Return the reference page of a class; `hidden` fields are not for authors."""
    text = inspect.cleandoc(cls.__doc__ or "")
    found = _EXAMPLE.search(text)
    plain = _EXAMPLE.sub("", text).strip()
    return ReferencePage(
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
    """Return the text under each field in the source, inherited ones included."""
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


DIALECT = "https://json-schema.org/draft/2020-12/schema"


def file_schema(kind: str) -> dict[str, Any]:
    """Return the JSON Schema of one kind of file: `eval`, `task`, `project`, `mock` or `trigger_tests`."""
    schema = shape_schema(FILES[kind])
    definitions = schema.setdefault("$defs", {})
    if kind in ("eval", "task"):
        task = shape_schema(TaskShape)
        definitions |= task.pop("$defs", {})
        definitions["task"] = task
        definitions["grader"] = _grader(definitions)
        _graders_and_expected(task["properties"])
    if kind == "eval":
        properties = schema["properties"]
        properties["config"] = _config(definitions)
        properties["graders"] = {"type": "array", "items": {"$ref": "#/$defs/grader"}} | _text(properties["graders"])
        files = {"type": "object", "required": ["task_files"], "additionalProperties": False}
        files["properties"] = {"task_files": {"type": "array", "items": {"type": "string"}}}
        items = {"anyOf": [{"type": "string"}, files, {"$ref": "#/$defs/task"}]}
        properties["tasks"] = {"type": "array", "items": items} | _text(properties["tasks"])
    if kind == "project":
        schema["properties"]["judge"] = _judge(definitions) | _text(schema["properties"]["judge"])
    if kind == "task":
        _graders_and_expected(schema["properties"])
    return {"$schema": DIALECT, "title": f"waza {kind} file"} | schema


def shape_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return a shape's JSON Schema with the text under each field as its description; a copy that may be changed."""
    return deepcopy(_shape_schema(model))


@cache
def _shape_schema(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema(by_alias=True)
    _describe(schema, model)
    for name, definition in schema.get("$defs", {}).items():
        owner = next((cls for cls in _all_shapes(BaseModel) if cls.__name__ == name), None)
        if owner is not None:
            _describe(definition, owner)
    return schema


def _describe(schema: dict[str, Any], model: type[BaseModel]) -> None:
    texts = field_texts(model)
    for name, info in model.model_fields.items():
        field = schema.get("properties", {}).get(info.alias or name)
        if field is not None:
            field.pop("title", None)
            if name in texts:
                field["description"] = texts[name]


def _all_shapes(cls: type[BaseModel]) -> list[type[BaseModel]]:
    return [shape for sub in cls.__subclasses__() for shape in (sub, *_all_shapes(sub))]


def _graders_and_expected(properties: dict[str, Any]) -> None:
    named = {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/grader"}]}
    properties["graders"] = {"type": "array", "items": named} | _text(properties["graders"])
    keys: dict[str, Any] = {key: {} for key in KEYS} | {"graders": {"type": "array", "items": named}}
    properties["expected"] = {"type": "object", "properties": keys, "additionalProperties": False} | _text(
        properties["expected"]
    )


def _grader(definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of one grader: its keys under `config`, or next to `type`."""
    branches = []
    for name in GRADERS.names():
        own = shape_schema(GRADERS.load(name))
        definitions |= own.pop("$defs", {})
        for key in WRAPPER:
            own["properties"].pop(key, None)
        required = own.pop("required", [])
        then: dict[str, Any] = {"properties": {"config": own, **own["properties"]}}
        if required:
            then["anyOf"] = [
                {"required": required},
                {"properties": {"config": {"required": required}}, "required": ["config"]},
            ]
        branches.append({"if": {"properties": {"type": {"const": name}}}, "then": then})
    kinds: list[dict[str, str]] = [
        {"const": name, "description": grader_page(name).summary} for name in GRADERS.names()
    ]
    kinds.append({"pattern": r"\.py(:\w+)?$", "description": "A Python file of the project, and the grader in it."})
    return {
        "type": "object",
        "required": ["type"],
        "properties": {
            "type": {"oneOf": kinds, "description": "What kind of grader this is."},
            "name": {"type": "string", "description": "How the grade is called in results; the type if left out."},
            "weight": {
                "type": "number",
                "minimum": 0,
                "description": "Its share in the composite score; 0 takes no part in it.",
            },
            "config": {"type": "object"},
        },
        "allOf": branches,
        "unevaluatedProperties": False,
    }


def _config(definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of `config:` with the keys of every engine."""
    schema = shape_schema(ConfigShape)
    agent = shape_schema(AgentShape)
    definitions |= schema.pop("$defs", {}) | agent.pop("$defs", {})
    schema["properties"] |= agent["properties"]
    schema["properties"] |= _engine_options(definitions)
    kinds = [{"const": name.replace("_", "-"), "description": engine_page(name).summary} for name in ENGINES.names()]
    schema["properties"]["judge"] = _judge(definitions) | _text(schema["properties"]["judge"])
    schema["properties"]["executor"] = {"anyOf": [*kinds, {"type": "string"}]} | _text(schema["properties"]["executor"])
    return schema


def _judge(definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of `judge:`: a model, or a mapping with the keys of every judge."""
    properties: dict[str, Any] = {}
    for name in JUDGES.names():
        own = shape_schema(JUDGES.load(name))
        definitions |= own.pop("$defs", {})
        properties |= own["properties"]
    kinds = [{"const": name, "description": judge_page(name).summary} for name in JUDGES.names()]
    properties["type"] = {"oneOf": kinds, "description": "Which kind of judge."}
    mapping = {"type": "object", "properties": properties, "additionalProperties": False}
    return {"anyOf": [{"type": "string"}, mapping, {"type": "null"}]}


def _engine_options(definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of every engine; where engines take different values under one key, any of them will do."""
    read_by: dict[str, dict[str, dict[str, Any]]] = {}
    for name, keys in engine_keys().items():
        own = shape_schema(ENGINES.load(name))
        definitions |= own.pop("$defs", {})
        for key in keys:
            read_by.setdefault(key, {})[name.replace("_", "-")] = own["properties"][key]
    return {key: _one_of(variants) for key, variants in read_by.items()}


def _one_of(variants: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the schema of one key from those of the engines that read it."""
    first = next(iter(variants.values()))
    bare = [{name: value for name, value in variant.items() if name != "description"} for variant in variants.values()]
    distinct = [shape for at, shape in enumerate(bare) if shape not in bare[:at]]
    readers = ", ".join(f"`{name}`" for name in variants)
    text = f"{first.get('description', '')} (engine{'s' if len(variants) > 1 else ''} {readers})"
    return (distinct[0] if len(distinct) == 1 else {"anyOf": distinct}) | {"description": text}


def _text(field: dict[str, Any]) -> dict[str, str]:
    return {"description": field["description"]} if "description" in field else {}
