"""Files of labels that people made elsewhere: CSV with a header, or JSONL; one output a row."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from waza.errors import UsageError, did_you_mean
from waza.results.verdicts import Answer, Verdict

COLUMNS = ("task", "trial", "evidence", "verdict", "label", "reviewer", "reason", "grader")
_OURS = ("at", "question", "said", "model", "rubric", "run")
"""Keys of our own file of verdicts that say nothing about the label."""
_WORDS: dict[str, Answer] = dict.fromkeys(("pass", "passed", "true", "yes", "1", "1.0"), "pass")
_WORDS |= dict.fromkeys(("fail", "failed", "false", "no", "0", "0.0"), "fail")


def read_labels(path: Path, grader: str, places: Mapping[tuple[str, int], list[str]]) -> list[Verdict]:
    """Return the labels of a file as verdicts on a grader's question; `places` says which outputs there are.

    A row names its output by `task` (and `trial`, where there are several) or by `evidence`. Raises UsageError that
    names the row which is wrong, or which says otherwise about an output than another row of the same person.
    """
    found: dict[tuple[str, str, str], tuple[Verdict, int]] = {}
    for number, row in _rows(path):
        if row.get("grader") not in (None, "", grader):
            continue
        for verdict in _verdicts(row, f"{path}:{number}", grader, places):
            key = (verdict.evidence, verdict.reviewer, verdict.at)
            before, line = found.setdefault(key, (verdict, number))
            if before.verdict != verdict.verdict:
                fact = f"says {verdict.verdict} of the same output that line {line} says {before.verdict} of"
                raise UsageError(f"{path}:{number}: {fact}; keep one of them, or name two people in 'reviewer'")
    return [verdict for verdict, _ in found.values()]


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is no UTF-8 text: {error.reason}") from None
    yield from _from_csv(path, text) if path.suffix.lower() == ".csv" else _from_jsonl(path, text)


def _from_csv(path: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    reader = csv.DictReader(io.StringIO(text), restkey="", strict=True)
    try:
        for row in reader:
            if "" in row:
                raise UsageError(f"{path}:{reader.line_num}: has more fields than the header")
            yield reader.line_num, {key: value for key, value in row.items() if value not in (None, "")}
    except csv.Error as error:
        raise UsageError(f"{path}:{reader.line_num}: is no CSV: {error}") from None


def _from_jsonl(path: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{path}:{number}: is no JSON: {error}") from None
        if not isinstance(row, dict):
            raise UsageError(f"{path}:{number}: an object is needed, found {type(row).__name__}")
        yield number, row


def _verdicts(
    row: dict[str, Any], here: str, grader: str, places: Mapping[tuple[str, int], list[str]]
) -> Iterator[Verdict]:
    for key in row:
        if key not in COLUMNS and key not in _OURS:
            raise UsageError(f"{here}: unknown column '{key}'; {did_you_mean(str(key), COLUMNS)}")
    word = str(row.get("verdict", row.get("label", ""))).strip().lower()
    if word not in _WORDS:
        raise UsageError(f"{here}: the verdict is pass or fail, found '{word[:40]}'")
    who, why = str(row.get("reviewer", "")), str(row.get("reason", ""))
    for evidence in _evidence(row, here, places):
        at = str(row.get("at", ""))
        yield Verdict(grader=grader, evidence=evidence, verdict=_WORDS[word], reason=why, reviewer=who, at=at)


def _evidence(row: dict[str, Any], here: str, places: Mapping[tuple[str, int], list[str]]) -> list[str]:
    """Return the outputs a row is about: one for each run that has that trial."""
    if row.get("evidence"):
        return [str(row["evidence"])]
    task = str(row.get("task", ""))
    trials = sorted(trial for name, trial in places if name == task)
    if not trials:
        known = list(dict.fromkeys(name for name, _ in places))
        raise UsageError(f"{here}: no output of task '{task[:60]}' in these runs; {did_you_mean(task, known)}")
    if "trial" not in row and len(trials) > 1:
        raise UsageError(f"{here}: task '{task}' has {len(trials)} trials; say which with a column 'trial'")
    trial = _whole(row.get("trial", trials[0]), here)
    if trial not in trials:
        raise UsageError(f"{here}: task '{task}' has no trial {trial}")
    return list(dict.fromkeys(places[task, trial]))


def _whole(value: Any, here: str) -> int:
    """Return the number of a trial, as CSV or JSON has it; raise UsageError for what is none."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not number.is_integer():
        raise UsageError(f"{here}: a trial is a whole number, found '{str(value)[:40]}'")
    return int(number)
