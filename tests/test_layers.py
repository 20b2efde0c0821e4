"""Imports only go down: the floor, what holds hostile things, the plug-ins, specs, the runner, the command line."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "waza"
LAYERS = [
    {"compact", "errors", "model", "options", "plugins", "recording", "spending"},
    {"sandbox", "traces", "results"},
    {"judges", "graders", "engines", "mocks", "reports"},
    {"spec", "dashboard"},
    {"runner"},
    {"cli", "evaldeck", "pytest_plugin"},
]
HEIGHT = {room: height for height, rooms in enumerate(LAYERS) for room in rooms}
HEIGHT_OF_FACE = len(LAYERS)
"""Where the public names stand: they lead anywhere, so nothing below may take one from `waza` itself."""


def imported(file: str, node: ast.AST) -> list[str]:
    """The modules a statement in `file`, below `src/waza`, imports: `from a import b` may mean `a.b`."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    above = ["waza", *file.split("/")][: -node.level] if node.level else []
    module = ".".join([*above, *([node.module] if node.module else [])])
    return [f"{module}.{alias.name}" for alias in node.names]


def imports_upwards(file: str, source: str) -> list[str]:
    """The imports in `source`, standing in `file` below `src/waza`, that lead to a room above it."""
    own = HEIGHT[file.split("/")[0].removesuffix(".py")]
    wrong = []
    for node in ast.walk(ast.parse(source)):
        rooms = {name.split(".")[1] for name in imported(file, node) if name.startswith("waza.")}
        named = sorted(room for room in rooms if HEIGHT.get(room, HEIGHT_OF_FACE) > own and room != "__version__")
        wrong += [f"{file}:{node.lineno} imports {room}" for room in named]
    return wrong


FILES = sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))


@pytest.mark.parametrize("file", [file for file in FILES if file not in ("__init__.py", "__main__.py")])
def test_imports_only_go_down(file):
    assert imports_upwards(file, (SOURCE / file).read_text()) == []


UPWARD = [
    ("from waza.spec.load import load_spec", "spec"),
    ("from waza.spec import load", "spec"),
    ("import waza.spec.load as loading", "spec"),
    ("from waza import spec", "spec"),
    ("from waza import load_spec", "load_spec"),
    ("from .. import spec", "spec"),
    ("from ..spec.load import load_spec", "spec"),
    ("from ..spec import load", "spec"),
    ("def later():\n    from waza import runner", "runner"),
]


@pytest.mark.parametrize(("source", "room"), UPWARD)
def test_an_upward_import_would_be_seen(source, room):
    line = source.count("\n") + 1
    assert imports_upwards("graders/text.py", source) == [f"graders/text.py:{line} imports {room}"]


def test_what_goes_down_or_stays_is_fine():
    for source in ("from waza.model import Trace", "from . import _text", "from ..model import Trace", "import re"):
        assert imports_upwards("graders/text.py", source) == []


def test_nothing_hides_a_ring_behind_type_checking():
    assert [file for file in SOURCE.rglob("*.py") if "TYPE_CHECKING" in file.read_text()] == []
