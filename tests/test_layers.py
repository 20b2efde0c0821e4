"""Imports only go down: the floor, what holds hostile things, the plug-ins, specs, the runner, the command line."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "waza"
LAYERS = [
    {"errors", "model", "options", "plugins", "recording"},
    {"sandbox", "traces", "results"},
    {"judges", "graders", "engines", "reports"},
    {"spec", "web"},
    {"runner"},
    {"cli", "evaldeck", "pytest_plugin"},
]
HEIGHT = {room: height for height, rooms in enumerate(LAYERS) for room in rooms}


def imports_upwards(file: str, source: str) -> list[str]:
    """The imports in `source`, standing in `file` below `src/waza`, that lead to a room above it."""
    own = HEIGHT[file.split("/")[0].removesuffix(".py")]
    wrong = []
    for node in ast.walk(ast.parse(source)):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        rooms = [name.split(".")[1] for name in names if name.startswith("waza.")]
        wrong += [f"{file}:{node.lineno} imports {room}" for room in rooms if HEIGHT[room] > own]
    return wrong


FILES = sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))


@pytest.mark.parametrize("file", [file for file in FILES if file not in ("__init__.py", "__main__.py")])
def test_imports_only_go_down(file):
    assert imports_upwards(file, (SOURCE / file).read_text()) == []


def test_an_upward_import_would_be_seen():
    upward = "from waza.spec.load import load_spec"
    assert imports_upwards("graders/text.py", upward) == ["graders/text.py:1 imports spec"]


def test_nothing_hides_a_ring_behind_type_checking():
    assert [file for file in SOURCE.rglob("*.py") if "TYPE_CHECKING" in file.read_text()] == []
