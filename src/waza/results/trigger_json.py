"""The trigger tests in `results.json`: the original's `trigger_metrics` and `trigger_results`, and the catalogue."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import to_builtins

from waza.model import JSON, Result, Run
from waza.results.stats.catalogue import catalogue_of
from waza.results.trigger_answers import Answer, answers_of
from waza.results.triggers import TriggerNumbers, TriggerSummary

_COUNTS = ("true_positives", "false_positives", "true_negatives", "false_negatives")
_MEASURES = ("precision", "recall", "f1", "accuracy")
_OF_TRIAL = ("transcript", "final_output", "skill_invocations", "usage", "duration_ms", "started_at", "trace_status")


def trigger_tree(
    run: Run, summary: TriggerSummary | None, trial: Callable[[Result], dict[str, JSON]]
) -> dict[str, JSON]:
    """Return what a run's trigger tests add to the file: counts are whole, measures weighted; nothing without tests.

    `trigger_metrics.valid` is false where the controls failed; its measures are null then, and there is neither a
    wording ladder nor a matrix. `trigger_results` has an entry for each prompt and trial, those with `control` set
    among them. `trigger_catalogue` is the confusion matrix, as `results.stats.catalogue.Catalogue` describes it.
    """
    if summary is None:
        return {}
    catalogue = catalogue_of(run) if summary.is_valid else None
    answers = answers_of(run)
    results = {(result.task_id, result.trial): result for result in run.triggers}
    listed = [_entry(answer, trial(results[answer.prompt.id, answer.trial])) for answer in answers]
    tree: dict[str, JSON] = {"trigger_metrics": _metrics(summary, answers), "trigger_results": listed}
    return tree | ({"trigger_catalogue": to_builtins(catalogue)} if catalogue else {})


def _metrics(summary: TriggerSummary, answers: list[Answer]) -> dict[str, JSON]:
    return {
        **_numbers(summary.all, summary.is_valid),
        "valid": summary.is_valid,
        **({"invalid_reasons": summary.reasons} if summary.reasons else {}),
        "warnings": summary.warnings,
        "seen_by": "file" if summary.by_reading else "tool" if any(answer.skills for answer in answers) else None,
        "prompts": summary.prompts,
        "answers": summary.answers,
        **({"not_asked": summary.not_asked} if summary.not_asked else {}),
        "decided": _numbers(summary.decided, summary.is_valid) if summary.decided else None,
        **({"accuracy_low": summary.accuracy_low} if summary.is_valid and summary.not_asked else {}),
        "accuracy_high": summary.accuracy_high if summary.is_valid else None,
        "accuracy_ci": to_builtins(summary.accuracy_ci) if summary.is_valid else None,
        "heuristic": _numbers(summary.heuristic, True) if summary.heuristic else None,
        "recall_ci": to_builtins(summary.recall_ci) if summary.is_valid else None,
        "phrasing": to_builtins(summary.rungs) if summary.is_valid else [],
        "skills": {
            skill.skill: _numbers(skill.all, summary.is_valid)
            | {"decided": _numbers(skill.decided, summary.is_valid) if skill.decided else None}
            for skill in summary.skills
        },
    }


def _numbers(numbers: TriggerNumbers, is_valid: bool) -> dict[str, JSON]:
    return {
        **{name: getattr(numbers, name) for name in _COUNTS},
        "errors": numbers.errors,
        **{name: getattr(numbers, name) if is_valid else None for name in _MEASURES},
        "weighted": numbers.weighted,
    }


def _entry(answer: Answer, trial: dict[str, JSON]) -> dict[str, JSON]:
    """Return one answer; an error shows as a wrong one where older readers look."""
    prompt = answer.prompt
    shown = (not prompt.should_trigger) if answer.did_trigger is None else answer.did_trigger
    return {
        "prompt": prompt.prompt,
        "confidence": prompt.confidence,
        "should_trigger": prompt.should_trigger,
        "did_trigger": shown,
        **({"error_msg": answer.error} if answer.error else {}),
        "id": prompt.id,
        "skill": prompt.skill,
        "trial": answer.trial,
        "status": "error" if answer.did_trigger is None else "right" if answer.is_right else "wrong",
        **({"control": prompt.control} if prompt.control else {}),
        **({"phrasing": prompt.phrasing} if prompt.phrasing else {}),
        **({"reason": prompt.reason} if prompt.reason else {}),
        **({"timed_out": True} if answer.timed_out else {}),
        "tool_calls": trial["session_digest"]["tool_calls"],
        **{key: trial["session_digest"][key] for key in ("session_id",) if key in trial["session_digest"]},
        **{key: trial[key] for key in _OF_TRIAL if key in trial},
    }
