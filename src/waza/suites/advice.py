"""What an author should know about a suite that is not wrong: names without meaning, keys without effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from waza.engines.base import ENGINES
from waza.errors import Problem, did_you_mean, typo_of
from waza.graders.base import Grader
from waza.model import Task
from waza.suites.judges import build_judge, judge_settings, own_judge, settings_place
from waza.suites.local_code import code_notes
from waza.suites.positions import keys_of, option_fields, unused_keys
from waza.suites.shapes import EvalShape, MetricShape
from waza.suites.sources import source_text
from waza.suites.suite import NO_JUDGE, EvalSpec

METRICS = ("task_completion", "trigger_accuracy", "behavior_quality", "efficiency")
_IGNORED = ("outcomes", "behavior", "tool_calls", "should_trigger")


def advise(spec: EvalSpec, shape: EvalShape) -> list[Problem]:
    """Return the notes on a suite."""
    return [
        *_metrics(spec, shape),
        *_calibrated(spec),
        *_config(spec, shape),
        *_enforced(spec, shape),
        *_judge(spec),
        *_skill(spec),
        *_names(spec),
        *_schema_words(spec),
        *code_notes(spec.place, spec.folder, spec.local_code, spec.imported),
    ]


def resolved_metrics(
    metrics: Sequence[MetricShape], graders: Mapping[str, Sequence[Grader]], tasks: Sequence[Task]
) -> list[MetricShape]:
    """Return the metrics that are switched on, each with the grader or tag its name means.

    A run of some tasks may hold neither; the metric is then undecided, never task_completion.
    """
    names = {grader.name for each in graders.values() for grader in each}
    tags = {tag for task in tasks for tag in task.tags}
    found = []
    for metric in (metric for metric in metrics if metric.enabled):
        is_open = not metric.grader and not metric.tag and metric.name not in METRICS
        key = "grader" if metric.name in names else "tag" if metric.name in tags else ""
        found.append(metric.model_copy(update={key: metric.name}) if is_open and key else metric)
    return found


def _metrics(spec: EvalSpec, shape: EvalShape) -> Iterator[Problem]:
    graders = {grader.name for graders in spec.graders.values() for grader in graders}
    tags = {tag for task in spec.tasks for tag in task.tags}
    seen: set[str] = set()
    for index, metric in ((index, metric) for index, metric in enumerate(shape.metrics) if metric.enabled):
        here = spec.place.at("metrics", index, "name")
        if metric.name in seen:
            yield here.problem(f"two metrics are called '{metric.name}'; rename or remove this one")
        seen.add(metric.name)
        if metric.grader and metric.grader not in graders:
            fact = f"no grader is called '{metric.grader}'; {did_you_mean(metric.grader, sorted(graders))}"
            yield spec.place.at("metrics", index, "grader").problem(fact)
        if metric.tag and metric.tag not in tags:
            fact = f"no task has the tag '{metric.tag}'; {did_you_mean(metric.tag, sorted(tags))}"
            yield spec.place.at("metrics", index, "tag").problem(fact)
        known = {*METRICS, *graders, *tags}
        if metric.grader or metric.tag or metric.name in known:
            continue
        if meant := typo_of(metric.name, sorted(known)):
            remedy = "a metric with a name of your own says what it measures with `grader:` or `tag:`"
            yield here.problem(f"unknown metric '{metric.name}'; did you mean '{meant}'? {remedy}")
        else:
            yield here.warning(f"'{metric.name}' names no grader and no tag; it is computed as task_completion")


def _calibrated(spec: EvalSpec) -> Iterator[Problem]:
    """Yield a warning per calibration of a grader that no task has."""
    every = [grader for graders in spec.graders.values() for grader in graders]
    known = sorted({grader.name or grader.type_name() for grader in every})
    asked = {(grader.measured_grader, grader.type_name()) for grader in every if grader.measured_grader}
    for named, kind in sorted(one for one in asked if one[0] not in known):
        yield spec.place.warning(f"{kind}: no grader is called '{named}'; {did_you_mean(named, known)}")


def _config(spec: EvalSpec, shape: EvalShape) -> Iterator[Problem]:
    if spec.config.max_attempts > 1:
        note = "only infrastructure errors are tried again; a failed trial stays failed"
        yield spec.place.at("config", "max_attempts").problem(note, "note")
    if shape.range is not None and not shape.tasks_from:
        yield spec.place.at("range").problem("rows of which file? 'range' goes with 'tasks_from'")
    yield from _unread(spec)
    if shape.baseline and not spec.skill:
        yield spec.place.at("baseline").warning("there is no control arm without a skill; name it in `skill:`")
    if unused := unused_keys(spec.project):
        yield Problem(f".waza.yaml: only the original reads {', '.join(unused)}", severity="note")


def _unread(spec: EvalSpec) -> Iterator[Problem]:
    """Yield what tasks name for their agent and the suite's engine does not read."""
    name = spec.config.executor
    if name is None or not ENGINES.knows(name):
        return
    for key in ("skill_directories", "instruction_files"):
        naming = [task.id for task in spec.tasks if getattr(task, key)]
        if naming and key not in keys_of(ENGINES.load(name)):
            message = f"engine '{name}' does not read `{key}`, which {len(naming)} tasks name, '{naming[0]}' first"
            yield spec.place.at("config", "executor").warning(message)


