"""Imports only go down, no two modules import each other in a circle, and private modules stay in their package."""

import ast
import subprocess
from pathlib import Path

import pytest

from waza.plugins import Folder

SOURCE = Path(__file__).parent.parent / "src" / "waza"
LAYERS = [
    {"errors", "model", "options", "plugins", "compact", "recording", "spending"},
    {"untrusted", "process", "files"},
    {"skills", "traces", "stats"},
    {"runs"},
    {"judges"},
    {"graders"},
    {"engines"},
    {"suites"},
    {"runner"},
    {"analysis"},
    {"reports"},
    {"server"},
    {"cli", "evaldeck", "pytest_plugin"},
]
HEIGHT = {package: height for height, packages in enumerate(LAYERS) for package in packages}
HEIGHT_OF_PUBLIC_NAMES = len(LAYERS)
"""`waza` itself re-exports from everywhere, so nothing below may import a public name from it."""
FILES = sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))


def imported(file: str, node: ast.AST) -> list[str]:
    """Return the modules a statement in `file`, below `src/waza`, imports: `from a import b` may mean `a.b`."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    above = ["waza", *file.split("/")][: -node.level] if node.level else []
    module = ".".join([*above, *([node.module] if node.module else [])])
    return [f"{module}.{alias.name}" for alias in node.names]


def imports_upwards(file: str, source: str) -> list[str]:
    """Return the imports in `source`, the text of `file` below `src/waza`, that lead to a package above it."""
    own = HEIGHT[file.split("/")[0].removesuffix(".py")]
    wrong = []
    for node in ast.walk(ast.parse(source)):
        packages = {name.split(".")[1] for name in imported(file, node) if name.startswith("waza.")}
        named = sorted(one for one in packages - {"__version__"} if HEIGHT.get(one, HEIGHT_OF_PUBLIC_NAMES) > own)
        wrong += [f"{file}:{node.lineno} imports {package}" for package in named]
    return wrong


def private_imports(file: str, source: str) -> list[str]:
    """Return the imports in `source` of underscore modules that belong to another package."""
    package, wrong = ["waza", *file.split("/")[:-1]], []
    for node in ast.walk(ast.parse(source)):
        for name in imported(file, node):
            parts = name.split(".")
            private = [i for i, part in enumerate(parts) if part.startswith("_") and not part.startswith("__")]
            is_module = private and (SOURCE / "/".join(parts[1 : private[0] + 1])).with_suffix(".py").exists()
            if parts[0] == "waza" and is_module and parts[: private[0]] != package[: private[0]]:
                wrong.append(f"{file}:{node.lineno} imports {name}")
    return wrong


def late_imports_without_reason(file: str, source: str) -> list[str]:
    """Return the imports of our modules in functions, and the `TYPE_CHECKING` blocks, that give no reason on the line.

    Both keep start-up fast; neither hides a circle, as `module_imports` reads them too.
    """
    lines, found = source.splitlines(), set[int]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = [part for part in ast.walk(node) if isinstance(part, ast.ImportFrom)]
            found |= {part.lineno for part in inner if (part.module or "").startswith("waza")}
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            found.add(node.lineno)
    return [f"{file}:{line}" for line in sorted(found) if "#" not in lines[line - 1]]


def rings(imports: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that reach each other by imports (Tarjan's strongly connected components)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        stack.append(module)
        for target in imports.get(module, ()):
            if target not in number:
                visit(target)
                lowest[module] = min(lowest[module], lowest[target])
            elif target in stack:
                lowest[module] = min(lowest[module], number[target])
        if lowest[module] == number[module]:
            group = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(group) > 1:
                found.append(sorted(group))

    for module in sorted(imports):
        if module not in number:
            visit(module)
    return found


def module_imports() -> dict[str, set[str]]:
    """Return which module imports which, wherever the statement is; a package's `__init__` only as a target."""
    names = {file.removesuffix(".py").replace("/", "."): file for file in FILES}
    found: dict[str, set[str]] = {}
    for name, file in names.items():
        targets: set[str] = set()
        for node in ast.walk(ast.parse((SOURCE / file).read_text())):
            for target in imported(file, node):
                inner = target.removeprefix("waza.")
                targets |= {inner} & names.keys() or {inner.rpartition(".")[0]} & names.keys()
        found[name] = targets - {name, "__init__"}
    return found


