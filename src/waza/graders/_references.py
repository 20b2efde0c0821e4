"""Short forms for the reference calls of other benchmarks, written out as the general keys of `tool_calls`.

A run stores the general keys, not the short form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from waza.model import JSON

Match = Literal["bfcl", "tau2", "agentevals-strict", "agentevals-unordered", "agentevals-subset", "agentevals-superset"]


def expanded(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a `tool_calls` grader that its `match` is short for."""
    match, entries = options.get("match"), options.get("expect")
    if not isinstance(entries, list) or match not in _WAYS:
        return options
    entry_of, further = _WAYS[match]
    made = [entry_of(dict(entry)) if isinstance(entry, dict) else entry for entry in entries]
    if match == "agentevals-subset":
        made = _at_most_as_often(made)
    return {key: value for key, value in (further | options | {"expect": made}).items() if key != "match"}


def _bfcl(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry whose arguments are lists of possible answers; an empty text in one makes it optional."""
    if isinstance(args := entry.get("args"), dict):
        entry["args"] = {name: _one_of(values) if isinstance(values, list) else values for name, values in args.items()}
    return {"extra_args": "forbid"} | entry


def _one_of(values: list[JSON]) -> dict[str, JSON]:
    answers = [{"equals": value} if isinstance(value, dict) else value for value in values if value != ""]
    if not answers:
        return {"equals": "", "optional": True}
    matcher: dict[str, JSON] = {"any_of": answers}
    if any(isinstance(value, str) for value in answers):
        matcher["ignore_case"] = True
    return matcher | ({"optional": True} if "" in values else {})


def _tau2(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry of which only the arguments in `compare_args` count; all of them, and no others, without it."""
    args = entry.pop("arguments", None) if "args" not in entry else entry["args"]
    compared = entry.pop("compare_args", None)
    if isinstance(args, dict):
        entry["args"] = _exactly(args if compared is None else {key: args[key] for key in args if key in compared})
    return entry if compared is not None or "extra_args" in entry else entry | {"extra_args": "forbid"}


def _exact(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry with exactly these arguments."""
    if isinstance(args := entry.get("args"), dict):
        entry["args"] = _exactly(args)
    return {"extra_args": "forbid"} | entry


def _exactly(args: dict[str, JSON]) -> dict[str, JSON]:
    """Return matchers for values; a mapping that is no matcher is a value."""
    return {
        key: value if not isinstance(value, dict) or "equals" in value else {"equals": value}
        for key, value in args.items()
    }


def _at_most_as_often(entries: list[Any]) -> list[Any]:
    """Return each different entry once, which may be called as often as it is listed, or less."""
    made: list[Any] = []
    for entry in entries:
        if not isinstance(entry, dict) or "count" in entry:
            made.append(entry)
            continue
        times = sum(other == entry for other in entries)
        single = entry | {"count": {"min": 0, "max": times}}
        made += [] if single in made else [single]
    return made


_ALONE: dict[str, Any] = {"other_calls": "forbid"}
_WAYS: dict[str, tuple[Callable[[dict[str, Any]], dict[str, Any]], dict[str, Any]]] = {
    "bfcl": (_bfcl, _ALONE),
    "tau2": (_tau2, {}),
    "agentevals-strict": (_exact, {"order": "exact"}),
    "agentevals-unordered": (_exact, _ALONE),
    "agentevals-subset": (_exact, _ALONE),
    "agentevals-superset": (_exact, {}),
}
