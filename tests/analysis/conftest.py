"""What tests about people share: the command line in this process, with what a person types."""

import io
from typing import NamedTuple

import pytest

from waza.cli import run_command


class Done(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def waza(tmp_path, monkeypatch, capsys):
    """Call the command line as a person would who types `typed`, in an empty folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("WAZA_REVIEWER", raising=False)

    def call(*arguments, typed=""):
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        capsys.readouterr()
        code = run_command([str(argument) for argument in arguments])
        return Done(code, *capsys.readouterr())

    return call