@pytest.mark.parametrize("file", [file for file in FILES if file not in ("__init__.py", "__main__.py")])
def test_imports_only_go_down(file):
    source = (SOURCE / file).read_text()
    assert imports_upwards(file, source) == []
    assert private_imports(file, source) == []
    assert late_imports_without_reason(file, source) == []


def test_no_modules_import_each_other_in_a_circle():
    assert rings(module_imports()) == []


def test_a_circle_would_be_found():
    assert rings({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


UPWARD = [
    ("from waza.suites.load import load_spec", "suites"),
    ("from waza.suites import load", "suites"),
    ("import waza.suites.load as loading", "suites"),
    ("from waza import suites", "suites"),
    ("from waza import load_spec", "load_spec"),
    ("from .. import suites", "suites"),
    ("from ..suites.load import load_spec", "suites"),
    ("from ..suites import load", "suites"),
    ("def later():\n    from waza import runner", "runner"),
]


@pytest.mark.parametrize(("source", "package"), UPWARD)
def test_an_upward_import_would_be_found(source, package):
    line = source.count("\n") + 1
    assert imports_upwards("graders/text.py", source) == [f"graders/text.py:{line} imports {package}"]


def test_a_private_import_would_be_found():
    source = "from waza.graders._jury import x"
    assert private_imports("suites/load.py", source) == ["suites/load.py:1 imports waza.graders._jury.x"]
    assert private_imports("graders/text.py", source) == []


def test_what_goes_down_or_stays_is_fine():
    for source in ("from waza.model import Trace", "from . import _text", "from ..model import Trace", "import re"):
        assert imports_upwards("graders/text.py", source) == []


def test_a_late_import_without_a_reason_would_be_found():
    source = "def f():\n    from waza.model import Run\n\n    from waza.model import Task  # slow\n"
    assert late_imports_without_reason("a.py", source + "if TYPE_CHECKING:\n    pass\n") == ["a.py:2", "a.py:5"]


@pytest.mark.skipif(not (SOURCE.parents[1] / ".git").exists(), reason="not a checkout")
def test_no_source_file_is_ignored_by_git():
    """The build leaves ignored files out of the wheel, and ruff does not check them."""
    command = ["git", "check-ignore", "--no-index", *(f"src/waza/{file}" for file in FILES)]
    done = subprocess.run(command, cwd=SOURCE.parents[1], capture_output=True, text=True, timeout=60)
    assert done.stdout == ""


PLUGINS = {"graders": "Grader", "engines": "Engine", "judges": "Judge", "reports": "Report", "traces": "Reader"}
UNTESTED_BY_NAME = {
    "engines": {
        "claude_agent_sdk",
        "claude_code",
        "codex",
        "copilot",
        "copilot_sdk",
        "gemini",
        "opencode",
        "pi",
        "qwen",
    },
    "judges": {"anthropic", "openai", "scripted"},
    "process": {"descendants", "isolation_probes", "linux_sandbox", "protocol", "question_program", "question_worker"},
    "files": {"disk", "paths", "pinned", "tree"},
    "runs": {"canaries", "folder", "impact", "impact_records", "judge_card", "outcomes", "partial", "records"}
    | {
        "remote_store",
        "results_json",
        "retention",
        "start_order",
        "tasks",
        "trigger_catalogue",
        "triggers",
        "verdicts",
    },
}
"""Modules whose tests are in files of other names: `test_agents.py`, `test_sdk.py`, `test_store.py` and others."""


def modules_and_tested(package: str) -> tuple[set[str], set[str]]:
    """Return the plug-ins of a package, or all of its modules if it has none, and which of them have a test file."""
    if package in PLUGINS:
        modules = set(Folder(package, PLUGINS[package]).built_in())
    else:
        modules = {path.stem for path in (SOURCE / package).glob("*.py")} - {"__init__"}
    tests = Path(__file__).parent / package
    return modules, {name for name in modules if (tests / f"test_{name}.py").exists()}


@pytest.mark.parametrize("package", [*PLUGINS, "untrusted", "process", "files", "runs", "stats"])
def test_every_plugin_and_module_has_a_test_file_of_its_name(package):
    modules, tested = modules_and_tested(package)
    assert modules
    assert modules - tested == UNTESTED_BY_NAME.get(package, set())