def _judge(spec: EvalSpec) -> Iterator[Problem]:
    """Yield what is wrong with the judge's settings, and a warning where one is needed and not there."""
    settings = judge_settings(spec.project, spec.config)
    if settings:
        place = settings_place(spec.project, spec.config, spec.place, spec.folder)
        yield from build_judge(settings, place, spec.folder)[1]
    elif spec.asking and not own_judge(spec.asking):
        yield spec.place.warning(f"{NO_JUDGE}; `run` needs one")
    for task in spec.tasks:
        if "source" in task.context:
            try:
                source_text(task.context["source"], spec.folder)
            except ValueError as error:
                yield spec.place.problem(f"task '{task.id}': inputs.context.source: {error}")


def _enforced(spec: EvalSpec, shape: EvalShape) -> Iterator[Problem]:
    """Yield one note on what a file written for the original now enforces."""
    name = spec.config.executor
    is_in_original = name is not None and ENGINES.knows(name) and ENGINES.load(name).is_in_original
    if shape.schema_version is None and not is_in_original:
        return
    expectations = {grader.name for graders in spec.graders.values() for grader in graders} & set(_IGNORED)
    enforced = sorted(f"expected.{name}" for name in expectations)
    enforced += [f"metrics: {m.name}" for m in spec.metrics if m.threshold is not None and m.name != "trigger_accuracy"]
    if enforced:
        yield spec.place.problem(f"enforced here, ignored by the original: {', '.join(enforced)}", "note")


def _skill(spec: EvalSpec) -> Iterator[Problem]:
    is_told = spec.triggers is not None and spec.triggers.not_found and spec.skill in spec.triggers.skills
    if spec.skill and not is_told and spec.skill_folder is None:
        yield spec.place.at("skill").warning(f"skill '{spec.skill}' was not found in this project")


def _names(spec: EvalSpec) -> Iterator[Problem]:
    """Yield a note per task in which two graders share a name."""
    for task in spec.tasks:
        names = [grader.name for grader in spec.graders[task.id]]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            yield spec.place.warning(
                f"task '{task.id}' has two graders called {', '.join(twice)}; the second shows as '{twice[0]}#2'"
            )


def _schema_words(spec: EvalSpec) -> Iterator[Problem]:
    """Yield a note per grader on the words of its JSON Schemas that no validator reads."""
    distinct = {id(grader): grader for graders in spec.graders.values() for grader in graders}
    for grader in distinct.values():
        words = dict.fromkeys(
            word
            for part in _parts(grader)
            for word in getattr(part, "unknown_keywords", ())  # `json_schema` graders and matchers of arguments
        )
        if words:
            fact = f"grader '{grader.name}': not keywords of the schema's dialect, so they check nothing: "
            yield spec.place.problem(fact + ", ".join(words), "note")


def _parts(value: Any) -> Iterator[BaseModel]:
    """Yield a grader and every model in its options."""
    if isinstance(value, BaseModel):
        yield value
        for name in option_fields(type(value)):
            yield from _parts(getattr(value, name))
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _parts(item)
