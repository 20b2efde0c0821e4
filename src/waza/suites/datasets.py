"""Tasks from CSV or JSON lines: one task a row, a column for any field of a task (`expected.output_contains`).

Other columns are values for prompts (`{{column}}`) and become the task's metadata, except those whose name is a
likely typo of a field name: a check must not be lost by a typo.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from waza.errors import Problem, SpecError, typo_of
from waza.suites.graders import KEYS
from waza.suites.positions import Position, keys_of
from waza.suites.shapes import InputsShape, TaskShape
from waza.untrusted.yaml import YamlMap

MAX_ROWS = 100_000
_INPUTS = ("prompt_file", "environment", "context", "workdir", "follow_up_prompts", "files")
_LISTS = {"tags", "output_contains", "output_not_contains", "output_contains_any", "follow_up_prompts"} | {
    "tools_called",
    "tools_not_called",
    "tool_call_order",
    "before",
}
_TYPED = ("allow_empty_prompt", "golden", "enabled", "timeout_seconds", "task_completed", "should_trigger")


class _Cell(NamedTuple):
    line: int
    column: int = 0


class DatasetRow(NamedTuple):
    """One row: the task's fields as a tree, the other columns as values for `{{name}}`, and its position."""

    fields: dict[str, Any]
    values: dict[str, str]
    place: Position


def read_rows(path: Path, shown: str) -> Iterator[DatasetRow]:
    """Yield the rows of a CSV or JSONL file; raise SpecError at the first that cannot be read."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(Problem(f"cannot be read: {error}", shown)) from None
    records = _csv(text, shown) if path.suffix.lower() in (".csv", ".tsv") else _jsonl(text, shown)
    for number, (line, record) in enumerate(records, 1):
        if number > MAX_ROWS:
            raise SpecError(Problem(f"more than {MAX_ROWS} rows; split the file", shown, line, 1))
        yield _row(record, number, line, shown)


def _csv(text: str, shown: str) -> Iterator[tuple[int, dict[str, Any]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter="\t" if shown.endswith(".tsv") else ",")
    try:
        header = next(reader, [])
        if len(set(header)) != len(header) or not all(header):
            raise SpecError(Problem("every column needs a name of its own in the first row", shown, 1, 1))
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(header):
                found = f"{len(cells)} cells in a row of {len(header)} columns"
                raise SpecError(Problem(f"{found}; quote cells that hold commas", shown, reader.line_num, 1))
            record = zip(header, cells, strict=True)
            yield reader.line_num, {key: _cell(key, cell) for key, cell in record if cell != ""}
    except csv.Error as error:
        raise SpecError(Problem(f"not CSV: {error}", shown, reader.line_num, 1)) from None


def _cell(key: str, cell: str) -> Any:
    """Return a cell as what its column holds: JSON lists and mappings, one-item lists, booleans and numbers."""
    last = key.rsplit(".", 1)[-1]
    if (cell[:1] in "[{" and not cell.startswith("{{")) or last in _TYPED:  # "{{" begins a variable
        try:
            return json.loads(cell)
        except (ValueError, RecursionError):
            return cell
    return [cell] if last in _LISTS else cell


def _jsonl(text: str, shown: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(_lines(text), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line, object_pairs_hook=_refuse_duplicate_keys)
        except (ValueError, RecursionError) as error:
            raise SpecError(Problem(f"not JSON: {error}", shown, number, 1)) from None
        if not isinstance(record, dict):
            raise SpecError(Problem("each line is a JSON object", shown, number, 1))
        yield number, record


def _lines(text: str) -> Iterator[str]:
    """Yield what is between line feeds, one after the other: a list of them would take as much memory as the text."""
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield text[start:end]
        start = end + 1
    yield text[start:]


def _refuse_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object whose keys are all different."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"duplicate key '{key}'")
        found[key] = value
    return found


def _row(record: dict[str, Any], number: int, line: int, shown: str) -> DatasetRow:
    tree: dict[str, Any] = {}
    values: dict[str, str] = {}
    others: dict[str, Any] = {}
    place = Position(shown, _marked(tree, line))
    for key, value in record.items():
        head = key.split(".")[0]
        if head in keys_of(TaskShape) or key in _INPUTS:
            try:
                _put(tree, key.split(".") if head in keys_of(TaskShape) else ["inputs", key], value)
            except ValueError as error:
                raise SpecError(place.problem(str(error))) from None
        elif meant := _intended_field(key):
            raise SpecError(place.problem(f"unknown column '{key}'; did you mean '{meant}'?"))
        else:
            others[key] = value
            values |= {key: str(value)} if isinstance(value, str | int | float) else {}
    if others and isinstance(tree.setdefault("metadata", {}), dict):
        tree["metadata"] = others | tree["metadata"]
    tree.setdefault("id", str(tree.get("name") or f"row-{number}"))
    marked = _marked(tree, line)
    return DatasetRow(marked, values, Position(shown, marked))


@cache
def _intended_field(key: str) -> str | None:
    """Return the field of a task that a column is a likely typo of, or names without its prefix; else None."""
    short = [*(f"expected.{name}" for name in KEYS), *(f"inputs.{name}" for name in keys_of(InputsShape))]
    return next((name for name in short if name.endswith(f".{key}")), None) or typo_of(
        key, [*keys_of(TaskShape), *short, *(name.partition(".")[2] for name in short)]
    )


def _put(tree: dict[str, Any], path: list[str], value: Any) -> None:
    for step in path[:-1]:
        tree = tree.setdefault(step, {})
        if not isinstance(tree, dict):
            raise ValueError(f"'{'.'.join(path)}' and '{step}' are both given")
    if path[-1] in tree:
        raise ValueError(f"'{'.'.join(path)}' is given twice")
    tree[path[-1]] = value


def _marked(tree: dict[str, Any], line: int) -> YamlMap:
    """Return the tree with every key placed on this line."""
    marked = YamlMap()
    marked._place = _Cell(line - 1)
    marked._places = dict.fromkeys(tree, _Cell(line - 1))
    for key, value in tree.items():
        marked[key] = _marked(value, line) if isinstance(value, dict) else value
    return marked
