"""The pytest plug-in: `pytest --waza` collects suites, one item a task and trial.

An item fails where its trial would, and lists the failed checks. An undecided trial fails with
`undecided`. Gates of the whole run (`metrics`, `pass_rule`, `min_pass_rate`) are `waza run`'s; a suite that has them is
warned about. In plain tests use `assert_grades(trace, graders)`; it needs no plug-in.

pytest loads this file in every session, so waza is imported only where it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SUITES = ("eval.yaml", "evaldeck.yaml", "evaldeck.yml")


def assert_grades(trace: Any, graders: Any, **evidence: Any) -> Any:
    """Return the grades if all passed; otherwise fail with the list of failed checks."""
    __tracebackhide__ = True
    import waza

    return waza.assert_grades(trace, graders, **evidence)


class NotPassed(Exception):
    """A trial that failed or is undecided."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; without `--waza` or `waza = true` nothing else happens."""
    group = parser.getgroup("waza", "grading of agents")
    group.addoption("--waza", action="store_true", help="Collect waza suites (eval.yaml), one item a task and trial.")
    group.addoption("--waza-engine", metavar="NAME", help="The engine, instead of the suite's.")
    group.addoption(
        "--waza-trials", metavar="N", type=int, help="How often each task is tried, instead of the suite's."
    )
    parser.addini("waza", "Collect waza suites (eval.yaml), one item a task and trial.", type="bool", default=False)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Return the suite a file is, if suites are wanted."""
    config = parent.config
    if file_path.name not in SUITES:
        return None
    if not (config.getoption("--waza") or config.getini("waza")):
        if parent.session.isinitpath(file_path):
            raise parent.CollectError(f"{file_path.name} is a suite: say --waza, or `waza = true` in the ini file")
        return None
    if file_path.name != SUITES[0] and (file_path.parent / SUITES[0]).is_file():
        return None
    found: pytest.Collector = SuiteFile.from_parent(parent, path=file_path)
    return found


class SuiteFile(pytest.File):
    """A suite: its items are the trials of its tasks."""

    spec: Any = None

    def collect(self) -> Iterator[pytest.Item]:
        """Yield one item a task and trial; a wrong suite is an error with every mistake in it."""
        from waza.errors import WazaError  # pytest loads this file in every session
        from waza.runner.request import plan, request_for  # as above
        from waza.suites.load import load_spec  # as above

        try:
            self.spec = load_spec(self.path, trust=True)  # pytest runs the project's conftest.py anyway
            order = request_for(self.spec, engine=self.config.getoption("--waza-engine"))
            engine = self.spec.engine(order.engine or None)
        except WazaError as error:
            raise self.CollectError(_visible(str(error))) from None
        if gates := _gates(self.spec):
            text = f"{self.path.name}: {gates} hold for a whole run; `waza run` checks them, pytest does not"
            self.warn(pytest.PytestWarning(text))
        for trial in plan(self.spec, trials=self.config.getoption("--waza-trials")):
            name = f"{_visible(trial.task.id)}[{trial.number}]"
            # pytest 9.2 takes the brackets of a name it puts together itself for a part of the name, and --lf then
            # does not find it again.
            item: TrialItem = TrialItem.from_parent(self, name=name, nodeid=f"{self.nodeid}::{name}")
            item.trial, item.engine, item.engine_name = trial, engine, order.engine
            item.extra_keyword_matches.update(trial.task.tags)
            yield item

    def setup(self) -> None:
        """Run the suite's commands before its first trial."""
        self._hooks("before_run")

    def teardown(self) -> None:
        """Run the suite's commands after its last trial."""
        self._hooks("after_run")

    def _hooks(self, when: str) -> None:
        import asyncio

        from waza.runner.suite import run_hooks  # pytest loads this file in every session

        if self.spec and (hooks := getattr(self.spec.hooks, when)):
            folder = self.spec.folder
            environment = {"WAZA_EVAL_DIR": str(folder.base)}
            for remark in asyncio.run(run_hooks(hooks, folder, environment, self.spec.inputs)):
                self.warn(pytest.PytestWarning(_visible(remark)))


def _gates(spec: Any) -> str:
    found = [f"metric {metric.name}" for metric in spec.metrics if metric.threshold is not None]
    found += ["pass_rule"] if spec.config.pass_rule != "all" else []
    found += [key for key in ("min_pass_rate", "max_failures") if getattr(spec.config, key) is not None]
    return ", ".join(found)


def _visible(text: str) -> str:
    from waza.untrusted.text import visible  # pytest loads this file in every session

    return visible(text, lines=True)


def _score(grade: Any) -> str:
    return "undecided" if grade.status == "error" else f"{grade.score:.4f}"


class TrialItem(pytest.Item):
    """One trial of one task."""

    trial: Any
    engine: Any
    engine_name: str

    def runtest(self) -> None:
        """Run the agent and grade it; raise NotPassed with every check that did not hold."""
        from waza.runner.verdicts import explained, run_one  # pytest loads this file in every session

        suite: Any = self.parent
        result, remarks = run_one(suite.spec, self.trial, self.engine, self.engine_name)
        self.user_properties.append(("waza_status", result.status))
        self.user_properties += [(f"waza_score.{grade.name}", _score(grade)) for grade in result.grades]
        self.add_report_section("call", "output of the agent", _visible(result.trace.output[:10_000]))
        for remark in remarks:
            self.warn(pytest.PytestWarning(_visible(remark)))
        if result.status != "passed":
            raise NotPassed(explained(result.grades, result.status, result.reason))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the checks that did not hold, without a traceback."""
        if isinstance(excinfo.value, NotPassed):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return how the item is called in headings."""
        return self.path, None, self.name
