"""A folder in memory, where the system has one: what these tests ask of a sync does not depend on a slow disk."""

import shutil
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def quick_folder(tmp_path):
    if not Path("/dev/shm").is_dir():
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="waza-test-", dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder)
