"""The keys of `evaldeck.yaml`. Only keys and types; no files are read."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from waza.options import Options
from waza.spec.shapes import Timeout, Words


class AgentShape(Options):
    """The agent under test."""

    module: Words | None = None
    """The Python module of the agent; the project's folder can be imported from."""
    function: Words | None = None
    """The function in it: `(input)` or `(input, history)`, plain or async."""
    class_name: str | None = None
    """Not supported: name a function."""
    framework: str | None = None
    """Not supported: name a function."""


class SuiteShape(Options):
    """A folder of test files."""

    name: Words
    """Its cases get this name as a tag."""
    path: Words
    """The folder, searched through and through, or a file."""
    tags: list[Words] = []
    """Tags of all its cases."""


class ExecutionShape(Options):
    """How cases are run."""

    workers: Annotated[int, Field(ge=0)] = 0
    """How many run at once; 0 leaves it to waza."""
    timeout: Timeout = None
    """Seconds an agent may work on one case."""
    retries: Annotated[int, Field(ge=0)] = 0
    """How often an agent that could not run is started again."""


class ThresholdShape(Options):
    """When the run as a whole passes."""

    min_pass_rate: Annotated[float, Field(ge=0, le=1)] | None = None
    """The share of cases that must pass; all of them if left out or 0."""
    max_failures: Annotated[int, Field(ge=0)] | None = None
    """How many cases may fail."""


class LlmShape(Options):
    """A judge."""

    model: Words | None = None
    """The model that judges; `gpt-4o-mini` if no judge is named at all."""
    provider: Words | None = None
    """Who serves it: `openai`, `anthropic`; told by the model's name if left out."""


class JudgeShape(Options):
    """Who judges, where a case needs a judge."""

    llm: LlmShape = LlmShape()
    """The judge."""
    llm_model: Words | None = None
    """The older name of `llm.model`."""
    llm_provider: Words | None = None
    """The older name of `llm.provider`."""
    timeout: Annotated[float, Field(ge=0)] | None = None
    """Not used."""

    @property
    def settings(self) -> dict[str, str]:
        """The judge's settings, in waza's words."""
        named = {"type": self.llm.provider or self.llm_provider, "model": self.llm.model or self.llm_model}
        return {key: value for key, value in named.items() if value}


class EvaldeckShape(Options):
    """The keys of `evaldeck.yaml`."""

    version: int = 1
    """The format's version."""
    agent: AgentShape = AgentShape()
    """The agent under test."""
    test_dir: Words = "tests/evals"
    """The folder of test files, where no suites are named."""
    suites: list[SuiteShape] = []
    """Folders of test files with names."""
    execution: ExecutionShape = ExecutionShape()
    """How cases are run."""
    defaults: ExecutionShape = ExecutionShape()
    """The older name of `execution`."""
    graders: JudgeShape = JudgeShape()
    """The judge."""
    thresholds: ThresholdShape = ThresholdShape()
    """When the run as a whole passes."""
    output_dir: str | None = None
    """Where run folders are made; `runs` if left out."""

    @property
    def settings(self) -> ExecutionShape:
        """How cases are run: `execution`, and of `defaults` what it leaves open."""
        older = self.defaults.model_dump(include=self.defaults.model_fields_set)
        newer = self.execution.model_dump(include=self.execution.model_fields_set)
        return ExecutionShape.model_validate(older | newer)
