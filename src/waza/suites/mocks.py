"""The mocks of a suite and of its tasks; what their files hold is read here, so that a run needs only the task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from waza.engines.base import ENGINES, Engine
from waza.engines.mocks.shapes import CommandMock, McpMock, Mocks, MockTool
from waza.errors import Problem
from waza.files.paths import SpecFolder, display_path
from waza.graders.base import Grader
from waza.graders.composed import MockCallsGrader
from waza.model import Task
from waza.suites.positions import Position, parse, unmarked
from waza.untrusted.json_schema import parse_json

_MCP_FROM = 2
_KINDS = {"servers": "mcp_mocks", "commands": "command_mocks"}


def plain(data: Any) -> Any:
    """Return the keys of a file with its mocks as plain data: schemas take no other."""
    kinds = [key for key in _KINDS.values() if isinstance(data, dict) and key in data]
    return {**data, **{key: unmarked(data[key]) for key in kinds}} if kinds else data


def read_servers(mocks: Sequence[McpMock], place: Position, folder: SpecFolder) -> tuple[list[McpMock], list[Problem]]:
    """Return mocked MCP servers with the tools in their fixture folders, and what is wrong with them."""
    problems = list(_twice([mock.name for mock in mocks], place))
    found = []
    for index, mock in enumerate(mocks):
        here = place.at(index)
        tools = dict(_fixture_tools(mock.fixtures, here.at("fixtures"), folder, problems)) if mock.fixtures else {}
        tools |= mock.tools
        if not tools and not problems:
            problems.append(here.problem(f"the mocked server '{mock.name}' has no tool; name them in `tools`"))
        found.append(McpMock(name=mock.name, tools=tools))
    return found, problems


def read_commands(
    mocks: Sequence[CommandMock], place: Position, folder: SpecFolder
) -> tuple[list[CommandMock], list[Problem]]:
    """Return mocked programs with what their fixtures hold, and what is wrong with them."""
    problems = list(_twice([mock.name for mock in mocks], place))
    found = []
    for index, mock in enumerate(mocks):
        answers = []
        for number, answer in enumerate(mock.responses):
            if answer.fixture is not None:
                try:
                    text = folder.find(answer.fixture).read_text(encoding="utf-8")
                except (ValueError, OSError) as error:
                    problems.append(place.at(index, "responses", number, "fixture").problem(str(error)))
                    continue
                answer = type(answer).model_validate(
                    answer.model_dump(exclude={"fixture"}, exclude_unset=True) | {"stdout": text}
                )
            answers.append(answer)
        found.append(mock.model_copy(update={"responses": answers}))
    return found, problems


def as_data(servers: Sequence[McpMock], commands: Sequence[CommandMock]) -> dict[str, Any] | None:
    """Return mocks as a task carries them; None when there are none."""
    if not servers and not commands:
        return None
    mocks = Mocks(servers=list(servers), commands=list(commands))
    return mocks.model_dump(mode="json", by_alias=True, exclude_unset=True)


def call_graders(servers: Sequence[McpMock], commands: Sequence[CommandMock]) -> Iterator[Grader]:
    """Yield a grader for each `expect_calls`."""
    for server in servers:
        for name, tool in server.tools.items():
            if tool.expect_calls is not None:
                label = f"{server.name}.{name}.expect_calls"
                yield MockCallsGrader(name=label, server=server.name, tool=name, expect_calls=tool.expect_calls)
    for command in commands:
        if command.expect_calls is not None:
            label = f"{command.name}.expect_calls"
            yield MockCallsGrader(name=label, command=command.name, expect_calls=command.expect_calls)


def refused(name: str, engine: Engine, tasks: Sequence[Task], place: Position) -> Iterator[Problem]:
    """Yield what keeps an engine from giving the mocks of the tasks to its agents."""
    if engine.mocks is None:
        return
    kinds = dict.fromkeys(_KINDS[kind] for task in tasks if task.mocks for kind in task.mocks if task.mocks[kind])
    for key in kinds:
        if key not in engine.mocks:
            yield place.at(key).problem(f"engine '{name}' cannot give its agents {key}")
        elif key == "mcp_mocks" and (missing := lacking()):
            yield place.at(key).problem(missing)
    own = getattr(engine, "mcp_servers", {})
    for server in {server["name"] for task in tasks for server in (task.mocks or {}).get("servers", ())}:
        if server in own:
            yield place.at("mcp_mocks").problem(f"'{server}' is the name of one of config.mcp_servers too")


def lacking(who: str = "mocked MCP servers need") -> str:
    """Return what must be installed before a server can be mocked; empty if it is there."""
    from importlib.metadata import PackageNotFoundError, version  # it loads the e-mail parser; only mocks need it

    try:
        found = version("mcp")
    except PackageNotFoundError:
        return f"{who} the package mcp; `pip install 'waza[mcp]'`"
    if int(found.partition(".")[0]) < _MCP_FROM:
        return f"{who} the package mcp {_MCP_FROM}, found {found}; `pip install 'waza[mcp]'`"
    return ""


def _twice(names: list[str], place: Position) -> Iterator[Problem]:
    for index, name in enumerate(names):
        if name in names[:index]:
            yield place.at(index, "name").problem(f"two mocks are called '{name}'")


def _fixture_tools(
    path: str, here: Position, folder: SpecFolder, problems: list[Problem]
) -> Iterator[tuple[str, MockTool]]:
    """Yield the tools in the JSON files below a folder."""
    try:
        root = folder.find(path)
        files = sorted(file for file in root.rglob("*.json") if _is_shown(file.relative_to(root)))
        if not files:
            raise ValueError(f"no JSON file in '{path}'")
        for file in files:
            if not file.resolve().is_relative_to(folder.root):
                raise ValueError(f"'{display_path(file)}' is a link that leaves the project's folder")
            yield from _tools_in(file, problems)
    except (ValueError, OSError) as error:
        problems.append(here.problem(str(error)))


def _is_shown(path: Path) -> bool:
    return not any(part.startswith(".") for part in path.parts)


def _tools_in(file: Path, problems: list[Problem]) -> Iterator[tuple[str, MockTool]]:
    try:
        data = parse_json(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"'{display_path(file)}' is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise ValueError(f"'{display_path(file)}' holds no tool: a mapping of keys is needed")
    tools = data["tools"] if isinstance(data.get("tools"), dict) else {file.stem: data}
    for name, tool in tools.items():
        place = Position(display_path(file), data, ("tools", name) if "tools" in data else ())
        found, wrong = parse(MockTool, tool, place)
        problems += wrong
        if found is not None:
            yield name, found


_INSTEAD = "leave continue_session out, and let a judge see more with needs: [tool_events, files]"
_WARNING = (
    "the agent itself judges in its own session (continue_session): it sees all, and it may be lenient with itself"
)


def session_problems(
    engine: str | None, graders: Mapping[str, Sequence[Grader]], place: Position, *, is_run: bool = False
) -> Iterator[Problem]:
    """Yield what keeps judges of a suite from going on in sessions of an engine, and a warning where they do."""
    names = sorted({grader.name for each in graders.values() for grader in each if grader.continues})
    if not names or not engine or not ENGINES.knows(engine):
        return
    cls: type[Engine] = ENGINES.load(engine)
    here = place.at("config", "executor")
    if not cls.continues:
        can = ", ".join(name.replace("_", "-") for name in ENGINES.built_in() if ENGINES.load(name).continues)
        fact = f"engine '{engine}' cannot let a judge go on in an agent's session, as {', '.join(names)} would"
        yield here.problem(f"{fact}; {_INSTEAD}; engines that can: {can}")
    elif missing := lacking("a judge in the agent's session needs"):
        yield here.problem(missing)
    elif not is_run:
        yield place.warning(f"{', '.join(names)}: {_WARNING}")
