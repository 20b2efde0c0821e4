"""Suites made for runner tests."""

import textwrap

import pytest


@pytest.fixture
def suite(tmp_path):
    """Write an eval.yaml (and other files) into a folder of its own and return the folder."""

    def write(text, **files):
        (tmp_path / ".waza.yaml").touch()
        (tmp_path / "eval.yaml").write_text(textwrap.dedent(text))
        for name, content in files.items():
            path = tmp_path / name.replace("__", ".")
            path.write_text(textwrap.dedent(content))
        return tmp_path

    return write
